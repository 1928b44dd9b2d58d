#include "gpuprof/annotate.hpp"

#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>

#include "api/environment.hpp"
#include "api/ranges.hpp"
#include "api/warnings.hpp"
#include "driver/process.hpp"
#include "gpuprof/catalog.hpp"
#include "gpuprof/nvtx.hpp"
#include "nvtx/attributes.hpp"
#include "ranges/started.hpp"
#include "trace/recorder.hpp"

GPUPROF_BEGIN_NAMESPACE

using api::nvtx_on;

namespace {

bool nobody_listens() noexcept {
  return !nvtx_on.load(std::memory_order_relaxed) && !trace::is_recording();
}

ranges::StartedRanges<const api::RangeOfName>& started_ranges() {
  return driver::immortal<ranges::StartedRanges<const api::RangeOfName>>();
}

const bool nvtx_environment_is_read = api::read_environment();

}  // namespace

Color::Color(std::string_view name) : argb_(0) {
  const std::optional<std::uint32_t> found = gpuprof::nvtx::color_of(name);
  if (!found) {
    throw std::invalid_argument("color: expected '#rrggbb', '#aarrggbb' or one of " +
                                gpuprof::nvtx::color_names() + "; got '" + std::string(name) + "'");
  }
  argb_ = *found;
}

annotate::annotate(std::string_view name, const RangeOptions& options) noexcept {
  if (nobody_listens()) return;
  open(api::range_of(name, options));
}

annotate::annotate(const CatalogRange& range) noexcept {
  if (nobody_listens()) return;
  open(range.range_);
}

void annotate::open(std::shared_ptr<const api::RangeOfName> range) noexcept {
  range_ = std::move(range);
  if (range_ == nullptr) {
    api::emit_pending_warnings();
    return;
  }
  thread_ = trace::thread_id();
  try {
    if (nvtx_on.load(std::memory_order_relaxed)) {
      range_->in_nvtx().push();
      pushed_ = true;
    }
  } catch (const std::exception&) {  // out of memory: NVTX lacks it
  }
  if (trace::is_recording()) begin_ = driver::host_now();
}

void annotate::close() noexcept {
  const bool is_traced = begin_ != 0 && trace::is_recording();
  const driver::HostNanoseconds now = is_traced ? driver::host_now() : 0;
  if (pushed_ && thread_ != trace::thread_id()) {
    driver::warn_once(driver::Warning::kForeignRange,
                      "gpuprof: an annotation was left on another thread than it was entered on; "
                      "tools see it go on. Use range_start and range_end across threads");
  } else if (pushed_) {
    range_->pop();
  }
  try {
    if (is_traced) range_->trace(trace::Kind::kSlice, begin_, now, trace::kUnknownDepth, thread_);
  } catch (const std::exception&) {  // out of memory: the trace has one slice less
  }
  range_.reset();
  api::emit_pending_warnings();
}

void mark(std::string_view name, const RangeOptions& options) noexcept {
  if (nobody_listens()) return;
  const auto range = api::range_of(name, options);
  try {
    if (range != nullptr && nvtx_on.load(std::memory_order_relaxed)) range->in_nvtx().mark();
    if (range != nullptr && trace::is_recording()) {
      const driver::HostNanoseconds now = driver::host_now();
      range->trace(trace::Kind::kInstant, now, now, 0, 0);
    }
  } catch (const std::exception&) {  // out of memory: it is not shown
  }
  api::emit_pending_warnings();
}

std::uint64_t range_start(std::string_view name, const RangeOptions& options) {
  if (nobody_listens()) return 0;
  const auto range = api::range_of(name, options);
  std::uint64_t number = 0;
  if (range != nullptr) {
    number = started_ranges().start(range, nvtx_on.load(std::memory_order_relaxed),
                                    trace::is_recording());
  }
  api::emit_pending_warnings();
  return number;
}

bool range_end(std::uint64_t number) noexcept {
  try {
    return started_ranges().end(number, trace::is_recording());
  } catch (const std::exception&) {  // out of memory: the trace has one slice less
    return true;
  }
}

RangeCatalog::RangeCatalog(std::string name_space, std::initializer_list<RangeSpec> specs,
                           const RangeOptions& options)
    : namespace_(std::move(name_space)) {
  const auto refuse = [](const std::string& why) { throw std::invalid_argument(why); };
  const auto has_nul = [](const std::string& text) { return text.find('\0') != std::string::npos; };
  if (namespace_.empty() || has_nul(namespace_)) refuse("name_space: expected text like 'engine'");
  if (specs.size() == 0) refuse("specs: the catalog '" + namespace_ + "' has no ranges");
  const std::string head = namespace_ + '.';
  for (const RangeSpec& spec : specs) {
    if (spec.name.compare(0, head.size(), head) != 0 || spec.name == head) {
      refuse("specs: '" + spec.name + "' is not in the namespace; write '" + head + "...'");
    }
    if (has_nul(spec.name)) refuse("specs: a name in '" + namespace_ + "' has a NUL in it");
    if (spec.description.empty()) {
      refuse("description: say what the range '" + spec.name + "' is, in a few words");
    }
    for (const CatalogRange& other : ranges_) {
      if (other.spec_.name == spec.name) refuse("specs: '" + spec.name + "' is there twice");
    }
    RangeOptions of_range = options;
    of_range.category = namespace_;
    ranges_.push_back(CatalogRange(spec, api::range_of(spec.name, of_range)));
  }
}

const CatalogRange& RangeCatalog::operator[](std::string_view name) const {
  const std::string whole = namespace_ + '.' + std::string(name);
  for (const CatalogRange& range : ranges_) {
    if (range.spec_.name == name || range.spec_.name == whole) return range;
  }
  std::string message =
      "the catalog '" + namespace_ + "' has no '" + std::string(name) + "'; it has";
  for (const CatalogRange& range : ranges_) message += " '" + range.spec_.name + "'";
  throw std::out_of_range(message);
}

GPUPROF_END_NAMESPACE

namespace gpuprof::nvtx {
inline namespace GPUPROF_ABI {

void enable() noexcept {
  nvtx_on.store(true, std::memory_order_relaxed);
  try {
    if (!is_tool_attached()) {
      driver::warn_once(driver::Warning::kNvtxNoTool,
                        "gpuprof: NVTX is on, but no tool listens: run the program under nsys or "
                        "ncu to see its ranges");
    }
  } catch (const std::exception&) {  // out of memory: no warning
  }
  api::emit_pending_warnings();
}

void disable() noexcept { nvtx_on.store(false, std::memory_order_relaxed); }

bool is_enabled() noexcept { return nvtx_on.load(std::memory_order_relaxed); }

bool is_tool_attached() { return api::tool_listens(); }

void name_stream(Stream stream, std::string_view name) {
  if (is_enabled()) nvtx::name_stream(stream.handle(), std::string(name));
}

}  // namespace GPUPROF_ABI
}  // namespace gpuprof::nvtx
