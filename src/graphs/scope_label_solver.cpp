#include "graphs/scope_label_solver.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace gpuprof::graphs {
namespace {

constexpr std::uintptr_t kPerThreadStream = 2;

template <typename Container, typename Value>
bool has(const Container& container, const Value& value) {
  return std::find(container.begin(), container.end(), value) != container.end();
}

// Whether two positions are on one stream. A thread's default stream is another one on each thread.
struct StreamKey {
  std::uintptr_t stream;
  std::thread::id thread;

  explicit StreamKey(const ScopeLabels::Note& note)
      : stream(note.at.stream),
        thread(stream <= kPerThreadStream ? note.thread : std::thread::id()) {}
  bool operator<(const StreamKey& other) const {
    return stream != other.stream ? stream < other.stream : thread < other.thread;
  }
};

}  // namespace

OpenSpans::OpenSpans(const std::vector<ScopeLabels::Span>& spans)
    : spans_(spans), by_begin_(spans.size()) {
  std::iota(by_begin_.begin(), by_begin_.end(), std::size_t{0});
  std::stable_sort(by_begin_.begin(), by_begin_.end(), [&spans](std::size_t a, std::size_t b) {
    return spans[a].begin.nodes < spans[b].begin.nodes;
  });
}

void OpenSpans::move_to(std::size_t node) {
  now_.erase(std::remove_if(now_.begin(), now_.end(),
                            [&](std::size_t index) { return spans_[index].end.nodes <= node; }),
             now_.end());
  for (; next_ < by_begin_.size() && spans_[by_begin_[next_]].begin.nodes <= node; ++next_) {
    const std::size_t index = by_begin_[next_];
    if (spans_[index].end.nodes <= node) continue;
    now_.insert(std::upper_bound(now_.begin(), now_.end(), index), index);
  }
}

ScopeLabelSolver::ScopeLabelSolver(const std::vector<ScopeLabels::Span>& spans,
                                   const std::vector<ScopeLabels::Note>& notes,
                                   const std::vector<void*>& nodes, const std::vector<Edge>& edges)
    : spans_(spans),
      nodes_(nodes),
      after_(nodes.size()),
      stretch_of_(nodes.size(), kNone),
      thread_of_(nodes.size()),
      inside_(spans.size()),
      is_inside_known_(spans.size(), false) {
  place_of_.reserve(nodes.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) place_of_.emplace(nodes[i], i);
  for (const Edge& edge : edges) {
    // A capture's nodes come after earlier ones.
    if (edge.from < edge.to && !has(after_[edge.to], edge.from)) {
      after_[edge.to].push_back(edge.from);
    }
  }
  add_stretches(notes);
}

ScopeLabelSolver::Places ScopeLabelSolver::places_of(const CapturePosition& at) const {
  Places places;
  for (void* node : at.frontier) {
    if (const auto found = place_of_.find(node); found != place_of_.end()) {
      places.push_back(found->second);
    }
  }
  return places;
}

void ScopeLabelSolver::add_stretches(const std::vector<ScopeLabels::Note>& notes) {
  std::map<StreamKey, const ScopeLabels::Note*> last;
  for (const ScopeLabels::Note& note : notes) {
    const ScopeLabels::Note*& before = last[StreamKey(note)];
    if (before != nullptr && before->at.has_frontier && note.at.has_frontier &&
        before->at.nodes < note.at.nodes) {
      Stretch stretch;
      stretch.begin = before->at.nodes;
      stretch.end = std::min(note.at.nodes, nodes_.size());
      stretch.before = places_of(before->at);
      stretch.after = places_of(note.at);
      stretch.stream = note.at.stream;
      stretch.threads[0] = before->thread;
      stretch.threads[1] = note.thread;
      // A node takes the place of all that its stream came after.
      const bool stood_still =
          std::any_of(stretch.before.begin(), stretch.before.end(),
                      [&stretch](std::size_t place) { return has(stretch.after, place); });
      if (!stood_still) stretches_.push_back(std::move(stretch));
    }
    before = &note;
  }
}

// Whether the node can be the first of a stretch.
bool ScopeLabelSolver::is_first(const Stretch& stretch, std::size_t node) const {
  const Places& after = after_[node];
  if (stretch.before.empty()) return after.empty();
  return std::all_of(stretch.before.begin(), stretch.before.end(),
                     [&after](std::size_t place) { return has(after, place); });
}

// Puts the nodes of a stretch on its stream, if there is one way to do it, or, where it `guesses`,
// in one of the ways. Returns whether it did.
bool ScopeLabelSolver::find_chain(std::size_t index, bool guesses) {
  Stretch& stretch = stretches_[index];
  // By node from stretch.begin on: whether a chain from a first node leads to it.
  std::vector<bool> is_reached(stretch.end - stretch.begin, false);
  const auto reached = [&](std::size_t node) {
    return node >= stretch.begin && node < stretch.end && is_reached[node - stretch.begin];
  };
  for (std::size_t node = stretch.begin; node < stretch.end; ++node) {
    if (stretch_of_[node] != kNone) continue;
    is_reached[node - stretch.begin] =
        is_first(stretch, node) || std::any_of(after_[node].begin(), after_[node].end(), reached);
  }
  Places chain;
  const Places* steps = &stretch.after;
  for (;;) {
    std::size_t step = kNone;
    for (const std::size_t node : *steps) {
      if (!reached(node)) continue;
      if (step != kNone && !guesses) return false;
      step = step == kNone ? node : std::max(step, node);
    }
    if (step == kNone) break;
    chain.push_back(step);
    if (is_first(stretch, step)) break;
    steps = &after_[step];
  }
  for (const std::size_t node : chain) stretch_of_[node] = index;
  stretch.is_done = true;
  return true;
}

void ScopeLabelSolver::find_chains() {
  for (;;) {
    bool is_progress = false;
    std::size_t open = kNone;
    for (std::size_t i = 0; i < stretches_.size(); ++i) {
      if (stretches_[i].is_done) continue;
      if (find_chain(i, false)) {
        is_progress = true;
      } else if (open == kNone) {
        open = i;
      }
    }
    if (open == kNone) return;
    if (!is_progress) find_chain(open, true);  // which may settle others
  }
}

// The nodes before `end` that come after one of `begin`, or are one.
ScopeLabelSolver::Places ScopeLabelSolver::reached_from(const Places& begin,
                                                        std::size_t end) const {
  if (begin.empty()) return {};
  const std::size_t first = *std::min_element(begin.begin(), begin.end());
  std::vector<bool> is_reached(end - std::min(first, end), false);
  Places found;
  for (std::size_t node = first; node < end; ++node) {
    const bool is_after =
        std::any_of(after_[node].begin(), after_[node].end(),
                    [&](std::size_t place) { return place >= first && is_reached[place - first]; });
    if (!is_after && !has(begin, node)) continue;
    is_reached[node - first] = true;
    found.push_back(node);
  }
  return found;
}

// Whether a node comes after all that the scope's stream came after at its begin, and before
// something that it comes after at its end.
bool ScopeLabelSolver::encloses(std::size_t index, std::size_t node) {
  const ScopeLabels::Span& span = spans_[index];
  std::vector<bool>& inside = inside_[index];
  const std::size_t first = span.begin.nodes;
  if (!is_inside_known_[index]) {
    is_inside_known_[index] = true;
    const std::size_t end = std::min(span.end.nodes, nodes_.size());
    inside.assign(end - std::min(first, end), true);
    const auto keep_only = [&](const Places& places) {
      std::vector<bool> kept(inside.size(), false);
      for (const std::size_t place : places) {
        if (place >= first && place < end) kept[place - first] = inside[place - first];
      }
      inside = std::move(kept);
    };
    for (const std::size_t place : places_of(span.begin)) keep_only(reached_from({place}, end));
    if (span.end.has_frontier) {
      std::vector<bool> is_needed(nodes_.size(), false);
      Places needed = places_of(span.end);
      for (std::size_t i = 0; i < needed.size(); ++i) {
        if (needed[i] < first || is_needed[needed[i]]) continue;
        is_needed[needed[i]] = true;
        const Places& before = after_[needed[i]];
        needed.insert(needed.end(), before.begin(), before.end());
      }
      keep_only(needed);
    }
  }
  return node >= first && node - first < inside.size() && inside[node - first];
}

// Which of the open spans the node belongs to, kNone for none of them.
std::size_t ScopeLabelSolver::choose(std::size_t node, const Places& open) {
  const auto newest = [&open](auto&& matches) {
    const auto found = std::find_if(open.rbegin(), open.rend(), matches);
    return found == open.rend() ? kNone : *found;
  };
  const std::size_t around = newest([&](std::size_t index) { return encloses(index, node); });
  std::thread::id& thread = thread_of_[node];
  if (stretch_of_[node] != kNone) {
    const Stretch& stretch = stretches_[stretch_of_[node]];
    thread = stretch.threads[0];
    const std::size_t own = newest([&](std::size_t index) {
      const ScopeLabels::Span& span = spans_[index];
      return has(stretch.threads, span.thread) ||
             (span.begin.stream == stretch.stream && stretch.stream > kPerThreadStream);
    });
    return own != kNone ? own : around;
  }
  for (const std::size_t place : after_[node]) {
    if (thread_of_[place] != std::thread::id()) thread = thread_of_[place];
  }
  const std::size_t inherited =
      newest([&](std::size_t index) { return spans_[index].thread == thread; });
  if (around != kNone && inherited != kNone) return std::max(around, inherited);
  if (around != kNone || inherited != kNone) return std::min(around, inherited);
  return thread == std::thread::id() ? open.back() : kNone;
}

void ScopeLabelSolver::label(NodeLabels& labels) {
  find_chains();
  OpenSpans open(spans_);
  for (std::size_t node = 0; node < nodes_.size(); ++node) {
    open.move_to(node);
    const std::size_t chosen = choose(node, open.now());
    if (chosen == kNone) continue;
    thread_of_[node] = spans_[chosen].thread;
    labels.emplace(nodes_[node], spans_[chosen].path);
  }
}

}  // namespace gpuprof::graphs
