// conformance LIBRARY [CASE...]: asks a CUDA driver what it answers, one case in a process.
//
// Prints a block for each case, "== name" and a row for each call, in the form of the recorded
// files in golden/; "CHILD SIGNAL n" means that the driver ended the process. Without names, all.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "driver.hpp"

using namespace conformance;

std::vector<Case>& conformance::all_cases() {
  static std::vector<Case> all;
  return all;
}

namespace {

constexpr unsigned kSecondsPerCase = 60;

void run_case(const Case& one) {
  std::printf("== %s\n", one.name);
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    alarm(kSecondsPerCase);
    one.run();
    std::fflush(stdout);
    std::exit(0);
  }
  int outcome = 0;
  if (child < 0 || waitpid(child, &outcome, 0) != child) {
    std::perror("conformance");
    std::exit(2);
  }
  if (WIFSIGNALED(outcome)) std::printf("  CHILD SIGNAL %d\n", WTERMSIG(outcome));
  if (WIFEXITED(outcome) && WEXITSTATUS(outcome) != 0) {
    std::printf("  CHILD EXIT %d\n", WEXITSTATUS(outcome));
  }
  std::fflush(stdout);
}

bool is_asked_for(const Case& one, int count, char** names) {
  for (int i = 0; i < count; ++i) {
    if (std::strcmp(names[i], one.name) == 0) return true;
  }
  return count == 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: conformance LIBRARY [CASE...]\n");
    return 2;
  }
  // A crash must not take the rows before it along.
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  open_driver(argv[1]);
  for (const Case& one : all_cases()) {
    if (is_asked_for(one, argc - 2, argv + 2)) run_case(one);
  }
  return 0;
}
