#include "bindings/ranges/range_attributes.hpp"

#include <utility>

#include "bindings/python/utf8.hpp"
#include "bindings/ranges/json_args.hpp"
#include "bindings/ranges/scope_events.hpp"
#include "driver/error.hpp"
#include "nvtx/attributes.hpp"
#include "trace/label.hpp"
#include "trace/recorder.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;

namespace {

constexpr const char* kPlainCategory = "annotation";

nvtx::Domain& domain_of(const std::string& name) {
  return name.empty() ? nvtx::default_domain() : nvtx::domain_named(name);
}

py::object decoded(const std::string& text) {
  PyObject* name =
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
  if (name == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(name);
}

bool is_label(const std::string& text) {
  return nvtx::valid_label({text.c_str(), text.size() + 1});
}

}  // namespace

RangeAttributes::RangeAttributes(const RangeArguments& arguments)
    : payload_(arguments.payload), args_(arguments.args), category_(arguments.look.category) {
  const std::string text = utf8(arguments.name.ptr());
  if (!is_label(text)) return;
  std::string label = nvtx::shown_label(text);
  // Also where the name has a lone surrogate, which torch could not show.
  const bool is_shown_as_given = label == text && PyUnicode_IS_ASCII(arguments.name.ptr()) != 0;
  name_ = is_shown_as_given ? arguments.name : decoded(label);
  range_ = std::make_unique<nvtx::Range>(domain_of(arguments.domain_name), std::move(label),
                                         arguments.look);
}

RangeAttributes::RangeAttributes(const std::string& name)
    : payload_(py::none()), args_(py::none()) {
  if (!is_label(name)) return;
  std::string label = nvtx::shown_label(name);
  name_ = decoded(label);
  range_ =
      std::make_unique<nvtx::Range>(nvtx::default_domain(), std::move(label), nvtx::Attributes{});
}

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
  const py::str payload_key("payload");
  const bool has_args = !args_.is_none();
  if (!payload_.is_none() && !(has_args && args_.contains(payload_key))) {
    append_member(texts.args, payload_key.ptr(), payload_.ptr());
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

}  // namespace gpuprof::bindings
