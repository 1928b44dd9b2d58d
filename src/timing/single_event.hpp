// One event that the caller records, waits for and compares with others.
//
// It borrows an event of the context's pool at its first record, so that a lost context, a forked
// child and the end of the process are met as for every span. Once it has been recorded, any thread
// may use it. Failures throw driver::Error; the destructor never throws. In a stream capture a
// record is a dependency of the graph, as with cuEventRecord, and has no time.
#pragma once

#include <cstdint>

#include "timing/clock.hpp"

namespace gpuprof::timing {

class EventClock;

class SingleEvent {
 public:
  SingleEvent() = default;
  SingleEvent(const SingleEvent&) = delete;
  SingleEvent& operator=(const SingleEvent&) = delete;
  ~SingleEvent() { give_back(); }

  // Records it on `stream`; `ordinal` is the device of a default stream on a thread without a
  // context. Recording twice moves it. False, and nothing done, where it has been recorded in
  // another context: that takes another one.
  bool record(std::uintptr_t stream, int ordinal);

  // Whether the GPU has reached it; true where it was never recorded. One driver call.
  [[nodiscard]] bool is_reached() const;

  // Waits for it at most until `until`; false if the GPU has not reached it by then.
  [[nodiscard]] bool wait(HostNanoseconds until) const;

  // Lets later work of `stream` wait for it. Does nothing where it was never recorded.
  void let_wait(std::uintptr_t stream, int ordinal) const;

  // Milliseconds from this event to `end`, both reached. Throws kInvalidState where one is not, was
  // never recorded, or belongs to another context.
  [[nodiscard]] double elapsed_ms(const SingleEvent& end) const;

  [[nodiscard]] bool recorded() const noexcept { return event_ != nullptr; }
  [[nodiscard]] std::uintptr_t handle() const noexcept {
    return reinterpret_cast<std::uintptr_t>(event_);
  }

 private:
  void give_back() noexcept;
  void refuse_after_fork() const;

  EventClock* clock_ = nullptr;
  void* event_ = nullptr;         // CUevent
  void* spare_ = nullptr;         // the other one of its pair
  std::uint32_t generation_ = 0;  // of the process that recorded it
};

}  // namespace gpuprof::timing
