// What the members of an event must be for a reader to use them.
//
// Stateless, any thread. A member of another kind, or one too large, is a ReadError that names it.
#pragma once

#include <cstdint>
#include <string>

#include "trace/event_reader.hpp"
#include "trace/json_value.hpp"
#include "trace/read_error.hpp"

namespace gpuprof::trace::reading {

// The name of a member, as it stands in the file.
const char* key_of(Field field) noexcept;

// The ReadError for a member that is not what was expected.
ReadError unexpected(const TraceEvent& event, Field field, const std::string& expected);

// The phase; any other than a string of one character is an error.
char require_phase(const TraceEvent& event);

// A time in nanoseconds. Missing is an error too.
Nanoseconds require_time(const TraceEvent& event, Field field);

// Checks that names, categories, pids and tids are what they may be, or missing.
void require_labels(const TraceEvent& event);

// [begin, end] of a complete event.
struct Span {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool exact = true;  // whole nanoseconds in the file
};
Span require_span(const TraceEvent& event);

}  // namespace gpuprof::trace::reading
