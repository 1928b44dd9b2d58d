// Events that a caller records and reads by hand, on the fake driver.
#include "timing/single_event.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "driver/error.hpp"
#include "support/driver_errors.hpp"
#include "support/fake.hpp"
#include "support/own_process.hpp"

namespace gpuprof::tests {
namespace {

using timing::SingleEvent;

constexpr std::int64_t kMillisecond = 1'000'000;
constexpr timing::HostNanoseconds kPatience = 10'000'000'000;

class SingleEventTest : public OnDevice {
 protected:
  void record(SingleEvent& event) { event.record(number(stream_), 0); }

  [[nodiscard]] static bool wait(const SingleEvent& event) {
    return event.wait(timing::monotonic_now() + kPatience);
  }
};
