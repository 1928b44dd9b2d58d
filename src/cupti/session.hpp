// A collection of kernel records through CUPTI's activity API, one at a time for the process.
//
// CUPTI hands full buffers to a callback on a thread of its own, or of whoever flushes; they are
// decoded there, without Python. The callbacks stay registered in CUPTI after a collection, because
// CUPTI has no way to take them back; they then give it no buffer. Any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "cupti/collection.hpp"
#include "cupti/library.hpp"
#include "driver/host_clock.hpp"

namespace gpuprof::cupti {

struct Collected {
  std::unique_ptr<Collection> records;
  ClockMap clock;
  // Buffers that CUPTI has not given back: another tool registered its callbacks since the start,
  // gets the records from then on, and these are lost.
  bool displaced = false;
  std::string problem;  // what CUPTI refused while it was stopped; empty: nothing
};

// Loads CUPTI with `candidates` (see load()) and collects from now on, at most `max_records`
// activities and twice as many launches; what comes later is counted and added to the totals.
// Throws Error: kInvalidState if there is a collection already, kForked in a child of a process
// that used CUPTI or CUDA, kUnavailable where CUPTI cannot be had. Then nothing has changed.
//
// CUPTI of CUDA 13.0 and before cannot tell that another tool of this process collects. Its records
// would come here then, so the caller must neither start while torch's profiler runs, nor let that
// start before the end.
void start(std::size_t max_records, const std::vector<std::string>& candidates);

// The end of a collection, in three steps, so that the caller decides how long it waits.
//
// Disables what start() enabled. Throws Error: kInvalidState without a collection, kForked in a
// child.
void begin_stop();

// Between the two others: whether all records have come, those of work that still runs too. Asks
// CUPTI until the time `until` of the host's clock. Never synchronises with the GPU: that would
// break every stream capture of the context.
bool poll_stop(driver::HostNanoseconds until);

// Takes what CUPTI still has, and ends the collection. Work that still runs is counted as untimed.
Collected end_stop();

[[nodiscard]] bool is_collecting() noexcept;

}  // namespace gpuprof::cupti
