// Captured graphs: launches, updates, times, and what they are made of.
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "driver/error.hpp"
#include "support/driver_errors.hpp"
#include "support/public_graphs.hpp"

namespace gpuprof::tests {
namespace {

constexpr std::int64_t kMillisecond = 1'000'000;

class PublicGraph : public OnDevice {
 protected:
  void synchronize() const { driver::check(table_->cuCtxSynchronize(), "cuCtxSynchronize"); }

  // Two kernels in scopes below a third.
  CapturedGraph two_steps(GraphTimers timers, std::int64_t first = kMillisecond) {
    CaptureOptions options = named("step");
    options.timers = timers;
    return graph_of(
        stream_,
        [&] {
          const timer step{"step", stream_};
          {
            const timer forward{"forward", stream_};
            work(stream_, first);
          }
          const timer backward{"backward", stream_};
          work(stream_, 2 * kMillisecond);
        },
        options);
  }
};

TEST_F(PublicGraph, CountsItsReplaysOnAnyStream) {
  Array array(0);
  CapturedGraph graph = graph_of(stream_, [&] { fill(stream_, array, 7); }, named("step"));
  EXPECT_EQ(graph.name(), "step");
  EXPECT_EQ(graph.device(), 0);
  EXPECT_EQ(graph.num_replays(), 0U);
  graph.launch();
  graph.launch(make_stream());
  EXPECT_EQ(graph.num_replays(), 2U);
  EXPECT_TRUE(graph.is_uploaded());
  EXPECT_NE(graph.raw_graph(), nullptr);
  EXPECT_NE(graph.raw_exec(), nullptr);
  synchronize();
}

TEST_F(PublicGraph, MovesAndIsClosedOnce) {
  CapturedGraph graph = graph_of(stream_, [&] { kernel(stream_, "add_k"); });
  CapturedGraph other = std::move(graph);
  EXPECT_TRUE(graph.closed());  // NOLINT(bugprone-use-after-move): what it says then
  EXPECT_EQ(other.num_nodes(), 1U);
  graph = std::move(other);
  EXPECT_EQ(graph.num_nodes(), 1U);
  graph.close();
  graph.close();
  EXPECT_TRUE(graph.closed());
  EXPECT_TRUE(contains(text_of<Error>([&] { graph.launch(); }), "closed"));
  EXPECT_EQ(live("graph"), 0);
}

TEST_F(PublicGraph, KeepsItsObjectsUntilTheLastReplayIsOver) {
  auto object = std::make_shared<int>(1);
  Gate gate(*table_, stream_);
  gpuprof::Capture capture{make_stream()};
  kernel(capture.stream().get(), "add_k");
  capture.keep(object);
  CapturedGraph graph = capture.finish();
  graph.launch(stream_);
  graph.close();
  EXPECT_EQ(object.use_count(), 2) << "its replay is behind a closed gate";
  gate.open();
  synchronize();
  graph_of(stream_, [&] { kernel(stream_, "add_k"); });  // any graph's call lets go
  EXPECT_EQ(object.use_count(), 1);
}

TEST_F(PublicGraph, AnObjectMayBeAnotherGraphOfTheSamePool) {
  CaptureOptions options;
  options.pool.emplace();
  options.in_pool_order = true;
  auto inner = std::make_shared<CapturedGraph>(
      graph_of(stream_, [&] { kernel(stream_, "add_k"); }, options));
  gpuprof::Capture capture{stream_, options};
  kernel(stream_, "add_k");
  capture.keep(std::move(inner));
  capture.finish().close();
  options.pool.reset();
  EXPECT_EQ(live("graph"), 0);
}

TEST_F(PublicGraph, TellsTheTimesOfTheLastReplayByPath) {
  CapturedGraph graph = two_steps(GraphTimers::kLast);
  EXPECT_EQ(error_from([&] { (void)graph.timings(); }).kind(), ErrorKind::kNotReplayed);
  for (int i = 0; i < 3; ++i) graph.launch();
  synchronize();
  const GraphTimings timings = graph.timings();
  ASSERT_EQ(timings.size(), 3U);
  EXPECT_EQ(timings.rows()[0].path, "step");
  EXPECT_EQ(timings.rows()[1].names, (std::vector<std::string>{"step", "forward"}));
  EXPECT_NEAR(timings.at("step/forward").ms(), 1.0, 0.01);
  EXPECT_NEAR(timings.at("step/backward").mean(), 2.0, 0.01);
  EXPECT_GE(timings.at("step").ms(), 3.0);
  EXPECT_EQ(timings.find("forward"), nullptr);
  const std::string text = text_of<std::out_of_range>([&] { (void)timings.at("forward"); });
  EXPECT_TRUE(contains(text, "'step/forward'")) << text;
  const std::string table = timings.to_string();
  EXPECT_TRUE(contains(table, "span           count      ms    mean\n")) << table;
  EXPECT_TRUE(contains(table, "\nstep/forward       1  1.00")) << table;
}

TEST_F(PublicGraph, DoesNotWaitForTimesThatAreNotAskedToBeWaitedFor) {
  CapturedGraph graph = two_steps(GraphTimers::kLast);
  Gate gate(*table_, stream_);
  graph.launch();
  EXPECT_EQ(graph.timings(/*wait=*/false).at("step").values[0], std::nullopt);
  gate.open();
  synchronize();
  EXPECT_TRUE(graph.timings().at("step").values[0].has_value());
}

TEST_F(PublicGraph, CollectsTheTimesOfEveryReplayBelowTheOpenScope) {
  CapturedGraph graph = two_steps(GraphTimers::kCollect);
  for (int i = 0; i < 4; ++i) {
    const timer loop{"loop", stream_};
    graph.launch();
  }
  synchronize();
  timing::device::drain();
  EXPECT_EQ(row("loop/step").device.count, 4U);
  EXPECT_EQ(row("step/forward").device.count, 4U);
}

TEST_F(PublicGraph, CollectsNothingWhileTimingIsOff) {
  CapturedGraph graph = two_steps(GraphTimers::kCollect);
  timing::scope::enabled = false;
  graph.launch();
  timing::scope::enabled = true;
  synchronize();
  timing::device::drain();
  EXPECT_EQ(row("step/forward").device.count, 0U);
}

TEST_F(PublicGraph, StrippedOfTimersHasNoEventNodes) {
  CapturedGraph graph = two_steps(GraphTimers::kStrip);
  EXPECT_EQ(graph.num_nodes(), 2U);
  graph.launch();
  EXPECT_TRUE(graph.timings().empty());
  EXPECT_EQ(graph.nodes()[0].scope, "step/forward");
  synchronize();
}

TEST_F(PublicGraph, IsUpdatedToAnotherAndKeepsWhatThatKeeps) {
  Array array(0);
  CapturedGraph graph = graph_of(stream_, [&] { fill(stream_, array, 1); });
  auto object = std::make_shared<int>(1);
  gpuprof::Capture capture{stream_};
  fill(stream_, array, 2);
  capture.keep(object);
  CapturedGraph other = capture.finish();
  graph.update(graph);
  graph.update(other);
  other.close();
  EXPECT_EQ(object.use_count(), 2 + 1) << "of the payload and of the graph";
  graph.launch();
  synchronize();
  EXPECT_EQ(array.value(), 2U);
  graph.close();
  EXPECT_EQ(object.use_count(), 1);
}

TEST_F(PublicGraph, ThatCannotBeUpdatedSaysWhyAndIsAsItWas) {
  CapturedGraph graph = graph_of(stream_, [&] { kernel(stream_, "add_k"); });
  CapturedGraph other = graph_of(stream_, [&] {
    kernel(stream_, "add_k");
    kernel(stream_, "mul_k");
  });
  const std::string text = text_of<GraphUpdateError>([&] { graph.update(other); });
  EXPECT_TRUE(contains(text,
                       "CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED: the graphs have different"
                       " nodes or edges"))
      << text;
  EXPECT_TRUE(contains(text, "1 node here, 2 in the other graph")) << text;
  graph.launch();
  EXPECT_EQ(graph.kernel_names(), std::vector<std::string>{"add_k"});
  synchronize();
}

TEST_F(PublicGraph, ShowsItsNodesEdgesAndKernels) {
  Array array(0);
  CapturedGraph graph = graph_of(stream_, [&] {
    kernel(stream_, "_Z5add_kPf", 8);
    const timer scope{"clear", stream_};
    fill(stream_, array, 5);
  });
  const std::vector<GraphNode> nodes = graph.nodes();
  ASSERT_EQ(nodes.size(), 4U);  // two of them events
  EXPECT_EQ(nodes[0].name, "add_k(float*)");
  EXPECT_EQ(nodes[0].symbol, "_Z5add_kPf");
  EXPECT_EQ(nodes[0].grid, (Extent{8, 1, 1}));
  EXPECT_EQ(to_string(nodes[0]), "node 0 add_k grid (8,1,1) block (256,1,1)");
  EXPECT_EQ(nodes[1].type, NodeType::kEventRecord);
  EXPECT_EQ(nodes[2].type, NodeType::kMemset);
  EXPECT_EQ(nodes[2].value, 5U);
  EXPECT_EQ(nodes[2].dependencies, std::vector<std::size_t>{1});
  EXPECT_EQ(to_string(nodes[2]), "node 2 memset 64 B value 0x5 in clear");
  using Edges = std::vector<std::pair<std::size_t, std::size_t>>;
  EXPECT_EQ(graph.edges(), (Edges{{0, 1}, {1, 2}, {2, 3}}));
  EXPECT_EQ(graph.kernel_names(), std::vector<std::string>{"add_k(float*)"});
  EXPECT_TRUE(contains(graph.to_dot(), "n0 [label=\"0 add_k\\ngrid (8,1,1) block (256,1,1)\""));
}

TEST_F(PublicGraph, MeasuresItsMemory) {
  const CapturedGraph graph = graph_of(stream_, [&] { kernel(stream_, "add_k"); });
  const GraphMemory memory = graph.memory();
  EXPECT_TRUE(memory.instantiate.has_value());
  EXPECT_FALSE(memory.upload.has_value()) << "nothing was uploaded";
}

TEST_F(PublicGraph, IsLaunchedByAnyThread) {
  CapturedGraph graph = graph_of(stream_, [&] { kernel(stream_, "add_k"); });
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 25; ++k) graph.launch();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(graph.num_replays(), 100U);
  synchronize();
}

}  // namespace
}  // namespace gpuprof::tests
