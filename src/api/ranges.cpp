#include "api/ranges.hpp"

#include <array>
#include <cmath>
#include <exception>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "driver/error.hpp"
#include "driver/process.hpp"
#include "nvtx/attributes.hpp"
#include "trace/recorder.hpp"

namespace gpuprof::api {
namespace {

constexpr std::size_t kMostNames = 10'000;

using ByKey = std::unordered_map<std::string, std::shared_ptr<const RangeOfName>>;

struct Ranges {
  driver::ForkMutex nvtx;  // nvtx/ has its callers take turns where something is registered
  driver::ForkMutex mutex;
  ByKey by_key;  // nothing is ever taken out
};

// What a thread found last, by the place of the name's text in memory.
constexpr std::size_t kKnown = 64;
thread_local std::array<const ByKey::value_type*, kKnown> known_ranges{};

Ranges& all_ranges() { return driver::immortal<Ranges>(); }

nvtx::Domain& domain_of(const RangeOptions& options) {
  const std::lock_guard lock(all_ranges().nvtx);
  if (!options.domain) return nvtx::default_domain();
  return options.domain->empty() ? nvtx::unnamed_domain() : nvtx::domain_named(*options.domain);
}

nvtx::Payload payload_of(const Payload& given) {
  if (given.kind == Payload::Kind::kReal) return given.real;
  if (given.kind == Payload::Kind::kSigned) return given.integer;
  return given.natural;
}

// A member of the args of a trace's event.
std::string payload_member(const nvtx::Payload& payload) {
  constexpr const char* kMember = "\"payload\":";
  if (const auto* integer = std::get_if<std::int64_t>(&payload))
    return kMember + std::to_string(*integer);
  if (const auto* natural = std::get_if<std::uint64_t>(&payload))
    return kMember + std::to_string(*natural);
  const auto* real = std::get_if<double>(&payload);
  if (real == nullptr || !std::isfinite(*real)) return {};
  return kMember + trace::json_number(*real);
}

std::shared_ptr<const RangeOfName> make(std::string_view name, const RangeOptions& options) {
  nvtx::Attributes attributes;
  if (options.color) attributes.argb = options.color->argb();
  attributes.category = options.category;
  if (options.payload) attributes.payload = payload_of(*options.payload);
  return std::make_shared<const RangeOfName>(domain_of(options), nvtx::shown_label(name),
                                             attributes);
}

std::string key_of(std::string_view name, const RangeOptions& options) {
  std::string key(name);
  key += '\0';
  key += options.category;
  key += '\0';
  if (options.domain) (key += '\1') += *options.domain;
  key += '\0';
  if (options.color) key += std::to_string(options.color->argb());
  return key;
}

// Whether key_of() makes this key of them.
bool is_key_of(std::string_view key, std::string_view name, const RangeOptions& options) {
  const auto goes_on = [&key](std::string_view part) {
    if (key.compare(0, part.size(), part) != 0) return false;
    key.remove_prefix(part.size());
    return true;
  };
  constexpr std::string_view kNul("\0", 1);
  if (!goes_on(name) || !goes_on(kNul) || !goes_on(options.category) || !goes_on(kNul))
    return false;
  if (options.domain && (!goes_on("\1") || !goes_on(*options.domain))) return false;
  return goes_on(kNul) && key == (options.color ? std::to_string(options.color->argb()) : "");
}

std::shared_ptr<const RangeOfName> find_or_make(std::string_view name,
                                                const RangeOptions& options) {
  if (options.payload) return make(name, options);
  const auto place = reinterpret_cast<std::uintptr_t>(name.data()) >> 3U;
  const ByKey::value_type*& known = known_ranges[place % kKnown];
  if (known != nullptr && is_key_of(known->first, name, options)) return known->second;
  std::string key = key_of(name, options);
  Ranges& ranges = all_ranges();
  {
    const std::lock_guard lock(ranges.mutex);
    if (const auto found = ranges.by_key.find(key); found != ranges.by_key.end()) {
      return (known = &*found)->second;
    }
  }
  std::shared_ptr<const RangeOfName> made = make(name, options);
  const std::lock_guard lock(ranges.mutex);
  if (ranges.by_key.size() >= kMostNames) return made;
  return (known = &*ranges.by_key.try_emplace(std::move(key), std::move(made)).first)->second;
}

}  // namespace

RangeOfName::RangeOfName(nvtx::Domain& domain, const std::string& label,
                         const nvtx::Attributes& attributes)
    : category_(attributes.category.empty() ? "annotation" : attributes.category),
      args_(payload_member(attributes.payload)),
      name_in_traces_(trace::intern(label)),
      category_in_traces_(trace::intern_category(category_)),
      range_(domain, label, attributes) {}

nvtx::Range& RangeOfName::in_nvtx() const {
  if (is_prepared_.load(std::memory_order_acquire)) return range_;
  const std::lock_guard lock(all_ranges().nvtx);
  range_.prepare();
  is_prepared_.store(true, std::memory_order_release);
  return range_;
}

void RangeOfName::trace(trace::Kind kind, driver::HostNanoseconds begin,
                        driver::HostNanoseconds end, std::uint16_t depth, std::uint32_t tid) const {
  trace::Event event;
  event.kind = kind;
  event.depth = depth;
  event.tid = tid;
  event.begin = begin;
  event.end = end;
  if (name_in_traces_ == nullptr || !args_.empty()) {
    trace::note(event, range_.label(), category_, args_);
    return;
  }
  event.name = name_in_traces_;
  event.category = category_in_traces_;
  trace::note(event);
}

bool tool_listens() {
  const std::lock_guard lock(all_ranges().nvtx);
  return nvtx::tool_listens();
}

std::shared_ptr<const RangeOfName> range_of(std::string_view name,
                                            const RangeOptions& options) noexcept {
  try {
    if (!name.empty() && name.find('\0') == std::string_view::npos) {
      return find_or_make(name, options);
    }
    driver::warn_once(driver::Warning::kNvtxLabel,
                      "gpuprof: the name of an annotation is empty or has a NUL character in it, "
                      "so it shows nothing; give it a name without");
  } catch (const std::exception&) {  // out of memory: it shows nothing
  }
  return nullptr;
}

}  // namespace gpuprof::api
