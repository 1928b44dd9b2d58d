// What a thread notes for the writer: one event, a cache line long.
//
// Times are nanoseconds of the host's monotonic clock (driver/host_clock.hpp). An event owns its
// `extra`; whoever takes it out of a buffer deletes that.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "driver/host_clock.hpp"
#include "trace/label.hpp"

namespace gpuprof::trace {

using driver::HostNanoseconds;

enum class Kind : std::uint8_t {
  kSlice,      // [begin, end] on a thread's track
  kAsync,      // [begin, end] that may cross others: a slice of its own track
  kGpu,        // a span on a GPU stream; extra->gpu says where and what
  kInstant,    // at `end`
  kCounter,    // at `end`; extra->args are the series
  kFlowStart,  // at `end`; `id` joins it to the others of the flow
  kFlowStep,
  kFlowEnd,
};

// A moment of the GPU that only its clock can place on the host's; see timing/timeline.hpp.
struct GpuMoment {
  void* clock = nullptr;
  std::uint32_t anchor = 0;
  double ms = 0.0;
};

// What a span on a stream was, which is its category in the file.
enum class GpuWork : std::uint8_t {
  kScope,         // "gpu": between the two events of a scope
  kReplay,        // "gpu_graph": one launch of a graph
  kInsideReplay,  // "gpu_in_graph": a scope inside a graph; what was launched is the graph
};

// A span that ran on a stream.
struct GpuSpan {
  GpuWork work = GpuWork::kScope;
  GpuMoment begin;
  double duration_ns = 0.0;
  HostNanoseconds launched = 0;  // it cannot have begun before
  int device = 0;
  std::uint64_t stream = 0;  // stream_key()
  std::uint64_t order = 0;   // in which it was read out, among all of the process
};

// What few events have.
struct Extra {
  std::string args;                  // members of a JSON object, without its braces; may be empty
  std::unique_ptr<const Label> own;  // the name, where it was not interned
  GpuSpan gpu;
};

struct Event {
  Kind kind = Kind::kSlice;
  std::uint16_t depth = 0;   // how many slices of this thread were open around it, if known
  std::uint32_t target = 0;  // the number of one trace, or 0: every one that records
  std::uint32_t tid = 0;     // of the host thread; 0: the one that noted it
  std::uint64_t id = 0;      // of a flow
  const Label* name = nullptr;
  const Label* category = nullptr;
  HostNanoseconds begin = 0;
  HostNanoseconds end = 0;
  Extra* extra = nullptr;
};
static_assert(sizeof(Event) <= 64);

// Sets the name: an interned label, or past their number one that the event owns. May make its
// extra, which is the caller's until the event is noted. Throws std::bad_alloc.
void set_name(Event& event, std::string_view text);

// Sets the members of the args object. The same holds.
void set_args(Event& event, std::string members);

}  // namespace gpuprof::trace
