#include "bindings/nvtx/annotation.hpp"

#include <algorithm>
#include <utility>

#include "bindings/python/errors.hpp"
#include "bindings/python/switches.hpp"
#include "bindings/ranges/range_attributes.hpp"
#include "bindings/ranges/scope_events.hpp"
#include "bindings/ranges/scope_stack.hpp"
#include "driver/error.hpp"
#include "trace/recorder.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;

namespace {

bool is_traced() { return trace::is_recording() || (listens(kTrace) && trace_records()); }

}  // namespace

Annotation::Annotation(RangeArguments arguments) : arguments_(std::move(arguments)) {
  if (arguments_.name.is_none()) return;
  face_ = std::make_shared<RangeAttributes>(arguments_);
  is_valid_ = face_->is_valid();
}

Annotation::~Annotation() {
  if (open_ != 0) open_ranges::abandon(this);
}

bool Annotation::warn_if_invalid() const {
  if (is_valid_) return false;
  if (face_) {
    face_->warn_if_invalid();
  } else {
    driver::warn_once(driver::Warning::kNvtxLabel,
                      "gpuprof: an annotation without a name was entered, so it shows nothing; "
                      "without a name it can only decorate a function");
  }
  emit_pending_warnings();
  return true;
}

void Annotation::enter_seen(std::uint32_t who) {
  if (warn_if_invalid()) return;
  if ((who & kTrace) != 0 && !is_traced()) who &= ~static_cast<std::uint32_t>(kTrace);
  // The frame matters only beside another entry of this annotation.
  const FrameMark frame = open_ != 0 ? current_frame() : FrameMark{};
  open_ranges::open(this, face_->shown(), who, frame);
  ++open_;
  emit_pending_warnings();
}

void Annotation::exit_seen() {
  const driver::HostNanoseconds now = is_traced() ? driver::host_now() : 0;
  open_ranges::Closed closed;
  try {
    closed = open_ranges::close(this, open_ > 1, unseen_ == 0);
  } catch (const py::error_already_set&) {  // an interrupt
    --open_;
    throw;
  }
  if (closed.found) {
    --open_;
    if (closed.begin != 0 && now != 0) {
      face_->trace(closed.crossed ? trace::Kind::kAsync : trace::Kind::kSlice, closed.begin, now,
                   closed.depth, closed.tid);
    }
  } else if (unseen_ != 0) {
    --unseen_;
  } else {
    open_ = 0;  // their thread has ended
  }
  emit_pending_warnings();
}

std::uint64_t Annotation::start() {
  if (warn_if_invalid()) return 0;
  const std::uint64_t number = started_ranges::start(face_);
  emit_pending_warnings();
  return number;
}

void Annotation::end(std::uint64_t number) { started_ranges::end(number); }

void Annotation::enter_async() {
  const std::uint64_t number = start();
  if (number == 0 && awaited_.empty()) {
    ++unseen_awaited_;
  } else {
    awaited_.push_back({current_context(), number});
  }
}

void Annotation::exit_async() {
  const void* context = current_context();
  auto newest = std::find_if(awaited_.rbegin(), awaited_.rend(),
                             [context](const Awaited& a) { return a.context == context; });
  if (newest == awaited_.rend()) {
    if (unseen_awaited_ != 0) {
      --unseen_awaited_;
      return;
    }
    if (awaited_.empty()) return;
    // Left in another task than it was entered in, as an async generator that is not run to its
    // end is: the event loop closes it.
    newest = awaited_.rbegin();
  }
  const std::uint64_t number = newest->number;
  awaited_.erase(std::next(newest).base());
  end(number);
}

bool Annotation::is_active() const {
  if (!is_valid_ || !listens(kNvtx) || !nvtx::tool_listens(face_->range().domain())) return false;
  if (open_ != 0 && open_ranges::is_pushed(this)) return true;
  const void* context = current_context();
  return std::any_of(awaited_.begin(), awaited_.end(), [context](const Awaited& awaited) {
    return awaited.context == context && started_ranges::is_in_nvtx(awaited.number);
  });
}

void Annotation::register_label() {
  if (is_valid_ && listens(kNvtx)) face_->range().prepare();
}

}  // namespace gpuprof::bindings
