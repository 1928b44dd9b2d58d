// A thread that calls a function 100 times a second, at moments that follow no program's rhythm.
//
// Time is cut into slots of 10 ms, and each but the first has one call, at a place in it that goes
// from slot to slot by the golden ratio: so what a loop does for a share of its time gets that
// share of the calls, also where the loop takes a slot or a multiple of it. Calls that come late
// are made once. It starts with the object; the destructor waits for a call under way and joins it,
// except in a forked child, where it does not exist. What it gets wrong: the share of n calls that
// come at random is right within about 1/sqrt(n).
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
