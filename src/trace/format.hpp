// Events as lines of Chrome trace JSON.
//
// The text follows the Trace Event Format as Perfetto's importer reads it: times are microseconds
// after the trace's base with three decimals, ids and pids plain integers, every line one object,
// then a comma and a newline. Nothing here allocates but the text that grows.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trace/event.hpp"
#include "trace/text.hpp"

namespace gpuprof::trace {

// Appends nanoseconds as microseconds with three decimals.
void append_microseconds(Text& out, HostNanoseconds nanoseconds);

// Where an event stands; `pid` is written as it is.
struct Position {
  std::string_view pid;
  std::uint32_t tid = 0;
};

// All of a slice's line that does not change from one entry of a scope to the next.
std::string slice_head(Position at, const Event& event);

// One line each. Times are relative to the base, and not negative. `head` is of the same event.
void append_slice(Text& out, std::string_view head, const Event& event, HostNanoseconds begin,
                  HostNanoseconds duration);
void append_async(Text& out, Position at, const Event& event, HostNanoseconds begin,
                  HostNanoseconds end, std::uint64_t id);
void append_instant(Text& out, Position at, const Event& event, HostNanoseconds time);
void append_counter(Text& out, Position at, const Event& event, HostNanoseconds time);
// `phase` is s, t or f.
void append_flow(Text& out, Position at, char phase, std::string_view name_json,
                 std::string_view category_json, HostNanoseconds time, std::uint64_t id);
// `args` are the members of the object, without braces.
void append_metadata(Text& out, Position at, std::string_view name, std::string_view args);

}  // namespace gpuprof::trace
