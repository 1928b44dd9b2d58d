// Ranges by their names, for annotations, catalogs and timer scopes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "gpuprof/annotate.hpp"
#include "nvtx/range.hpp"
#include "trace/event.hpp"

namespace gpuprof::api {

inline std::atomic<bool> nvtx_on{false};

// A range as NVTX and traces show it. Immutable once it is made; calls of nvtx/ that register
// something are under one lock.
class RangeOfName {
 public:
  RangeOfName(nvtx::Domain& domain, const std::string& label, const nvtx::Attributes& attributes);

  // For NVTX, where it is on: to be pushed, marked. pop() is for the same thread.
  [[nodiscard]] nvtx::Range& in_nvtx() const;
  void pop() const noexcept { nvtx::pop(range_.domain()); }
  [[nodiscard]] std::uint64_t start() const { return in_nvtx().start(); }
  void end(std::uint64_t number) const noexcept { nvtx::end(range_.domain(), number); }

  // For the traces that record.
  void trace(trace::Kind kind, driver::HostNanoseconds begin, driver::HostNanoseconds end,
             std::uint16_t depth, std::uint32_t tid) const;

 private:
  std::string category_;
  std::string args_;
  const trace::Label* name_in_traces_;  // null past the number of names that are kept
  const trace::Label* category_in_traces_;
  mutable nvtx::Range range_;
  mutable std::atomic<bool> is_prepared_{false};
};

// Whether a tool listens to NVTX; the first question loads it.
bool tool_listens();

// The range of a valid label, made once if it has no payload; null, with one warning, for another
// label and for lack of memory.
std::shared_ptr<const RangeOfName> range_of(std::string_view name,
                                            const RangeOptions& options) noexcept;

}  // namespace gpuprof::api
