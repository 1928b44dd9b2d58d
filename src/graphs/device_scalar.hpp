// One number in device memory, written by calls that carry the value themselves.
//
// A kernel in a graph reads its scalar arguments as they were at the capture; one that reads them
// from a DeviceScalar gets what was written last. update() puts a write on a stream and returns: no
// host memory has to outlive it, and work queued on that stream afterwards sees the new value, all
// of it, work queued before it the old one. Launches of graphs that read it wait for the last
// update, see CapturedGraph::read_scalar(). Other streams must be ordered by whoever uses them.
//
// The number lies in the context of the stream that it was made with, at an address that stays its
// own, 256-byte aligned, until the scalar and everybody who holds memory() are gone. It is not used
// for anything else before the GPU has done all work that was queued in that context until then.
// Destruction makes no driver call.
//
// Any thread, any number at once: concurrent updates land in the order in which the streams run
// them. Streams are CUDA stream handles as integers; the caller keeps them alive, the one of the
// last update for as long as reading() and order_before() may be called, also by launches. Errors
// are driver::Error.
// None of the functions breaks anybody's capture.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "graphs/device_scalar_type.hpp"
#include "timing/clock.hpp"

namespace gpuprof::timing {
class EventClock;
}

namespace gpuprof::graphs {

class DeviceScalar : public std::enable_shared_from_this<DeviceScalar> {
 public:
  // One read of the number: polled until the stream has come to it, then fetched. Waits nowhere but
  // in fetch(), and there for the copy alone. For one thread.
  class Reading {
   public:
    struct State;
    explicit Reading(std::unique_ptr<State> state) noexcept;
    Reading(Reading&& other) noexcept;
    Reading(const Reading&) = delete;
    Reading& operator=(const Reading&) = delete;
    ~Reading();

    // Polls until the stream has come to the read, or until `until` (host clock); whether it has.
    bool poll(timing::HostNanoseconds until);

    // Once poll() answered true.
    [[nodiscard]] std::uint64_t fetch();

   private:
    std::unique_ptr<State> state_;
  };

  // Takes memory and writes the first value on `stream`. `ordinal` is the device of a default
  // stream on a thread without a context. Refused (kInvalidState) where the stream is being
  // captured.
  DeviceScalar(const ScalarFormat& format, std::uint64_t bits, std::uintptr_t stream, int ordinal);
  DeviceScalar(const DeviceScalar&) = delete;
  DeviceScalar& operator=(const DeviceScalar&) = delete;
  ~DeviceScalar();

  // Writes the low bytes of `bits` in `stream`'s order. On a stream that is being captured this is
  // refused (kInvalidState) unless `record`: then it becomes a node that writes this value at each
  // replay. Returns whether it was recorded into a capture.
  bool update(std::uint64_t bits, std::uintptr_t stream, bool record);

  // Begins a read that comes after all that is queued on `stream` now.
  [[nodiscard]] Reading reading(std::uintptr_t stream) const;

  // Makes what `stream` does from now on wait for the last update. `refusal` is the error's text
  // (kInvalidState) where one of the two streams is being captured.
  void order_before(std::uintptr_t stream, const char* refusal) const;

  [[nodiscard]] const ScalarFormat& format() const noexcept { return format_; }
  [[nodiscard]] std::uint64_t address() const noexcept { return address_; }
  [[nodiscard]] int ordinal() const noexcept;
  // The stream of the newest update that was not recorded into a capture.
  [[nodiscard]] std::uintptr_t last_stream() const noexcept {
    return last_stream_.load(std::memory_order_relaxed);
  }
  // Whether that is `stream` for sure: the per-thread default one has one handle for all threads.
  [[nodiscard]] bool surely_updated_on(std::uintptr_t stream) const noexcept;
  // How many updates there were, the first write among them.
  [[nodiscard]] std::uint32_t updates() const noexcept {
    return updates_.load(std::memory_order_acquire);
  }
  [[nodiscard]] const timing::EventClock& clock() const noexcept { return *clock_; }
  // Keeps the address from being used for anything else. To be dropped on any thread.
  [[nodiscard]] std::shared_ptr<void> memory() const noexcept { return memory_; }

 private:
  const ScalarFormat& format_;
  const std::uint32_t generation_;  // of the process
  timing::EventClock* clock_ = nullptr;
  std::shared_ptr<void> memory_;
  std::uint64_t address_ = 0;
  std::atomic<std::uintptr_t> last_stream_{0};
  std::atomic<std::uint32_t> updates_{0};  // those by several threads at once may count as one
  std::atomic<bool> in_halves_{false};     // the device has no 64-bit write

  void check_usable() const;
  void check_stream(std::uintptr_t stream) const;
  void write(std::uint64_t bits, std::uintptr_t stream);
};

// The scalars of the clock's context whose last update was on `stream`.
std::vector<std::shared_ptr<const DeviceScalar>> scalars_updated_on(const timing::EventClock& clock,
                                                                    std::uintptr_t stream);

// Frees the memory of contexts in which no scalar is left. Waits for the GPU, as freeing does.
void release_idle_scalars() noexcept;

}  // namespace gpuprof::graphs
