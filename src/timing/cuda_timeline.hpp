// The anchors of one CUDA context: events whose times are known on the host's clock.
//
// Belongs to an EventClock. An anchor is recorded on a stream of its own and polled until it
// completes; the tightest of several tries is kept. Anchors of the last two minutes keep their
// events, so that spans are measured from a near one: a distance of 2 s is rounded to 122 ns, one
// of 20 s to 2 us. Their place on the host's clock is kept for ten minutes.
//
// Any thread; one lock, held over no driver call. A thread that takes an anchor holds `busy_`, and
// others wait for it. A driver failure becomes one warning, and there are no more anchors.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include "driver/cuda_events.hpp"
#include "timing/clock_map.hpp"
#include "timing/sample.hpp"
#include "timing/timeline.hpp"

namespace gpuprof::timing {

// Given to EventClock::destroy_later() with its last owner.
struct AnchorEvent {
  explicit AnchorEvent(EventClock& of_clock);  // driver::Error
  AnchorEvent(const AnchorEvent&) = delete;
  AnchorEvent& operator=(const AnchorEvent&) = delete;
  ~AnchorEvent();

  EventClock& clock;
  CUevent handle = nullptr;
  HostNanoseconds over = 0;  // when the host saw it complete
};

class CudaTimeline {
 public:
  using Events = std::deque<std::shared_ptr<const AnchorEvent>>;

  // The anchor that a caller measured from last, kept alive by the caller.
  struct Held {
    std::shared_ptr<const AnchorEvent> event;
    std::uint32_t number = 0;
    std::uint32_t noted = 0;  // the number that was asked for
    bool tried = false;       // to take the first anchor
  };

  CudaTimeline(const driver::Table& table, EventClock& clock) noexcept
      : table_(table), clock_(clock) {}
  CudaTimeline(const CudaTimeline&) = delete;
  CudaTimeline& operator=(const CudaTimeline&) = delete;

  // The number of the newest anchor, 0 without one. Takes the first one if nobody has tried yet,
  // which takes half a millisecond.
  std::uint32_t newest() noexcept;

  // Takes an anchor. The context must be alive.
  void refresh() noexcept;

  // Sets the sample's `gpu_begin`, if timeline::wanted. The start event must be complete and still
  // the sample's. False if the driver or the context is gone.
  bool mark(Sample& sample, Held& held, const driver::EventAccess& access) noexcept;

  timeline::Placement place(const GpuMark& mark, timeline::HostMoment& moment) noexcept;

  // Forgets all anchors: unless they are wanted again, and later ones may be taken, or for good.
  void forget(bool for_good) noexcept;
  // For a lost context: forgets all anchors without a driver call. Gives their events.
  Events lose() noexcept;

 private:
  struct Sighting;

  void take_first() noexcept;
  void take(HostNanoseconds patience) noexcept;
  Sighting observe(HostNanoseconds patience);
  bool await(Sighting& found, HostNanoseconds until, HostNanoseconds nap_from);
  void append(const Sighting& found);
  void release() noexcept;
  void stop(const driver::Error& error) noexcept;
  void hold(std::uint32_t noted, Held& held) noexcept;
  void hold_nearest(double ms, Held& held) noexcept;
  static CUresult measure(const Sample& sample, const Held& held, const driver::EventAccess& access,
                          double& ms) noexcept;

  const driver::Table& table_;
  EventClock& clock_;
  std::atomic<std::uint32_t> newest_{0};
  std::atomic<bool> tried_{false};
  std::atomic<bool> stopped_{false};

  SpinFlag busy_;  // guards the next four
  CUstream stream_ = nullptr;
  std::shared_ptr<AnchorEvent> spare_;
  HostNanoseconds narrowest_ = 0;  // bracket seen lately; 0: none
  bool has_waited_ = false;        // long for the first anchor, while spans were read

  std::mutex mutex_;  // of what follows
  ClockMap map_;
  Events events_;  // of the map's newest anchors
};

}  // namespace gpuprof::timing
