// The driver layer: which library, what it lacks, and how its failures are told. Nearly every case
// needs a driver of its own kind, and so a process of its own.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "driver/cuda_table.hpp"
#include "driver/cuda_thread_state.hpp"
#include "driver/library.hpp"
#include "support/driver_errors.hpp"
#include "support/fake.hpp"
#include "support/own_process.hpp"

namespace gpuprof::tests {
namespace {

using driver::Error;
using driver::ErrorKind;

void use_driver(const std::string& path) { setenv("GPUPROF_CUDA_DRIVER", path.c_str(), 1); }
void configure_at_start(const char* text) { setenv("FAKECUDA_CONFIG", text, 1); }

// A file of a test's own, gone with it.
class File {
 public:
  explicit File(mode_t mode) {
    char name[] = "/tmp/gpuprof-driver-test-XXXXXX";
    const int descriptor = mkstemp(name);
    EXPECT_GE(descriptor, 0);
    EXPECT_EQ(fchmod(descriptor, mode), 0);
    close(descriptor);
    path_ = name;
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { unlink(path_.c_str()); }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

// Expects that `path` is refused as the driver for a reason with `words` in it.
void expect_refused(const std::string& path, const std::string& words) {
  use_driver(path);
  const driver::LibraryChoice& choice = driver::library_choice();
  EXPECT_EQ(choice.override_path, "");
  EXPECT_EQ(choice.candidates.front(), "libcuda.so.1");
  const std::vector<std::string> warnings = driver::take_warnings();
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_TRUE(contains(warnings[0], path)) << warnings[0];
  EXPECT_TRUE(contains(warnings[0], words)) << warnings[0];
}

TEST(LibraryChoice, IsTheSystemsDriverWhereNothingIsSaid) {
  in_own_process([] {
    unsetenv("GPUPROF_CUDA_DRIVER");
    const auto& candidates = driver::library_choice().candidates;
    ASSERT_GE(candidates.size(), 2U);
    EXPECT_EQ(candidates[0], "libcuda.so.1");
    EXPECT_EQ(candidates[1], "libcuda.so");
    EXPECT_NE(std::find_if(candidates.begin(), candidates.end(),
                           [](const std::string& path) { return contains(path, "/wsl/"); }),
              candidates.end());
    EXPECT_FALSE(driver::warnings_pending());
  });
}

TEST(LibraryChoice, AnEmptyOverrideIsNone) {
  in_own_process([] {
    use_driver("");
    EXPECT_EQ(driver::library_choice().candidates.front(), "libcuda.so.1");
    EXPECT_FALSE(driver::warnings_pending());
  });
}

TEST(LibraryChoice, IsMadeOnce) {
  in_own_process([] {
    const File file(0644);
    use_driver(file.path());
    driver::library_choice();
    use_driver("/elsewhere.so");
    EXPECT_EQ(driver::library_choice().override_path, file.path());
  });
}

TEST(LibraryChoice, RefusesAnotherUsersFile) {
  if (geteuid() != 0) {
    // An ordinary user cannot give a file away, and meets such a file nowhere for certain.
    return;
  }
  in_own_process([] {
    const File file(0644);
    ASSERT_EQ(chown(file.path().c_str(), 12345, 12345), 0);
    expect_refused(file.path(), "another user");
  });
}

TEST(Loading, SaysWhatWasTriedAndWhatTheLoaderSaid) {
  in_own_process([] {
    const File file(0644);
    std::ofstream(file.path()) << "no library";
    use_driver(file.path());
    const Error error = error_of_ready();
    EXPECT_EQ(error.kind(), ErrorKind::kUnavailable);
    EXPECT_TRUE(contains(error.what(), file.path())) << error.what();
    EXPECT_EQ(driver::loaded_or_null(), nullptr);
    const driver::DriverInfo info = driver::driver_info();
    EXPECT_FALSE(info.available);
    EXPECT_EQ(info.reason, error.what());
    EXPECT_EQ(info.tried, std::vector<std::string>{file.path()});
    EXPECT_EQ(info.path, "");
  });
}

TEST(Loading, AsksNoMoreWhereTheAnswerStays) {
  for (const char* answer : {"init=3", "init=34", "init=100", "init=803"}) {
    in_own_process([=] {
      configure_at_start(answer);
      EXPECT_STREQ(error_of_ready().what(), error_of_ready().what());
      EXPECT_EQ(calls_of("cuInit"), 1U);
    });
  }
}

TEST(Loading, InitialisesNothingToSeeWhetherCudaIsInUse) {
  in_own_process([] {
    EXPECT_EQ(driver::loaded_or_null(), nullptr);
    EXPECT_EQ(driver::in_use_or_null(), nullptr);
    auto* const init = entry<CUresult(unsigned)>("cuInit");  // loads the library, as others would
    EXPECT_EQ(driver::in_use_or_null(), nullptr);
    EXPECT_EQ(calls_of("cuInit"), 0U);
    ASSERT_EQ(init(0), CUDA_SUCCESS);
    EXPECT_NE(driver::in_use_or_null(), nullptr);
  });
}

TEST(Loading, ManyThreadsAtOnceInitialiseOnce) {
  in_own_process([] {
    std::vector<std::thread> threads;
    threads.reserve(32);
    std::atomic<int> ready{0};
    for (int i = 0; i < 32; ++i) {
      threads.emplace_back([&ready] {
        ++ready;
        while (ready.load() < 32) std::this_thread::yield();
        EXPECT_NE(driver::ready().cuInit.function, nullptr);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(calls_of("cuInit"), 1U);
  });
}

TEST(EntryPoints, ADriverThatFailsToTellIsNotTakenToLackOne) {
  in_own_process([] {
    script("cuGetProcAddress_v2@30=2");
    const Error error = error_of_ready();
    EXPECT_TRUE(contains(error.what(), "cuGetProcAddress")) << error.what();
    EXPECT_TRUE(contains(error.what(), "CUDA_ERROR_OUT_OF_MEMORY (2)")) << error.what();
    driver::ready();
    EXPECT_EQ(driver::driver_info().missing, std::vector<std::string>{});
  });
}

TEST(EntryPoints, ADriverOfCuda12LacksOnlyWhatCameLater) {
  in_own_process([] {
    configure_at_start("driver_version=12000");
    driver::ready();
    const std::vector<std::string> expected{"cuLogsCurrent", "cuLogsDumpToMemory", "cuFuncGetName",
                                            "cuKernelGetName"};
    EXPECT_EQ(driver::driver_info().missing, expected);
  });
}

class DriverErrors : public OnDevice {};

TEST_F(DriverErrors, HoldOnlyTheLogOfTheirOwnCall) {
  driver::error_of(access().record(nullptr, stream_), "cuEventRecord");
  const Error second = driver::error_of(table_->cuMemFreeHost(nullptr), "cuMemFreeHost");
  EXPECT_FALSE(contains(second.detail(), "cuEventRecord")) << second.detail();
}

TEST_F(DriverErrors, NameACodeThatNoDriverKnows) {
  const Error error = driver::error_of(static_cast<CUresult>(998), "cuSomething");
  EXPECT_EQ(error.code(), 998);
  EXPECT_FALSE(error.name().empty());
}

TEST_F(DriverErrors, OfOrdinaryKindBlockNothing) {
  for (const CUresult status : {CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
                                CUDA_ERROR_CONTEXT_IS_DESTROYED, CUDA_ERROR_OUT_OF_MEMORY}) {
    driver::error_of(status, "cuSomething");
    EXPECT_EQ(driver::blocked.load(), 0U) << status;
  }
}

TEST(Warnings, AreNotedOnceForEachKind) {
  driver::forget_warnings();
  driver::warn_once(driver::Warning::kDropped, "first");
  driver::warn_once(driver::Warning::kDropped, "second");
  driver::warn_once(driver::Warning::kPathsFull, "other");
  EXPECT_TRUE(driver::warnings_pending());
  const std::vector<std::string> expected{"first", "other"};
  EXPECT_EQ(driver::take_warnings(), expected);
  EXPECT_FALSE(driver::warnings_pending());
  driver::warn_once(driver::Warning::kDropped, "third");
  EXPECT_TRUE(driver::take_warnings().empty());
  driver::forget_warnings();
  driver::warn_once(driver::Warning::kDropped, "fourth");
  EXPECT_EQ(driver::take_warnings(), std::vector<std::string>{"fourth"});
  driver::forget_warnings();
}

class DriverScopes : public OnDevice {};

TEST_F(DriverScopes, TheCurrentContextIsNotPushedAgain) {
  const std::uint64_t pushes = calls_of("cuCtxPushCurrent");
  {
    const driver::CurrentContext same(*table_, context_);
  }
  EXPECT_EQ(calls_of("cuCtxPushCurrent"), pushes);
}

}  // namespace
}  // namespace gpuprof::tests
