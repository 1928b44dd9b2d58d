// Copy nodes for inputs and outputs: every launch reads and writes the arrays that it was given.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "graphs/nodes.hpp"
#include "support/driver_errors.hpp"
#include "support/graphs.hpp"

namespace gpuprof::tests {
namespace {

using driver::ErrorKind;
using graphs::CapturedGraph;
using graphs::IoAddresses;
using graphs::LaunchResult;

// A graph whose body copies its input to its result, 1 us each.
class GraphCopies : public OnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    input_ = std::make_unique<Array>(1);
    result_ = std::make_unique<Array>(2);
    source_ = std::make_unique<Array>(3);
    target_ = std::make_unique<Array>(4);
    graph_ = copying(*input_, *result_);
    graph_->add_copies({edge(*input_, *source_)}, {edge(*result_, *target_)});
    graph_->instantiate();
  }

  void TearDown() override {
    synchronize();
    graph_.reset();
    for (auto* array : {&input_, &result_, &source_, &target_}) array->reset();
    OnDevice::TearDown();
  }

  GraphPtr copying(const Array& from, const Array& to) {
    return captured(stream_, [&] {
      work(stream_, 1'000);
      copy(stream_, from, to);
    });
  }

  void synchronize() const { driver::check(table_->cuCtxSynchronize(), "cuCtxSynchronize"); }

  // An array of the memory that streams allocate from in their order.
  [[nodiscard]] CUdeviceptr allocate_in_order() const {
    using Allocate = CUresult(CUdeviceptr*, std::size_t, CUstream);
    CUdeviceptr made = 0;
    driver::check(entry<Allocate>("cuMemAllocAsync")(&made, kArrayBytes, stream_),
                  "cuMemAllocAsync");
    return made;
  }
  void release_in_order(CUdeviceptr array) const {
    using Release = CUresult(CUdeviceptr, CUstream);
    driver::check(entry<Release>("cuMemFreeAsync")(array, stream_), "cuMemFreeAsync");
  }

  LaunchResult launch(std::uintptr_t source, std::uintptr_t target,
                      std::ptrdiff_t* refused = nullptr) {
    return launch_at(*graph_, stream_, {source, target}, refused);
  }

  std::unique_ptr<Array> input_;
  std::unique_ptr<Array> result_;
  std::unique_ptr<Array> source_;
  std::unique_ptr<Array> target_;
  GraphPtr graph_;
};

TEST_F(GraphCopies, AnAddressThatIsTheSameCostsNoCall) {
  const std::uint64_t before = calls_of("cuGraphExecMemcpyNodeSetParams");
  const std::uint64_t switches = calls_of("cuGraphNodeSetEnabled");
  launch(source_->at(), target_->at());
  launch(source_->at(), target_->at());
  EXPECT_EQ(calls_of("cuGraphExecMemcpyNodeSetParams"), before + 2) << "one for each";
  const Array other(5);
  launch(other.at(), target_->at());
  launch(other.at(), target_->at());
  EXPECT_EQ(calls_of("cuGraphExecMemcpyNodeSetParams"), before + 3);
  EXPECT_EQ(calls_of("cuGraphNodeSetEnabled"), switches);
  synchronize();
  EXPECT_EQ(target_->value(), 5U);
}

TEST_F(GraphCopies, CopiesWithoutAnAddressAreLeftOutOfThatLaunchAlone) {
  launch(0, target_->at());
  synchronize();
  EXPECT_EQ(target_->value(), 1U) << "the input is what it was";
  launch(source_->at(), 0);
  synchronize();
  EXPECT_EQ(target_->value(), 1U);
  EXPECT_EQ(result_->value(), 3U);
  source_->set(6);
  launch(source_->at(), target_->at());
  synchronize();
  EXPECT_EQ(target_->value(), 6U);
}

TEST_F(GraphCopies, APlainLaunchLeavesAllCopiesOut) {
  graph_->launch({number(stream_)});
  synchronize();
  EXPECT_EQ(result_->value(), 1U);
  EXPECT_EQ(target_->value(), 4U);
  const auto calls = calls_of("cuGraphNodeSetEnabled");
  ASSERT_EQ(graph_->launch({number(stream_), 0, nullptr, nullptr}), LaunchResult::kLaunched);
  graph_->begin_external_launch({number(stream_)});
  graph_->end_external_launch({number(stream_)}, false);
  EXPECT_EQ(calls_of("cuGraphNodeSetEnabled"), calls) << "they are off already";
  launch(source_->at(), target_->at());
  synchronize();
  EXPECT_EQ(target_->value(), 3U);
}

TEST_F(GraphCopies, MemoryThatTheDriverRefusesIsNamedAndNothingIsLaunched) {
  const CUdeviceptr of_pool = allocate_in_order();
  const Array other(7);
  std::ptrdiff_t refused = -1;
  const std::uint64_t launches = calls_of("cuGraphLaunch");
  EXPECT_EQ(launch(of_pool, target_->at(), &refused), LaunchResult::kRefused);
  EXPECT_EQ(refused, 0);
  EXPECT_EQ(launch(other.at(), of_pool, &refused), LaunchResult::kRefused);
  EXPECT_EQ(refused, 1);
  EXPECT_EQ(graph_->replays(), 0U);
  EXPECT_EQ(calls_of("cuGraphLaunch"), launches);
  EXPECT_EQ(launch(source_->at(), target_->at(), &refused), LaunchResult::kLaunched);
  EXPECT_EQ(refused, -1);
  synchronize();
  EXPECT_EQ(target_->value(), 3U);
  release_in_order(of_pool);
}

TEST_F(GraphCopies, PinnedMemoryIsReadAndWrittenWhereItIs) {
  void* pinned = nullptr;
  driver::check(table_->cuMemHostAlloc(&pinned, kArrayBytes, CU_MEMHOSTALLOC_DEVICEMAP),
                "cuMemHostAlloc");
  const auto on_host = reinterpret_cast<std::uintptr_t>(pinned);
  EXPECT_EQ(launch(source_->at(), on_host), LaunchResult::kLaunched);
  EXPECT_EQ(launch(on_host, target_->at()), LaunchResult::kLaunched);
  synchronize();
  EXPECT_EQ(target_->value(), 3U);
  table_->cuMemFreeHost(pinned);
}

// The fake driver aborts, where the real one may crash, if it finds a copy of freed memory in a
// graph that it makes another executable copy of. It refuses an update from such a graph.
TEST_F(GraphCopies, TheArraysThatTheyWereMadeWithMayGo) {
  source_->free();
  target_->free();
  EXPECT_GT(graph_->memory().instantiate, 0U);
  const Array source(5);
  const Array target;
  launch(source.at(), target.at());
  synchronize();
  EXPECT_EQ(target.value(), 5U);
}

TEST_F(GraphCopies, AnUpdateComesFromAGraphWhoseArraysAreGone) {
  const Array input(20);
  const Array result;
  Array source;
  Array target;
  GraphPtr other = copying(input, result);
  other->add_copies({edge(input, source)}, {edge(result, target)});
  other->instantiate();
  launch(source_->at(), target_->at());
  synchronize();
  for (Array* array : {&source, &target, source_.get(), target_.get()}) array->free();
  graphs::UpdateRefusal refusal;
  ASSERT_TRUE(graph_->update(*other, {}, refusal));
  graph_->launch({number(stream_)});
  synchronize();
  EXPECT_EQ(result.value(), 20U);
  EXPECT_GT(graph_->memory().instantiate, 0U);
  const Array later(21);
  const Array out;
  launch(later.at(), out.at());
  synchronize();
  EXPECT_EQ(out.value(), 21U);
}

TEST_F(GraphCopies, AnUpdateMayComeBeforeTheOtherGraphIsExecutable) {
  const Array input(20);
  const Array result;
  Array source;
  GraphPtr other = copying(input, result);
  other->add_copies({edge(input, source)}, {edge(result, *target_)});
  graphs::UpdateRefusal refusal;
  ASSERT_TRUE(graph_->update(*other, {}, refusal));
  source.free();
  EXPECT_TRUE(graph_->update(*other, {}, refusal)) << "the graph still names freed memory";
  EXPECT_GT(graph_->memory().instantiate, 0U);
  other->instantiate();
  const Array later(21);
  for (CapturedGraph* graph : {graph_.get(), other.get()}) {
    const Array out;
    launch_at(*graph, stream_, {later.at(), out.at()});
    synchronize();
    EXPECT_EQ(out.value(), 21U);
  }
}

// The other graph names its own arrays only by then, which are of another kind.
TEST_F(GraphCopies, AnUpdateOfCopiesThatWereMadeForAPoolIsRefusedAndNothingChanges) {
  const CUdeviceptr of_pool = allocate_in_order();
  driver::check(table_->cuMemsetD32Async(of_pool, 9, kArrayBytes / 4, stream_), "cuMemsetD32Async");
  GraphPtr graphs[2];
  for (GraphPtr& graph : graphs) {
    graph = copying(*input_, *result_);
    graph->add_copies({{input_->at(), of_pool, kArrayBytes}}, {edge(*result_, *target_)});
    graph->instantiate();
    ASSERT_EQ(launch_at(*graph, stream_, {of_pool, 0}), LaunchResult::kLaunched);
  }
  graphs::UpdateRefusal refusal;
  EXPECT_FALSE(graphs[0]->update(*graphs[1], {}, refusal));
  EXPECT_EQ(refusal.result, CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED);
  for (const GraphPtr& graph : graphs) {
    target_->set(4);
    EXPECT_EQ(launch_at(*graph, stream_, {source_->at(), target_->at()}), LaunchResult::kRefused);
    EXPECT_EQ(launch_at(*graph, stream_, {of_pool, target_->at()}), LaunchResult::kLaunched);
    synchronize();
    EXPECT_EQ(target_->value(), 9U);
  }
  release_in_order(of_pool);
}

TEST_F(GraphCopies, AnExecutableCopyWhoseGraphCannotBeChangedIsGivenUp) {
  for (const char* change : {"cuGraphMemcpyNodeSetParams@1=2", "cuGraphMemcpyNodeSetParams@2=2"}) {
    GraphPtr graph = copying(*input_, *result_);
    graph->add_copies({edge(*input_, *source_)}, {edge(*result_, *target_)});
    const long before = live("exec");
    script(change);
    EXPECT_EQ(error_from([&] { graph->instantiate(); }).code(), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(graph->exec(), nullptr);
    EXPECT_EQ(live("exec"), before);
    script("");
    graph->instantiate();
    launch_at(*graph, stream_, {source_->at(), target_->at()});
    synchronize();
    EXPECT_EQ(target_->value(), 3U);
    target_->set(4);
  }
}

// A call that failed may have had its effect all the same (":after").
TEST_F(GraphCopies, AfterAnyFailedChangeTheNextLaunchIsRight) {
  const std::vector<std::string> changes = {
      "cuGraphExecMemcpyNodeSetParams@1=2", "cuGraphExecMemcpyNodeSetParams@1=2:after",
      "cuGraphExecMemcpyNodeSetParams@2=2", "cuGraphExecMemcpyNodeSetParams@2=2:after",
      "cuGraphNodeSetEnabled@1=2",          "cuGraphNodeSetEnabled@1=2:after",
      "cuGraphNodeSetEnabled@2=2",          "cuGraphNodeSetEnabled@2=2:after"};
  const Array source(8);
  const Array target;
  const auto fail_from_all_out = [&](const std::string& change) {
    launch(source_->at(), target_->at());
    graph_->launch({number(stream_)});
    synchronize();
    script(change);
    EXPECT_EQ(error_from([&] { launch(source.at(), target.at()); }).code(),
              CUDA_ERROR_OUT_OF_MEMORY)
        << change;
    script("");
    for (auto* array : {input_.get(), result_.get(), target_.get()}) array->set(1);
  };
  for (const std::string& change : changes) {
    fail_from_all_out(change);
    launch(source.at(), target.at());
    synchronize();
    EXPECT_EQ(target.value(), 8U) << change << ", the same again";
    fail_from_all_out(change);
    launch(source_->at(), target_->at());
    synchronize();
    EXPECT_EQ(target_->value(), 3U) << change << ", then as before";
    fail_from_all_out(change);
    graph_->launch({number(stream_)});
    synchronize();
    EXPECT_EQ(result_->value(), 1U) << change << ", then a plain launch";
    fail_from_all_out(change);
    launch(0, target_->at());
    synchronize();
    EXPECT_EQ(target_->value(), 1U) << change << ", then without the first";
  }
}

TEST_F(GraphCopies, ACapturingStreamIsAnAnswerAndTheCaptureGoesOn) {
  const Array other(9);
  const auto calls = [] {
    return calls_of("cuGraphExecMemcpyNodeSetParams") + calls_of("cuGraphLaunch");
  };
  const std::uint64_t before = calls();
  Capture capture(stream_);
  EXPECT_EQ(launch(other.at(), target_->at()), LaunchResult::kCapturing);
  const std::uintptr_t outside[] = {other.at(), target_->at()};
  IoAddresses at{outside};
  EXPECT_EQ(graph_->launch({number(stream_), 0, nullptr, &at}), LaunchResult::kCapturing);
  EXPECT_EQ(graph_->begin_external_launch({number(stream_), 0, nullptr, &at}),
            LaunchResult::kCapturing);
  EXPECT_EQ(error_from([&] { graph_->launch({number(stream_)}); }).kind(),
            ErrorKind::kInvalidState);
  EXPECT_EQ(error_from([&] { graph_->note_use(number(stream_)); }).kind(),
            ErrorKind::kInvalidState);
  EXPECT_EQ(calls(), before);
  EXPECT_EQ(capture.end(), CUDA_SUCCESS);
  EXPECT_EQ(launch(other.at(), target_->at()), LaunchResult::kLaunched);
  synchronize();
  EXPECT_EQ(target_->value(), 9U);
}

TEST_F(GraphCopies, AClosedGraphIsNotLaunchedButItsLaunchesEnd) {
  {
    Gate gate(*table_, stream_);
    launch(source_->at(), target_->at());
    graph_->close();
    EXPECT_EQ(error_from([&] { launch(source_->at(), target_->at()); }).kind(),
              ErrorKind::kInvalidState);
    gate.open();
    synchronize();
  }
  EXPECT_EQ(target_->value(), 3U);
}

// Two branches, an input that both read, and two results.
TEST_F(GraphCopies, AllInputsComeBeforeEverythingAndAllResultsAfterIt) {
  const Array first;
  const Array second;
  const Array one;
  const Array two;
  const CUstream branch = make_stream();
  CUevent forked = nullptr;
  driver::check(table_->cuEventCreate(&forked, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  GraphPtr graph = captured(stream_, [&] {
    driver::check(access().record(forked, stream_), "cuEventRecord");
    driver::check(access().let_wait(branch, forked), "cuStreamWaitEvent");
    copy(stream_, first, one);
    work(branch, 5'000);
    copy(branch, second, two);
    driver::check(access().record(forked, branch), "cuEventRecord");
    driver::check(access().let_wait(stream_, forked), "cuStreamWaitEvent");
  });
  access().destroy(forked);
  Array sources[2];
  Array targets[2];
  sources[0].set(10);
  sources[1].set(11);
  graph->add_copies({edge(first, sources[0]), edge(second, sources[1])},
                    {edge(one, targets[0]), edge(two, targets[1])});
  graph->instantiate();
  EXPECT_EQ(graph->node_count(), 7U);
  EXPECT_EQ(launch_at(*graph, stream_,
                      {sources[0].at(), sources[1].at(), targets[0].at(), targets[1].at()}),
            LaunchResult::kLaunched);
  synchronize();
  EXPECT_EQ(targets[0].value(), 10U);
  EXPECT_EQ(targets[1].value(), 11U);
  // A chain, the two roots, the two ends, a chain.
  std::vector<int> before(7, 0);
  std::vector<int> after(7, 0);
  for (const graphs::Edge& one_edge : graphs::edges(graph->graph())) {
    ++before[one_edge.to];
    ++after[one_edge.from];
  }
  EXPECT_EQ(before, (std::vector<int>{1, 1, 1, 0, 1, 2, 1}));
  EXPECT_EQ(after, (std::vector<int>{1, 1, 1, 1, 2, 1, 0}));
}

TEST_F(GraphCopies, AGraphOfNothingElseCopiesOneAfterTheOther) {
  GraphPtr graph = captured(stream_, [] {});
  graph->add_copies({edge(*input_, *source_)}, {edge(*input_, *target_)});
  graph->instantiate();
  EXPECT_EQ(launch_at(*graph, stream_, {source_->at(), target_->at()}), LaunchResult::kLaunched);
  synchronize();
  EXPECT_EQ(target_->value(), 3U);
}

TEST_F(GraphCopies, AreAddedOnceAndBeforeThereIsAnExecutableCopy) {
  EXPECT_EQ(error_from([&] { graph_->add_copies({edge(*input_, *source_)}, {}); }).kind(),
            ErrorKind::kInvalidState);
}

TEST_F(GraphCopies, WorkInAGraphThatFrameworksInstantiate) {
  CUgraph raw = nullptr;
  CUgraphExec exec = nullptr;
  Capture capture(stream_);
  copy(stream_, *input_, *result_);
  ASSERT_EQ(capture.end(), CUDA_SUCCESS);
  raw = capture.graph();
  CapturedGraph lent({}, raw, number(stream_), 0, graphs::GraphTimers::kStrip);
  lent.add_copies({edge(*input_, *source_)}, {edge(*result_, *target_)});
  driver::check(table_->cuGraphInstantiateWithFlags(&exec, raw, 0), "cuGraphInstantiateWithFlags");
  lent.borrow_exec(exec);
  source_->free();
  EXPECT_GT(lent.memory().instantiate, 0U);
  const Array source(12);
  const std::uintptr_t outside[] = {source.at(), target_->at()};
  IoAddresses at{outside};
  ASSERT_EQ(lent.begin_external_launch({number(stream_), 0, nullptr, &at}),
            LaunchResult::kLaunched);
  driver::check(table_->cuGraphLaunch(exec, stream_), "cuGraphLaunch");
  lent.end_external_launch({number(stream_)}, true);
  synchronize();
  EXPECT_EQ(target_->value(), 12U);
  EXPECT_EQ(lent.replays(), 1U);
  lent.close();
  table_->cuGraphExecDestroy(exec);
}

TEST_F(GraphCopies, AnUpdateBringsTheOtherGraphsArrays) {
  const Array input(20);
  const Array result;
  const Array source(21);
  GraphPtr other = copying(input, result);
  other->add_copies({edge(input, *source_)}, {edge(result, *target_)});
  other->instantiate();
  graphs::UpdateRefusal refusal;
  launch(0, target_->at());
  ASSERT_TRUE(graph_->update(*other, {}, refusal));
  launch(0, target_->at());
  synchronize();
  EXPECT_EQ(target_->value(), 20U);
  launch(source.at(), target_->at());
  synchronize();
  EXPECT_EQ(target_->value(), 21U);
  EXPECT_EQ(input.value(), 21U);
  EXPECT_EQ(input_->value(), 1U) << "the array of the graph before";
}

TEST_F(GraphCopies, AnUpdateFromAGraphWithOtherCopiesIsRefused) {
  GraphPtr other = copying(*input_, *result_);
  other->instantiate();
  graphs::UpdateRefusal refusal;
  const auto error = error_from([&] { graph_->update(*other, {}, refusal); });
  EXPECT_EQ(error.kind(), ErrorKind::kInvalidState);
  EXPECT_TRUE(contains(error.what(), "2 and 0 copies")) << error.what();
}

TEST_F(GraphCopies, AreReachedOnAThreadWithoutAContext) {
  CUcontext popped = nullptr;
  driver::check(table_->cuCtxPopCurrent(&popped), "cuCtxPopCurrent");
  const CUstream elsewhere = stream_;
  const auto launched = launch_at(*graph_, elsewhere, {source_->at(), target_->at()});
  const auto left_out = launch_at(*graph_, nullptr, {0, 0});
  driver::check(table_->cuCtxPushCurrent(popped), "cuCtxPushCurrent");
  EXPECT_EQ(launched, LaunchResult::kLaunched);
  EXPECT_EQ(left_out, LaunchResult::kLaunched);
  synchronize();
  EXPECT_EQ(target_->value(), 3U);
}

}  // namespace
}  // namespace gpuprof::tests
