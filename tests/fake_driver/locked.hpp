// The lock for the length of a control function.
#pragma once

#include "state.hpp"

namespace fakecuda {

class Locked {
 public:
  Locked() { lock(); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  ~Locked() { leave(); }
};

}  // namespace fakecuda
