#include "trace/event_values.hpp"

#include <array>

namespace gpuprof::trace::reading {

const char* key_of(Field field) noexcept {
  constexpr std::array<const char*, kFields> kKeys{
      "ph", "name", "cat", "ts", "dur", "pid", "tid", "id", "id2", "bind_id", "bp", "args", "s"};
  return kKeys[static_cast<std::size_t>(field)];
}

ReadError unexpected(const TraceEvent& event, Field field, const std::string& expected) {
  const Value& value = event.value(field);
  std::string shown = name_of(value.kind);
  constexpr std::uint32_t kShort = 40;
  if (value.kind == ValueKind::kNumber && value.end - value.begin <= kShort) {
    shown = event.raw(value);
  }
  return {event.offset + value.begin,
          std::string("\"") + key_of(field) + "\" is " + shown + "; expected " + expected,
          event.index};
}

char require_phase(const TraceEvent& event) {
  const char phase = event.phase();
  if (phase == '\0') throw unexpected(event, Field::kPh, "a letter in quotes");
  return phase;
}

Nanoseconds require_time(const TraceEvent& event, Field field) {
  if (event.value(field).kind != ValueKind::kNumber) {
    throw unexpected(event, field, "a number of microseconds");
  }
  const auto time = nanoseconds(event.raw(field));
  if (!time) throw unexpected(event, field, "microseconds within 146 years");
  return *time;
}

void require_labels(const TraceEvent& event) {
  for (const Field field : {Field::kName, Field::kCat}) {
    const ValueKind kind = event.value(field).kind;
    if (kind != ValueKind::kAbsent && kind != ValueKind::kString) {
      throw unexpected(event, field, "a string");
    }
  }
  for (const Field field : {Field::kPid, Field::kTid}) {
    const ValueKind kind = event.value(field).kind;
    if (kind != ValueKind::kAbsent && kind != ValueKind::kString && kind != ValueKind::kNumber) {
      throw unexpected(event, field, "a whole number");
    }
  }
}

Span require_span(const TraceEvent& event) {
  const Nanoseconds begin = require_time(event, Field::kTs);
  const Nanoseconds duration = require_time(event, Field::kDur);
  if (duration.value < 0) throw unexpected(event, Field::kDur, "none below 0");
  if (duration.value > kMostNanoseconds - begin.value) {
    throw unexpected(event, Field::kDur, "an end within 146 years");
  }
  return {begin.value, begin.value + duration.value, begin.exact && duration.exact};
}

}  // namespace gpuprof::trace::reading
