#include "timing/listeners.hpp"

#include <algorithm>
#include <mutex>
#include <string_view>
#include <utility>

#include "driver/process.hpp"

namespace gpuprof::timing {
namespace {

struct Queues {
  driver::ForkMutex mutex;
  std::vector<SampleQueue*> open;
};

Queues& queues() { return driver::immortal<Queues>(); }

std::atomic<HostNanoseconds> heard_at{0};
std::atomic<HostNanoseconds> drained_at{0};

void note_attention(std::uint32_t bits) noexcept {
  listeners::attention.fetch_or(bits, std::memory_order_relaxed);
}

bool is_finished_and_named(const Sample& sample) noexcept {
  const SampleStatus status = sample.load_status();
  return sample.counted && (status == SampleStatus::kDone || status == SampleStatus::kFailed);
}

// Whether a text from its `{` on is labels such as `{batch="8",kind="a"}`, as in labels.py.
bool is_labels(std::string_view text) noexcept {
  constexpr std::string_view kDigits = "0123456789";
  constexpr std::string_view kOfKeys =
      "0123456789_ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  do {
    text.remove_prefix(1);
    const std::size_t key = std::min(text.find_first_not_of(kOfKeys), text.size());
    if (key == 0 || kDigits.find(text[0]) != std::string_view::npos) return false;
    if (text.substr(key, 2) != "=\"") return false;
    std::size_t end = key + 2;
    while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
    if (end >= text.size()) return false;
    text.remove_prefix(end + 1);
  } while (!text.empty() && text[0] == ',');
  return text == "}";
}

// Without the labels of names, which are at their ends.
std::string plain_text(const Path& path) {
  std::string text;
  for (const Path* each : lineage(path)) {
    const std::string_view name = each->name;
    constexpr std::size_t kNone = std::string_view::npos;
    if (!text.empty()) text += '/';
    std::size_t size = !name.empty() && name.back() == '}' ? name.find('{', 1) : kNone;
    while (size != kNone && !is_labels(name.substr(size))) size = name.find('{', size + 1);
    text += name.substr(0, size);
  }
  return text;
}

// Whether a wanted path stands for all below one.
bool is_below(const std::string& path) noexcept {
  return path.size() > 2 && path.compare(path.size() - 2, 2, "/*") == 0;
}

// The sink.
void queue_samples(const Sample* const* samples, std::size_t count) noexcept {
  if (listeners::attention.load(std::memory_order_relaxed) == 0) return;
  std::string warning;
  {
    auto& q = queues();
    const std::lock_guard lock(q.mutex);
    for (std::size_t i = 0; i < count; ++i) {
      if (!is_finished_and_named(*samples[i])) continue;
      for (SampleQueue* queue : q.open) {
        if (!queue->offer(*samples[i])) continue;
        try {
          warning = queue->warning();
        } catch (...) {  // out of memory: they are counted
        }
      }
    }
  }
  if (!warning.empty()) driver::warn(warning);  // takes a lock of its own
}

}  // namespace

void listeners::take_notice(HostNanoseconds now) noexcept {
  heard_at.store(now, std::memory_order_relaxed);
  attention.fetch_and(~std::uint32_t{kDue | kUrgent}, std::memory_order_relaxed);
}

bool listeners::should_drain(HostNanoseconds now) noexcept {
  if (now - drained_at.load(std::memory_order_relaxed) < kDueAfter) return false;
  drained_at.store(now, std::memory_order_relaxed);
  return true;
}

SampleQueue::SampleQueue(std::string name, std::vector<std::string> paths, std::size_t capacity)
    : name_(std::move(name)),
      paths_(std::move(paths)),
      capacity_(capacity),
      generation_(driver::fork_generation()) {
  for (std::string& path : paths_) {
    path = is_below(path) ? shortened_path(path.substr(0, path.size() - 2)) + "/*"
                          : shortened_path(std::move(path));
  }
  [[maybe_unused]] static const bool is_added = (add_sink(&queue_samples), true);
  const HostNanoseconds now = host_now();
  auto& q = queues();
  const std::lock_guard lock(q.mutex);
  q.open.push_back(this);
  if (q.open.size() > 1) return;
  heard_at.store(now, std::memory_order_relaxed);
  drained_at.store(now, std::memory_order_relaxed);
  note_attention(listeners::kListening);
}

SampleQueue::~SampleQueue() {
  close();
  take();
}

void SampleQueue::close() noexcept {
  auto& q = queues();
  const std::lock_guard lock(q.mutex);
  if (!open_) return;
  open_ = false;
  q.open.erase(std::remove(q.open.begin(), q.open.end(), this), q.open.end());
  if (q.open.empty()) listeners::attention.store(0, std::memory_order_relaxed);
}

bool SampleQueue::begin() noexcept {
  // Whoever took in the parent process does not do so in a forked child.
  const std::uint64_t here = std::uint64_t{driver::fork_generation()} + 1;
  std::uint64_t by = taken_by_.load(std::memory_order_relaxed);
  return by != here && taken_by_.compare_exchange_strong(by, here, std::memory_order_acquire);
}

void SampleQueue::end() noexcept { taken_by_.store(0, std::memory_order_release); }

std::vector<SampleRef> SampleQueue::take() noexcept {
  std::vector<SampleRef> taken;
  std::vector<SampleRef> of_parent;  // let go without the lock
  const std::lock_guard lock(queues().mutex);
  taken.swap(waiting_);
  listeners::queued.fetch_sub(taken.size(), std::memory_order_relaxed);
  if (generation_ == driver::fork_generation()) return taken;
  taken.swap(of_parent);
  return taken;
}

std::size_t SampleQueue::size() const noexcept {
  const std::lock_guard lock(queues().mutex);
  return generation_ == driver::fork_generation() ? waiting_.size() : 0;
}

bool SampleQueue::offer(const Sample& sample) noexcept {
  try {
    if (const std::uint32_t now = driver::fork_generation(); now != generation_) {
      // Never let go of: that would take a lock beside this one.
      auto& of_parent = *new std::vector<SampleRef>;
      of_parent.swap(waiting_);
      listeners::queued.fetch_sub(of_parent.size(), std::memory_order_relaxed);
      generation_ = now;
    }
    if (!wants(*sample.path)) return false;
    if (waiting_.size() >= capacity_) {
      return dropped_.fetch_add(1, std::memory_order_relaxed) == 0;
    }
    auto* shared = const_cast<Sample*>(&sample);  // for the count of its references
    add_reference(shared);
    SampleRef reference(shared);
    waiting_.push_back(std::move(reference));
  } catch (...) {  // out of memory
    dropped_.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  listeners::queued.fetch_add(1, std::memory_order_relaxed);
  if (taken_by_.load(std::memory_order_relaxed) == std::uint64_t{generation_} + 1) return false;
  const HostNanoseconds waited = sample.host_end - heard_at.load(std::memory_order_relaxed);
  const std::size_t size = waiting_.size();
  if (size >= capacity_ / 2 || waited >= listeners::kUrgentAfter) {
    note_attention(listeners::kDue | listeners::kUrgent);
  } else if (size >= listeners::kBatch || waited >= listeners::kDueAfter) {
    note_attention(listeners::kDue);
  }
  return false;
}

bool SampleQueue::is_wanted(const Path& path) {
  const std::lock_guard lock(queues().mutex);
  return wants(path);
}

std::string SampleQueue::warning() const {
  return "gpuprof: the listener " + name_ + " is behind: " + std::to_string(capacity_) +
         " finished samples wait for it, so newer ones are dropped and counted in its handle's "
         "`dropped`; make it faster, have it take fewer paths, or call gpuprof.flush() more often";
}

bool SampleQueue::wants(const Path& path) {
  if (paths_.empty()) return true;
  if (path.order >= kMaxPaths) return matches(path);
  const auto place = static_cast<std::size_t>(path.order);
  if (place >= wanted_.size()) wanted_.resize(std::min(kMaxPaths, place * 2 + 64));
  if (wanted_[place] == 0) wanted_[place] = matches(path) ? 1 : -1;
  return wanted_[place] > 0;
}

bool SampleQueue::matches(const Path& path) const {
  for (const std::string& wanted : paths_) {
    if (path.text == wanted || plain_text(path) == wanted) return true;
    if (!is_below(wanted)) continue;
    for (const Path* around = path.parent; around != nullptr; around = around->parent) {
      if (around->text + "/*" == wanted || plain_text(*around) + "/*" == wanted) return true;
    }
  }
  return false;
}

}  // namespace gpuprof::timing
