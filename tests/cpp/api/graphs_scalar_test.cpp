// Values on the device that the host changes between launches.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "support/driver_errors.hpp"
#include "support/public_graphs.hpp"

namespace gpuprof::tests {
namespace {

struct Pair {
  std::int32_t first;
  float second;
};

class PublicScalar : public OnDevice {
 protected:
  void TearDown() override {
    graphs::release_idle_scalars();
    OnDevice::TearDown();
  }

  // A copy of the scalar's four bytes into the first element of `array`.
  void read_into(CUstream stream, const DeviceScalar<std::uint32_t>& scalar, const Array& array) {
    static auto* const call =
        entry<CUresult(CUdeviceptr, CUdeviceptr, std::size_t, CUstream)>("cuMemcpyDtoDAsync_v2");
    for (std::size_t at = 0; at < kArrayBytes; at += 4) {
      driver::check(
          call(array.at() + at, reinterpret_cast<std::uintptr_t>(scalar.ptr()), 4, stream),
          "cuMemcpyDtoDAsync");
    }
  }
};

template <typename T>
void check_round_trip(CUstream stream, const T& first, const T& second) {
  DeviceScalar<T> scalar{first, stream};
  EXPECT_EQ(scalar.get(), first);
  scalar.update(second);
  EXPECT_EQ(scalar.get(), second);
  EXPECT_EQ(scalar.get(stream), second);
  EXPECT_EQ(scalar.device(), 0);
}

TEST_F(PublicScalar, HoldsValuesOfOneToEightBytes) {
  check_round_trip<bool>(stream_, true, false);
  check_round_trip<std::int8_t>(stream_, -128, 127);
  check_round_trip<std::uint16_t>(stream_, 0xFFFF, 1);
  check_round_trip<float>(stream_, 1.5F, -0.25F);
  check_round_trip<double>(stream_, std::numeric_limits<double>::denorm_min(), -1e300);
  check_round_trip<std::int64_t>(stream_, std::numeric_limits<std::int64_t>::min(), -1);
  DeviceScalar<Pair> pair{{3, 2.5F}, stream_};
  pair.update({-4, 0.5F});
  EXPECT_EQ(pair.get().first, -4);
  EXPECT_EQ(pair.get().second, 0.5F);
}

TEST_F(PublicScalar, IsSeenByTheNextReplay) {
  DeviceScalar<std::uint32_t> scale{1, stream_};
  Array seen(0);
  CapturedGraph graph = graph_of(stream_, [&] { read_into(stream_, scale, seen); });
  for (const std::uint32_t value : {5U, 6U, 7U}) {
    scale.update(value);
    graph.launch();
    table_->cuCtxSynchronize();
    EXPECT_EQ(seen.value(), value);
  }
}

TEST_F(PublicScalar, ThatIsKeptOrInAPoolIsWaitedForOnAnotherStream) {
  for (const bool in_pool : {false, true}) {
    DeviceScalar<std::uint32_t> scale{1, stream_};
    Array seen(0);
    const CUstream other = make_stream();
    CaptureOptions options;
    if (in_pool) options.pool.emplace().record_buffer(scale);
    gpuprof::Capture capture{other, options};
    read_into(other, scale, seen);
    if (!in_pool) capture.keep(scale);
    CapturedGraph graph = capture.finish();
    work(stream_, 1'000'000);
    scale.update(8);
    graph.launch(other);
    table_->cuCtxSynchronize();
    EXPECT_EQ(seen.value(), 8U) << in_pool;
  }
}

TEST_F(PublicScalar, RefusesAnUpdateInACaptureUnlessItIsToBeRecorded) {
  DeviceScalar<std::uint32_t> scale{1, stream_};
  gpuprof::Capture capture{stream_};
  text_of<Error>([&] { scale.update(2); });
  scale.update(3, WhileCapturing::kRecord);
  CapturedGraph graph = capture.finish();
  EXPECT_EQ(graph.num_nodes(), 1U);
  EXPECT_EQ(scale.get(), 1U);
  graph.launch();
  EXPECT_EQ(scale.get(), 3U);
}

TEST_F(PublicScalar, KeepsItsMemoryForAGraphThatKeepsIt) {
  Array seen(0);
  CapturedGraph graph = [&] {
    const DeviceScalar<std::uint32_t> scale{4, stream_};
    gpuprof::Capture capture{stream_};
    read_into(stream_, scale, seen);
    capture.keep(scale);
    return capture.finish();
  }();
  const DeviceScalar<std::uint32_t> other{9, stream_};
  graph.launch();
  table_->cuCtxSynchronize();
  EXPECT_EQ(seen.value(), 4U) << "another scalar took its place";
}

TEST_F(PublicScalar, MovesAsItCopies) {
  DeviceScalar<int> one{1, stream_};
  DeviceScalar<int> other = std::move(one);
  other.update(2);
  EXPECT_EQ(one.get(), 2);  // NOLINT(bugprone-use-after-move): it names the same memory
  EXPECT_EQ(one.ptr(), other.ptr());
}

}  // namespace
}  // namespace gpuprof::tests
