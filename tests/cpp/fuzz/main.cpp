// Runs a harness without libFuzzer, with options of the same names: on each file of a folder, then
// on mutations of them. An input that breaks something is left in the file crash-input.
#include <sys/time.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

#include "fuzz/input.hpp"

extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace {

constexpr std::size_t kMostBytes = 4096;
constexpr itimerval kMostTime{{}, {20, 0}};  // of a processor, for some hundred runs
constexpr std::string_view kTelling("\"\\\0\n<>{}()[]_/#'\x7F\x80\xBF\xC3\xE2\xED\xF0\xFF", 24);

std::string now_running;

void keep_input() { std::ofstream("crash-input", std::ios::binary) << now_running; }

void end(int signal) {
  keep_input();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void run(std::string input) {
  now_running = std::move(input);
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(now_running.data()),
                         now_running.size());
}

std::string mutated(const std::vector<std::string>& files, std::mt19937_64& random) {
  const auto below = [&random](std::size_t limit) { return limit == 0 ? 0 : random() % limit; };
  std::string text = files[below(files.size())];
  for (std::size_t left = 1 + below(6); left > 0; --left) {
    const std::size_t at = below(text.size() + 1);
    const std::size_t count = below(std::min<std::size_t>(text.size() - at, 32) + 1);
    const char telling = kTelling[below(kTelling.size())];
    const std::string& other = files[below(files.size())];
    switch (below(5)) {
      case 0:
        for (std::size_t i = at; i < at + count; ++i) text[i] = static_cast<char>(random());
        break;
      case 1:
        if (count > 0) text[at] = static_cast<char>(text[at] ^ 1 << below(8));
        break;
      case 2:
        text.replace(at, below(2), 1 + below(4), telling);
        break;
      case 3:
        text.erase(at, count);
        break;
      default:
        text.insert(at, other, below(other.size() + 1), 48);
    }
  }
  return text.substr(0, kMostBytes);
}

}  // namespace

int main(int argc, char** argv) {
  unsigned long long runs = ~0ULL, seconds = 1'000'000, seed = std::random_device()();
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    if (std::sscanf(argv[i], "-runs=%llu", &runs) == 1) continue;
    if (std::sscanf(argv[i], "-max_total_time=%llu", &seconds) == 1) continue;
    if (std::sscanf(argv[i], "-seed=%llu", &seed) == 1) continue;
    for (const auto& each : std::filesystem::directory_iterator(argv[i])) {
      std::ifstream file(each.path(), std::ios::binary);
      files.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
  }
  if (files.empty()) return std::fputs("name a folder with inputs\n", stderr), 2;
  std::sort(files.begin(), files.end());  // so that a seed gives the same inputs everywhere
  for (const int signal : {SIGABRT, SIGPROF, SIGSEGV}) std::signal(signal, &end);
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(&keep_input);
  for (const std::string& each : files) run(each);
  std::mt19937_64 random(seed);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  unsigned long long done = 0;
  for (; done < runs; ++done) {
    if (done % 256 == 0) {
      ::setitimer(ITIMER_PROF, &kMostTime, nullptr);
      if (std::chrono::steady_clock::now() >= until) break;
    }
    run(mutated(files, random));
  }
  std::printf("%llu inputs, seed %llu\n", done, seed);
  return 0;
}
