// Rows from a forked child.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "driver.hpp"

namespace conformance {

constexpr unsigned kSecondsPerChild = 5;

// Runs `calls` in a forked child and returns how it ended.
template <typename Calls>
int in_child(Calls calls) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    alarm(kSecondsPerChild);  // a parent's alarm is not inherited
    calls();
    std::fflush(stdout);
    _exit(0);
  }
  int outcome = 0;
  waitpid(child, &outcome, 0);
  return outcome;
}

template <typename Calls>
void child_row(const char* what, Calls calls) {
  const int outcome = in_child([&] { std::printf("  child %-18s -> %s\n", what, named(calls())); });
  if (WIFSIGNALED(outcome)) std::printf("  child %-18s SIGNAL %d\n", what, WTERMSIG(outcome));
}

}  // namespace conformance
