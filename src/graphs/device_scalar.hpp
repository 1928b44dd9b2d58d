// One number in device memory, written by driver calls that carry the value themselves.
//
// A kernel in a graph gets its scalar arguments as they were at the capture; one that reads a
// DeviceScalar gets the value written last. update() queues a write on a stream and returns: later
// work on that stream sees the new value, earlier work the old one, and no host memory has to stay
// alive. Launches of graphs that read the scalar wait for the last update (see
// CapturedGraph::read_scalars()). The caller orders other streams.
//
// The number is in the context of the stream that it was made with, at a fixed address, 256-byte
// aligned. The address is not used for anything else until the scalar and all holders of memory()
// are gone and the GPU has done the work queued in the context until then. Destruction makes no
// driver call.
//
// Any thread. Concurrent updates take effect in the order in which their streams run them. Streams
// are CUDA stream handles as integers, kept alive by the caller: that of the last update as long as
// reading(), order_before() or launches may use it. Errors are driver::Error. None of the functions
// breaks a capture.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "timing/clock.hpp"

namespace gpuprof::timing {
class EventClock;
}

namespace gpuprof::graphs {

class DeviceScalar : public std::enable_shared_from_this<DeviceScalar> {
 public:
  // One read of the number: poll until the stream has reached it, then fetch. Only fetch() waits,
  // for the copy alone. For one thread.
  class Reading {
   public:
    struct State;
    explicit Reading(std::shared_ptr<State> state) noexcept : state_(std::move(state)) {}

    // Polls until `until` (host clock). Returns whether the stream has reached the read.
    bool poll(timing::HostNanoseconds until);

    // Only after poll() returned true. The number's bytes are the low ones.
    [[nodiscard]] std::uint64_t fetch();

   private:
    std::shared_ptr<State> state_;
  };

  // Takes memory for a number of `bytes` (1, 2, 4 or 8) and writes the first value on `stream`.
  // `ordinal` is the device of a default stream on a thread without a context. kInvalidState where
  // the stream is being captured.
  DeviceScalar(std::size_t bytes, std::uint64_t bits, std::uintptr_t stream, int ordinal);
  ~DeviceScalar();

  // Queues a write of the low bytes of `bits` on `stream`. On a stream that is being captured:
  // kInvalidState, or with `record` a node that writes this value at each replay. Returns whether
  // it was recorded into a capture.
  bool update(std::uint64_t bits, std::uintptr_t stream, bool record);

  // Begins a read of the number as it is after the work queued on `stream` now.
  [[nodiscard]] Reading reading(std::uintptr_t stream) const;

  // Makes later work on `stream` wait for the last update. `refusal` is the text of the error
  // (kInvalidState) where one of the two streams is being captured.
  void order_before(std::uintptr_t stream, const char* refusal) const;

  [[nodiscard]] std::uint64_t address() const noexcept {
    return reinterpret_cast<std::uintptr_t>(memory_.get());
  }
  [[nodiscard]] int ordinal() const noexcept;
  // The stream of the newest update that was not recorded into a capture.
  [[nodiscard]] std::uintptr_t last_stream() const noexcept {
    return last_stream_.load(std::memory_order_relaxed);
  }
  // Whether that is certainly `stream`: the per-thread default streams share one handle.
  [[nodiscard]] bool surely_updated_on(std::uintptr_t stream) const noexcept;
  // How many updates there were, including the first write.
  [[nodiscard]] std::uint32_t updates() const noexcept {
    return updates_.load(std::memory_order_acquire);
  }
  [[nodiscard]] timing::EventClock& clock() const noexcept { return *clock_; }
  // The address, which is reserved as long as this is held. May be dropped on any thread.
  [[nodiscard]] std::shared_ptr<void> memory() const noexcept { return memory_; }

  // Whether one was ever written on a per-thread default stream, which its own thread alone can
  // name: another one cannot order a launch after it.
  static inline std::atomic<bool> any_on_per_thread_stream{false};

 private:
  const std::size_t bytes_;
  timing::EventClock* clock_ = nullptr;
  std::shared_ptr<void> memory_;
  std::atomic<std::uintptr_t> last_stream_{0};
  std::atomic<std::uint32_t> updates_{0};
  std::atomic<bool> in_halves_{false};  // the device has no 64-bit write

  void check_stream(std::uintptr_t stream) const;
  void write(std::uint64_t bits, std::uintptr_t stream);
};

// The scalars of that context whose last update was on `stream`.
std::vector<std::shared_ptr<const DeviceScalar>> scalars_updated_on(const timing::EventClock& clock,
                                                                    std::uintptr_t stream);

// Frees the memory of contexts without scalars. Waits for the GPU, as cuMemFree does.
void release_idle_scalars() noexcept;

}  // namespace gpuprof::graphs
