#include "graphs/cuda_open_captures.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

#include "timing/capture_owner.hpp"

namespace gpuprof::graphs {
namespace {

// What this thread began and must end.
struct OfThread {
  std::vector<std::weak_ptr<Capture>> captures;

  OfThread() = default;
  OfThread(const OfThread&) = delete;
  OfThread& operator=(const OfThread&) = delete;
  ~OfThread() {
    for (const auto& entry : captures) {
      if (const auto capture = entry.lock()) capture->abort();
    }
  }
};
thread_local OfThread of_thread;

void forget_dead(std::vector<std::weak_ptr<Capture>>& captures) {
  captures.erase(std::remove_if(captures.begin(), captures.end(),
                                [](const auto& entry) { return entry.expired(); }),
                 captures.end());
}

timing::CaptureClaim claim(unsigned long long id) noexcept {
  const std::shared_ptr<Capture> capture = find_open(id);
  if (!capture) return timing::CaptureClaim::kForeign;
  capture->look();
  return capture->options().timers == GraphTimers::kStrip ? timing::CaptureClaim::kStrip
                                                          : timing::CaptureClaim::kRecord;
}

void keep(unsigned long long id,
          const std::shared_ptr<const timing::GraphEvents>& events) noexcept {
  try {
    if (const std::shared_ptr<Capture> capture = find_open(id)) {
      OpenCaptures::instance().add_events(*capture, events);
    }
  } catch (...) {  // out of memory: they live as long as the sample
  }
}

void recorded(unsigned long long id, timing::Sample& sample) noexcept {
  try {
    const std::shared_ptr<Capture> capture = find_open(id);
    if (!capture) return;
    OpenCaptures::instance().add_timer(*capture, sample);
    capture->look();
  } catch (...) {  // out of memory: the span can be read as long as its sample lives
  }
}

}  // namespace

OpenCaptures& OpenCaptures::instance() {
  static OpenCaptures& storage = *new OpenCaptures;
  return storage;
}

void OpenCaptures::enter(const std::shared_ptr<Capture>& capture) {
  if (!capture->attached() && capture->options().mode != CaptureMode::kRelaxed) {
    forget_dead(of_thread.captures);
    of_thread.captures.push_back(capture);
  }
  const std::lock_guard lock(mutex);
  forget_dead(captures);
  captures.push_back(capture);
  capture->open_ = true;
}

bool OpenCaptures::close(Capture& capture) noexcept {
  const std::lock_guard lock(mutex);
  return std::exchange(capture.open_, false);
}

void OpenCaptures::set_sights(Capture& capture, CaptureProgress sights) {
  const std::lock_guard lock(mutex);
  capture.sights_ = std::move(sights);
}

CaptureProgress OpenCaptures::sights(const Capture& capture) {
  const std::lock_guard lock(mutex);
  return capture.sights_;
}

bool OpenCaptures::is_open(const Capture& capture) {
  const std::lock_guard lock(mutex);
  return capture.open_;
}

void OpenCaptures::add_timer(Capture& capture, timing::Sample& sample) {
  timing::add_reference(&sample);
  timing::SampleRef reference(&sample);
  const std::lock_guard lock(mutex);
  capture.timers_.push_back(std::move(reference));
}

void OpenCaptures::add_events(Capture& capture,
                              const std::shared_ptr<const timing::GraphEvents>& events) {
  const std::lock_guard lock(mutex);
  capture.events_.push_back(events);
}

CapturedParts OpenCaptures::take_parts(Capture& capture) {
  const std::lock_guard lock(mutex);
  return {nullptr, std::exchange(capture.events_, {}), std::exchange(capture.timers_, {})};
}

std::shared_ptr<Capture> find_open(unsigned long long id) noexcept {
  try {
    for (const auto& capture : open_captures()) {
      if (capture->id() == id) return capture;
    }
  } catch (...) {  // out of memory: nobody's
  }
  return nullptr;
}

std::vector<std::shared_ptr<Capture>> open_captures() {
  auto& all = OpenCaptures::instance();
  std::vector<std::shared_ptr<Capture>> alive;
  std::vector<std::shared_ptr<Capture>> open;
  {
    const std::lock_guard lock(all.mutex);
    for (const auto& entry : all.captures) {
      if (auto capture = entry.lock()) alive.push_back(std::move(capture));
    }
  }
  // Outside of the lock: whoever drops the last reference ends that capture.
  for (const auto& capture : alive) {
    if (all.is_open(*capture)) open.push_back(capture);
  }
  return open;
}

void own_captured_scopes() noexcept { timing::set_capture_owner({&claim, &keep, &recorded}); }

}  // namespace gpuprof::graphs
