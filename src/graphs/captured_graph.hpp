// A graph and its executable copy: launched, updated, looked into.
//
// It owns what the driver gave for it, unless that was lent (a framework's graph), and the events
// of the spans inside. Calls serialise on a lock of its own, held over driver calls, so that any
// thread may make them; a caller that holds Python's lock uses try_lock() first. Streams are
// handles as integers, alive by the caller's promise. Errors are driver::Error; close() and the
// destructor never throw, do nothing in a forked child, and may come while a replay runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "graphs/capture.hpp"
#include "graphs/device_scalar.hpp"
#include "graphs/graph_timers.hpp"
#include "graphs/io_copies.hpp"
#include "graphs/launch_order.hpp"
#include "timing/sample.hpp"

namespace gpuprof::driver {
class EventAccess;
struct Table;
}  // namespace gpuprof::driver

namespace gpuprof::graphs {

// Why an update was refused; the nodes are indices in the order of the driver's node lists, -1
// where it names none.
struct UpdateRefusal {
  int result = 0;  // CUgraphExecUpdateResult; not 0
  std::int64_t node = -1;
  std::int64_t node_of_other = -1;
};

// Device memory that became unavailable meanwhile, in bytes; negative where it could not be asked.
struct GraphMemory {
  std::int64_t instantiate = -1;
  std::int64_t upload = -1;
};

// Something that launches of a graph need. `release(what)` is called at most once, on any thread;
// null is nothing.
struct Payload {
  void* what = nullptr;
  void (*release)(void*) = nullptr;
};

// What became of a launch that was pointed at arrays.
enum class PointedLaunch : std::uint8_t {
  kLaunched,
  kCapturing,  // the stream is being captured; nothing was done
  kRefused,    // the driver takes none of such memory in a copy; nothing was launched
  kBusy,       // another thread is in a call
};

// Where the copies at the edges of one launch go: as IoCopies::point() wants it.
struct IoAddresses {
  const std::uintptr_t* outside = nullptr;
  std::ptrdiff_t refused = -1;  // the index of the copy, where kRefused
};

class CapturedGraph {
 public:
  // Takes over `parts.graph`, unless it is `lent`. Without `parts.clock` it lives in the context
  // that `stream` and `ordinal` tell.
  CapturedGraph(CapturedParts parts, bool lent, std::uintptr_t stream, int ordinal,
                GraphTimers keeping);
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;
  ~CapturedGraph();

  // The payload is released once the graph is closed and its last replay is over, as soon as
  // release_finished() sees that: by close() itself, or by a later call of anybody's. From now on
  // each launch records an event, which is how one sees it. At most once. Throws driver::Error, and
  // has not taken the payload over then.
  void retain(const Payload& payload);

  // From now on launches wait for the last update of each of `scalars`; those of other contexts are
  // passed over. Throws driver::Error.
  void read_scalars(const std::vector<std::shared_ptr<const DeviceScalar>>& scalars);
  // The same for the scalars whose last update was on `stream`: of the capture, say.
  void read_scalars_of(std::uintptr_t stream);

  // Has the graph run in turn with all others that were given `turns`: each waits on the GPU for
  // the one before, whatever the streams. Before its first launch and before another thread knows
  // the graph. From now on each launch records an event. Throws driver::Error.
  void set_launch_order(std::shared_ptr<LaunchOrder> turns);

  // Adds copies at the edges; once, and before instantiate() or lend_exec(). Launches that are not
  // pointed leave them out. By the caller's promise the arrays inside live as long as the graph,
  // and those outside until the executable graph is there. Throws driver::Error, and the graph is
  // of no use then.
  void add_copies(const std::vector<EdgeCopy>& in, const std::vector<EdgeCopy>& out);

  // Makes the executable graph, which frees at each launch what the one before left allocated.
  void instantiate();
  // Uses a lent one instead, which was made of the graph as it is.
  void lend_exec(void* exec);

  // One replay on `stream`. `replay`, where the launch itself is to be timed, is a fresh sample
  // with its path, depth and thread set: its events go around the launch, and it is handed on like
  // any scope's. Without one the spans inside are not collected either.
  void launch(std::uintptr_t stream, int ordinal, timing::Sample* replay);

  // The same for a caller that must not wait for another thread: false if one is in a call.
  bool try_launch(std::uintptr_t stream, int ordinal, timing::Sample* replay);

  // The same in two halves, on one thread, for a launch that a framework makes in between. Nobody
  // else launches in these turns meanwhile. A close() in between takes effect with the second.
  void before_launch(std::uintptr_t stream, int ordinal, timing::Sample* replay);
  void after_launch(std::uintptr_t stream, timing::Sample* replay, bool launched);

  // The same three with the copies at the edges pointed at the arrays of a call. A capturing stream
  // is an answer here and no error. Where before_pointed_launch() did not answer kLaunched there is
  // no second half.
  PointedLaunch launch_pointed(std::uintptr_t stream, int ordinal, timing::Sample* replay,
                               IoAddresses& at);
  PointedLaunch try_launch_pointed(std::uintptr_t stream, int ordinal, timing::Sample* replay,
                                   IoAddresses& at);
  PointedLaunch before_pointed_launch(std::uintptr_t stream, int ordinal, timing::Sample* replay,
                                      IoAddresses& at);

  // Keeps the turn: until it is given back, on the same thread, no other thread launches in these
  // turns, so that a caller's work after its launch still sees what that left. Waits for the
  // others' launches. A close() in between takes effect at the end. Throws driver::Error.
  void keep_turn();
  void give_turn_back() noexcept;

  // Work that was put on `stream` since the last launch uses what the graphs share: later launches
  // in these turns wait for what is on the stream now. Where the graph was given turns, later work
  // on the stream also waits for the launches so far. Waits for a framework's launch under way, as
  // launch() does. Throws driver::Error, kInvalidState where the stream is being captured.
  void note_use(std::uintptr_t stream, int ordinal);

  // Makes the first launch cheap: copies the graph to the device, once.
  void upload(std::uintptr_t stream, int ordinal);

  // Takes the topology and parameters of `other` into this executable graph. `payload` is what
  // later launches need, in place of what was retained before, which goes once the launches so far
  // are over. False with the reason if the graphs do not fit (nor do copies that were added with
  // memory of another kind than their inside has, see IoCopies::rest). Then, and where this
  // throws, nothing has changed and the payload is still the caller's.
  bool update(CapturedGraph& other, const Payload& payload, UpdateRefusal& refusal);

  [[nodiscard]] std::vector<SpanTime> times();

  void close() noexcept;

  // The same for a caller that must not wait for another thread: false, with nothing done, if one
  // is in a call.
  bool try_close() noexcept;

  // In a forked child, and when the driver is gone. Takes no lock.
  void throw_if_blocked() const;

  [[nodiscard]] bool closed() const noexcept { return closed_.load(std::memory_order_acquire); }
  [[nodiscard]] std::uint64_t replays() const noexcept { return replays_.load(); }
  [[nodiscard]] bool uploaded() const noexcept { return uploaded_.load(); }
  [[nodiscard]] bool collects() const noexcept { return spans_.collects(); }
  [[nodiscard]] GraphTimers keeping() const noexcept { return spans_.keeping(); }
  [[nodiscard]] std::size_t span_count() const noexcept { return spans_.size(); }
  // What another executable copy takes, made for that and destroyed, and what upload() took.
  [[nodiscard]] GraphMemory memory();
  [[nodiscard]] std::uintptr_t stream() const noexcept { return stream_; }
  [[nodiscard]] int device() const noexcept { return device_; }
  // Null for a lent executable graph without its source. Throws if closed.
  [[nodiscard]] void* graph();
  [[nodiscard]] void* exec();
  [[nodiscard]] std::size_t node_count();

 private:
  struct Handle;
  // A scalar that the graph may read. The driver runs the launches of one executable graph one
  // after the other, so that an update which one of them waited for needs no other wait.
  struct ReadScalar {
    std::weak_ptr<const DeviceScalar> scalar;
    std::uint32_t waited_for = 0;  // its number of updates then
    std::uint32_t now = 0;         // at the launch under way
  };
  // Takes the lock, unless a forked child or a dead driver has to be told first: in a child nobody
  // would ever give it back.
  [[nodiscard]] std::unique_lock<std::mutex> enter(bool wait = true);
  // The same for a launch, which is also kept out while a framework launches on another thread.
  [[nodiscard]] std::unique_lock<std::mutex> enter_launch(bool wait);
  driver::EventAccess throw_if_unusable() const;
  void throw_unless_alike(const CapturedGraph& other) const;
  void check_stream(const driver::Table& table, std::uintptr_t stream) const;
  // `at` is null for a launch that is not pointed.
  PointedLaunch launch_locked(std::uintptr_t stream, int ordinal, timing::Sample* replay,
                              IoAddresses* at);
  PointedLaunch open_launch(const driver::Table& table, const driver::EventAccess& access,
                            std::uintptr_t stream, int ordinal, timing::Sample* replay,
                            IoAddresses* at);
  PointedLaunch begin_by_framework(std::uintptr_t stream, int ordinal, timing::Sample* replay,
                                   IoAddresses* at);
  void begin_hold(std::unique_lock<std::recursive_mutex> held) noexcept;
  void end_hold() noexcept;
  void wait_for_scalars(std::uintptr_t stream);
  void wait_for_turn(const driver::Table& table, const driver::EventAccess& access,
                     std::uintptr_t stream);
  int record_turn(const driver::Table& table, const driver::EventAccess& access,
                  std::uintptr_t stream) noexcept;
  void close_launch(timing::Sample* replay, const timing::Sample& launch) noexcept;
  void fail_launch(timing::Sample* replay) noexcept;
  void note_launch(const driver::EventAccess& access, std::uintptr_t stream) noexcept;
  void let_go_of_payload() noexcept;
  void close_locked() noexcept;
  void take_apart() noexcept;
  [[nodiscard]] std::int64_t free_memory() const noexcept;

  const std::uintptr_t stream_;
  timing::EventClock* clock_ = nullptr;  // of the graph's context; lives as long as the process
  int device_ = 0;
  std::uint32_t generation_;
  std::atomic<bool> closed_{false};
  std::atomic<bool> uploaded_{false};
  std::atomic<std::uint64_t> replays_{0};

  std::shared_ptr<LaunchOrder> turns_;  // whose lock is that of what follows
  std::shared_ptr<Handle>
      graph_;  // what it looks like; shared with a graph that was updated from it
  std::shared_ptr<Handle> source_;  // what the executable graph was made of
  void* exec_ = nullptr;
  bool owns_exec_ = false;
  GraphSpans spans_;
  GraphMemory memory_;
  bool measured_ = false;
  int holds_ = 0;  // launches of a framework between their two halves, and turns that are kept
  Payload payload_;
  IoCopies copies_;
  std::vector<ReadScalar> scalars_;
  bool in_order_ = false;  // other graphs, or work that was noted, have to be waited for
  // Recorded after each launch, where there is a payload or others are to wait for it.
  std::shared_ptr<LaunchEvent> over_;
  bool needed_ = false;      // a launch needs the payload
  bool lost_track_ = false;  // the last record of `over_` failed
};

// Closes and destroys a graph that nobody uses any more, and then releases the payload: in a later
// release_finished(), once no thread is in a call of a graph with the same turns.
void close_later(std::unique_ptr<CapturedGraph> graph, const Payload& payload) noexcept;

// Does what close_later() was given, and calls the release functions of closed graphs whose last
// replay is over. Any thread; waits for none, is cheap where there is nothing, and breaks nobody's
// capture.
void release_finished() noexcept;

}  // namespace gpuprof::graphs
