#include "bindings/ranges/range_attributes.hpp"

#include <array>

#include "bindings/python/objects.hpp"
#include "bindings/ranges/json_args.hpp"
#include "bindings/ranges/scope_events.hpp"
#include "driver/error.hpp"
#include "nvtx/attributes.hpp"
#include "ranges/started.hpp"
#include "trace/label.hpp"
#include "trace/recorder.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;

namespace {

constexpr const char* kPlainCategory = "annotation";

nvtx::Domain& domain_of(const RangeArguments& arguments) {
  if (arguments.domain.is_none()) return nvtx::default_domain();
  if (arguments.domain_name.empty()) return nvtx::unnamed_domain();
  return nvtx::domain_named(arguments.domain_name);
}

RangeArguments named(const std::string& name) {
  const py::none none;
  return {from_utf8(name), none, none, none, none, none, none, {}, {}};
}

}  // namespace

RangeAttributes::RangeAttributes(const RangeArguments& arguments)
    : payload_(arguments.shown_payload),
      args_(arguments.args),
      category_(arguments.attributes.category) {
  const std::string text = utf8(arguments.name.ptr());
  if (!nvtx::valid_label({text.c_str(), text.size() + 1})) return;
  std::string label = nvtx::shown_label(text);
  // Also where the name has a lone surrogate, which torch could not show.
  const bool is_shown_as_given = label == text && PyUnicode_IS_ASCII(arguments.name.ptr()) != 0;
  name_ = is_shown_as_given ? arguments.name : py::object(from_utf8(label));
  range_ =
      std::make_unique<nvtx::Range>(domain_of(arguments), std::move(label), arguments.attributes);
}

RangeAttributes::RangeAttributes(const std::string& name) : RangeAttributes(named(name)) {}

void RangeAttributes::warn_if_invalid() const {
  if (is_valid()) return;
  driver::warn_once(driver::Warning::kNvtxLabel,
                    "gpuprof: the name of an annotation is empty or has a NUL character in it, so "
                    "it shows nothing; give it a name without");
}

RangeAttributes::TraceTexts RangeAttributes::make_trace_texts() const {
  TraceTexts texts;
  texts.name = trace::intern(range_->label());
  texts.category = trace::intern_category(category_.empty() ? kPlainCategory : category_);
  const bool has_args = !args_.is_none();
  if (!payload_.is_none() && !(has_args && args_.contains("payload"))) {
    append_member(texts.args, "payload", payload_.ptr());
  }
  const std::string members = members_of(args_.ptr());
  if (!texts.args.empty() && !members.empty()) texts.args += ',';
  texts.args += members;
  return texts;
}

void RangeAttributes::trace(trace::Kind kind, driver::HostNanoseconds begin,
                            driver::HostNanoseconds end, std::uint16_t depth, std::uint32_t tid) {
  if (!trace_texts_) trace_texts_ = make_trace_texts();
  const TraceTexts& texts = *trace_texts_;
  const auto fill = [&](trace::Event& event) {
    event.kind = kind;
    event.depth = depth;
    event.tid = tid;
    event.name = texts.name;
    event.category = texts.category;
    event.begin = begin;
    event.end = end;
  };
  const bool is_plain = texts.name != nullptr && texts.args.empty();
  if (trace::Queue* queue = is_plain ? trace::queue_of_this_thread() : nullptr) {
    // Written where it stays.
    trace::Event* event = trace::claim(*queue);
    if (event == nullptr) return;
    fill(*event);
    trace::publish(*queue);
    return;
  }
  trace::Event event;
  fill(event);
  if (event.name == nullptr) trace::set_name(event, range_->label());
  trace::set_args(event, texts.args);
  trace::note(event);
}

open_ranges::NamedRange shown(OwnRange which) {
  static auto& all = *new std::array<RangeAttributes, 5>{
      RangeAttributes("gpuprof.flush"), RangeAttributes("gpuprof.drain"),
      RangeAttributes("gpuprof.capture"), RangeAttributes("gpuprof.instantiate"),
      RangeAttributes("gpuprof.replay")};
  return all[static_cast<std::size_t>(which)].shown();
}

}  // namespace gpuprof::bindings

namespace gpuprof::bindings::started_ranges {
namespace {

ranges::StartedRanges<RangeAttributes>& all() {
  return driver::immortal<ranges::StartedRanges<RangeAttributes>>();
}

}  // namespace

std::uint64_t start(const std::shared_ptr<RangeAttributes>& attributes) {
  const bool to_nvtx = listens(kNvtx);
  const bool to_trace = listens(kTrace) && trace_records();
  if (!to_nvtx && !to_trace) return 0;
  if (to_trace) name_this_thread();
  return all().start(attributes, to_nvtx, to_trace);
}

bool end(std::uint64_t number) { return all().end(number, listens(kTrace) && trace_records()); }

bool is_in_nvtx(std::uint64_t number) { return all().is_in_nvtx(number); }

}  // namespace gpuprof::bindings::started_ranges
