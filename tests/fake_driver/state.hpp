// Every object that the fake driver keeps, and the lock around them.
//
// One mutex guards all of it: each entry point holds it for the whole call (see call.hpp), except
// while it waits for real time to pass. Objects are shared so that queued work may outlive the
// handle that named it. Times are virtual nanoseconds since the last reset.
#pragma once

#include <pthread.h>

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "fake.h"

namespace fakecuda {

struct Context;
struct Stream;
struct Event;

// When a piece of queued work ends; unknown while it waits behind a closed gate.
struct Completion {
  bool scheduled = false;
  Ns end = 0;
};
using Done = std::shared_ptr<Completion>;

enum class OpKind {
  kWork,
  kRecord,
  kWaitValue,
  kWriteValue,
  kMemset,
  kMemcpy,
  kFree,
  kTrap,
  kHost,
  kJoin
};

// A host function of a stream. It runs on a thread of the driver's, without the lock.
struct HostCall {
  void (*function)(void*) = nullptr;
  void* argument = nullptr;
  bool begun = false;
  bool over = false;
};

struct Op {
  OpKind kind = OpKind::kWork;
  Ns cost = 0;
  bool in_order = true;  // false: a node of a graph, which waits for `after` and not for the stream
  std::vector<Done> after;
  Done done;
  DevicePtr address = 0;
  std::uint64_t value = 0;
  unsigned flags = 0;
  std::size_t count = 0;  // of elements
  unsigned element_size = 4;
  std::uintptr_t source = 0;  // of a copy; 0: nothing is copied
  bool to_host = false;
  bool from_host = false;
  std::shared_ptr<std::vector<char>> staged;  // what a copy from pageable memory took along
  std::shared_ptr<HostCall> host;             // of this run; a node's is a pattern
};

// Which handles the node of a kernel shows: that of its function in a context, that of the kernel
// of a library, or, once such a kernel has been launched, both.
enum class KernelHandles : unsigned char { kFunction, kKernelAlone, kBoth };

// A kernel and how it is launched.
struct Kernel {
  Handle function = 0;
  KernelHandles handles = KernelHandles::kFunction;
  unsigned grid[3] = {1, 1, 1};
  unsigned block[3] = {1, 1, 1};
  unsigned shared = 0;
  bool programmatic = false;  // may start before what it comes after has ended
};

// Whose memory an address is: nobody's that the driver knows, a pool's, or other memory that was
// allocated in a context; whether that is the host's does not matter.
struct MemoryKind {
  bool known = false;
  bool pooled = false;
  const Context* context = nullptr;
  bool operator!=(const MemoryKind& other) const {
    return known != other.known || pooled != other.pooled || context != other.context;
  }
};

struct Graph;

struct Node {
  NodeType type = kNodeKernel;
  Handle handle = 0;
  std::vector<int> after;
  Op op;
  Kernel kernel;
  std::weak_ptr<Event> event;
  Handle event_handle = 0;
  std::shared_ptr<Graph> child;
  std::shared_ptr<char> memory;  // keeps the address of an allocation node
  MemoryKind source_kind;        // of a copy, as it was made
  MemoryKind target_kind;
  bool enabled = true;  // in an executable copy
};

struct Graph {
  Handle handle = 0;
  unsigned id = 0;  // as tools name it; graphs and executable copies are counted together
  std::vector<Node> nodes;
  std::string label;
  bool in_capture = false;  // the capture owns it until it ends well
  bool embedded = false;    // a node owns it
};

struct Context {
  Handle handle = 0;
  std::uint64_t id = 0;
  int device = 0;
  bool is_primary = false;
  bool alive = true;
  Result sticky = kSuccess;
  Result unseen_fault = kSuccess;  // a kernel has failed, and no query or wait has met it yet
  std::shared_ptr<Stream> legacy;
  std::map<std::uint64_t, std::shared_ptr<Stream>> per_thread;
  std::string label;
};

struct GraphExec {
  Handle handle = 0;
  unsigned id = 0;
  Handle graph = 0;
  Context* context = nullptr;
  std::vector<Node> nodes;  // those of child graphs too; with the handles of the source's nodes
  std::vector<Node> source;
  bool frees_on_launch = false;
  bool has_other_events = false;  // than at its last launch
  std::size_t memory = 0;         // of the device
  Done last;
  std::string label;
};

// One capture sequence, from begin to end; `streams` are the origin and all that were forked.
struct Session {
  std::uint64_t id = 0;
  CaptureMode mode = kModeGlobal;
  std::uint64_t owner = 0;
  bool open = true;
  bool invalidated = false;
  std::shared_ptr<Stream> origin;
  std::vector<std::shared_ptr<Stream>> streams;
  std::shared_ptr<Graph> graph;
};

// `polled_at` is what State::appended was when somebody last asked for a stream or an event.
constexpr std::uint64_t kNeverPolled = ~std::uint64_t{0};

struct Stream {
  Handle handle = 0;
  std::uint64_t id = 0;
  Context* context = nullptr;
  bool blocking = true;
  bool legacy = false;
  std::deque<Op> queue;
  std::size_t scheduled = 0;  // how many at the front of the queue have their times
  Ns tail = 0;
  Done last;
  std::shared_ptr<Session> session;
  std::vector<int> tips;  // the nodes that the next captured node comes after
  std::vector<Handle> tip_handles;
  std::uint64_t polled_at = kNeverPolled;
  std::string label;
};

struct Event {
  Handle handle = 0;
  Context* context = nullptr;
  bool timing = true;
  Done done;                         // null: never recorded
  std::shared_ptr<Session> session;  // last recorded in this capture
  std::vector<int> tips;
  std::uint64_t polled_at = kNeverPolled;
  std::string label;
};

struct Allocation {
  std::size_t size = 0;
  bool host = false;
  Context* context = nullptr;
  std::string label;
  bool pooled = false;    // allocated in the order of a stream
  bool leaving = false;   // its release is queued
  bool of_graph = false;  // there from a launch to its release, and as long as `users` want it
  bool mapped = true;
  std::weak_ptr<char> users;
};

struct Primary {
  Context* context = nullptr;
  Handle handle = 0;
  int retains = 0;
  int abandoned = 0;  // retains whose release was made to fail
  std::string label;
};

struct Config {
  int driver_version = 13000;
  int device_count = 1;
  std::unordered_set<std::string> missing;
  Result init = kSuccess;
  Ns record_ns = 1280;
  Ns call_ns = 1000;
  Ns query_ns = 10000;
  Ns seen_ns = 0;    // how much later than its stamp a query sees that an event is over
  Ns jitter_ns = 0;  // a record and a query take up to so much longer, at random
  bool automatic = true;
  bool reuse = false;
  bool spared = false;  // calls are neither counted nor made to fail: they are the test's own
  std::int64_t drift_ppb = 0;
  static constexpr std::size_t total_memory = std::size_t{16} << 30;
  std::size_t queue_entries = 0;  // a call that queues more on a stream waits; 0: there is no limit
};

struct Rule {
  std::string function;  // as written: a symbol, a base name, or "any"
  std::uint64_t first = 1;
  std::uint64_t last = 1;
  std::uint64_t seen = 0;
  Result code = kSuccess;
  bool after = false;
  bool sticky = false;
  bool block = false;
};

template <typename T>
using Table = std::unordered_map<Handle, std::shared_ptr<T>>;

struct State {
  Config config;
  std::vector<Rule> rules;
  bool initialised = false;
  bool forked = false;
  bool gone = false;
  Result device_fault = kSuccess;  // outlives the context that met it
  Ns now = 0;

  std::vector<std::unique_ptr<Context>> all_contexts;  // dead ones too: events point at them
  std::unordered_map<Handle, Context*> contexts;
  std::vector<Primary> primaries;
  Table<Stream> streams;
  Table<Event> events;
  Table<Graph> graphs;
  Table<GraphExec> execs;
  std::vector<std::shared_ptr<GraphExec>> dying_execs;  // destroyed while a launch runs
  std::map<std::string, Handle> functions;
  std::unordered_map<Handle, std::string> function_names;
  std::unordered_map<Handle, std::pair<Handle, int>> nodes;
  std::map<std::uintptr_t, Allocation> memory;
  std::size_t memory_used = 0;
  std::size_t graph_allocations = 0;  // how many entries of `memory` belong to graphs
  std::vector<std::shared_ptr<Session>> sessions;
  std::vector<std::shared_ptr<Stream>> busy;  // streams that have queued work
  std::vector<Handle> free_streams;           // with reuse=1
  std::unordered_set<Handle> abandoned;       // their destroy call was made to fail

  std::uint64_t random = 1;  // the last number of the sequence behind jitter_ns

  std::uint64_t appended = 0;  // operations, to all queues

  std::uint64_t serial = 0;
  std::uint64_t next_stream_id = 13;
  std::uint64_t next_context_id = 1;
  std::uint64_t next_session_id = 1;
  unsigned next_graph_id = 1;

  std::unordered_map<std::string, std::uint64_t> calls;
  std::uint64_t total_calls = 0;
  std::uint64_t calls_after_deinit = 0;
  std::map<std::pair<std::thread::id, std::string>, std::uint64_t> calls_of_thread;
  std::deque<const char*> last_calls;
  int blocked_calls = 0;
  int calls_without_room = 0;  // those of them that wait for room in a queue
  std::uint64_t releases = 0;
  std::deque<std::string> log;
  std::uint64_t log_dropped = 0;
};

// What belongs to the calling thread. A reset of the driver empties it at its next use.
struct Thread {
  std::uint64_t epoch = 0;
  std::uint64_t id = 0;
  std::vector<Handle> contexts;
  CaptureMode mode = kModeGlobal;
  std::string answer;  // the text that a control function returned last
};

State& state();
Thread& this_thread();
void reset_state();  // with the lock held

void lock();
void unlock();
// Gives the lock up at the end of a call, when what nobody wants any more goes.
void leave();
void notify();                 // wakes calls in wait_for_notice
void wait_for_notice();        // with the lock held, which it gives up meanwhile
void pause(int microseconds);  // the same, for real time to pass

// Calls made in processes forked after cuInit; shared with the parent, which can read it.
std::atomic<std::uint64_t>& calls_in_child();

enum class Kind : unsigned char {
  kContext = 0x41,
  kStream = 0x42,
  kEvent = 0x43,
  kGraph = 0x44,
  kExec = 0x45,
  kNode = 0x46,
  kFunction = 0x47,
};
// A handle that is no address on any 64-bit machine and is never given out twice.
Handle new_handle(Kind kind);
std::string new_label(const char* function);

// Says why on stderr and aborts, where the real driver would crash the process.
[[noreturn]] void misuse(const char* function, const char* why);

}  // namespace fakecuda
