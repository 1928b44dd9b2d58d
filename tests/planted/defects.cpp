// Mistakes made on purpose, one a function, which a sanitizer must report. A job that checks with a
// sanitizer runs these first, so that its silence about gpuprof means something.
//
// As a program: the name of the defect is the argument. As a library: call the function.
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace {

// What the compiler cannot see through, so that it neither warns nor leaves the defect out.
volatile int one = 1;

int shared = 0;

void count() {
  for (int i = 0; i < 100000; ++i) shared += one;
}

}  // namespace

extern "C" {

void heap_overflow() {
  auto* values = static_cast<volatile char*>(std::malloc(static_cast<std::size_t>(16 * one)));
  values[15 + one] = 1;
  std::free(const_cast<char*>(values));
}

void leak() {
  auto* volatile lost = static_cast<char*>(std::malloc(1234));
  lost[0] = 1;
  lost = nullptr;
}

void shift_too_far() {
  const volatile int shifted = one << (31 + one);
  std::printf("%d\n", shifted);
}

void data_race() {
  std::thread first(count);
  std::thread second(count);
  first.join();
  second.join();
  std::printf("%d\n", shared);
}

}  // extern "C"

int main(int argc, char** argv) {
  const char* name = argc == 2 ? argv[1] : "";
  if (std::strcmp(name, "heap_overflow") == 0) {
    heap_overflow();
  } else if (std::strcmp(name, "leak") == 0) {
    leak();
  } else if (std::strcmp(name, "shift_too_far") == 0) {
    shift_too_far();
  } else if (std::strcmp(name, "data_race") == 0) {
    data_race();
  } else {
    std::fprintf(stderr, "usage: %s heap_overflow | leak | shift_too_far | data_race\n", argv[0]);
    return 2;
  }
  return 0;
}
