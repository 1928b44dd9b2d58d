// Streams, waiting between them, and capturing them.
#include <algorithm>

#include "call.hpp"
#include "capture.hpp"
#include "objects.hpp"
#include "time.hpp"

using namespace fakecuda;

namespace {

Result create_stream(State& s, Handle* out, unsigned flags, const char* function) {
  Context* context = nullptr;
  if (out == nullptr || flags > kStreamNonBlocking) return kInvalidValue;
  if (const Result answer = current_context(s, context); answer != kSuccess) return answer;
  auto stream = std::make_shared<Stream>();
  stream->handle = new_handle(Kind::kStream);
  if (s.config.reuse && !s.free_streams.empty()) {
    stream->handle = s.free_streams.back();
    s.free_streams.pop_back();
  }
  stream->id = s.next_stream_id++;
  stream->context = context;
  stream->blocking = (flags & kStreamNonBlocking) == 0;
  stream->label = new_label(function);
  *out = stream->handle;
  s.streams[stream->handle] = std::move(stream);
  return kSuccess;
}

Result destroy(State& s, const char* function, Handle handle) {
  std::shared_ptr<Stream> stream;
  const Result answer = find_stream(s, function, handle, stream);
  if (handle <= kPerThreadStream) return answer == kSuccess ? kInvalidHandle : answer;
  // Its capture is dropped without a word, and queued work runs on.
  if (stream->session) close_capture(s, stream->session, false);
  s.streams.erase(handle);
  if (s.config.reuse) s.free_streams.push_back(handle);
  return answer;
}

// What a query and a wait refuse alike.
Result refuse_touching(State& s, const char* function, Handle handle,
                       std::shared_ptr<Stream>& stream) {
  if (const Result answer = find_stream(s, function, handle, stream); answer != kSuccess) {
    return answer;
  }
  if (const Result refused = refuse_capturing(*stream); refused != kSuccess) return refused;
  if (const Result refused = refuse_unsafe(s); refused != kSuccess) return refused;
  return refuse_implicit(s, *stream, true);
}

std::vector<std::shared_ptr<Stream>> waited_for(const State& s,
                                                const std::shared_ptr<Stream>& stream) {
  std::vector<std::shared_ptr<Stream>> all = {stream};
  if (!stream->legacy) return all;
  for (const auto& other : streams_of(s, *stream->context)) {
    if (other->blocking) all.push_back(other);
  }
  return all;
}

Result query_stream(State& s, const char* function, Handle handle) {
  std::shared_ptr<Stream> stream;
  const Result refused = refuse_touching(s, function, handle, stream);
  if (refused != kSuccess) return refused;
  const auto idle = [&] {
    const auto all = waited_for(s, stream);
    return std::all_of(all.begin(), all.end(), [&](const auto& one) { return is_idle(s, *one); });
  };
  pump(s);
  if (const Result fault = meet_fault(s, *stream->context); fault != kSuccess) return fault;
  if (idle()) return kSuccess;
  pass_polling_time(s, stream->polled_at);
  return kNotReady;
}

Result wait_for_event(State& s, const char* function, Handle stream_handle, Handle event_handle,
                      unsigned flags) {
  std::shared_ptr<Stream> stream;
  std::shared_ptr<Event> event;
  if (flags > kWaitExternal) return kInvalidValue;
  Result answer = find_event(s, function, event_handle, event);
  if (answer == kSuccess) answer = find_stream(s, function, stream_handle, stream);
  if (answer == kSuccess) answer = refuse_implicit(s, *stream, true);
  if (answer != kSuccess) return answer;
  const auto captured = event->session;
  if (stream->session && stream->session->invalidated) return kCaptureInvalidated;
  if (captured && (!captured->open || captured->invalidated)) {
    if (stream->session) stream->session->invalidated = true;
    return kInvalidValue;
  }
  if (captured && stream->session && captured != stream->session) {
    captured->invalidated = stream->session->invalidated = true;
    return kCaptureMerge;
  }
  if (captured) {
    if (stream->legacy) {
      captured->invalidated = true;
      return kCaptureImplicit;
    }
    join_capture(captured, stream, event->tips);
    return kSuccess;
  }
  if (stream->session && flags == kWaitExternal) {
    Op op;
    op.kind = OpKind::kJoin;
    add_node(s, *stream, node_of(kNodeWaitEvent, std::move(op), event));
    return kSuccess;
  }
  if (stream->session) {
    stream->session->invalidated = true;
    return kCaptureIsolation;
  }
  if (is_over(s, event->done)) return kSuccess;
  Op op;
  op.kind = OpKind::kJoin;
  op.after.push_back(event->done);
  enqueue(s, stream, std::move(op));
  return kSuccess;
}

Result capture_info(State& s, const char* function, Handle handle, CaptureStatus* status,
                    std::shared_ptr<Stream>& stream) {
  if (status == nullptr) return kInvalidValue;
  if (const Result answer = find_stream(s, function, handle, stream); answer != kSuccess) {
    return answer;
  }
  if (const Result refused = refuse_implicit(s, *stream, false); refused != kSuccess) {
    return refused;
  }
  *status = !stream->session               ? kStatusNone
            : stream->session->invalidated ? kStatusInvalidated
                                           : kStatusActive;
  return kSuccess;
}

Result full_capture_info(State& s, const char* function, Handle handle, CaptureStatus* status,
                         std::uint64_t* id, Handle* graph, const Handle** tips,
                         std::size_t* count) {
  std::shared_ptr<Stream> stream;
  const Result answer = capture_info(s, function, handle, status, stream);
  if (answer != kSuccess || *status != kStatusActive) return answer;
  if (id != nullptr) *id = stream->session->id;
  if (graph != nullptr) *graph = stream->session->graph->handle;
  if (tips != nullptr) *tips = stream->tip_handles.data();
  if (count != nullptr) *count = stream->tip_handles.size();
  return kSuccess;
}

}  // namespace

FAKECUDA_EXPORT Result cuStreamCreate(Handle* out, unsigned flags) {
  return call({__func__},
              [&](const char* function) { return create_stream(state(), out, flags, function); });
}

FAKECUDA_EXPORT Result cuStreamDestroy_v2(Handle stream) {
  return call_destroying({__func__, InChild::kCrashes}, stream,
                         [&](const char* function) { return destroy(state(), function, stream); });
}

FAKECUDA_EXPORT Result cuStreamQuery(Handle stream) {
  // When gpuprof asks depends on real time, so what it asks of an idle stream takes no virtual
  // time.
  return call({__func__, InChild::kAnswersSuccess, true, false},
              [&](const char* function) { return query_stream(state(), function, stream); });
}

FAKECUDA_EXPORT Result cuStreamSynchronize(Handle handle) {
  return call({__func__, InChild::kAnswersSuccess}, [&](const char* function) -> Result {
    State& s = state();
    std::shared_ptr<Stream> stream;
    const Result refused = refuse_touching(s, function, handle, stream);
    if (refused != kSuccess) return refused;
    wait_until_idle(s, waited_for(s, stream));
    return meet_fault(s, *stream->context);
  });
}

FAKECUDA_EXPORT Result cuStreamWaitEvent(Handle stream, Handle event, unsigned flags) {
  return call({__func__, InChild::kAnswersSuccess}, [&](const char* function) {
    return wait_for_event(state(), function, stream, event, flags);
  });
}

FAKECUDA_EXPORT Result cuStreamGetCtx(Handle handle, Handle* context) {
  return call({__func__, InChild::kAnswersSuccess}, [&](const char* function) -> Result {
    std::shared_ptr<Stream> stream;
    if (context == nullptr) return kInvalidValue;
    const Result answer = find_stream(state(), function, handle, stream);
    if (answer != kSuccess) return answer;
    if (stream->session && stream->session->invalidated) return kCaptureInvalidated;
    *context = stream->context->handle;
    return kSuccess;
  });
}

FAKECUDA_EXPORT Result cuStreamGetId(Handle handle, unsigned long long* id) {
  return call({__func__}, [&](const char* function) -> Result {
    std::shared_ptr<Stream> stream;
    if (id == nullptr) return kInvalidValue;
    Result answer = find_stream(state(), function, handle, stream);
    if (answer == kSuccess) answer = refuse_capturing(*stream);
    if (answer == kSuccess) *id = stream->id;
    return answer;
  });
}

FAKECUDA_EXPORT Result cuStreamIsCapturing(Handle handle, CaptureStatus* status) {
  return call({__func__, InChild::kAnswersSuccess, true, false}, [&](const char* function) {
    std::shared_ptr<Stream> stream;
    return capture_info(state(), function, handle, status, stream);
  });
}

FAKECUDA_EXPORT Result cuStreamGetCaptureInfo_v2(Handle handle, CaptureStatus* status,
                                                 std::uint64_t* id, Handle* graph,
                                                 const Handle** tips, std::size_t* count) {
  return call({__func__, InChild::kAnswersSuccess}, [&](const char* function) {
    return full_capture_info(state(), function, handle, status, id, graph, tips, count);
  });
}

FAKECUDA_EXPORT Result cuStreamBeginCapture_v2(Handle handle, int mode) {
  return call({__func__, InChild::kAnswersSuccess}, [&](const char* function) -> Result {
    State& s = state();
    std::shared_ptr<Stream> stream;
    const Result answer = find_stream(s, function, handle, stream);
    if (answer != kSuccess) return answer;
    if (mode < kModeGlobal || mode > kModeRelaxed) return kInvalidValue;
    if (stream->legacy) return kCaptureUnsupported;
    if (stream->session) return kIllegalState;
    begin_capture(s, stream, static_cast<CaptureMode>(mode));
    return kSuccess;
  });
}

FAKECUDA_EXPORT Result cuStreamEndCapture(Handle handle, Handle* graph) {
  return call({__func__, InChild::kAnswersSuccess}, [&](const char* function) -> Result {
    State& s = state();
    std::shared_ptr<Stream> stream;
    if (graph == nullptr) return kInvalidValue;
    *graph = 0;
    const Result answer = find_stream(s, function, handle, stream);
    if (answer == kSuccess) return end_capture(s, stream, graph);
    if (stream && stream->session) close_capture(s, stream->session, false);
    return answer;
  });
}

FAKECUDA_EXPORT Result cuThreadExchangeStreamCaptureMode(int* mode) {
  return call({__func__, InChild::kAnswersSuccess, true, false}, [&]() -> Result {
    if (mode == nullptr) return kInvalidValue;
    Thread& thread = this_thread();
    const CaptureMode before = thread.mode;
    // A mode that there is not is no error to the real driver either.
    if (*mode >= kModeGlobal && *mode <= kModeRelaxed)
      thread.mode = static_cast<CaptureMode>(*mode);
    *mode = before;
    return kSuccess;
  });
}
