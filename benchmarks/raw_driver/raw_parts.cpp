// The parts of a timed scope and of a graph launch that are driver calls, one kind at a time.
//
// Times are host nanoseconds for the whole call; a negative result is a driver's error code,
// negated. Call raw_open() first.
#include <algorithm>
#include <cstddef>
#include <vector>

#include "raw_driver.hpp"

namespace {

using raw::Code;
using raw::Handle;
using raw::kSuccess;
using raw::kUnresolved;
using raw::now_ns;
using raw::resolve;

constexpr unsigned kDisableTiming = 2;

struct Calls {
  Code (*current)(Handle*) = nullptr;
  Code (*device)(int*) = nullptr;
  Code (*context_id)(Handle, unsigned long long*) = nullptr;
  Code (*context_of)(Handle, Handle*) = nullptr;
  Code (*is_capturing)(Handle, int*) = nullptr;
  Code (*event_create)(Handle*, unsigned) = nullptr;
  Code (*event_destroy)(Handle) = nullptr;
  Code (*event_record)(Handle, Handle) = nullptr;
  Code (*elapsed)(float*, Handle, Handle) = nullptr;
  Code (*synchronize)(Handle) = nullptr;
};

Calls calls;

// Events that are destroyed at the end.
class Events {
 public:
  Events(std::size_t count, unsigned flags) : events_(count) {
    for (Handle& event : events_) code_ = std::max(code_, calls.event_create(&event, flags));
  }
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;
  ~Events() {
    for (Handle event : events_) {
      if (event != nullptr) calls.event_destroy(event);
    }
  }
  [[nodiscard]] Handle operator[](std::size_t index) const { return events_[index]; }
  [[nodiscard]] Code code() const { return code_; }

 private:
  std::vector<Handle> events_;
  Code code_ = kSuccess;
};

std::int64_t answer(std::int64_t spent, Code code) {
  return code == kSuccess ? spent : -std::int64_t{code};
}

}  // namespace

extern "C" {

int raw_parts_open() {
  Handle library = dlopen("libcuda.so.1", RTLD_NOW);
  const bool found = library != nullptr && resolve(library, "cuCtxGetCurrent", calls.current) &&
                     resolve(library, "cuCtxGetDevice", calls.device) &&
                     resolve(library, "cuCtxGetId", calls.context_id) &&
                     resolve(library, "cuStreamGetCtx", calls.context_of) &&
                     resolve(library, "cuStreamIsCapturing", calls.is_capturing) &&
                     resolve(library, "cuEventCreate", calls.event_create) &&
                     resolve(library, "cuEventDestroy_v2", calls.event_destroy) &&
                     resolve(library, "cuEventRecord", calls.event_record) &&
                     (resolve(library, "cuEventElapsedTime_v2", calls.elapsed) ||
                      resolve(library, "cuEventElapsedTime", calls.elapsed)) &&
                     resolve(library, "cuStreamSynchronize", calls.synchronize);
  return found ? kSuccess : kUnresolved;
}

// What a scope asks at its enter and exit: whether the context lives and is current, and whether
// the stream is being captured.
std::int64_t raw_scope_queries(std::uintptr_t stream_value, std::size_t count) {
  const auto stream = reinterpret_cast<Handle>(stream_value);
  const bool is_default = stream_value <= 2;
  Handle context = nullptr;
  int capturing = 0;
  unsigned long long id = 0;
  Code code = calls.current(&context);
  const std::int64_t begun = now_ns();
  for (std::size_t n = 0; n < count && code == kSuccess; ++n) {
    code = is_default ? calls.current(&context) : calls.context_of(stream, &context);
    code = std::max(code, calls.context_id(context, &id));
    code = std::max(code, calls.is_capturing(stream, &capturing));
    code = std::max(code, calls.context_id(context, &id));
    if (is_default) code = std::max(code, calls.current(&context));
    code = std::max(code, calls.is_capturing(stream, &capturing));
  }
  return answer(now_ns() - begun, code);
}

// What a launch asks: whether the context lives, and whether the stream is being captured.
std::int64_t raw_launch_queries(std::uintptr_t stream_value, std::size_t count) {
  const auto stream = reinterpret_cast<Handle>(stream_value);
  Handle context = nullptr;
  int capturing = 0;
  unsigned long long id = 0;
  Code code = calls.current(&context);
  const std::int64_t begun = now_ns();
  for (std::size_t n = 0; n < count && code == kSuccess; ++n) {
    code = std::max(calls.context_id(context, &id), calls.is_capturing(stream, &capturing));
  }
  return answer(now_ns() - begun, code);
}

// Reads `count` complete pairs, a pool at a time; their records are not timed.
std::int64_t raw_pair_reads(std::uintptr_t stream_value, std::size_t count, std::size_t pool) {
  const auto stream = reinterpret_cast<Handle>(stream_value);
  const Events events(2 * pool, 0);
  Code code = events.code();
  std::int64_t spent = 0;
  for (std::size_t done = 0; done < count && code == kSuccess; done += pool) {
    for (std::size_t n = 0; n < 2 * pool; ++n) {
      code = std::max(code, calls.event_record(events[n], stream));
    }
    code = std::max(code, calls.synchronize(stream));
    const std::size_t reads = std::min(pool, count - done);
    const std::int64_t begun = now_ns();
    for (std::size_t n = 0; n < reads && code == kSuccess; ++n) {
      float ms = 0.0F;
      code = calls.elapsed(&ms, events[2 * n], events[2 * n + 1]);
    }
    spent += now_ns() - begun;
  }
  return answer(spent, code);
}

// Records one event without timing `count` times, in bursts: what follows a launch of a graph that
// keeps something alive.
std::int64_t raw_completions(std::uintptr_t stream_value, std::size_t count, std::size_t burst) {
  const auto stream = reinterpret_cast<Handle>(stream_value);
  const Events events(1, kDisableTiming);
  Code code = events.code();
  std::int64_t spent = 0;
  for (std::size_t done = 0; done < count && code == kSuccess; done += burst) {
    const std::int64_t begun = now_ns();
    for (std::size_t n = 0; n < std::min(burst, count - done) && code == kSuccess; ++n) {
      code = calls.event_record(events[0], stream);
    }
    spent += now_ns() - begun;
    code = std::max(code, calls.synchronize(stream));
  }
  return answer(spent, code);
}

}  // extern "C"
