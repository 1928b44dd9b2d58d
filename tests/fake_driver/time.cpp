#include "time.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

#include "copies.hpp"
#include "host_functions.hpp"
#include "objects.hpp"

namespace fakecuda {
namespace {

constexpr Ns kTick = 32;
constexpr Ns kNever = std::numeric_limits<Ns>::max();
constexpr int kGatePollMicroseconds = 100;

bool gate_is_open(const Op& op) {
  const auto value = static_cast<std::uint32_t>(op.value);
  const auto word =
      __atomic_load_n(reinterpret_cast<const std::uint32_t*>(op.address), __ATOMIC_ACQUIRE);
  switch (op.flags & 3) {
    case kWaitValueGeq:
      return static_cast<std::int32_t>(word - value) >= 0;
    case kWaitValueEq:
      return word == value;
    case kWaitValueAnd:
      return (word & value) != 0;
    default:
      return ~(word | value) != 0;
  }
}

// When `op` may start, if everything before it has its times.
std::optional<Ns> start_of(const Stream& stream, const Op& op) {
  Ns start = op.in_order ? stream.tail : 0;
  for (const Done& before : op.after) {
    if (!before->scheduled) return std::nullopt;
    start = std::max(start, before->end);
  }
  return start;
}

bool schedule_one(const State& s, Stream& stream) {
  Op& op = stream.queue[stream.scheduled];
  const auto start = start_of(stream, op);
  if (!start) return false;
  Ns end = *start + op.cost;
  if (op.kind == OpKind::kWaitValue) {
    // A word is looked at when the stream gets there, not before.
    if (*start > s.now || !gate_is_open(op)) return false;
    end = s.now;
  }
  if (op.kind == OpKind::kHost) {
    if (*start > s.now) return false;
    if (!op.host->begun) run_on_host(op.host);
    if (!op.host->over) return false;
    end = s.now;
  }
  op.done->end = end;
  op.done->scheduled = true;
  if (op.in_order) stream.tail = end;
  ++stream.scheduled;
  return true;
}

void fault(Context& context, Result code) {
  if (context.unseen_fault == kSuccess) context.unseen_fault = code;
}

void write_value(const Op& op) {
  if (op.element_size == 8) {
    __atomic_store_n(reinterpret_cast<std::uint64_t*>(op.address), op.value, __ATOMIC_RELEASE);
  } else {
    __atomic_store_n(reinterpret_cast<std::uint32_t*>(op.address),
                     static_cast<std::uint32_t>(op.value), __ATOMIC_RELEASE);
  }
}

void set_memory(const Op& op) {
  if (op.element_size == 1) {
    std::memset(reinterpret_cast<void*>(op.address), static_cast<int>(op.value), op.count);
  } else if (op.element_size == 2) {
    std::fill_n(reinterpret_cast<std::uint16_t*>(op.address), op.count,
                static_cast<std::uint16_t>(op.value));
  } else {
    std::fill_n(reinterpret_cast<std::uint32_t*>(op.address), op.count,
                static_cast<std::uint32_t>(op.value));
  }
}

void copy_memory(const Op& op) {
  const void* source = op.staged ? op.staged->data() : reinterpret_cast<const void*>(op.source);
  std::memmove(reinterpret_cast<void*>(op.address), source, op.count);
}

void apply(State& s, const Op& op, Context& context) {
  if (op.kind == OpKind::kTrap) fault(context, kLaunchFailed);
  if (op.kind == OpKind::kFree) free_memory(s, static_cast<std::uintptr_t>(op.address));
  const bool touches =
      op.kind == OpKind::kWriteValue || op.kind == OpKind::kMemset || op.kind == OpKind::kMemcpy;
  if (!touches || op.address == 0) return;
  if (!has_memory(s, op)) return fault(context, kIllegalAddress);
  if (op.kind == OpKind::kWriteValue) write_value(op);
  if (op.kind == OpKind::kMemset) set_memory(op);
  if (op.kind == OpKind::kMemcpy) copy_memory(op);
}

bool retire_one(State& s, Stream& stream) {
  if (stream.scheduled == 0 || stream.queue.front().done->end > s.now) return false;
  apply(s, stream.queue.front(), *stream.context);
  stream.queue.pop_front();
  --stream.scheduled;
  return true;
}

void forget_idle_streams(State& s) {
  const auto idle = [](const auto& stream) { return stream->queue.empty(); };
  s.busy.erase(std::remove_if(s.busy.begin(), s.busy.end(), idle), s.busy.end());
}

// The next moment at which something happens on this stream.
Ns next_moment(const State& s, const Stream& stream) {
  const Op& front = stream.queue.front();
  if (stream.scheduled > 0) return front.done->end;
  const auto start = start_of(stream, front);
  return start && *start > s.now ? *start : kNever;
}

// False: nothing will ever happen without somebody opening a gate.
bool step(State& s) {
  Ns next = kNever;
  for (const auto& stream : s.busy) next = std::min(next, next_moment(s, *stream));
  if (next == kNever) return false;
  s.now = std::max(s.now, next);
  pump(s);
  return true;
}

void add_implicit_order(const State& s, const Stream& stream, Op& op) {
  if (!stream.blocking) return;
  if (!stream.legacy) {
    const Done& before = stream.context->legacy->last;
    if (!is_over(s, before)) op.after.push_back(before);
    return;
  }
  for (const auto& other : s.busy) {
    const bool waits = other->blocking && !other->legacy && other->context == stream.context;
    if (waits && !is_over(s, other->last)) op.after.push_back(other->last);
  }
}

Done append(State& s, const std::shared_ptr<Stream>& stream, Op op) {
  ++s.appended;
  op.done = std::make_shared<Completion>();
  if (op.host) op.host = std::make_shared<HostCall>(HostCall{op.host->function, op.host->argument});
  Done done = op.done;
  if (stream->queue.empty()) {
    stream->tail = std::max(stream->tail, s.now);
    s.busy.push_back(stream);
  }
  if (op.in_order) {
    stream->tail = std::max(stream->tail, s.now);
    stream->last = done;
  }
  stream->queue.push_back(std::move(op));
  return done;
}

// Seen behind a stream that waits: host functions may follow one another, but only so often others.
constexpr std::ptrdiff_t kHostGroups = 56;

bool has_all_host_groups(const std::deque<Op>& queue) {
  if (queue.empty() || !queue.back().host) return false;
  std::ptrdiff_t groups = 0;
  for (std::size_t i = 0; i < queue.size(); ++i) {
    if (queue[i].host && (i == 0 || !queue[i - 1].host)) ++groups;
  }
  return groups >= kHostGroups;
}

void wait_for_room(State& s, const Stream& stream, bool is_host_function) {
  const auto is_full = [&] {
    return stream.queue.size() >= s.config.queue_entries ||
           (!is_host_function && has_all_host_groups(stream.queue));
  };
  if (s.config.queue_entries == 0 || !is_full()) return;
  ++s.blocked_calls;
  ++s.calls_without_room;
  for (; is_full(); pump(s)) {
    if (!step(s)) pause(kGatePollMicroseconds);
  }
  --s.calls_without_room;
  --s.blocked_calls;
}

}  // namespace

void pump(State& s) {
  if (s.busy.empty()) return;
  for (bool changed = true; changed;) {
    changed = false;
    for (const auto& stream : s.busy) {
      while (stream->scheduled < stream->queue.size() && schedule_one(s, *stream)) changed = true;
    }
    for (const auto& stream : s.busy) {
      while (retire_one(s, *stream)) changed = true;
    }
  }
  forget_idle_streams(s);
}

void pass_polling_time(State& s, std::uint64_t& polled_at) {
  if (!s.config.automatic) return;
  if (polled_at == s.appended) s.now += s.config.query_ns + jitter(s);
  polled_at = s.appended;
}

Done enqueue(State& s, const std::shared_ptr<Stream>& stream, Op op) {
  wait_for_room(s, *stream, op.host != nullptr);
  add_implicit_order(s, *stream, op);
  Done done = append(s, stream, std::move(op));
  pump(s);
  return done;
}

void enqueue_graph(State& s, const std::shared_ptr<Stream>& stream, GraphExec& exec) {
  wait_for_room(s, *stream, /*is_host_function=*/false);
  Op begin;
  begin.kind = OpKind::kJoin;
  if (!is_over(s, exec.last)) begin.after.push_back(exec.last);
  add_implicit_order(s, *stream, begin);
  const Done begun = append(s, stream, std::move(begin));
  Op join;
  join.kind = OpKind::kJoin;
  std::vector<Done> done;
  for (const Node& node : exec.nodes) {
    Op op = node.enabled ? node.op : Op{};
    if (!node.enabled) op.kind = OpKind::kJoin;
    op.in_order = false;
    op.after = {begun};
    for (const int before : node.after) op.after.push_back(done[static_cast<std::size_t>(before)]);
    const auto event = node.event.lock();
    if (event && node.type == kNodeWaitEvent && event->done) op.after.push_back(event->done);
    done.push_back(append(s, stream, std::move(op)));
    if (event && node.type == kNodeEventRecord) {
      event->done = done.back();
      event->session.reset();
    }
  }
  join.after = std::move(done);
  exec.last = append(s, stream, std::move(join));
  pump(s);
}

bool is_over(const State& s, const Done& done) {
  return !done || (done->scheduled && done->end <= s.now);
}

bool is_idle(const State& s, const Stream& stream) {
  return stream.queue.empty() && is_over(s, stream.last);
}

bool advance_until_over(State& s, const Done& done) {
  pump(s);
  while (!is_over(s, done)) {
    if (done->scheduled) {
      s.now = done->end;
      pump(s);
    } else if (!step(s)) {
      return false;
    }
  }
  return true;
}

void wait_until_over(State& s, const Done& done) {
  while (!advance_until_over(s, done)) pause(kGatePollMicroseconds);
}

void wait_until_idle(State& s, const std::vector<std::shared_ptr<Stream>>& streams) {
  for (const auto& stream : streams) wait_until_over(s, stream->last);
}

Ns stamp_of(const State& s, const Completion& done) {
  const Ns drift =
      static_cast<Ns>(static_cast<__int128>(done.end) * s.config.drift_ppb / 1000000000);
  const Ns time = done.end + drift;
  return time - time % kTick;
}

Ns jitter(State& s) {
  if (s.config.jitter_ns == 0) return 0;
  s.random = s.random * 6364136223846793005U + 1442695040888963407U;  // Knuth's
  return static_cast<Ns>((s.random >> 33) % static_cast<std::uint64_t>(s.config.jitter_ns + 1));
}

void drop_work(State& s, Stream& stream) {
  for (Op& op : stream.queue) {
    if (op.done->scheduled && op.done->end <= s.now) continue;
    op.done->scheduled = true;
    op.done->end = s.now;
  }
  stream.queue.clear();
  stream.scheduled = 0;
  forget_idle_streams(s);
}

std::vector<std::shared_ptr<Stream>> streams_of(const State& s, const Context& context) {
  std::vector<std::shared_ptr<Stream>> found;
  for (const auto& stream : s.busy) {
    if (stream->context == &context) found.push_back(stream);
  }
  return found;
}

}  // namespace fakecuda
