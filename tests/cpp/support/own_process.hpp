// Running a part of a test in a process of its own.
//
// The driver is chosen and opened once for each process, and a poisoned one stays poisoned. A body
// given to in_own_process() runs in a fresh process that has done nothing but come to this line;
// its failed expectations fail the test here. Nothing before the call may touch the driver, because
// the new process runs it too.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace gpuprof::tests {

// Ends this process with what its expectations say, which the parent shows.
[[noreturn]] inline void exit_with_result() {
  const testing::TestResult& result =
      *testing::UnitTest::GetInstance()->current_test_info()->result();
  for (int i = 0; i < result.total_part_count(); ++i) {
    const testing::TestPartResult& part = result.GetTestPartResult(i);
    if (part.failed()) {
      std::fprintf(stderr, "%s:%d: %s\n", part.file_name(), part.line_number(), part.message());
    }
  }
  std::exit(result.Failed() ? 1 : 0);
}

template <typename Body>
void in_own_process(Body&& body) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";  // executes the program anew
  EXPECT_EXIT(
      {
        body();
        exit_with_result();
      },
      testing::ExitedWithCode(0), "");
}

// The exit status of a child that runs `body`, for 20 s at most.
template <typename Body>
int forked(Body&& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    _exit(body());
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace gpuprof::tests
