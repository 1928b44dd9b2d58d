// Prints what scopes of the C++ library cost: `cpp_scopes ROUNDS TRACE`, a line for each round's
// figure, its name, a tab and a number. It writes traces to the file TRACE.
//
// Nanoseconds are CPU time of the threads in which scopes run, but for `pause`: how long the
// longest of a thread's scopes took on the clock.

#include <ctime>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "gpuprof/gpuprof.hpp"

namespace {

constexpr int kScopes = 200'000;
constexpr int kRows = 3000;
constexpr int kReads = 5;

double now_ns(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

template <typename Body>
double cpu_ns(Body&& body) {
  for (int i = 0; i < kScopes / 10; ++i) body();
  const double begin = now_ns(CLOCK_THREAD_CPUTIME_ID);
  for (int i = 0; i < kScopes; ++i) body();
  return (now_ns(CLOCK_THREAD_CPUTIME_ID) - begin) / kScopes;
}

void time_step() { const gpuprof::timer scope("step", gpuprof::Clock::kCpu); }
void time_macro() { GPUPROF_SCOPE("step", gpuprof::Clock::kCpu); }
void annotate_step() { const gpuprof::annotate range("step"); }

double of_threads(int count) {
  std::vector<double> found(static_cast<std::size_t>(count));
  std::vector<std::thread> threads;
  for (double& each : found) threads.emplace_back([&each] { each = cpu_ns(time_step); });
  for (std::thread& each : threads) each.join();
  return std::accumulate(found.begin(), found.end(), 0.0) / count;
}

// The longest scope of another thread, while this one reads the statistics of many rows or not.
double longest_ns(bool reads) {
  std::atomic<bool> is_over{false};
  double longest = 0.0;
  std::thread other([&] {
    while (!is_over) {
      const double begin = now_ns(CLOCK_MONOTONIC);
      time_step();
      longest = std::max(longest, now_ns(CLOCK_MONOTONIC) - begin);
    }
  });
  const double until = now_ns(CLOCK_MONOTONIC) + 50e6;
  if (reads) {
    for (int i = 0; i < kReads; ++i) static_cast<void>(gpuprof::stats());
  }
  while (now_ns(CLOCK_MONOTONIC) < until) std::this_thread::yield();
  is_over = true;
  other.join();
  return longest;
}

void print(const char* name, double value) { std::printf("%s\t%.3f\n", name, value); }

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return 2;
  const int rounds = std::atoi(arguments[1]);
  for (int i = 0; i < rounds; ++i) {
    print("timer", of_threads(1));
    print("timer, 16 threads", of_threads(16));
    print("GPUPROF_SCOPE", cpu_ns(time_macro));
    print("annotate", cpu_ns(annotate_step));
    {
      const gpuprof::TraceWriter trace(arguments[2], {/*collect=*/true, /*buffer_mib=*/512, {}});
      print("timer, trace open", cpu_ns(time_step));
      print("annotate, trace open", cpu_ns(annotate_step));
    }
  }
  for (int i = 0; i < kRows; ++i) {
    const gpuprof::timer scope("row " + std::to_string(i), gpuprof::Clock::kCpu);
  }
  for (int i = 0; i < rounds; ++i) {
    print("pause, nobody reads", longest_ns(false));
    print("pause, stats() of 3,000 rows", longest_ns(true));
  }
  return 0;
}
