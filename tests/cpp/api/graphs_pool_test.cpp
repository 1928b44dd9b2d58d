// Pools: what graphs captured with one share and keep.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpuprof/warnings.hpp"
#include "support/driver_errors.hpp"
#include "support/public_graphs.hpp"

namespace gpuprof::tests {
namespace {

class PublicPool : public OnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    options_.name = "step";
    options_.pool.emplace();
  }
  void TearDown() override {
    options_.pool.reset();
    OnDevice::TearDown();
  }

  CapturedGraph one_kernel() {
    return graph_of(stream_, [&] { kernel(stream_, "add_k"); }, options_);
  }
  CapturePool& pool() { return *options_.pool; }

  CaptureOptions options_;
};

TEST_F(PublicPool, KeepsItsBuffersAsLongAsAGraph) {
  auto buffer = std::make_shared<int>(1);
  EXPECT_EQ(pool().record_buffer(buffer), 0U);
  EXPECT_EQ(pool().buffer_count(), 1U);
  CapturedGraph graph = one_kernel();
  EXPECT_EQ(graph.pool(), pool());
  options_.pool.reset();
  EXPECT_EQ(buffer.use_count(), 2);
  graph.launch();
  table_->cuCtxSynchronize();
  graph.close();
  EXPECT_EQ(buffer.use_count(), 1);
}

TEST_F(PublicPool, ASealedOneRefusesACaptureBeforeTheDriverIsCalled) {
  pool().seal();
  const auto calls = calls_of("cuStreamBeginCapture_v2");
  const std::string text = text_of<Error>([&] { one_kernel(); });
  EXPECT_TRUE(contains(text, "unseal()")) << text;
  EXPECT_EQ(calls_of("cuStreamBeginCapture_v2"), calls);
  EXPECT_TRUE(pool().is_sealed());
  pool().unseal();
  EXPECT_EQ(one_kernel().num_nodes(), 1U);
}

TEST_F(PublicPool, AGraphWarnsOnceAfterItsBuffersWereDropped) {
  pool().record_buffer(std::make_shared<int>(1));
  CapturedGraph graph = one_kernel();
  graph.launch();
  std::vector<std::string> warnings;
  set_warning_handler([&](const std::string& message) { warnings.push_back(message); });
  pool().clear_buffers();
  graph.launch();
  graph.launch();
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_TRUE(contains(warnings[0], "the graph 'step' is launched after the buffers of its pool"))
      << warnings[0];
  CapturedGraph later = one_kernel();
  later.launch();
  EXPECT_EQ(warnings.size(), 1U);
  set_warning_handler({});
  table_->cuCtxSynchronize();
}

TEST_F(PublicPool, GraphsInItsOrderRunOneAfterTheOther) {
  constexpr std::int64_t kMillisecond = 1'000'000;
  Array shared(0);
  Array seen(9);
  options_.in_pool_order = true;
  CapturedGraph writer = graph_of(
      stream_,
      [&] {
        work(stream_, kMillisecond);
        fill(stream_, shared, 1);
      },
      options_);
  CapturedGraph reader = graph_of(stream_, [&] { copy(stream_, shared, seen); }, options_);
  writer.launch(stream_);
  reader.launch(make_stream());
  table_->cuCtxSynchronize();
  EXPECT_EQ(seen.value(), 1U);
}

TEST_F(PublicPool, AnOrderNeedsAPool) {
  CaptureOptions options;
  options.in_pool_order = true;
  const std::string text =
      text_of<Error>([&] { const gpuprof::Capture capture{stream_, options}; });
  EXPECT_TRUE(contains(text, "CaptureOptions::pool")) << text;
}

TEST_F(PublicPool, WorksWithoutADriverCall) {
  CapturePool one;
  const CapturePool copy = one;
  one.record_buffer(std::make_shared<int>(1));
  EXPECT_EQ(copy.buffer_count(), 1U);
  EXPECT_EQ(copy, one);
  EXPECT_NE(CapturePool(), one);
}

}  // namespace
}  // namespace gpuprof::tests
