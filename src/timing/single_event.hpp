// One event that the caller records, waits for and compares with others.
//
// The event is made at the first record. Once it has been recorded, any thread may use it. Failures
// throw driver::Error. In a stream capture a record is a dependency of the graph, as with
// cuEventRecord, and has no time; of an external one, a record and a wait are nodes, which each
// replay runs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "timing/clock.hpp"

namespace gpuprof::timing {

class OwnEvent;

class SingleEvent {
 public:
  explicit SingleEvent(bool external = false) noexcept : external_(external) {}
  SingleEvent(const SingleEvent&) = delete;
  SingleEvent& operator=(const SingleEvent&) = delete;

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

  // Milliseconds from this event to `end`, both reached. Throws kInvalidState where one is not, or
  // belongs to another context, and std::invalid_argument where one was never recorded.
  [[nodiscard]] double elapsed_ms(const SingleEvent& end) const;

  [[nodiscard]] bool recorded() const noexcept { return event_ != nullptr; }
  [[nodiscard]] std::uintptr_t handle() const noexcept;       // 0 where it was never recorded
  [[nodiscard]] std::optional<int> ordinal() const noexcept;  // of its device

 private:
  void refuse_after_fork() const;

  const bool external_;
  std::shared_ptr<const OwnEvent> event_;  // from the first record on
};

}  // namespace gpuprof::timing
