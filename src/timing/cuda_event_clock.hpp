// The events of one CUDA context: a pool of event pairs, and the spans whose GPU time is pending.
//
// Pairs are made in batches, reused last in first out (the same few stay in the caches), and never
// destroyed on a hot path. A pair in use belongs to exactly one sample. Finished spans are read
// with cuEventElapsedTime alone, which is safe in any stream capture. At most kMaxPairs exist, so
// at most that many spans are pending.
//
// Any thread; one lock, held over no driver call. One that contexts::find() gave is never
// destroyed, because samples and thread-local caches point at it. When its context is lost, it
// drops its events without touching them and fails the pending spans.
//
// What it gets wrong: an interval holds everything between two records on a stream, gaps included.
// On an idle stream that includes the launch latency: several microseconds.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "driver/cuda_events.hpp"
#include "timing/cuda_timeline.hpp"
#include "timing/device.hpp"
#include "timing/sample.hpp"

namespace gpuprof::timing {

struct EventPair {
  CUevent start = nullptr;
  CUevent end = nullptr;
};

class EventClock {
 public:
  static constexpr std::size_t kMaxPairs = 4096;

  // `retained`: this object holds a reference to the device's primary context.
  EventClock(const driver::Table& table, CUcontext context, unsigned long long id, int ordinal,
             bool retained) noexcept
      : table_(table), context_(context), id_(id), ordinal_(ordinal), retained_(retained) {}
  EventClock(const EventClock&) = delete;
  EventClock& operator=(const EventClock&) = delete;

  [[nodiscard]] CUcontext context() const noexcept { return context_; }
  [[nodiscard]] unsigned long long id() const noexcept { return id_; }
  [[nodiscard]] int ordinal() const noexcept { return ordinal_; }
  [[nodiscard]] bool retained() const noexcept { return retained_; }
  [[nodiscard]] bool lost() const noexcept { return lost_.load(std::memory_order_acquire); }

  // Where this context's GPU times lie on the host's clock.
  [[nodiscard]] CudaTimeline& timeline() noexcept { return timeline_; }

  // The permission to call the driver on this clock's events. Empty while the driver is blocked,
  // and once the context is not the one that the events were made in: then they are lost. One cheap
  // driver call.
  std::optional<driver::EventAccess> try_access() noexcept {
    if (lost()) return {};
    auto access = driver::EventAccess::ask(table_, context_, id_);
    if (!access) note_loss();
    return access;
  }
  // The same, or throws the reason as driver::Error.
  driver::EventAccess access() {
    if (const auto access = try_access()) return *access;
    throw_loss();
  }

  bool check_alive() noexcept { return try_access().has_value(); }

  // Takes a pair out of the pool, or makes one. False if kMaxPairs are in use. Throws
  // driver::Error.
  bool take(EventPair& pair);
  void give_back(EventPair pair) noexcept;

  // One pair more or fewer stays with a Timer, whose work nobody can tell to be under way.
  void note_kept(int change) noexcept { kept_.fetch_add(change, std::memory_order_relaxed); }

  // As device::work_left(), of this context.
  device::Work work_left(std::vector<std::uintptr_t>& threads);

  // Events outside of the pool. make_event() throws driver::Error. While another thread's call
  // waits for room in a stream's queue, making or destroying an event waits, too. So
  // destroy_later() only notes an event, which is destroyed by the next call that makes one, or by
  // destroy_dead() or destroy_idle(). What calls these lets Python's lock go first.
  CUevent make_event(unsigned flags);
  void destroy_later(CUevent event) noexcept;
  void destroy_dead() noexcept;

  // While something other than an event pair holds the context, release_idle() does not release it.
  void hold() noexcept { holders_.fetch_add(1, std::memory_order_relaxed); }
  void let_go() noexcept { holders_.fetch_sub(1, std::memory_order_release); }

  // Queues a sample whose end this thread has recorded; takes ownership of one reference.
  void push(Sample* sample);

  // Reads and delivers finished samples, of all queues; after another thread that is doing that.
  void drain() noexcept;
  // The same of one queue (Sample::queue), unless another thread is doing that.
  void drain(std::uintptr_t queue) noexcept;

  // The end event of a pending sample; null if it is not pending any more.
  CUevent pending_end(const Sample& sample) noexcept;

  // Notes an error of a driver call on this context. If the context is gone or the driver poisoned,
  // the pending samples fail: now, or at the end of the drain under way.
  void note_failure(const driver::Error& error) noexcept;

  void append_tails(std::vector<SampleRef>& tails);
  void append_counts(std::vector<device::PendingCount>& counts);

  // Destroys the events that nobody uses. Returns how many pairs are in use.
  std::size_t destroy_idle() noexcept;

 private:
  struct Queue {
    Sample* head = nullptr;
    Sample* tail = nullptr;
    std::size_t size = 0;
    std::size_t next_try = kFirstTry;  // the size at which a push drains
    std::uintptr_t thread = 0;         // of the last push
  };
  static constexpr std::size_t kFirstTry = 16;
  static constexpr std::size_t kBatch = 32;
  static constexpr std::size_t kMakeAtOnce = 16;
  static constexpr std::size_t kIdleQueues = 64;
  static constexpr int kTries = 8;

  bool pop_free(EventPair& pair) noexcept;
  void note_loss() noexcept;
  [[noreturn]] void throw_loss();
  [[nodiscard]] EventPair make_pair(const driver::EventAccess& access) const;
  bool make_pairs();
  void drain_and_unlock() noexcept;
  void drain_queue(Queue& queue, const driver::EventAccess& access) noexcept;
  bool read_batch(Queue& queue, const driver::EventAccess& access) noexcept;
  void pop_finished(Queue& queue, Sample* const* batch, std::size_t count) noexcept;
  void finish_drain() noexcept;
  void fail_pending(const driver::Error& error) noexcept;
  Queue* find_queue(std::uintptr_t queue) noexcept;
  void forget_empty_queues() noexcept;
  void forget_if_empty(std::uintptr_t queue) noexcept;

  const driver::Table& table_;
  const CUcontext context_;
  const unsigned long long id_;
  const int ordinal_;
  const bool retained_;
  std::atomic<bool> lost_{false};
  CudaTimeline timeline_{table_, *this};
  SpinFlag draining_;  // held by the thread that drains; released by finish_drain()
  SpinFlag mutex_;     // of what follows; never held over a driver call
  std::vector<EventPair> free_;
  std::vector<CUevent> dead_;  // to be destroyed
  std::size_t made_ = 0;       // pooled pairs, in the pool or in use
  std::atomic<std::size_t> holders_{0};
  std::atomic<int> kept_{0};
  std::shared_ptr<const driver::Error> loss_;
  std::unordered_map<std::uintptr_t, Queue> queues_;  // by Sample::queue
  // The queue of the last push, which is the next one's in a loop; null after any was erased.
  std::uintptr_t last_key_ = 0;
  Queue* last_queue_ = nullptr;
};

// An event outside of the pool: of a node of a graph, after a graph's launches, or of a caller that
// records it by hand. One of the pool would read its old time until the graph runs. Holds its
// clock.
//
// A launch of a graph whose event was destroyed may crash, so an event has several owners: who
// reads it and, from its record on, the graph being captured. The last owner destroys it, on any
// thread; not in a forked child, and not when the context is lost.
class OwnEvent {
 public:
  // Throws driver::Error.
  explicit OwnEvent(EventClock& clock, unsigned flags = CU_EVENT_DEFAULT);
  OwnEvent(const OwnEvent&) = delete;
  OwnEvent& operator=(const OwnEvent&) = delete;
  ~OwnEvent();

  [[nodiscard]] CUevent handle() const noexcept { return handle_; }
  [[nodiscard]] EventClock& clock() const noexcept { return clock_; }

 private:
  EventClock& clock_;
  const CUevent handle_;
};

// The events of a span in the capture that has this number of the driver's.
struct GraphEvents {
  GraphEvents(EventClock& clock, unsigned long long in) : start(clock), end(clock), capture(in) {}

  const OwnEvent start;
  const OwnEvent end;
  const unsigned long long capture;
};

}  // namespace gpuprof::timing
