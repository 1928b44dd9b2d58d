#include "timing/work.hpp"

#include <cmath>
#include <memory>

#include "timing/sample.hpp"

namespace gpuprof::timing {
namespace {

bool has_figures(MemoryNote note) noexcept {
  return note == MemoryNote::kNone || note == MemoryNote::kSum || note == MemoryNote::kNoPeak;
}

}  // namespace

SpanDetails& details_of(Sample& sample) {
  if (sample.details == nullptr) sample.details = std::make_unique<SpanDetails>();
  return *sample.details;
}

void copy_details(const SpanDetails& captured, Sample& replay) {
  SpanDetails& details = details_of(replay);
  details.flops = captured.flops;
  details.nbytes = captured.nbytes;
  details.wants_memory = captured.wants_memory;
}

void WorkSums::add(const SpanDetails& details, double ms, std::uint32_t weight) noexcept {
  if (details.has_work()) count += weight;
  if (details.flops >= 0.0) {
    flops_count += weight;
    flops += weight * details.flops;
    flops_ms += weight * ms;
  }
  if (details.nbytes >= 0.0) {
    bytes_count += weight;
    nbytes += weight * details.nbytes;
    bytes_ms += weight * ms;
  }
}

void WorkSums::add(const WorkSums& others) noexcept {
  count += others.count;
  flops_count += others.flops_count;
  flops += others.flops;
  flops_ms += others.flops_ms;
  bytes_count += others.bytes_count;
  nbytes += others.nbytes;
  bytes_ms += others.bytes_ms;
}

void MemorySums::add(const MemorySums& newer) noexcept {
  if (!newer.asked()) return;
  const std::uint64_t both = count + newer.count;
  add(MemoryUse{newer.peak, newer.absolute, newer.change, newer.note});
  count = both;
}

void MemorySums::add(const MemoryUse& use) noexcept {
  if (!has_figures(use.note)) {
    if (count == 0) note = use.note;
    return;
  }
  if (count == 0 || use.note != MemoryNote::kNone) note = use.note;
  if (count == 0) {
    peak = use.peak;
    absolute = use.absolute;
  } else {  // fmax ignores a nan beside a number
    peak = std::fmax(peak, use.peak);
    absolute = std::fmax(absolute, use.absolute);
  }
  ++count;
  change += use.change;
}

}  // namespace gpuprof::timing
