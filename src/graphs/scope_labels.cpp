#include "graphs/scope_labels.hpp"

#include <algorithm>
#include <utility>

#include "graphs/scope_label_solver.hpp"

namespace gpuprof::graphs {
namespace {

// Labels nodes by their place in the list alone.
void label_by_count(const std::vector<ScopeLabels::Span>& spans, const std::vector<void*>& nodes,
                    NodeLabels& labels) {
  OpenSpans open(spans);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    open.move_to(i);
    if (!open.now().empty()) labels.emplace(nodes[i], spans[open.now().back()].path);
  }
}

}  // namespace

void ScopeLabels::begin(const timing::Path& open, std::uintptr_t stream) {
  const CapturePosition start{0, stream, true, {}};
  note(start);
  for (const timing::Path* path : timing::lineage(open)) {
    Span span;
    span.path = path;
    span.thread = std::this_thread::get_id();
    span.begin = start;
    span.end.nodes = SIZE_MAX;
    span.before_capture = true;
    open_.push_back(spans_.size());
    spans_.push_back(std::move(span));
  }
}

void ScopeLabels::note(CapturePosition at) {
  notes_.push_back({std::this_thread::get_id(), std::move(at)});
}

void ScopeLabels::end(CapturePosition at) { note(std::move(at)); }

void ScopeLabels::enter(const void* scope, const timing::Path& path, CapturePosition at) {
  // A sample that was dropped while its scope was open never told its end.
  if (is_open(scope)) leave(scope, path, at);
  note(at);
  Span span;
  span.scope = scope;
  span.path = &path;
  span.thread = std::this_thread::get_id();
  span.begin = std::move(at);
  span.end.nodes = SIZE_MAX;
  open_.push_back(spans_.size());
  spans_.push_back(std::move(span));
}

void ScopeLabels::leave(const void* scope, const timing::Path& path, CapturePosition at) {
  const auto newest = [this](auto&& matches) {
    return std::find_if(open_.rbegin(), open_.rend(),
                        [&](std::size_t index) { return matches(spans_[index]); });
  };
  auto found = newest([scope](const Span& span) { return span.scope == scope; });
  if (found == open_.rend()) {
    const auto thread = std::this_thread::get_id();
    found = newest([&](const Span& span) {
      return span.before_capture && span.path == &path && span.thread == thread;
    });
  }
  if (found == open_.rend()) return;
  note(at);
  spans_[*found].end = std::move(at);
  open_.erase(std::next(found).base());
}

bool ScopeLabels::is_open(const void* scope) const noexcept {
  return std::any_of(open_.begin(), open_.end(),
                     [&](std::size_t index) { return spans_[index].scope == scope; });
}

NodeLabels ScopeLabels::resolve(const std::vector<void*>& nodes,
                                const std::vector<Edge>& edges) const {
  NodeLabels labels;
  if (spans_.empty()) return labels;
  const bool one_thread = std::all_of(notes_.begin(), notes_.end(), [this](const Note& note) {
    return note.thread == notes_.front().thread;
  });
  if (one_thread) {
    label_by_count(spans_, nodes, labels);
  } else {
    ScopeLabelSolver(spans_, notes_, nodes, edges).label(labels);
  }
  return labels;
}

}  // namespace gpuprof::graphs
