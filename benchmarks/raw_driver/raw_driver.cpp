// The floor: what the same event records cost when C++ makes them and nothing else.
//
// A small shared library, built when a benchmark runs and loaded with ctypes. It declares the few
// driver functions itself and opens libcuda.so.1, so it needs no CUDA toolkit. Times are host
// nanoseconds for the whole call; a negative result is a driver's error code, negated. Each
// function may be called from any thread, after raw_open().
#include "raw_driver.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace {

using raw::Code;
using raw::Handle;
using raw::kSuccess;
using raw::kUnresolved;
using raw::now_ns;
using raw::resolve;

constexpr Code kNotReady = 600;
constexpr unsigned kNonBlocking = 1;

struct Driver {
  Code (*init)(unsigned) = nullptr;
  Code (*retain)(Handle*, int) = nullptr;
  Code (*set_current)(Handle) = nullptr;
  Code (*stream_create)(Handle*, unsigned) = nullptr;
  Code (*stream_synchronize)(Handle) = nullptr;
  Code (*event_create)(Handle*, unsigned) = nullptr;
  Code (*event_destroy)(Handle) = nullptr;
  Code (*event_record)(Handle, Handle) = nullptr;
  Code (*event_query)(Handle) = nullptr;
  Code (*elapsed)(float*, Handle, Handle) = nullptr;
  Handle context = nullptr;
};

Driver driver;

// Event pairs handed out round robin; a pair that comes round again is read first, if anybody
// reads.
class Ring {
 public:
  explicit Ring(std::size_t size) : pairs_(size) {
    for (auto& pair : pairs_) {
      note(driver.event_create(&pair.start, 0));
      note(driver.event_create(&pair.end, 0));
    }
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  ~Ring() {
    for (const auto& pair : pairs_) {
      if (pair.start != nullptr) driver.event_destroy(pair.start);
      if (pair.end != nullptr) driver.event_destroy(pair.end);
    }
  }

  void record(Handle stream, bool read) {
    if (read && pending_ == pairs_.size()) make_room();
    const Pair& pair = pairs_[next_];
    note(driver.event_record(pair.start, stream));
    note(driver.event_record(pair.end, stream));
    next_ = (next_ + 1) % pairs_.size();
    if (read) ++pending_;
  }

  void read_all() {
    while (pending_ != 0 && code_ == kSuccess) read_finished();
  }

  [[nodiscard]] Code code() const { return code_; }

 private:
  struct Pair {
    Handle start = nullptr;
    Handle end = nullptr;
  };

  void note(Code code) {
    if (code_ == kSuccess) code_ = code;
  }

  void make_room() {
    while (pending_ == pairs_.size() && code_ == kSuccess) read_finished();
    if (code_ != kSuccess) pending_ = 0;
  }

  // Reads the oldest pairs, up to the first that the GPU has not reached.
  void read_finished() {
    while (pending_ != 0) {
      const Pair& pair = pairs_[(next_ + pairs_.size() - pending_) % pairs_.size()];
      const Code done = driver.event_query(pair.end);
      if (done == kNotReady) return;
      note(done);
      float ms = 0.0F;
      note(driver.elapsed(&ms, pair.start, pair.end));
      if (code_ != kSuccess) return;
      sum_ms_ += static_cast<double>(ms);
      --pending_;
    }
  }

  std::vector<Pair> pairs_;
  std::size_t next_ = 0;
  std::size_t pending_ = 0;
  double sum_ms_ = 0.0;
  Code code_ = kSuccess;
};

}  // namespace

extern "C" {

// Opens the driver and makes device 0's primary context current on this thread. Returns a code.
int raw_open() {
  Handle library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) return kUnresolved;
  const bool found = resolve(library, "cuInit", driver.init) &&
                     resolve(library, "cuDevicePrimaryCtxRetain", driver.retain) &&
                     resolve(library, "cuCtxSetCurrent", driver.set_current) &&
                     resolve(library, "cuStreamCreate", driver.stream_create) &&
                     resolve(library, "cuStreamSynchronize", driver.stream_synchronize) &&
                     resolve(library, "cuEventCreate", driver.event_create) &&
                     resolve(library, "cuEventDestroy_v2", driver.event_destroy) &&
                     resolve(library, "cuEventRecord", driver.event_record) &&
                     resolve(library, "cuEventQuery", driver.event_query) &&
                     resolve(library, "cuEventElapsedTime", driver.elapsed);
  if (!found) return kUnresolved;
  Code code = driver.init(0);
  if (code == kSuccess) code = driver.retain(&driver.context, 0);
  if (code == kSuccess) code = driver.set_current(driver.context);
  return code;
}

// Makes the primary context current on the calling thread. Returns a code.
int raw_make_current() { return driver.set_current(driver.context); }

// A new non-blocking stream, or 0.
std::uintptr_t raw_stream() {
  Handle stream = nullptr;
  if (driver.stream_create(&stream, kNonBlocking) != kSuccess) return 0;
  return reinterpret_cast<std::uintptr_t>(stream);
}

// Waits for a stream. Returns a code.
int raw_synchronize(std::uintptr_t stream) {
  return driver.stream_synchronize(reinterpret_cast<Handle>(stream));
}

// Records `count` pairs out of `pool`, in bursts of `burst` with an untimed wait after each. With
// `read`, every pair is read before it is used again, and the last ones inside the timing.
std::int64_t raw_pairs(std::uintptr_t stream_value, std::size_t count, std::size_t burst,
                       std::size_t pool, int read) {
  const auto stream = reinterpret_cast<Handle>(stream_value);
  Ring ring(pool);
  std::int64_t spent = 0;
  for (std::size_t done = 0; done < count && ring.code() == kSuccess;) {
    const std::size_t stop = std::min(count, done + burst);
    const std::int64_t begun = now_ns();
    for (; done < stop; ++done) ring.record(stream, read != 0);
    spent += now_ns() - begun;
    if (done < count) driver.stream_synchronize(stream);
  }
  const std::int64_t begun = now_ns();
  ring.read_all();
  spent += now_ns() - begun;
  driver.stream_synchronize(stream);
  return ring.code() == kSuccess ? spent : -std::int64_t{ring.code()};
}

// `threads` threads record `count` pairs each on streams[i], and never read them; from the common
// start until the GPU has done the last.
std::int64_t raw_threads(const std::uintptr_t* streams, std::size_t threads, std::size_t count,
                         std::size_t pool) {
  std::atomic<std::size_t> ready{0};
  std::atomic<bool> go{false};
  std::atomic<Code> failure{kSuccess};
  std::vector<std::thread> workers;
  workers.reserve(threads);
  for (std::size_t i = 0; i < threads; ++i) {
    workers.emplace_back([&, stream = reinterpret_cast<Handle>(streams[i])] {
      driver.set_current(driver.context);
      Ring ring(pool);
      ready.fetch_add(1);
      while (!go.load()) std::this_thread::yield();
      for (std::size_t n = 0; n < count; ++n) ring.record(stream, false);
      driver.stream_synchronize(stream);
      if (ring.code() != kSuccess) failure.store(ring.code());
      ready.fetch_sub(1);
      // The events are destroyed once nobody is timed any more: that takes the driver's lock too.
      while (go.load()) std::this_thread::sleep_for(std::chrono::microseconds(100));
    });
  }
  while (ready.load() != threads) std::this_thread::yield();
  const std::int64_t begun = now_ns();
  go.store(true);
  while (ready.load() != 0) std::this_thread::yield();
  const std::int64_t spent = now_ns() - begun;
  go.store(false);
  for (auto& worker : workers) worker.join();
  return failure.load() == kSuccess ? spent : -std::int64_t{failure.load()};
}

// `count` times two reads of the monotonic clock. Needs no driver.
std::int64_t raw_clock_reads(std::size_t count) {
  std::int64_t sum = 0;
  const std::int64_t begun = now_ns();
  for (std::size_t n = 0; n < count; ++n) {
    const std::int64_t first = now_ns();
    sum += now_ns() - first;
  }
  const std::int64_t spent = now_ns() - begun;
  return sum >= 0 ? spent : 0;  // the sum keeps the reads from being dropped
}

}  // extern "C"
