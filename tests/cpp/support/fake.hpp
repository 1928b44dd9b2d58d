// The fake CUDA driver as the C++ tests use it.
//
// GPUPROF_CUDA_DRIVER names it. What gpuprof itself does not call (captures, contexts, work for the
// GPU, scripted faults) is looked up by name in the same library. Time on the fake is virtual: work
// takes exactly as long as it says, and nothing passes while nobody calls.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "driver/cuda_events.hpp"
#include "driver/cuda_thread_state.hpp"
#include "timing/device.hpp"
#include "timing/sample.hpp"
#include "timing/scope.hpp"
#include "timing/statistics.hpp"

namespace gpuprof::tests {

// A function of the driver's library that gpuprof's table does not have.
template <typename Function>
Function* entry(const char* name) {
  void* library = dlopen(std::getenv("GPUPROF_CUDA_DRIVER"), RTLD_NOW);
  void* found = library != nullptr ? dlsym(library, name) : nullptr;
  if (found == nullptr) {
    ADD_FAILURE() << "the driver has no " << name
                  << "; set GPUPROF_CUDA_DRIVER to the path of the fake driver";
    std::abort();
  }
  return reinterpret_cast<Function*>(found);
}

inline void work(CUstream stream, std::int64_t nanoseconds) {
  static auto* const call = entry<int(CUstream, std::int64_t)>("fakecuda_work");
  ASSERT_EQ(call(stream, nanoseconds), 0);
}

// Faults from now on: "cuEventRecord@3=719:sticky".
inline void script(const std::string& text) {
  static auto* const call = entry<int(const char*)>("fakecuda_script");
  ASSERT_EQ(call(text.c_str()), 0);
}

inline std::uint64_t calls_of(const char* function) {
  static auto* const call = entry<std::uint64_t(const char*)>("fakecuda_calls");
  return call(function);
}

inline long live(const char* kind) {
  static auto* const call = entry<long(const char*)>("fakecuda_live");
  return call(kind);
}

// Holds a stream back until it is opened, as a kernel that waits for the host would.
class Gate {
 public:
  Gate(const driver::Table& table, CUstream stream) : table_(table) {
    void* memory = nullptr;
    CUdeviceptr address = 0;
    driver::check(table.cuMemHostAlloc(&memory, sizeof(std::uint32_t), CU_MEMHOSTALLOC_DEVICEMAP),
                  "cuMemHostAlloc");
    word_ = static_cast<std::uint32_t*>(memory);
    driver::check(table.cuMemHostGetDevicePointer(&address, memory, 0),
                  "cuMemHostGetDevicePointer");
    driver::check(table.cuStreamWaitValue32(stream, address, 1, CU_STREAM_WAIT_VALUE_EQ),
                  "cuStreamWaitValue32");
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  ~Gate() {
    open();
    table_.cuMemFreeHost(word_);
  }
  void open() noexcept { __atomic_store_n(word_, 1U, __ATOMIC_RELEASE); }

 private:
  const driver::Table& table_;
  std::uint32_t* word_ = nullptr;
};

// A thread-wide stream capture of `stream`, ended when it dies at the latest.
class Capture {
 public:
  explicit Capture(CUstream stream, CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL)
      : stream_(stream) {
    static auto* const begin =
        entry<CUresult(CUstream, CUstreamCaptureMode)>("cuStreamBeginCapture_v2");
    driver::check(begin(stream, mode), "cuStreamBeginCapture");
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  ~Capture() {
    if (stream_ != nullptr) end();
    if (graph_ != nullptr) entry<CUresult(CUgraph)>("cuGraphDestroy")(graph_);
  }

  // What ending it answers; the graph is kept.
  CUresult end() {
    return entry<CUresult(CUstream, CUgraph*)>("cuStreamEndCapture")(
        std::exchange(stream_, nullptr), &graph_);
  }
  [[nodiscard]] CUgraph graph() const noexcept { return graph_; }

 private:
  CUstream stream_;
  CUgraph graph_ = nullptr;
};

class Exec {
 public:
  explicit Exec(CUgraph graph) {
    driver::check(entry<CUresult(CUgraphExec*, CUgraph, unsigned long long)>(
                      "cuGraphInstantiateWithFlags")(&exec_, graph, 0),
                  "cuGraphInstantiateWithFlags");
  }
  Exec(const Exec&) = delete;
  Exec& operator=(const Exec&) = delete;
  ~Exec() { entry<CUresult(CUgraphExec)>("cuGraphExecDestroy")(exec_); }

  void launch(CUstream stream) {
    driver::check(entry<CUresult(CUgraphExec, CUstream)>("cuGraphLaunch")(exec_, stream),
                  "cuGraphLaunch");
  }

 private:
  CUgraphExec exec_ = nullptr;
};

// A context that becomes current.
inline CUcontext make_context() {
  CUcontext made = nullptr;
  driver::check(entry<CUresult(CUcontext*, unsigned, CUdevice)>("cuCtxCreate_v2")(&made, 0, 0),
                "cuCtxCreate");
  return made;
}

inline void destroy_context(CUcontext context) {
  driver::check(entry<CUresult(CUcontext)>("cuCtxDestroy_v2")(context), "cuCtxDestroy");
}

inline CUstream make_current_stream() {
  CUstream made = nullptr;
  driver::check(driver::ready().cuStreamCreate(&made, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  return made;
}

// Device 0's primary context, which becomes current.
inline CUcontext use_primary() {
  CUcontext context = nullptr;
  driver::check(driver::ready().cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
  driver::check(driver::ready().cuCtxPushCurrent(context), "cuCtxPushCurrent");
  return context;
}

inline int configure(const std::string& text) {
  static auto* const call = entry<int(const char*)>("fakecuda_configure");
  return call(text.c_str());
}

inline std::uintptr_t number(CUstream stream) noexcept {
  return reinterpret_cast<std::uintptr_t>(stream);
}

inline timing::SampleRef open_span(CUstream stream, const char* path = "span",
                                   bool in_capture = false) {
  timing::SampleRef sample(timing::make_sample());
  sample->path = &timing::path_below(timing::root_path(), path);
  sample->stream = number(stream);
  timing::scope::open_cuda(*sample.get(), in_capture, 0);
  return sample;
}

inline void close_span(const timing::SampleRef& sample) {
  timing::scope::close_cuda(*sample.get());
}

// What a scope around `nanoseconds` of GPU work does.
inline timing::SampleRef span(CUstream stream, std::int64_t nanoseconds = 0,
                              const char* path = "span") {
  timing::SampleRef sample = open_span(stream, path);
  if (nanoseconds > 0) work(stream, nanoseconds);
  close_span(sample);
  return sample;
}

// Waits up to ten seconds of real time, which nothing on the fake needs.
[[nodiscard]] inline bool wait_for(const timing::SampleRef& sample) {
  constexpr timing::HostNanoseconds kPatience = 10'000'000'000;
  return timing::device::wait(*sample.get(), timing::monotonic_now() + kPatience);
}

// A test with device 0's primary context current and one stream of its own. When it ends, gpuprof
// must have given back all that it took.
class OnDevice : public testing::Test {
 protected:
  void SetUp() override {
    table_ = &driver::ready();
    timing::statistics::reset();
    driver::forget_warnings();
    context_ = use_primary();
    stream_ = make_stream();
  }

  void TearDown() override {
    if (driver::blocked.load() != 0) return;  // poisoned on purpose, in a process of its own
    script("");
    timing::device::drain();
    EXPECT_EQ(timing::device::release_idle(), 0U) << "event pairs are still out";
    for (const CUstream stream : streams_) table_->cuStreamDestroy(stream);
    CUcontext current = nullptr;
    table_->cuCtxPopCurrent(&current);
    EXPECT_EQ(current, context_) << "the stack of contexts is not what it was";
    table_->cuDevicePrimaryCtxRelease(0);
    EXPECT_EQ(live("any"), 0);
    timing::statistics::reset();
  }

  CUstream make_stream(unsigned flags = CU_STREAM_NON_BLOCKING) {
    CUstream stream = nullptr;
    driver::check(table_->cuStreamCreate(&stream, flags), "cuStreamCreate");
    streams_.push_back(stream);
    return stream;
  }

  // What calls on events of this context need.
  [[nodiscard]] driver::EventAccess access() const {
    unsigned long long id = 0;
    driver::check(table_->cuCtxGetId(context_, &id), "cuCtxGetId");
    return driver::EventAccess::ask(*table_, context_, id).value();
  }

  // The statistics' row of a path on the CUDA clock; all zero if there is none.
  [[nodiscard]] static timing::Row row(const std::string& path) {
    for (const timing::Row& found : timing::statistics::rows()) {
      if (found.path->text == path && found.clock == timing::kCudaClock) return found;
    }
    return {nullptr, timing::kCudaClock, true, {}, {}, 0, 0, 0};
  }

  const driver::Table* table_ = nullptr;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;

 private:
  std::vector<CUstream> streams_;
};

}  // namespace gpuprof::tests
