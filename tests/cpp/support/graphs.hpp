// Graphs of copies on the fake driver, whose device memory a test may look into.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "graphs/captured_graph.hpp"
#include "support/fake.hpp"

namespace gpuprof::tests {

constexpr std::size_t kArrayBytes = 64;

// An array of one number on the device.
class Array {
 public:
  explicit Array(std::uint32_t value = 0) : table_(driver::ready()) {
    driver::check(table_.cuMemAlloc(&address_, kArrayBytes), "cuMemAlloc");
    set(value);
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() { free(); }

  void free() {
    if (address_ != 0) table_.cuMemFree(std::exchange(address_, 0));
  }

  [[nodiscard]] std::uintptr_t at() const noexcept { return address_; }

  // At once, whatever is queued.
  void set(std::uint32_t value) {
    const std::vector<std::uint32_t> all(kArrayBytes / sizeof value, value);
    static auto* const write = entry<int(CUdeviceptr, const void*, std::size_t)>("fakecuda_write");
    ASSERT_EQ(write(address_, all.data(), kArrayBytes), 0);
  }

  // What it holds now; 0xbad unless all of it is the same.
  [[nodiscard]] std::uint32_t value() const {
    std::vector<std::uint32_t> all(kArrayBytes / sizeof(std::uint32_t));
    static auto* const read = entry<int(CUdeviceptr, void*, std::size_t)>("fakecuda_read");
    EXPECT_EQ(read(address_, all.data(), kArrayBytes), 0);
    for (const std::uint32_t one : all) {
      if (one != all[0]) return 0xbad;
    }
    return all[0];
  }

 private:
  const driver::Table& table_;
  CUdeviceptr address_ = 0;
};

inline void copy(CUstream stream, const Array& source, const Array& target) {
  static auto* const call =
      entry<CUresult(CUdeviceptr, CUdeviceptr, std::size_t, CUstream)>("cuMemcpyDtoDAsync_v2");
  driver::check(call(target.at(), source.at(), kArrayBytes, stream), "cuMemcpyDtoDAsync");
}

inline void fill(CUstream stream, const Array& target, std::uint32_t value) {
  driver::check(driver::ready().cuMemsetD32Async(target.at(), value, kArrayBytes / 4, stream),
                "cuMemsetD32Async");
}

inline graphs::IoCopy edge(const Array& inside, const Array& outside) {
  return {inside.at(), outside.at(), kArrayBytes};
}

using GraphPtr = std::unique_ptr<graphs::CapturedGraph>;

// The graph of what `body` puts on the stream, without an executable copy.
template <typename Body>
GraphPtr captured(CUstream stream, Body&& body) {
  static auto* const begin =
      entry<CUresult(CUstream, CUstreamCaptureMode)>("cuStreamBeginCapture_v2");
  static auto* const end = entry<CUresult(CUstream, CUgraph*)>("cuStreamEndCapture");
  CUgraph graph = nullptr;
  driver::check(begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED), "cuStreamBeginCapture");
  body();
  driver::check(end(stream, &graph), "cuStreamEndCapture");
  graphs::CapturedParts parts;
  parts.graph.reset(graph);
  return std::make_unique<graphs::CapturedGraph>(std::move(parts), nullptr, number(stream), 0,
                                                 graphs::GraphTimers::kStrip);
}

inline graphs::LaunchResult launch_at(graphs::CapturedGraph& graph, CUstream stream,
                                      const std::vector<std::uintptr_t>& outside,
                                      std::ptrdiff_t* refused = nullptr) {
  graphs::IoAddresses at{outside.data()};
  const graphs::LaunchResult launched = graph.launch({number(stream), 0, nullptr, &at});
  if (refused != nullptr) *refused = at.refused;
  return launched;
}

}  // namespace gpuprof::tests
