// The last value of each series of each counter, for a trace that begins after it was set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "trace/event.hpp"

namespace gpuprof::trace {

class EventSink;

// Not thread safe; throws std::bad_alloc. Past a number of series, new ones are left out.
class LastCounters {
 public:
  static constexpr std::size_t kMost = 4096;

  // Takes the values of a kCounter event.
  void set(const Event& counter);
  // Adds them all to a sink, as set at `time`.
  void add_to(EventSink& sink, HostNanoseconds time) const;

 private:
  struct Value {
    std::uint32_t tid = 0;
    std::string text;
  };
  std::map<std::pair<std::string, std::string>, Value> values_;  // by counter and series
};

}  // namespace gpuprof::trace
