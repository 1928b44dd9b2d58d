#include "capture.hpp"

#include <algorithm>

#include "call.hpp"
#include "graph.hpp"
#include "time.hpp"

namespace fakecuda {
namespace {

enum class Conflict { kNone, kOwnThread, kOtherThread };

Conflict conflict_with(const Session& session, const Thread& thread) {
  if (thread.mode == kModeRelaxed) return Conflict::kNone;
  if (session.owner == thread.id) {
    return session.mode == kModeRelaxed ? Conflict::kNone : Conflict::kOwnThread;
  }
  const bool both_global = thread.mode == kModeGlobal && session.mode == kModeGlobal;
  return both_global ? Conflict::kOtherThread : Conflict::kNone;
}

// Every node that `tips` come after, and the tips.
std::vector<bool> reachable(const Graph& graph, std::vector<int> tips) {
  std::vector<bool> seen(graph.nodes.size(), false);
  while (!tips.empty()) {
    const auto node = static_cast<std::size_t>(tips.back());
    tips.pop_back();
    if (seen[node]) continue;
    seen[node] = true;
    tips.insert(tips.end(), graph.nodes[node].after.begin(), graph.nodes[node].after.end());
  }
  return seen;
}

bool has_unjoined_work(const Session& session) {
  const auto joined = reachable(*session.graph, session.origin->tips);
  for (const auto& stream : session.streams) {
    for (const int tip : stream->tips) {
      if (!joined[static_cast<std::size_t>(tip)]) return true;
    }
  }
  return false;
}

void set_tips(Stream& stream, std::vector<int> tips) {
  stream.tip_handles.clear();
  for (const int tip : tips) {
    stream.tip_handles.push_back(
        stream.session->graph->nodes[static_cast<std::size_t>(tip)].handle);
  }
  stream.tips = std::move(tips);
}

}  // namespace

Result refuse_unsafe(State& s) {
  const Thread& thread = this_thread();
  Conflict worst = Conflict::kNone;
  for (const auto& session : s.sessions) {
    const Conflict conflict = conflict_with(*session, thread);
    if (conflict == Conflict::kNone) continue;
    session->invalidated = true;
    worst = std::max(worst, conflict);
  }
  if (worst == Conflict::kNone) return kSuccess;
  log_line(
      worst == Conflict::kOwnThread
          ? "API call conflicts with a stream capture sequence initiated from the calling thread"
          : "API call conflicts with a stream capture sequence initiated from another thread");
  return kCaptureUnsupported;
}

Result refuse_context_wide(State& s, const Context& context) {
  Result answer = kSuccess;
  for (const auto& session : s.sessions) {
    if (session->origin->context != &context) continue;
    session->invalidated = true;
    answer = kCaptureUnsupported;
  }
  return answer;
}

Result refuse_capturing(Stream& stream) {
  if (!stream.session) return kSuccess;
  stream.session->invalidated = true;
  return kCaptureUnsupported;
}

Result refuse_implicit(State& s, const Stream& stream, bool invalidates) {
  if (!stream.legacy) return kSuccess;
  Result answer = kSuccess;
  for (const auto& session : s.sessions) {
    for (const auto& captured : session->streams) {
      if (!captured->blocking || captured->context != stream.context) continue;
      answer = kCaptureImplicit;
      if (invalidates) session->invalidated = true;
    }
  }
  if (answer != kSuccess) {
    log_line(
        "Call cannot be made against CU_STREAM_LEGACY while a blocking stream in the same context "
        "is capturing");
  }
  return answer;
}

std::shared_ptr<Session> begin_capture(State& s, const std::shared_ptr<Stream>& stream,
                                       CaptureMode mode) {
  auto session = std::make_shared<Session>();
  session->id = s.next_session_id++;
  session->mode = mode;
  session->owner = this_thread().id;
  session->origin = stream;
  session->graph = make_graph(s, "cuStreamBeginCapture_v2");
  session->graph->in_capture = true;
  s.sessions.push_back(session);
  join_capture(session, stream, {});
  return session;
}

void close_capture(State& s, std::shared_ptr<Session> session, bool keep_graph) {
  session->open = false;
  for (const auto& stream : session->streams) {
    stream->session.reset();
    stream->tips.clear();
    stream->tip_handles.clear();
  }
  session->streams.clear();
  session->origin.reset();
  session->graph->in_capture = false;
  if (!keep_graph) forget_graph(s, *session->graph);
  s.sessions.erase(std::find(s.sessions.begin(), s.sessions.end(), session));
}

Result end_capture(State& s, const std::shared_ptr<Stream>& stream, Handle* graph) {
  const std::shared_ptr<Session> session = stream->session;
  if (!session) {
    log_line("Stream is not actively capturing");
    return kIllegalState;
  }
  const bool at_origin = session->origin == stream;
  Result answer = kSuccess;
  if (!at_origin) {
    session->invalidated = true;
    log_line("Capture was not initiated on hStream");
    answer = kCaptureUnmatched;
  } else if (session->invalidated) {
    log_line("Capture was invalidated by a prior API call");
    answer = kCaptureInvalidated;
  } else if (session->mode != kModeRelaxed && session->owner != this_thread().id) {
    log_line(
        "CU_STREAM_CAPTURE_MODE_RELAXED is required to begin and end the capture on different "
        "threads");
    answer = kCaptureWrongThread;
  } else if (has_unjoined_work(*session)) {
    log_line("Capture sequence contains a fork that was not joined to the primary stream");
    answer = kCaptureUnjoined;
  }
  if (!at_origin) return answer;
  if (answer == kSuccess) *graph = session->graph->handle;
  close_capture(s, session, answer == kSuccess);
  return answer;
}

void join_capture(const std::shared_ptr<Session>& session, const std::shared_ptr<Stream>& stream,
                  const std::vector<int>& tips) {
  if (!stream->session) {
    stream->session = session;
    session->streams.push_back(stream);
  }
  std::vector<int> all = stream->tips;
  for (const int tip : tips) {
    if (std::find(all.begin(), all.end(), tip) == all.end()) all.push_back(tip);
  }
  set_tips(*stream, std::move(all));
}

void add_node(State& s, Stream& stream, Node node) {
  Graph& graph = *stream.session->graph;
  const int index = static_cast<int>(graph.nodes.size());
  node.after = stream.tips;
  list_node(s, graph, std::move(node));
  set_tips(stream, {index});
}

Node node_of(NodeType type, Op op) {
  Node node;
  node.type = type;
  node.op = std::move(op);
  return node;
}

Node node_of(NodeType type, Op op, const std::shared_ptr<Event>& event) {
  Node node = node_of(type, std::move(op));
  node.event = event;
  node.event_handle = event->handle;
  return node;
}

Result submit(State& s, const std::shared_ptr<Stream>& stream, Node node) {
  if (const Result refused = refuse_implicit(s, *stream, true); refused != kSuccess) return refused;
  if (!stream->session) {
    enqueue(s, stream, std::move(node.op));
    return kSuccess;
  }
  if (stream->session->invalidated) return kCaptureInvalidated;
  add_node(s, *stream, std::move(node));
  return kSuccess;
}

}  // namespace fakecuda
