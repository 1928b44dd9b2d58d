// One event of a trace, as a thread leaves it for the writer: one cache line.
//
// Times are nanoseconds of the host's monotonic clock (driver/host_clock.hpp). The event owns its
// `extra`; who takes the event out of a buffer deletes it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "driver/host_clock.hpp"
#include "trace/label.hpp"

namespace gpuprof::trace {

using driver::HostNanoseconds;

enum class Kind : std::uint8_t {
  kSlice,      // [begin, end] on a thread's track
  kAsync,      // [begin, end] that may overlap others: on a track of its own
  kGpu,        // a span on a GPU stream; extra->gpu says where and what
  kInstant,    // at `end`
  kCounter,    // at `end`; extra->args are the series
  kFlowStart,  // at `end`; `id` joins it to the others of the flow
  kFlowStep,
  kFlowEnd,
};

// A GPU time that GpuClock::place() can put on the host's clock; see timing/timeline.hpp.
struct GpuMoment {
  void* clock = nullptr;
  std::uint32_t anchor = 0;
  double ms = 0.0;
};

// Puts GPU times on the host's clock. Called on the writer thread; want() also by open() and
// close().
struct GpuClock {
  enum class Answer : std::uint8_t { kPlaced, kNotYet, kNever };
  // Begins or stops the work that place() needs; calls are counted.
  void (*want)(bool on) noexcept = [](bool) noexcept {};
  // Called now and then, so that earlier times can be placed.
  void (*refresh)() noexcept = []() noexcept {};
  Answer (*place)(const GpuMoment& moment, HostNanoseconds& at, HostNanoseconds& error) noexcept =
      [](const GpuMoment&, HostNanoseconds&, HostNanoseconds&) noexcept { return Answer::kNever; };
  // What the GPU has not finished yet; null for nothing. Then whether it has, which takes their
  // times; and how many spans it has not finished by now.
  std::shared_ptr<const void> (*in_flight)() noexcept = []() noexcept {
    return std::shared_ptr<const void>();
  };
  bool (*is_over)(const void* in_flight) noexcept = [](const void*) noexcept { return true; };
  std::uint64_t (*count_in_flight)() noexcept = []() noexcept { return std::uint64_t{0}; };
};
// The one in use; set before the first trace is opened. By default no GPU time can be placed.
inline GpuClock gpu_clock;
inline void set_gpu_clock(const GpuClock& clock) noexcept { gpu_clock = clock; }

// What a GPU span was: its category in the file.
enum class GpuWork : std::uint8_t {
  kScope,         // "gpu": between the two events of a scope
  kReplay,        // "gpu_graph": one launch of a graph
  kInsideReplay,  // "gpu_in_graph": a scope inside a graph
};

// A span that ran on a stream.
struct GpuSpan {
  GpuWork work = GpuWork::kScope;
  GpuMoment begin;
  double duration_ns = 0.0;
  HostNanoseconds launched = 0;  // the earliest possible begin
  int device = 0;
  std::uint64_t stream = 0;  // stream_key()
  std::uint64_t order = 0;   // in which the process read the spans
};

// For the few events that need it.
struct Extra {
  std::string args;                  // members of a JSON object, without its braces; may be empty
  std::shared_ptr<const Label> own;  // the name, where it was not interned
  GpuSpan gpu;
};

// Where annotations may be open around an event, which nobody counts.
inline constexpr std::uint16_t kUnknownDepth = 0xFFFF;

struct Event {
  Kind kind = Kind::kSlice;
  std::uint16_t depth = 0;   // how many slices of its thread are around it, if known
  std::uint32_t target = 0;  // the number of one trace, or 0: all that record
  std::uint32_t tid = 0;     // of the host thread; 0: the thread that noted it
  std::uint64_t id = 0;      // of a flow
  const Label* name = nullptr;
  const Label* category = nullptr;
  HostNanoseconds begin = 0;
  HostNanoseconds end = 0;
  Extra* extra = nullptr;
};
static_assert(sizeof(Event) <= 64);

// Sets the name: an interned label, or past their number one that the event owns. May make the
// extra, which is the caller's until the event is noted. Throws std::bad_alloc.
inline void set_name(Event& event, std::string_view text) {
  event.name = intern(text);
  if (event.name != nullptr) return;
  auto label = std::make_shared<Label>();
  append_json(label->json, text);
  event.name = label.get();
  if (event.extra == nullptr) event.extra = new Extra;
  event.extra->own = std::move(label);
}

// Sets the members of the args object, in the same way.
inline void set_args(Event& event, std::string members) {
  if (members.empty()) return;
  if (event.extra == nullptr) event.extra = new Extra;
  event.extra->args = std::move(members);
}

}  // namespace gpuprof::trace
