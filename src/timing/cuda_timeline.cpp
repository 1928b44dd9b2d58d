#include "timing/cuda_timeline.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "driver/cuda_thread_state.hpp"
#include "timing/cuda_contexts.hpp"
#include "timing/cuda_event_clock.hpp"
#include "timing/device.hpp"

namespace gpuprof::timing {

using driver::check;
using driver::Error;
using timeline::HostMoment;
using timeline::Placement;

namespace {

constexpr int kTries = 50;
constexpr int kLooks = 50;                    // at least: this thread may not have run meanwhile
constexpr HostNanoseconds kBudget = 500'000;  // for all tries together
// For the first of them, where other processes have the GPU: it serves them in turns.
constexpr HostNanoseconds kLongPatience = 100'000'000;
constexpr HostNanoseconds kSeenWithin = 50'000;  // after an event completed, a query says so
constexpr HostNanoseconds kSecond = 1'000'000'000;
constexpr HostNanoseconds kEventLife = 120 * kSecond;
constexpr HostNanoseconds kMapLife = 600 * kSecond;
constexpr std::size_t kMaxEvents = 1024;
constexpr double kFarMs = 2000.0;  // from here on a nearer anchor is looked for

bool is_wanted() noexcept { return timeline::wanted.load(std::memory_order_relaxed) > 0; }

}  // namespace

AnchorEvent::AnchorEvent(EventClock& of_clock)
    : clock(of_clock), handle(of_clock.make_event(CU_EVENT_DEFAULT)) {}

AnchorEvent::~AnchorEvent() { clock.destroy_later(handle); }

// An event that completed between two readings of the host's clock.
struct CudaTimeline::Sighting {
  std::shared_ptr<AnchorEvent> event;
  HostNanoseconds before = 0;
  HostNanoseconds after = 0;

  [[nodiscard]] HostNanoseconds width() const noexcept { return after - before; }
};

std::uint32_t CudaTimeline::newest() noexcept {
  if (const std::uint32_t number = newest_.load(std::memory_order_acquire); number != 0) {
    return number;
  }
  if (tried_.load(std::memory_order_relaxed)) return 0;
  const std::unique_lock busy(busy_, std::try_to_lock);
  if (!busy) return 0;  // another thread takes it
  if (!tried_.load(std::memory_order_relaxed)) take(kBudget);
  return newest_.load(std::memory_order_acquire);
}

void CudaTimeline::refresh() noexcept {
  const std::lock_guard busy(busy_);
  take(kLongPatience);
}

// An anchor for a span that ended before the first one.
void CudaTimeline::take_first() noexcept {
  const std::lock_guard busy(busy_);
  if (newest_.load(std::memory_order_relaxed) != 0 || !is_wanted()) return;
  take(std::exchange(has_waited_, true) ? kBudget : kLongPatience);
}

// With `busy_` held.
void CudaTimeline::take(HostNanoseconds patience) noexcept {
  tried_.store(true, std::memory_order_relaxed);
  if (stopped_.load(std::memory_order_relaxed) || !clock_.check_alive()) return;
  try {
    const driver::CurrentContext current(table_, clock_.context());
    const driver::RelaxedCapture relaxed(table_);
    if (stream_ == nullptr) {
      check(table_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    }
    if (Sighting found = observe(patience); found.event) append(found);
  } catch (const Error& error) {
    stop(error);
  } catch (...) {  // out of memory: the next one may be luckier
  }
}

// The tightest of several sightings. Without an event if the GPU reached none within `patience`.
CudaTimeline::Sighting CudaTimeline::observe(HostNanoseconds patience) {
  const HostNanoseconds begun = monotonic_now();
  const HostNanoseconds good_enough = narrowest_ + narrowest_ / 16;
  Sighting best;
  for (int tries = 0; tries < kTries; ++tries) {
    if (!spare_) spare_ = std::make_shared<AnchorEvent>(clock_);
    Sighting found{spare_, host_now(), 0};
    check(clock_.access().record(found.event->handle, stream_), "cuEventRecord");
    const HostNanoseconds until = begun + (best.event ? kBudget : std::max(patience, kBudget));
    if (!await(found, until, begun + kBudget)) break;
    if (!best.event || found.width() < best.width()) {
      spare_ = std::exchange(best, std::move(found)).event;
    }
    if (best.width() <= good_enough || monotonic_now() - begun >= kBudget) break;
  }
  if (best.event) {
    const HostNanoseconds forgiving = narrowest_ + narrowest_ / 64;
    narrowest_ = narrowest_ == 0 ? best.width() : std::min(best.width(), forgiving);
  }
  return best;
}

// Polls until the event completes, from `nap_from` on with pauses. False at `until`; the next try
// records the event again.
bool CudaTimeline::await(Sighting& found, HostNanoseconds until, HostNanoseconds nap_from) {
  driver::EventAccess access = clock_.access();
  for (int looks = 1;; ++looks) {
    const HostNanoseconds asked = host_now();
    const CUresult status = access.query(found.event->handle);
    found.after = host_now();
    if (status == CUDA_SUCCESS) return true;
    if (status != CUDA_ERROR_NOT_READY) throw driver::error_of(status, "cuEventQuery");
    found.before = std::max(found.before, asked - kSeenWithin);
    const HostNanoseconds now = monotonic_now();
    if (now >= until && looks >= kLooks) return false;
    if (now < nap_from) continue;
    pause_briefly();
    access = clock_.access();
  }
}

void CudaTimeline::append(const Sighting& found) {
  std::shared_ptr<const AnchorEvent> last;
  {
    const std::lock_guard lock(mutex_);
    if (!events_.empty()) last = events_.back();
  }
  float elapsed_ms = 0.0F;
  if (last) {
    check(clock_.access().elapsed(elapsed_ms, last->handle, found.event->handle),
          "cuEventElapsedTime");
  }
  found.event->over = found.after;
  std::vector<std::shared_ptr<const AnchorEvent>> old;  // destroyed without the lock
  const std::lock_guard lock(mutex_);
  events_.push_back(found.event);
  try {
    map_.add(elapsed_ms, found.before, found.after);
  } catch (...) {  // out of memory: an event without a number
    events_.pop_back();
    throw;
  }
  while (events_.size() > kMaxEvents || events_.front()->over < found.after - kEventLife) {
    old.push_back(std::move(events_.front()));
    events_.pop_front();
  }
  map_.forget_before(found.after - kMapLife);
  newest_.store(map_.newest(), std::memory_order_release);
}

bool CudaTimeline::mark(Sample& sample, Held& held, const driver::EventAccess& access) noexcept {
  if (!is_wanted() || stopped_.load(std::memory_order_relaxed)) return true;
  const std::uint32_t noted = sample.gpu_begin.anchor;
  if (!held.event || held.noted != noted) hold(noted, held);
  if (!held.event) {
    if (held.tried) return true;
    held.tried = true;
    take_first();
    hold(noted, held);
    if (!held.event) return !clock_.lost() && !driver::is_blocked();
  }
  double ms = 0.0;
  CUresult status = measure(sample, held, access, ms);
  if (status == CUDA_SUCCESS && std::abs(ms) > kFarMs) {
    const std::uint32_t from = held.number;
    hold_nearest(ms, held);
    if (held.number != from) status = measure(sample, held, access, ms);
  }
  if (status != CUDA_SUCCESS) {
    stop(driver::error_of(status, "cuEventElapsedTime"));
    return !clock_.lost() && !driver::is_blocked();
  }
  sample.gpu_begin = {&clock_, held.number, ms};
  return true;
}

CUresult CudaTimeline::measure(const Sample& sample, const Held& held,
                               const driver::EventAccess& access, double& ms) noexcept {
  float value = 0.0F;
  const CUresult status = access.elapsed(value, held.event->handle, sample.start);
  ms = static_cast<double>(value);
  return status;
}

// Holds the anchor `noted`, or if its event is gone the oldest one with an event.
void CudaTimeline::hold(std::uint32_t noted, Held& held) noexcept {
  const std::shared_ptr<const AnchorEvent> before =
      std::move(held.event);  // destroyed without the lock
  const std::lock_guard lock(mutex_);
  held.noted = noted;
  if (events_.empty()) return;
  const std::uint32_t oldest = map_.newest() - static_cast<std::uint32_t>(events_.size()) + 1;
  held.number = std::clamp(noted, oldest, map_.newest());
  held.event = events_[held.number - oldest];
}

void CudaTimeline::hold_nearest(double ms, Held& held) noexcept {
  const std::shared_ptr<const AnchorEvent> before = held.event;  // destroyed without the lock
  const std::lock_guard lock(mutex_);
  if (events_.empty() || held.number < map_.oldest()) return;
  const std::uint32_t oldest = map_.newest() - static_cast<std::uint32_t>(events_.size()) + 1;
  held.number = std::max(oldest, map_.nearest(held.number, ms));
  held.event = events_[held.number - oldest];
}

Placement CudaTimeline::place(const GpuMark& mark, HostMoment& moment) noexcept {
  if (clock_.lost()) return Placement::kLost;
  Placement found = Placement::kLost;
  {
    const std::lock_guard lock(mutex_);
    found = map_.place(mark.anchor, mark.ms, moment);
  }
  const bool last = stopped_.load(std::memory_order_relaxed) || driver::is_blocked();
  return found == Placement::kNotYet && last ? Placement::kLost : found;
}

void CudaTimeline::forget(bool for_good) noexcept {
  const std::lock_guard busy(busy_);
  if (!for_good && is_wanted()) return;
  release();
  tried_.store(for_good, std::memory_order_relaxed);
  stopped_.store(for_good, std::memory_order_relaxed);
}

CudaTimeline::Events CudaTimeline::lose() noexcept {
  Events events;
  const std::lock_guard lock(mutex_);  // the caller destroys them without it
  events.swap(events_);
  map_.clear();
  newest_.store(0, std::memory_order_release);
  return events;
}

// With `busy_` held.
void CudaTimeline::release() noexcept {
  Events events = lose();
  const CUstream stream = std::exchange(stream_, nullptr);
  if ((stream != nullptr || !events.empty()) && clock_.check_alive()) {
    const driver::RelaxedCapture relaxed(table_);
    events.clear();
    spare_.reset();
    clock_.destroy_dead();
    if (stream != nullptr) table_.cuStreamDestroy(stream);
  }
  spare_.reset();
  narrowest_ = 0;
  has_waited_ = false;
}

void CudaTimeline::stop(const Error& error) noexcept {
  stopped_.store(true, std::memory_order_relaxed);
  clock_.note_failure(error);
  if (clock_.lost() || error.kind() == driver::ErrorKind::kGone) return;
  try {
    driver::warn_once(driver::Warning::kTimeline,
                      std::string("gpuprof: ") + error.what() +
                          ". GPU times of this context can be placed on the host's clock no "
                          "longer, so they are missing from traces; all else goes on");
  } catch (...) {  // out of memory: no warning
  }
}

namespace timeline {

void want(bool on) noexcept {
  const int before = wanted.fetch_add(on ? 1 : -1);
  if (on || before > 1) return;
  try {
    for (EventClock* clock : contexts::all()) clock->timeline().forget(/*for_good=*/false);
    contexts::forget_lost();
  } catch (...) {  // out of memory: the anchors stay until the context is released
  }
}

void refresh() noexcept {
  try {
    if (!is_wanted() || driver::is_blocked()) return;
    device::drain();
    for (EventClock* clock : contexts::all()) {
      if (clock->check_alive()) clock->timeline().refresh();
    }
    contexts::forget_lost();
  } catch (...) {  // out of memory: the next call tries again
  }
}

Placement place(const GpuMark& mark, HostMoment& moment) noexcept {
  // In a forked child the lock may be held by a thread of the parent, and the anchors are the
  // parent's.
  if (mark.clock == nullptr || device::forked()) return Placement::kLost;
  return mark.clock->timeline().place(mark, moment);
}

}  // namespace timeline
}  // namespace gpuprof::timing
