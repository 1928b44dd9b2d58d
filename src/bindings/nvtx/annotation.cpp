#include "bindings/nvtx/annotation.hpp"

#include <algorithm>
#include <utility>

#include "bindings/python/errors.hpp"
#include "bindings/python/switches.hpp"
#include "bindings/ranges/scope_events.hpp"
#include "bindings/ranges/scope_stack.hpp"
#include "driver/error.hpp"
#include "trace/recorder.hpp"

namespace gpuprof::bindings {

namespace {

bool is_traced() { return trace::is_recording() || (listens(kTrace) && trace_records()); }

}  // namespace

Annotation::Annotation(RangeArguments arguments) : arguments_(std::move(arguments)) {
  if (arguments_.name.is_none()) return;
  attributes_ = std::make_shared<RangeAttributes>(arguments_);
  is_valid_ = attributes_->is_valid();
}

Annotation::~Annotation() {
  if (open_ != 0) open_ranges::abandon(this);
}

bool Annotation::warn_if_invalid() const {
  if (is_valid_) return false;
  if (attributes_) {
    attributes_->warn_if_invalid();
  } else {
    driver::warn_once(driver::Warning::kNvtxLabel,
                      "gpuprof: an annotation without a name was entered, so it shows nothing; "
                      "without a name it can only decorate a function");
  }
  emit_pending_warnings();
  return true;
}

void Annotation::enter_listened(std::uint32_t told) {
  if (warn_if_invalid()) return;
  if ((told & kTrace) != 0 && !is_traced()) told &= ~static_cast<std::uint32_t>(kTrace);
  // The frame matters only beside another entry of this annotation.
  const FrameMark frame = open_ != 0 ? current_frame() : FrameMark{};
  open_ranges::open(this, attributes_->shown(), told, frame);
  ++open_;
  emit_pending_warnings();
}

void Annotation::exit_listened() {
  const driver::HostNanoseconds now = is_traced() ? driver::host_now() : 0;
  const auto close = [this] { return open_ranges::close(this, open_ > 1, unlistened_ == 0); };
  const open_ranges::Closed closed = or_undo(close, [this] { --open_; });  // for an interrupt
  if (closed.found) {
    --open_;
    if (closed.begin != 0 && now != 0) {
      attributes_->trace(closed.crossed ? trace::Kind::kAsync : trace::Kind::kSlice, closed.begin,
                         now, closed.depth, closed.tid);
    }
  } else if (unlistened_ != 0) {
    --unlistened_;
  } else {
    open_ = 0;  // their thread has ended
  }
  emit_pending_warnings();
}

std::uint64_t Annotation::start() {
  if (warn_if_invalid()) return 0;
  const std::uint64_t number = started_ranges::start(attributes_);
  emit_pending_warnings();
  return number;
}

void Annotation::end(std::uint64_t number) { started_ranges::end(number); }

void Annotation::enter_async() {
  const std::uint64_t number = start();
  if (number == 0 && awaited_.empty()) {
    ++unlistened_awaited_;
  } else {
    awaited_.push_back({current_context(), number});
  }
}

void Annotation::exit_async() {
  const void* context = current_context();
  auto newest = std::find_if(awaited_.rbegin(), awaited_.rend(),
                             [context](const Awaited& a) { return a.context == context; });
  if (newest == awaited_.rend()) {
    if (unlistened_awaited_ != 0) {
      --unlistened_awaited_;
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
  if (!is_valid_ || !listens(kNvtx) || !nvtx::tool_listens(attributes_->range().domain()))
    return false;
  if (open_ != 0 && open_ranges::is_pushed(this)) return true;
  const void* context = current_context();
  return std::any_of(awaited_.begin(), awaited_.end(), [context](const Awaited& awaited) {
    return awaited.context == context && started_ranges::is_in_nvtx(awaited.number);
  });
}

void Annotation::register_label() {
  if (is_valid_ && listens(kNvtx)) attributes_->range().prepare();
}

}  // namespace gpuprof::bindings
