// What is said of a broken capture: the first refused call, whose it was, and what to do.
#include "graphs/diagnosis.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/driver_errors.hpp"

namespace gpuprof::tests {
namespace {

using graphs::CaptureFacts;
using graphs::diagnose;
using graphs::Diagnosis;

constexpr char kHead[] = "[2026-11-20 10:15:59.123][140212][CUDA][E] ";
constexpr char kEnd[] = "cuStreamEndCapture";

driver::LogLine line(const std::string& text, bool own = true) { return {own, kHead + text}; }

driver::LogLine refused(int code, const std::string& call, bool own = true) {
  return line("Returning " + std::to_string(code) + " (" + graphs::capture_error_name(code) +
                  ") from " + call,
              own);
}

CaptureFacts facts(std::vector<driver::LogLine> log, const std::string& mode = "thread_local") {
  CaptureFacts known;
  known.name = "'decode'";
  known.mode = mode;
  known.nodes = 41;
  known.last_kernel = "add_k";
  known.log = std::move(log);
  return known;
}

TEST(Diagnosis, NamesTheFirstRefusedCallAndItsUsualCause) {
  const Diagnosis found =
      diagnose(901, kEnd, "", facts({refused(900, "cuStreamSynchronize"), refused(901, kEnd)}));
  EXPECT_EQ(found.code, 901);
  EXPECT_EQ(found.first_refused, "cuStreamSynchronize");
  EXPECT_TRUE(contains(found.hint, "do it after the capture")) << found.hint;
  EXPECT_EQ(found.text,
            "capture 'decode' (mode thread_local, 41 nodes when last seen, last kernel add_k) "
            "broke. First refused call: cuStreamSynchronize on this thread, refused with 900 "
            "(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED). Likely" +
                found.hint.substr(6));
}

TEST(Diagnosis, PrefersThisThreadAndRepeatsWhatTheDriverSaidBefore) {
  const auto refusal =
      graphs::first_refusal({refused(900, "cuMemAlloc_v2", false), line("API call conflicts"),
                             line("other", false), refused(900, "cuMemFree_v2")});
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->text(),
            "cuMemFree_v2 on this thread, refused with 900 "
            "(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED); the driver says \"API call conflicts\"");
}

TEST(Diagnosis, AnEchoBecomesTheRuleForStreamsThatWasBroken) {
  const Diagnosis found =
      diagnose(901, kEnd, "", facts({refused(905, "cuStreamWaitEvent"), refused(901, kEnd)}));
  EXPECT_EQ(found.code, 905);
  EXPECT_TRUE(contains(found.text, "broke: dependency created on uncaptured work")) << found.text;
  EXPECT_TRUE(contains(found.hint, "wait before the capture begins")) << found.hint;
}

TEST(Diagnosis, ACallOfAnotherThreadInGlobalModeIsNotTheBodys) {
  const Diagnosis found =
      diagnose(901, kEnd, "", facts({refused(900, "cuMemAlloc_v2", false)}, "global"));
  EXPECT_TRUE(contains(found.text, "cuMemAlloc_v2 on another thread")) << found.text;
  EXPECT_TRUE(contains(found.hint, "mode=\"thread_local\" binds only")) << found.hint;
}

TEST(Diagnosis, TheRefusedEndIsNotNamedTwice) {
  const Diagnosis found = diagnose(904, kEnd, "", facts({refused(904, kEnd)}));
  EXPECT_FALSE(contains(found.text, "First refused call")) << found.text;
  EXPECT_TRUE(contains(found.text, "broke: capturing stream has unjoined work. A stream that"))
      << found.text;
}

TEST(Diagnosis, SaysWhereThereIsNoLogOrNothingInIt) {
  CaptureFacts known;
  EXPECT_TRUE(contains(diagnose(901, kEnd, "", known).text, "names no refused call"));
  known.keeps_log = false;
  EXPECT_TRUE(contains(diagnose(901, kEnd, "", known).text, "CUDA 12.9 and later do"));
  EXPECT_EQ(diagnose(719, kEnd, "a launch failed", known).text.substr(0, 36),
            "the capture broke: a launch failed. ");
}

TEST(Diagnosis, LinesThatOnlyLookLikeRefusalsAreRemarks) {
  for (const char* text : {"Returning", "Returning x (A) from b", "Returning 900 from b",
                           "Returning 900 () from b", "Returning 900 (A) from ", "[open", ""}) {
    EXPECT_FALSE(graphs::first_refusal({{true, text}}).has_value()) << text;
  }
}

TEST(Diagnosis, AKernelIsNamedWithoutItsTemplateArguments) {
  CaptureFacts known;
  const auto shown = [&](const std::string& kernel) {
    known.last_kernel = kernel;
    const std::string text = diagnose(901, kEnd, "", known).text;
    const std::size_t from = text.find("last kernel ") + 12;
    return text.substr(from, text.find(") broke") - from);
  };
  EXPECT_EQ(shown("_ZN2at6native10add_kernelIfEEvT_"), "at::native::add_kernel<...>");
  EXPECT_EQ(shown("_Z5add_kPf"), "add_k");
  EXPECT_EQ(shown("_ZN12_GLOBAL__N_13addEv"), "add");
  EXPECT_EQ(shown("plain"), "plain");
  EXPECT_EQ(shown(std::string(100, 'x')), std::string(77, 'x') + "...");
  EXPECT_EQ(shown("_Z999x"), "x");  // cut off
}

TEST(Diagnosis, ANoteIsMadeOnlyWhereSomethingWasRefused) {
  EXPECT_EQ(graphs::diagnosis_note(facts({line("hello")})), "");
  CaptureFacts known = facts({refused(900, "cuStreamQuery")});
  EXPECT_TRUE(contains(graphs::diagnosis_note(known), "was discarded. First refused call: "));
  known.where = "model.py:88";
  EXPECT_TRUE(contains(graphs::diagnosis_note(known), "broke at model.py:88. First refused call"));
}

}  // namespace
}  // namespace gpuprof::tests
