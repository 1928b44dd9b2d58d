// Events.
#include "call.hpp"
#include "capture.hpp"
#include "objects.hpp"
#include "time.hpp"

using namespace fakecuda;

namespace {

Result create_event(State& s, Handle* out, unsigned flags, const char* function) {
  Context* context = nullptr;
  if (out == nullptr || (flags & ~kEventFlagsMask) != 0) return kInvalidValue;
  if ((flags & kEventInterprocess) != 0 && (flags & kEventDisableTiming) == 0) return kInvalidValue;
  if (const Result answer = current_context(s, context); answer != kSuccess) return answer;
  auto event = std::make_shared<Event>();
  event->handle = new_handle(Kind::kEvent);
  event->context = context;
  event->timing = (flags & kEventDisableTiming) == 0;
  event->label = new_label(function);
  *out = event->handle;
  s.events[event->handle] = std::move(event);
  return kSuccess;
}

Op record_op(State& s) {
  Op op;
  op.kind = OpKind::kRecord;
  op.cost = s.config.record_ns + jitter(s);
  return op;
}

Result record_in_capture(State& s, const std::shared_ptr<Event>& event, Stream& stream,
                         unsigned flags) {
  if (stream.session->invalidated) return kCaptureInvalidated;
  if (flags == kRecordExternal) {
    add_node(s, stream, node_of(kNodeEventRecord, record_op(s), event));
    return kSuccess;
  }
  event->session = stream.session;
  event->tips = stream.tips;
  return kSuccess;
}

Result record(State& s, const char* function, Handle event_handle, Handle stream_handle,
              unsigned flags) {
  std::shared_ptr<Event> event;
  std::shared_ptr<Stream> stream;
  if (event_handle == 0) return kInvalidHandle;
  if (flags > kRecordExternal) return kInvalidValue;
  Result answer = find_event(s, function, event_handle, event);
  if (answer == kSuccess) answer = find_stream(s, function, stream_handle, stream);
  if (answer != kSuccess) return answer;
  if (event->context != stream->context) return kInvalidHandle;
  if (const Result refused = refuse_implicit(s, *stream, true); refused != kSuccess) return refused;
  if (stream->session) return record_in_capture(s, event, *stream, flags);
  if (flags == kRecordExternal) return kIllegalState;
  event->session.reset();
  event->done = enqueue(s, stream, record_op(s));
  return kSuccess;
}

// An event that was last recorded in a capture: 907 while that can still end well, then 1.
Result refuse_captured(const Event& event) {
  if (!event.session) return kSuccess;
  if (!event.session->open || event.session->invalidated) return kInvalidValue;
  log_line("Recorded event not allowed on stream");
  return kCapturedEvent;
}

// What a query and a wait refuse alike.
Result refuse_touching(State& s, const char* function, Handle handle,
                       std::shared_ptr<Event>& event) {
  if (handle == 0) {
    log_line("Event handle is NULL");
    return kInvalidHandle;
  }
  if (!s.initialised) return kNotInitialized;
  if (const Result answer = find_event(s, function, handle, event); answer != kSuccess) {
    return answer;
  }
  if (const Result refused = refuse_captured(*event); refused != kSuccess) {
    if (refused == kCapturedEvent) event->session->invalidated = true;
    return refused;
  }
  return refuse_unsafe(s);
}

// When a query sees that recorded work is over.
Ns seen_at(const State& s, const Done& done) { return done ? done->end + s.config.seen_ns : 0; }

Result query_event(State& s, const char* function, Handle handle) {
  std::shared_ptr<Event> event;
  const Result refused = refuse_touching(s, function, handle, event);
  if (refused != kSuccess) return refused;
  if (const Result fault = meet_fault(s, *event->context); fault != kSuccess) return fault;
  if (is_over(s, event->done) && seen_at(s, event->done) <= s.now) return kSuccess;
  pass_polling_time(s, event->polled_at);
  return kNotReady;
}

// Whether one end of an interval can be read; `running` where it can, later.
Result readable(const State& s, const Event& event, bool& running) {
  if (const Result refused = refuse_captured(event); refused != kSuccess) return refused;
  if (!event.timing || !event.done) return kInvalidHandle;
  running = running || !is_over(s, event.done);
  return kSuccess;
}

Result elapsed(State& s, const char* function, float* milliseconds, Handle begin, Handle end) {
  std::shared_ptr<Event> first;
  std::shared_ptr<Event> second;
  bool running = false;
  if (milliseconds == nullptr) return kInvalidHandle;
  Result answer = find_event(s, function, begin, first);
  if (answer == kSuccess) answer = find_event(s, function, end, second);
  if (answer != kSuccess) return answer;
  if (first->context != second->context) return kInvalidHandle;
  answer = readable(s, *first, running);
  if (answer == kSuccess) answer = readable(s, *second, running);
  if (answer != kSuccess) return answer;
  if (running) return kNotReady;
  const Ns interval = stamp_of(s, *second->done) - stamp_of(s, *first->done);
  *milliseconds = static_cast<float>(static_cast<double>(interval) / 1e6);
  return kSuccess;
}

}  // namespace

FAKECUDA_EXPORT Result cuEventCreate(Handle* out, unsigned flags) {
  return call({__func__},
              [&](const char* function) { return create_event(state(), out, flags, function); });
}

FAKECUDA_EXPORT Result cuEventDestroy_v2(Handle handle) {
  return call_destroying({__func__, InChild::kAnswersSuccess}, handle, [&](const char* function) {
    std::shared_ptr<Event> event;
    const Result answer = find_event(state(), function, handle, event);
    // A dead context's event answers 709 however often it is destroyed.
    if (answer != kInvalidHandle && answer != kContextIsDestroyed) state().events.erase(handle);
    return answer;
  });
}

FAKECUDA_EXPORT Result cuEventRecord(Handle event, Handle stream) {
  return call({__func__, InChild::kCrashes},
              [&](const char* function) { return record(state(), function, event, stream, 0); });
}

FAKECUDA_EXPORT Result cuEventRecordWithFlags(Handle event, Handle stream, unsigned flags) {
  return call({__func__, InChild::kCrashes}, [&](const char* function) {
    return record(state(), function, event, stream, flags);
  });
}

FAKECUDA_EXPORT Result cuEventQuery(Handle event) {
  return call({__func__, InChild::kAnswersSuccess, false},
              [&](const char* function) { return query_event(state(), function, event); });
}

FAKECUDA_EXPORT Result cuEventSynchronize(Handle handle) {
  return call({__func__, InChild::kAnswersSuccess}, [&](const char* function) -> Result {
    State& s = state();
    std::shared_ptr<Event> event;
    const Result refused = refuse_touching(s, function, handle, event);
    if (refused != kSuccess) return refused;
    wait_until_over(s, event->done);
    return meet_fault(s, *event->context);
  });
}

FAKECUDA_EXPORT Result cuEventElapsedTime(float* milliseconds, Handle begin, Handle end) {
  return call({__func__, InChild::kAnswersSuccess}, [&](const char* function) {
    return elapsed(state(), function, milliseconds, begin, end);
  });
}

FAKECUDA_EXPORT Result cuEventElapsedTime_v2(float* milliseconds, Handle begin, Handle end) {
  return call({__func__, InChild::kAnswersSuccess}, [&](const char* function) {
    return elapsed(state(), function, milliseconds, begin, end);
  });
}
