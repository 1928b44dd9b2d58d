// Stream capture: which calls are refused while a capture is open, and what each refusal breaks.
//
// The rules are the real driver's, row for row (tests/conformance/golden). Every function wants the
// lock held. "Open" lasts from begin to end, also while the capture is invalidated.
#pragma once

#include "state.hpp"

namespace fakecuda {

// A call that might wait for the device or change memory. 900, and the captures that it conflicts
// with are invalidated, unless this thread's capture mode allows it.
Result refuse_unsafe(State& s);

// 900 for any open capture of this context, whatever the modes.
Result refuse_context_wide(State& s, const Context& context);

// 900 for a wait or a query of a stream that is itself being captured.
Result refuse_capturing(Stream& stream);

// 906 where work on the legacy stream would depend on a blocking stream that is being captured.
Result refuse_implicit(State& s, const Stream& stream, bool invalidates);

std::shared_ptr<Session> begin_capture(State& s, const std::shared_ptr<Stream>& stream,
                                       CaptureMode mode);
// Frees every stream of the capture, which may hold its last reference. `keep_graph`: its graph
// becomes the caller's.
void close_capture(State& s, std::shared_ptr<Session> session, bool keep_graph);
Result end_capture(State& s, const std::shared_ptr<Stream>& stream, Handle* graph);

void join_capture(const std::shared_ptr<Session>& session, const std::shared_ptr<Stream>& stream,
                  const std::vector<int>& tips);
// Adds a node that comes after the stream's tips and is the next tip.
void add_node(State& s, Stream& stream, Node node);

Node node_of(NodeType type, Op op);
Node node_of(NodeType type, Op op, const std::shared_ptr<Event>& event);

// Enqueues the work of a node, or adds the node to the stream's capture.
Result submit(State& s, const std::shared_ptr<Stream>& stream, Node node);

}  // namespace fakecuda
