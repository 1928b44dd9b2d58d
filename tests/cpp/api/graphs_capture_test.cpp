// Captures: what begins, ends and breaks them, and what is left behind.
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <stdexcept>
#include <thread>

#include "support/driver_errors.hpp"
#include "support/public_graphs.hpp"

namespace gpuprof::tests {
namespace {

class PublicCapture : public OnDevice {
 protected:
  [[nodiscard]] bool capturing() const { return is_stream_capturing(stream_); }
};

TEST_F(PublicCapture, GivesAGraphThatReplaysWhatWasQueued) {
  Array array(0);
  gpuprof::Capture capture{stream_};
  EXPECT_TRUE(capture.is_open());
  EXPECT_EQ(capture.status(), CaptureStatus::kActive);
  EXPECT_EQ(capture.stream(), Stream(stream_));
  EXPECT_TRUE(capturing());
  fill(stream_, array, 7);
  CapturedGraph graph = capture.finish();
  EXPECT_FALSE(capture.is_open());
  EXPECT_EQ(capture.status(), CaptureStatus::kNone);
  EXPECT_FALSE(capturing());
  EXPECT_EQ(array.value(), 0U);
  graph.launch();
  table_->cuCtxSynchronize();
  EXPECT_EQ(array.value(), 7U);
}

TEST_F(PublicCapture, IsDiscardedByItsDestructorAndTheStreamWorksOn) {
  Array array(0);
  {
    gpuprof::Capture capture{stream_};
    fill(stream_, array, 7);
  }
  EXPECT_FALSE(capturing());
  EXPECT_EQ(live("graph"), 0);
  fill(stream_, array, 3);
  table_->cuCtxSynchronize();
  EXPECT_EQ(array.value(), 3U);
}

TEST_F(PublicCapture, LeavesTheExceptionOfItsBlockAlone) {
  try {
    gpuprof::Capture capture{stream_};
    kernel(stream_, "add_k");
    throw std::out_of_range("mine");
  } catch (const std::out_of_range& error) {
    EXPECT_STREQ(error.what(), "mine");
  }
  EXPECT_FALSE(capturing());
}

TEST_F(PublicCapture, IsAbortedOnceAndThenOver) {
  gpuprof::Capture capture{stream_};
  capture.abort();
  capture.abort();
  EXPECT_FALSE(capturing());
  const std::string text = text_of<Error>([&] { (void)capture.finish(); });
  EXPECT_EQ(text, "this capture was aborted; there is nothing to finish");
  text_of<Error>([&] { capture.keep(std::make_shared<int>(1)); });
}

TEST_F(PublicCapture, IsFinishedOnce) {
  gpuprof::Capture capture{stream_};
  kernel(stream_, "add_k");
  const CapturedGraph graph = capture.finish();
  const std::string text = text_of<Error>([&] { (void)capture.finish(); });
  EXPECT_EQ(text, "this capture is finished; there is nothing to finish");
}

TEST_F(PublicCapture, OfNothingIsAnErrorUnlessItMayBe) {
  gpuprof::Capture capture{stream_, named("step")};
  const std::string text = text_of<EmptyGraphError>([&] { (void)capture.finish(); });
  EXPECT_TRUE(contains(text, "capture 'step' on stream ")) << text;
  EXPECT_TRUE(contains(text, "recorded nothing")) << text;
  EXPECT_FALSE(capturing());
  EXPECT_EQ(live("graph"), 0);
  CaptureOptions options;
  options.allow_empty = true;
  EXPECT_EQ(graph_of(stream_, [] {}, options).num_nodes(), 0U);
}

TEST_F(PublicCapture, RefusesTheLegacyDefaultStreamAndNamesAnother) {
  try {
    const gpuprof::Capture capture{Stream{}};
    FAIL() << "it began";
  } catch (const CaptureError& error) {
    EXPECT_EQ(error.code(), 900);
    EXPECT_EQ(error.name(), "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED");
    EXPECT_EQ(error.call(), "cuStreamBeginCapture");
    EXPECT_TRUE(contains(error.what(), "non-blocking")) << error.what();
  }
}

TEST_F(PublicCapture, ThatWasBrokenNamesTheCallAndTheCause) {
  gpuprof::Capture capture{stream_, named("decode")};
  kernel(stream_, "add_k");
  EXPECT_EQ(capture.status(), CaptureStatus::kActive);  // and it is seen how far it has come
  EXPECT_NE(table_->cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(capture.status(), CaptureStatus::kInvalidated);
  try {
    (void)capture.finish();
    FAIL() << "it ended well";
  } catch (const CaptureError& error) {
    EXPECT_EQ(error.code(), 901);
    EXPECT_EQ(error.call(), "cuStreamEndCapture");
    EXPECT_EQ(error.first_refused, "cuStreamSynchronize");
    EXPECT_EQ(error.capture, "decode");
    EXPECT_EQ(error.mode, CaptureMode::kThreadLocal);
    EXPECT_EQ(error.num_nodes, 1U);
    EXPECT_EQ(error.last_kernel, "add_k");
    EXPECT_FALSE(error.log.empty());
    const std::string text = error.what();
    EXPECT_TRUE(contains(text, "capture 'decode' (stream ")) << text;
    EXPECT_TRUE(
        contains(text, "mode thread_local, 1 node when last seen, last kernel add_k) broke"))
        << text;
    EXPECT_TRUE(contains(text, "First refused call: cuStreamSynchronize on this thread")) << text;
    EXPECT_TRUE(contains(text, "do it after the capture")) << text;
  }
  EXPECT_FALSE(capturing());
  EXPECT_EQ(live("graph"), 0);
}

TEST_F(PublicCapture, WhoseEndFailsForAnotherReasonRepeatsIt) {
  gpuprof::Capture capture{stream_};
  kernel(stream_, "add_k");
  script("cuStreamEndCapture@1=2");
  const std::string text = text_of<CaptureError>([&] { (void)capture.finish(); });
  EXPECT_TRUE(contains(text, "last kernel add_k) broke: out of memory")) << text;
}

TEST_F(PublicCapture, MayBeEndedByAnyThreadInRelaxedMode) {
  CaptureOptions options;
  options.mode = CaptureMode::kRelaxed;
  gpuprof::Capture capture{stream_, options};
  kernel(stream_, "add_k");
  std::async(std::launch::async, [&] {
    driver::check(table_->cuCtxPushCurrent(context_), "cuCtxPushCurrent");
    EXPECT_EQ(capture.finish().num_nodes(), 1U);
  }).get();
}

TEST_F(PublicCapture, KeepsObjectsUntilTheGraphIsClosed) {
  auto object = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = object;
  gpuprof::Capture capture{stream_};
  kernel(stream_, "add_k");
  capture.keep(std::move(object));
  CapturedGraph graph = capture.finish();
  EXPECT_FALSE(watch.expired());
  graph.launch();
  table_->cuCtxSynchronize();
  graph.close();
  EXPECT_TRUE(watch.expired());
}

TEST_F(PublicCapture, ThatIsDiscardedDropsItsObjects) {
  const auto object = std::make_shared<int>(1);
  {
    gpuprof::Capture capture{stream_};
    capture.keep(object);
    EXPECT_EQ(object.use_count(), 2);
  }
  EXPECT_EQ(object.use_count(), 1);
}

TEST_F(PublicCapture, UploadsTheGraphWhereItIsAskedTo) {
  CaptureOptions options;
  options.upload = true;
  EXPECT_TRUE(graph_of(stream_, [&] { kernel(stream_, "add_k"); }, options).is_uploaded());
  EXPECT_FALSE(graph_of(stream_, [&] { kernel(stream_, "add_k"); }).is_uploaded());
}

}  // namespace
}  // namespace gpuprof::tests
