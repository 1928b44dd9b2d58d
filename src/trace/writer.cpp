#include "trace/writer.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <ctime>
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
constexpr HostNanoseconds kClosePatience = 1'000'000'000;  // for the GPU to be asked its time
constexpr std::size_t kMostWaiting = 100'000;

// One open trace, guarded by mutex() except `sink`.
struct Entry {
  explicit Entry(std::shared_ptr<EventSink> of_trace)
      : sink(std::move(of_trace)), dropped_before(dropped()) {}

  const std::shared_ptr<EventSink> sink;  // the writer thread's
  const std::uint64_t dropped_before;
  bool known = false;  // the writer thread has seen it
  bool closing = false;
  bool done = false;
  HostNanoseconds ended_at = INT64_MAX;
  std::uint64_t flushes_wanted = 0;
  std::uint64_t flushes_done = 0;
  State state;
  // The writer thread's, as of its round:
  bool closes = false;  // it is to be completed
  std::uint64_t flushes_seen = 0;

  void end() noexcept { ended_at = std::min(ended_at, driver::host_now()); }
  [[nodiscard]] std::uint64_t lost() const noexcept { return dropped() - dropped_before; }
  [[nodiscard]] bool urgent() const noexcept {
    return !known || (closing && !done) || flushes_wanted != flushes_done;
  }
};
using Entries = std::vector<std::shared_ptr<Entry>>;

// The traces of one process; a forked child makes a new one. mutex() guards what is behind
// `changed`.
struct Shared {
  std::mutex lifecycle;  // taken before mutex(); guards the next two
  std::thread thread;
  std::uint32_t next_number = 1;
  std::condition_variable_any changed;
  Entries entries;
  bool stop = false;
};

struct SharedMutex : driver::ForkMutex {};
driver::ForkMutex& mutex() { return driver::immortal<SharedMutex>(); }
Shared* current = nullptr;

using Lock = std::unique_lock<driver::ForkMutex>;

Shared& shared() {
  const std::lock_guard lock(mutex());
  if (current == nullptr) current = new Shared;
  return *current;
}

std::shared_ptr<Entry> find(const Shared& s, std::uint32_t number) noexcept {
  const auto found = std::find_if(s.entries.begin(), s.entries.end(), [&](const auto& entry) {
    return entry->sink->number() == number;
  });
  return found != s.entries.end() ? *found : nullptr;
}

// Tells the threads that note events whether any trace takes them all, and the largest limit of
// the open ones.
void update_recorder(const Shared& s) noexcept {
  bool any = false;
  std::size_t most = 0;
  for (const auto& entry : s.entries) {
    any = any || (entry->known && !entry->closing && entry->sink->collects());
    most = std::max(most, entry->sink->buffer_bytes());
  }
  if (most != 0) set_buffer_limit(most);
  recording.store(any, std::memory_order_relaxed);
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
    const auto any_wanted = [&] {
      return s_.stop || std::any_of(s_.entries.begin(), s_.entries.end(), [](const auto& entry) {
               return entry->urgent() || entry->sink->wants_round();
             });
    };
    if (!go_on_) s_.changed.wait_for(lock, kTakeEvery, any_wanted);
    entries_ = s_.entries;
    stop_ = s_.stop;
    bool urgent = false;
    for (const auto& entry : entries_) {
      urgent = urgent || entry->urgent();
      entry->known = true;
      entry->closes = entry->closing && !entry->done;
      entry->flushes_seen = entry->flushes_wanted;
    }
    update_recorder(s_);
    if (urgent) s_.changed.notify_all();  // open() waits for `known`
    return urgent;
  }

  void work(bool urgent) {
    const HostNanoseconds now = driver::monotonic_now();
    bool due = urgent || now >= next_write_;
    for (const auto& entry : entries_) {
      if (entry->sink->begin_round(now)) due = true;
    }
    if (due) gpu_clock.refresh();
    take_all();
    // Other processes may have the GPU for longer than one refresh() waits for it.
    while (a_closing_one_lacks_spans() && driver::monotonic_now() < now + kClosePatience) {
      std::this_thread::sleep_for(1ms);
      gpu_clock.refresh();
      take_all();
    }
    if (due) {
      place_waiting();
      for (const auto& entry : entries_) entry->sink->flush();
      next_write_ = now + kWriteEvery;
    }
    end_round(now);
  }

  void end_round(HostNanoseconds now) {
    Round round{now, 0, INT64_MAX};
    for (const Waiting& each : waiting_) {
      round.unplaced_since = std::min(round.unplaced_since, each.event.end);
    }
    go_on_ = false;
    for (const auto& entry : entries_) {
      round.dropped = entry->lost();
      if (entry->closes) {
        entry->sink->finish(round);
      } else if (entry->sink->end_round(round)) {
        go_on_ = true;
      }
    }
  }

  template <typename Use>
  void for_each_taker(const Event& event, Use&& use) {
    for (const auto& entry : entries_) {
      if (entry->sink->wants(event)) use(*entry->sink);
    }
  }

  void take_all() {
    {
      const Lock lock(mutex());
      for (const auto& entry : entries_) entry->sink->stop_at(entry->ended_at);
    }
    take_published([](void* self, const Event& event,
                      std::uint32_t tid) { static_cast<Writer*>(self)->take(event, tid); },
                   this);
  }

  [[nodiscard]] bool a_closing_one_lacks_spans() const {
    return std::any_of(entries_.begin(), entries_.end(), [&](const auto& entry) {
      return entry->closes && entry->sink->writes_at_end() &&
             std::any_of(waiting_.begin(), waiting_.end(), [&](const Waiting& each) {
               HostNanoseconds begin = 0;
               HostNanoseconds error = 0;
               return entry->sink->wants(each.event) &&
                      gpu_clock.place(each.extra->gpu.begin, begin, error) ==
                          GpuClock::Answer::kNotYet;
             });
    });
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
    for_each_taker(event, [&](EventSink& sink) { sink.add(event, tid); });
  }

  // A track needs its spans in the order in which they were read: one that cannot be placed yet
  // delays those after it, unless a trace is closing, which cannot wait.
  void place_waiting() {
    std::sort(waiting_.begin(), waiting_.end());
    std::vector<Waiting> later;
    std::vector<GpuSpan> held_back;  // one of each track
    later.reserve(waiting_.size());
    const bool any_closes = std::any_of(entries_.begin(), entries_.end(),
                                        [](const auto& entry) { return entry->closes; });
    for (Waiting& each : waiting_) {
      HostNanoseconds begin = 0;
      HostNanoseconds error = 0;
      const Event& event = each.event;
      const bool has_to_wait =
          !any_closes && std::any_of(held_back.begin(), held_back.end(), [&](const GpuSpan& first) {
            return each.shares_track_with(first);
          });
      const GpuClock::Answer answer = has_to_wait
                                          ? GpuClock::Answer::kNotYet
                                          : gpu_clock.place(each.extra->gpu.begin, begin, error);
      if (answer == GpuClock::Answer::kPlaced) {
        for_each_taker(event,
                       [&](EventSink& sink) { sink.add_gpu(event, each.tid, begin, error); });
      } else if (answer == GpuClock::Answer::kNever) {
        count_unplaced(event);
      } else {
        for (const auto& entry : entries_) {
          if (entry->closes && entry->sink->wants(event)) entry->sink->count_unplaced();
        }
        if (!has_to_wait) held_back.push_back(each.extra->gpu);
        later.push_back(std::move(each));
      }
    }
    waiting_ = std::move(later);
  }

  void count_unplaced(const Event& event) noexcept {
    for_each_taker(event, [](EventSink& sink) { sink.count_unplaced(); });
  }

  void give_up(const char* why) noexcept {
    for (const auto& entry : entries_) entry->sink->give_up(why);
    waiting_.clear();
  }

  void publish() noexcept {
    warn_of_failures();
    const HostNanoseconds cpu = thread_cpu_time();
    const Lock lock(mutex());
    for (const auto& entry : entries_) {
      if (entry->done) continue;
      publish_state(*entry, cpu);
      entry->flushes_done = entry->flushes_seen;
      if (!entry->closes) continue;
      entry->state.open = false;
      entry->done = true;
    }
    s_.changed.notify_all();
  }

  // Before the thread that closes the trace goes on, because it shows the warnings so far. Without
  // the lock, because a warning takes one: until a trace is done, only this thread writes `failed`.
  void warn_of_failures() noexcept {
    for (const auto& entry : entries_) {
      if (entry->done || entry->state.failed) continue;
      if (const std::string* why = entry->sink->failure()) warn_of(*why);
    }
  }

  static void publish_state(Entry& entry, HostNanoseconds cpu) noexcept {
    State& state = entry.state;
    static_cast<SinkCounts&>(state) = entry.sink->counts();
    state.open = true;
    state.dropped = entry.lost();
    state.writer_cpu = cpu;
    entry.sink->describe(state);
    if (!state.failed && entry.sink->failure() != nullptr) state.fail(*entry.sink->failure());
  }

  Shared& s_;
  Entries entries_;  // as of this round
  bool stop_ = false;
  std::vector<Waiting> waiting_;
  std::uint64_t arrivals_ = 0;
  HostNanoseconds next_write_ = 0;
  bool go_on_ = false;  // a sink has more to do
};

// Takes a trace that is done off the list, and ends the thread with the last one.
void remove(Shared& s, const std::shared_ptr<Entry>& done) {
  const std::lock_guard lifecycle(s.lifecycle);
  {
    const Lock lock(mutex());
    s.entries.erase(std::find(s.entries.begin(), s.entries.end(), done));
    update_recorder(s);
    if (!s.entries.empty()) return;
    s.stop = true;
    s.changed.notify_all();
  }
  s.thread.join();
  s.stop = false;
}

template <typename Sink, typename Options>
std::uint32_t start(Options options) {
  Shared& s = shared();
  const std::lock_guard lifecycle(s.lifecycle);
  const std::uint32_t number = s.next_number++;
  const auto entry = std::make_shared<Entry>(std::make_shared<Sink>(number, std::move(options)));
  entry->state.open = true;  // what is asked for may come before the writer's first round is over
  entry->sink->describe(entry->state);
  if (!s.thread.joinable()) {
    s.thread = driver::start_service_thread("gpuprof-trace", [&s] { Writer(s).run(); });
  }
  if (entry->sink->collects()) gpu_clock.want(true);
  Lock lock(mutex());
  s.entries.push_back(entry);
  s.changed.notify_all();
  s.changed.wait(lock, [&] { return entry->known; });
  return number;
}

// The writer thread and its locks are the parent's: only close this process's descriptors.
void forget_writers_in_child() noexcept {
  if (current != nullptr) {
    for (const auto& entry : current->entries) entry->sink->abandon();
  }
  current = nullptr;
  recording.store(false, std::memory_order_relaxed);
}

const bool writers_fork_hook = driver::on_fork_child(forget_writers_in_child);

}  // namespace

std::uint32_t open(OutputOptions options) { return start<Output>(std::move(options)); }

std::uint32_t open(RecorderOptions options) { return start<FlightRecorder>(std::move(options)); }

std::shared_ptr<FlightRecorder> find_recorder(std::uint32_t number) {
  Shared& s = shared();
  const Lock lock(mutex());
  const std::shared_ptr<Entry> entry = find(s, number);
  return entry ? std::dynamic_pointer_cast<FlightRecorder>(entry->sink) : nullptr;
}

void wake_writer() noexcept {
  Shared& s = shared();
  const Lock lock(mutex());
  s.changed.notify_all();
}

void end(std::uint32_t number) noexcept {
  Shared& s = shared();
  const Lock lock(mutex());
  if (const std::shared_ptr<Entry> entry = find(s, number)) entry->end();
}

State close(std::uint32_t number) {
  Shared& s = shared();
  std::shared_ptr<Entry> entry;
  {
    Lock lock(mutex());
    entry = find(s, number);
    if (!entry || entry->closing) return {};
    entry->closing = true;
    entry->end();
    update_recorder(s);
    s.changed.notify_all();
    s.changed.wait(lock, [&] { return entry->done; });
  }
  if (entry->sink->collects()) gpu_clock.want(false);
  entry->sink->sync();  // here, because it may take long and the writer has others to serve
  remove(s, entry);
  if (const std::string* why = entry->sink->failure(); why != nullptr && !entry->state.failed) {
    entry->state.fail(*why);
    warn_of(*why);
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
  if (!entry->done) now.dropped = entry->lost();  // also if the writer is stuck
  return now;
}

}  // namespace gpuprof::trace
