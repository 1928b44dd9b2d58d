// A thread that calls a function 100 times a second, at moments that follow no program's rhythm.
//
// Time is cut into slots of 10 ms, and each but the first has one call, at a random place in it: so
// what a loop does for a share of its time gets that share of the calls, whatever its period is.
// Calls that come late are made once; one that comes more than 1 ms late is left out, as no CPU was
// free before, and CPUs get free when programs change what they do. After ten of these in a row one
// is made in any case. It starts with the object; the destructor waits for a call under way and
// joins it, except in a forked child, where it does not exist. What it gets wrong: the share of n
// calls is right within about 1/sqrt(n).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "driver/process.hpp"
#include "timing/clock.hpp"

namespace gpuprof::timing {

class Ticker {
 public:
  static constexpr HostNanoseconds kSlot = 10'000'000;

  // `call` returns false to be called no more, and must not throw. `name` is the thread's. Throws
  // std::system_error.
  Ticker(const char* name, std::function<bool()> call);
  Ticker(const Ticker&) = delete;
  Ticker& operator=(const Ticker&) = delete;
  ~Ticker();

 private:
  struct State;
  std::unique_ptr<State, driver::EndService> state_;
};

}  // namespace gpuprof::timing
