// A graph and its executable copy: launched, updated, inspected.
//
// Owns the driver's objects, unless they are borrowed from a framework, and the events of the spans
// inside. Any thread may call; calls serialise on the graph's lock, which is held over driver
// calls. A caller that must not wait for another thread (because it holds Python's lock) calls
// close(false). Streams are handles as integers, kept alive by the caller. Errors are
// driver::Error. close() and the destructor never throw, do nothing in a forked child, and may be
// called while a replay runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "graphs/capture.hpp"
#include "graphs/cuda_node_ids.hpp"
#include "graphs/device_scalar.hpp"
#include "graphs/graph_timers.hpp"
#include "graphs/io_copies.hpp"
#include "graphs/nodes.hpp"
#include "timing/sample.hpp"

namespace gpuprof::driver {
class EventAccess;
struct Table;
}  // namespace gpuprof::driver

namespace gpuprof::graphs {

using gpuprof::GraphMemory;

// Runs the launches of graphs that share memory one after the other, in the order of the calls.
//
// Make it with std::make_shared and give it to each of the graphs; a graph that is given none has
// its own. It is the lock of these graphs, and keeps the event after the last launch, which a
// launch on another stream waits for on the GPU. Any thread. Does nothing in a forked child.
class LaunchOrder {
 public:
  [[nodiscard]] std::uint64_t launches() const noexcept {
    return launches_.load(std::memory_order_relaxed);
  }

 private:
  friend class CapturedGraph;

  // Held by the one thread that may launch, from begin_external_launch() to end_external_launch()
  // and from lock_launch_order() to unlock_launch_order(). Taken before `mutex_`.
  std::recursive_mutex exclusive_;
  std::mutex mutex_;  // of what follows, and of the graphs in this order
  int exclusive_count_ = 0;
  std::thread::id exclusive_thread_;
  // Recorded after everything so far; null: nothing to wait for.
  std::shared_ptr<const timing::OwnEvent> last_;
  unsigned long long stream_id_ = 0;  // where it was recorded; 0: not known
  bool after_use_ = false;            // it was recorded by note_use(), else after a launch
  bool record_failed_ = false;
  std::atomic<std::uint64_t> launches_{0};  // written with the lock held
};

// Why the driver refused an update. Nodes are indices into the driver's node lists, -1 for none.
struct UpdateRefusal {
  int result = 0;  // CUgraphExecUpdateResult; not 0
  std::int64_t node = -1;
  std::int64_t node_of_other = -1;
};

// Something that launches of a graph need; null is nothing. It may be released on any thread, and
// under a lock.
struct ReleasePayload {
  void (*release)(void* what) = nullptr;
  void operator()(void* what) const noexcept { release(what); }
};
using Payload = std::unique_ptr<void, ReleasePayload>;

// The caller's addresses for the copies of one launch, as IoCopies::retarget() takes them.
struct IoAddresses {
  const std::uintptr_t* user_addresses = nullptr;
  std::ptrdiff_t refused = -1;  // written for LaunchResult::kRefused: which copy
};

struct LaunchRequest {
  std::uintptr_t stream = 0;
  int ordinal = 0;  // the device, where a default stream's thread has no context
  // Times the launch itself: a fresh sample with its path, depth and thread set, delivered like any
  // scope's. Without it the spans inside are not collected either.
  timing::Sample* replay = nullptr;
  IoAddresses* io = nullptr;  // null: the launch leaves the copies out
  // The thread that launches, also where another one makes the call: see lock_launch_order().
  std::thread::id caller = std::this_thread::get_id();
};

enum class LaunchResult : std::uint8_t {
  kLaunched,
  kCapturing,  // with `io`: the stream is being captured; without, that is an error
  kRefused,    // the driver refuses memory of this kind in a copy; see IoAddresses::refused
};

class CapturedGraph {
 public:
  // Of `parts.graph`, or of a `borrowed` one, which stays its framework's. Without `parts.clock`
  // the context is that of `stream`, or of device `ordinal`.
  CapturedGraph(CapturedParts parts, void* borrowed, std::uintptr_t stream, int ordinal,
                GraphTimers keeping);
  ~CapturedGraph();

  // The payload is released once the graph is closed and its last replay has completed, by the
  // first release_finished() after that. Each later launch records a completion event. Once; null
  // does nothing.
  void retain(Payload payload);

  // Each later launch waits for the last update of each of `scalars`. Scalars of other contexts are
  // ignored.
  void read_scalars(const std::vector<std::shared_ptr<const DeviceScalar>>& scalars);
  // The same for the scalars whose last update was on `stream`.
  void read_scalars_of(std::uintptr_t stream) { read_scalars(scalars_updated_on(*clock_, stream)); }

  // Puts the graph in `order`: each launch waits, on the GPU, for the one before it in that order,
  // on whatever stream. Before the first launch, and before other threads know the graph. Each
  // later launch records a completion event.
  void set_launch_order(std::shared_ptr<LaunchOrder> order);

  // Adds copy nodes for inputs and outputs; once, before instantiate() or borrow_exec(). The
  // graph's arrays must live as long as the graph, the user's until the executable graph is made.
  // After an error the graph is useless.
  void add_copies(const std::vector<IoCopy>& in, const std::vector<IoCopy>& out);

  // Makes the executable graph. Each launch frees what the launch before left allocated.
  void instantiate();
  // Uses a framework's executable graph instead, which was made of the unchanged graph.
  void borrow_exec(void* exec);

  LaunchResult launch(const LaunchRequest& request);

  // The same for a launch that a framework makes: begin, the framework's call, end, on one thread.
  // Always waits for other threads; these cannot launch in the same order until the end. No end
  // follows a begin that threw or did not answer kLaunched. A close() in between takes effect at
  // the end. `launched`: whether the framework's call succeeded.
  LaunchResult begin_external_launch(const LaunchRequest& request);
  void end_external_launch(const LaunchRequest& request, bool launched);

  // Keeps other threads from launching in this order until unlock_launch_order() on this thread, so
  // that a caller's copies after its launch read that launch's results. Waits for others' launches.
  // A close() in between takes effect at the unlock.
  void lock_launch_order();
  void unlock_launch_order() noexcept;

  // For work on `stream` that uses the graph's memory: later launches in this order wait for what
  // is on the stream now, and later work on the stream waits for the launches so far. Waits for an
  // external launch under way. kInvalidState where the stream is being captured.
  void note_use(std::uintptr_t stream);

  // Copies the graph to the device, once, so that the first launch is as cheap as later ones.
  void upload(std::uintptr_t stream);

  // Updates this executable graph to the topology and parameters of `other`. `payload` replaces the
  // retained one, which is released once the launches so far have completed. False with the reason
  // where the graphs do not match, or their copies use memory of another kind (see
  // IoCopies::disarm()); then, and where this throws, nothing has changed.
  bool update(CapturedGraph& other, Payload payload, UpdateRefusal& refusal);

  [[nodiscard]] std::vector<SpanTime> times();

  // Without `wait`: false, with nothing done, if another thread is in a call.
  bool close(bool wait = true) noexcept;

  [[nodiscard]] bool closed() const noexcept { return closed_.load(std::memory_order_acquire); }
  [[nodiscard]] std::uint64_t replays() const noexcept { return replays_.load(); }
  [[nodiscard]] bool uploaded() const noexcept { return uploaded_.load(); }
  [[nodiscard]] bool collects() const noexcept { return spans_.collects(); }
  [[nodiscard]] std::size_t span_count() const noexcept { return spans_.size(); }
  [[nodiscard]] timing::EventClock& clock() const noexcept { return *clock_; }
  // What a second executable copy takes, made to measure it and destroyed, and what upload() took.
  [[nodiscard]] GraphMemory memory();
  [[nodiscard]] int device() const noexcept { return device_; }
  // Null for a borrowed executable graph without its source. Throws if closed.
  [[nodiscard]] void* graph();
  [[nodiscard]] void* exec();
  [[nodiscard]] std::size_t node_count();
  // What the executable graph does now, with the scopes of the capture.
  [[nodiscard]] std::vector<Node> nodes();
  // The labelled nodes by the numbers that profilers give them; see cuda_node_ids.hpp.
  [[nodiscard]] std::vector<LabelledNode> labelled_nodes();
  [[nodiscard]] bool has_labels();

 private:
  // A scalar that the graph may read. Launches of one executable graph run one after the other, so
  // an update that one of them waited for needs no second wait.
  struct ReadScalar {
    std::weak_ptr<const DeviceScalar> scalar;
    std::uint32_t waited_for = 0;  // the number of its updates at the last wait
    std::uint32_t now = 0;         // at the launch under way
  };
  // Takes the lock. Throws first in a forked child, where the lock may never be released.
  [[nodiscard]] std::unique_lock<std::mutex> enter();
  // The same for a graph that can be used; see throw_if_unusable().
  [[nodiscard]] std::unique_lock<std::mutex> use();
  // As enter(), and waits for an external launch of another thread than the caller's.
  [[nodiscard]] std::unique_lock<std::mutex> enter_launch(std::thread::id caller);
  driver::EventAccess throw_if_unusable() const;
  void throw_unless_alike(const CapturedGraph& other) const;
  void throw_if_capturing(const driver::Table& table, std::uintptr_t stream) const;
  LaunchResult prepare_launch(const driver::Table& table, const driver::EventAccess& access,
                              const LaunchRequest& request);
  void launched(const driver::EventAccess& access, const LaunchRequest& request) noexcept;
  void launch_failed(timing::Sample* replay) noexcept;
  void begin_exclusive(std::unique_lock<std::recursive_mutex> lock) noexcept;
  void end_exclusive() noexcept;
  void wait_for_scalars(std::uintptr_t stream);
  void wait_for_previous(const driver::Table& table, const driver::EventAccess& access,
                         std::uintptr_t stream);
  int record_completion(const driver::Table& table, const driver::EventAccess& access,
                        std::uintptr_t stream) noexcept;
  [[nodiscard]] std::shared_ptr<const timing::OwnEvent> make_completed() const;
  void record_completions();
  void release_payload() noexcept;
  void destroy() noexcept;

  timing::EventClock* clock_ = nullptr;  // of the graph's context; lives as long as the process
  int device_ = 0;
  std::uint32_t generation_;
  std::atomic<bool> closed_{false};
  std::atomic<bool> uploaded_{false};
  std::atomic<std::uint64_t> replays_{0};

  std::shared_ptr<LaunchOrder> order_;  // whose lock guards what follows
  // The graph as it is, shared with one it was updated from; and what the executable graph was made
  // of. A graph outlives its context, executable graphs do not.
  std::shared_ptr<const CapturedParts> graph_;
  std::shared_ptr<const CapturedParts> source_;
  void* exec_ = nullptr;
  bool owns_exec_ = false;
  GraphSpans spans_;
  GraphMemory memory_;
  bool measured_ = false;
  int exclusive_count_ = 0;  // external launches under way, and locks of the launch order
  Payload payload_;
  IoCopies copies_;
  std::vector<ReadScalar> scalars_;
  bool in_order_ = false;  // has to wait for other graphs, or for work that was noted
  // Recorded after each launch where there is a payload or others wait for this graph.
  std::shared_ptr<const timing::OwnEvent> completed_;
  bool payload_used_ = false;   // by a launch
  bool record_failed_ = false;  // the last record of `completed_`
};

// Closes and destroys a graph that nobody uses any more, then releases the payload: in a later
// release_finished(), once no thread is in a call of a graph of the same order.
void close_later(std::unique_ptr<CapturedGraph> graph, Payload payload) noexcept;

// Releases the payload once `completed` is reached: now, or in a later release_finished(). Null is
// nothing to wait for. `record_failed`: the event says nothing, so the payload is kept until the
// context is gone. Leaks the payload for lack of memory.
void release_later(Payload payload, std::shared_ptr<const timing::OwnEvent> completed,
                   bool record_failed) noexcept;

// Whether anything waits for release_finished().
inline std::atomic<bool> any_deferred{false};
void release_deferred() noexcept;

// Closes what close_later() was given, unless another thread is in a call of such a graph, and
// releases the payloads of closed graphs whose last replay has completed. Any thread, without
// Python's lock: the driver may keep who destroys a graph waiting. Breaks no capture; one load
// where there is nothing to do.
inline void release_finished() noexcept {
  if (any_deferred.load(std::memory_order_acquire)) release_deferred();
}

}  // namespace gpuprof::graphs
