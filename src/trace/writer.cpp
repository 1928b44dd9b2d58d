#include "trace/writer.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "driver/error.hpp"
#include "driver/process.hpp"
#include "trace/recorder.hpp"

namespace gpuprof::trace {
namespace {

using namespace std::chrono_literals;

constexpr auto kTakeEvery = 10ms;
constexpr HostNanoseconds kWriteEvery = 250'000'000;
constexpr std::size_t kMostWaiting = 100'000;

GpuClock gpu_clock{
    [](bool) noexcept {},
    []() noexcept {},
    [](const GpuMoment&, HostNanoseconds&, HostNanoseconds&) noexcept {
      return GpuClock::Answer::kNever;
    },
};

// One open trace, guarded by mutex() except `output`.
struct Entry {
  Entry(std::uint32_t number, OutputOptions options)
      : output(number, std::move(options)), dropped_before(dropped()) {}

  Output output;  // the writer thread's
  const std::uint64_t dropped_before;
  bool known = false;  // the writer thread has seen it
  bool closing = false;
  bool done = false;
  HostNanoseconds closed_at = 0;
  std::uint64_t flushes_wanted = 0;
  std::uint64_t flushes_done = 0;
  State state;

  [[nodiscard]] bool urgent() const noexcept {
    return !known || (closing && !done) || flushes_wanted != flushes_done;
  }
};
using Entries = std::vector<std::shared_ptr<Entry>>;

// The traces of one process; a forked child makes a new one. mutex() guards all members except
// `thread`, which `lifecycle` guards.
struct Shared {
  std::mutex lifecycle;  // taken before mutex()
  std::thread thread;
  std::condition_variable_any changed;
  Entries entries;
  std::uint32_t next_number = 1;
  bool stop = false;
};

driver::ForkMutex& mutex() {
  static driver::ForkMutex& storage = *new driver::ForkMutex;
  return storage;
}
Shared* current = nullptr;

using Lock = std::unique_lock<driver::ForkMutex>;

Shared& shared() {
  const std::lock_guard lock(mutex());
  if (current == nullptr) current = new Shared;
  return *current;
}

std::shared_ptr<Entry> find(const Shared& s, std::uint32_t number) noexcept {
  const auto found = std::find_if(s.entries.begin(), s.entries.end(), [&](const auto& entry) {
    return entry->output.number() == number;
  });
  return found != s.entries.end() ? *found : nullptr;
}

void update_recording(const Shared& s) noexcept {
  const bool any = std::any_of(s.entries.begin(), s.entries.end(), [](const auto& entry) {
    return entry->known && !entry->closing && entry->output.collects();
  });
  recording.store(any, std::memory_order_relaxed);
}

// With `lifecycle` held. The limit is the largest of the open traces; `added` is one more.
void update_buffer_limit(const Shared& s, std::size_t added = 0) {
  std::size_t most = added;
  {
    const Lock lock(mutex());
    for (const auto& entry : s.entries) most = std::max(most, entry->output.buffer_bytes());
  }
  if (most != 0) set_buffer_limit(most);
}

void warn_of(const std::string& failure) noexcept {
  try {
    driver::warn("gpuprof: " + failure +
                 ". The trace is incomplete and ends here; the program goes on");
  } catch (...) {  // out of memory: no warning
  }
}

HostNanoseconds thread_cpu_time() noexcept {
  std::timespec used{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<HostNanoseconds>(used.tv_sec) * 1'000'000'000 + used.tv_nsec;
}

// The writer thread's own.
class Writer {
 public:
  explicit Writer(Shared& shared) noexcept : s_(shared) {}

  void run() {
    for (;;) {
      try {
        const bool urgent = wait_for_work();
        if (entries_.empty() && stop_) return;
        work(urgent);
      } catch (const std::exception& error) {  // out of memory
        give_up(error.what());
      }
      publish();
    }
  }

 private:
  // A GPU span that cannot be placed yet. Several threads read GPU times, each into its own queue.
  struct Waiting {
    Event event;
    std::uint32_t tid;
    TakenExtra extra;  // the event's
    std::uint64_t arrival;

    bool operator<(const Waiting& other) const noexcept {
      const std::uint64_t others = other.extra->gpu.order;
      return extra->gpu.order != others ? extra->gpu.order < others : arrival < other.arrival;
    }
    [[nodiscard]] bool shares_track_with(const GpuSpan& other) const noexcept {
      return extra->gpu.device == other.device && extra->gpu.stream == other.stream;
    }
  };

  bool wait_for_work() {
    Lock lock(mutex());
    const auto any_urgent = [&] {
      return s_.stop || std::any_of(s_.entries.begin(), s_.entries.end(),
                                    [](const auto& entry) { return entry->urgent(); });
    };
    s_.changed.wait_for(lock, kTakeEvery, any_urgent);
    entries_ = s_.entries;
    stop_ = s_.stop;
    closing_.clear();
    flushes_.clear();
    bool urgent = false;
    for (const auto& entry : entries_) {
      urgent = urgent || entry->urgent();
      entry->known = true;
      if (entry->closing && !entry->done) closing_.push_back(entry.get());
      flushes_.push_back(entry->flushes_wanted);
      if (entry->closing) entry->output.stop_at(entry->closed_at);
    }
    update_recording(s_);
    if (urgent) s_.changed.notify_all();  // open() waits for `known`
    return urgent;
  }

  void work(bool urgent) {
    const HostNanoseconds now = driver::monotonic_now();
    const bool due = urgent || now >= next_write_;
    if (due) gpu_clock.refresh();
    take_published([](void* self, const Event& event,
                      std::uint32_t tid) { static_cast<Writer*>(self)->take(event, tid); },
                   this);
    if (!due) return;
    place_waiting();
    for (const auto& entry : entries_) entry->output.flush();
    for (Entry* entry : closing_) entry->output.finish(dropped() - entry->dropped_before);
    next_write_ = now + kWriteEvery;
  }

  void take(const Event& event, std::uint32_t tid) {
    TakenExtra extra(event.extra);
    if (event.kind == Kind::kGpu) {
      if (waiting_.size() < kMostWaiting) {
        waiting_.push_back({event, tid, std::move(extra), arrivals_++});
      } else {
        count_unplaced(event);
      }
      return;
    }
    for (const auto& entry : entries_) {
      if (entry->output.wants(event)) entry->output.add(event, tid);
    }
  }

  // A track needs its spans in the order in which they were read: one that cannot be placed yet
  // delays those after it, unless a trace is closing, which cannot wait.
  void place_waiting() {
    std::sort(waiting_.begin(), waiting_.end());
    std::vector<Waiting> later;
    std::vector<GpuSpan> held_back;  // one of each track
    later.reserve(waiting_.size());
    for (Waiting& waiting : waiting_) {
      HostNanoseconds begin = 0;
      HostNanoseconds error = 0;
      const Event& event = waiting.event;
      const bool has_to_wait =
          closing_.empty() &&
          std::any_of(held_back.begin(), held_back.end(),
                      [&](const GpuSpan& first) { return waiting.shares_track_with(first); });
      const GpuClock::Answer answer = has_to_wait
                                          ? GpuClock::Answer::kNotYet
                                          : gpu_clock.place(waiting.extra->gpu.begin, begin, error);
      if (answer == GpuClock::Answer::kPlaced) {
        for (const auto& entry : entries_) {
          if (!entry->output.wants(event)) continue;
          entry->output.add_gpu(event, waiting.tid, begin, error);
        }
      } else if (answer == GpuClock::Answer::kNever) {
        count_unplaced(event);
      } else {
        for (Entry* entry : closing_) {
          if (entry->output.wants(event)) entry->output.count_unplaced();
        }
        if (!has_to_wait) held_back.push_back(waiting.extra->gpu);
        later.push_back(std::move(waiting));
      }
    }
    waiting_ = std::move(later);
  }

  void count_unplaced(const Event& event) noexcept {
    for (const auto& entry : entries_) {
      if (entry->output.wants(event)) entry->output.count_unplaced();
    }
  }

  void give_up(const char* why) noexcept {
    for (const auto& entry : entries_) entry->output.give_up(why);
    waiting_.clear();
  }

  void publish() noexcept {
    const HostNanoseconds cpu = thread_cpu_time();
    const std::string* failure = nullptr;
    {
      const Lock lock(mutex());
      for (std::size_t i = 0; i < entries_.size() && i < flushes_.size(); ++i) {
        Entry& entry = *entries_[i];
        if (entry.done) continue;
        if (entry.output.file().failed() && !entry.state.failed) {
          failure = &entry.output.file().error();
        }
        publish_state(entry, cpu);
        entry.flushes_done = std::max(entry.flushes_done, flushes_[i]);
        if (std::find(closing_.begin(), closing_.end(), &entry) == closing_.end()) continue;
        entry.state.open = false;
        entry.done = true;
      }
      s_.changed.notify_all();
    }
    if (failure != nullptr) warn_of(*failure);
  }

  static void publish_state(Entry& entry, HostNanoseconds cpu) noexcept {
    const OutputCounts& counts = entry.output.counts();
    const PartFile& file = entry.output.file();
    State& state = entry.state;
    state.open = true;
    state.events = counts.events;
    state.dropped = dropped() - entry.dropped_before;
    state.unplaced = counts.unplaced;
    state.bytes = file.bytes();
    state.gpu_error = counts.gpu_error;
    state.writer_cpu = cpu;
    if (file.failed() && !state.failed) state.fail(file.error());
  }

  Shared& s_;
  Entries entries_;                     // as of this round
  std::vector<Entry*> closing_;         // to be completed in this round
  std::vector<std::uint64_t> flushes_;  // wanted when this round began, for each of entries_
  bool stop_ = false;
  std::vector<Waiting> waiting_;
  std::uint64_t arrivals_ = 0;
  HostNanoseconds next_write_ = 0;
};

void stop_thread_if_idle(Shared& s) {
  const std::lock_guard lifecycle(s.lifecycle);
  update_buffer_limit(s);
  {
    const Lock lock(mutex());
    if (!s.entries.empty() || !s.thread.joinable()) return;
    s.stop = true;
    s.changed.notify_all();
  }
  s.thread.join();
  s.stop = false;
  release_chunks();
}

void remove(Shared& s, const Entry* entry) {
  const Lock lock(mutex());
  s.entries.erase(std::remove_if(s.entries.begin(), s.entries.end(),
                                 [entry](const auto& other) { return other.get() == entry; }),
                  s.entries.end());
  update_recording(s);
}

// The writer thread and its locks are the parent's: only close this process's descriptors.
void forget_writers_in_child() noexcept {
  if (current != nullptr) {
    for (const auto& entry : current->entries) entry->output.abandon();
  }
  current = nullptr;
  recording.store(false, std::memory_order_relaxed);
}

const bool writers_fork_hook = [] {
  mutex();
  driver::on_fork_child(forget_writers_in_child);
  return true;
}();

}  // namespace

void set_gpu_clock(const GpuClock& clock) noexcept { gpu_clock = clock; }

std::uint32_t open(OutputOptions options) {
  Shared& s = shared();
  const bool collects = options.collects;
  const std::lock_guard lifecycle(s.lifecycle);
  std::shared_ptr<Entry> entry;
  {
    Lock lock(mutex());
    const std::uint32_t number = s.next_number++;
    lock.unlock();
    entry = std::make_shared<Entry>(number, std::move(options));
  }
  update_buffer_limit(s, entry->output.buffer_bytes());
  if (!s.thread.joinable()) {
    s.thread = driver::start_service_thread("gpuprof-trace", [&s] { Writer(s).run(); });
  }
  if (collects) gpu_clock.want(true);
  Lock lock(mutex());
  s.entries.push_back(entry);
  s.changed.notify_all();
  s.changed.wait(lock, [&] { return entry->known; });
  return entry->output.number();
}

State close(std::uint32_t number) {
  Shared& s = shared();
  std::shared_ptr<Entry> entry;
  {
    Lock lock(mutex());
    entry = find(s, number);
    if (!entry || entry->closing) return {};
    entry->closing = true;
    entry->closed_at = driver::host_now();
    update_recording(s);
    s.changed.notify_all();
    s.changed.wait(lock, [&] { return entry->done; });
  }
  if (entry->output.collects()) gpu_clock.want(false);
  entry->output.sync();  // here, because it may take long and the writer has others to serve
  remove(s, entry.get());
  stop_thread_if_idle(s);
  if (const PartFile& file = entry->output.file(); file.failed() && !entry->state.failed) {
    entry->state.fail(file.error());
    warn_of(file.error());
  }
  return entry->state;
}

State flush(std::uint32_t number) {
  Shared& s = shared();
  Lock lock(mutex());
  const std::shared_ptr<Entry> entry = find(s, number);
  if (!entry) return {};
  const std::uint64_t wanted = ++entry->flushes_wanted;
  s.changed.notify_all();
  s.changed.wait(lock, [&] { return entry->done || entry->flushes_done >= wanted; });
  return entry->state;
}

State state(std::uint32_t number) {
  Shared& s = shared();
  const Lock lock(mutex());
  const std::shared_ptr<Entry> entry = find(s, number);
  if (!entry) return {};
  State now = entry->state;
  if (!entry->done) now.dropped = dropped() - entry->dropped_before;  // also if the writer is stuck
  return now;
}

}  // namespace gpuprof::trace
