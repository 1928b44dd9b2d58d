#include "graphs/scope_label_solver.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

namespace gpuprof::graphs {
namespace {

constexpr std::uintptr_t kLastDefaultStream = 2;

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
        thread(stream <= kLastDefaultStream ? note.thread : std::thread::id()) {}
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
      followers_(nodes.size(), 0),
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
      ++followers_[edge.from];
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

// Whether the node can be the first of a stretch. Where nothing is said about what that comes
// after, it is one that comes after no other node which may be of the stretch.
bool ScopeLabelSolver::is_first(const Stretch& stretch, std::size_t node) const {
  const Places& after = after_[node];
  if (stretch.before.empty()) {
    return std::all_of(after.begin(), after.end(), [&](std::size_t place) {
      return place < stretch.begin || stretch_of_[place] != kNone;
    });
  }
  return std::all_of(stretch.before.begin(), stretch.before.end(),
                     [&after](std::size_t place) { return has(after, place); });
}

// By node from the stretch's begin on: whether it is on no stream yet and a chain of such nodes
// leads to it from a first one; kPlain where that one waits for nothing more than the stretch came
// after.
std::vector<ScopeLabelSolver::Fit> ScopeLabelSolver::fits_of(const Stretch& stretch) const {
  std::vector<Fit> fits(stretch.end - stretch.begin, Fit::kNo);
  for (std::size_t node = stretch.begin; node < stretch.end; ++node) {
    if (stretch_of_[node] != kNone) continue;
    Fit& fit = fits[node - stretch.begin];
    if (is_first(stretch, node)) {
      fit = after_[node].size() == stretch.before.size() ? Fit::kPlain : Fit::kYes;
    }
    for (const std::size_t place : after_[node]) {
      if (place >= stretch.begin) fit = std::max(fit, fits[place - stretch.begin]);
    }
  }
  return fits;
}

// Whether `node` comes after `other`.
bool ScopeLabelSolver::comes_after(std::size_t node, std::size_t other) const {
  Places left{node};
  std::vector<bool> is_seen(node - std::min(node, other), false);
  while (!left.empty()) {
    const std::size_t place = left.back();
    left.pop_back();
    for (const std::size_t before : after_[place]) {
      if (before == other) return true;
      if (before < other || is_seen[before - other]) continue;
      is_seen[before - other] = true;
      left.push_back(before);
    }
  }
  return false;
}

// Whether `places`, which a stream came after, still hold one that `node` comes after: then the
// stream did not capture `node`, which would have taken that one's place, but waited for it.
bool ScopeLabelSolver::is_awaited(std::size_t node, const Places& places) const {
  return std::any_of(places.begin(), places.end(),
                     [&](std::size_t other) { return other < node && comes_after(node, other); });
}

// Which of `places` was on the stretch's stream, kNone for none of them. What has more followers
// was more likely forked from.
std::size_t ScopeLabelSolver::likeliest(const Stretch& stretch, const std::vector<Fit>& fits,
                                        const Places& places, bool& is_only_one) const {
  const auto rank = [&](std::size_t node) {
    return std::make_tuple(fits[node - stretch.begin], nodes_.size() - followers_[node], node);
  };
  std::size_t best = kNone;
  is_only_one = true;
  for (const std::size_t node : places) {
    if (node < stretch.begin || node >= stretch.end) continue;
    if (fits[node - stretch.begin] == Fit::kNo) continue;
    is_only_one = best == kNone;
    if (best == kNone || rank(best) < rank(node)) best = node;
  }
  return best;
}

// Puts the nodes of a stretch on its stream, from the last one backwards, if there is one way to do
// it. `how` says what else may be done. Returns whether it did.
bool ScopeLabelSolver::find_chain(std::size_t index, Effort how) {
  Stretch& stretch = stretches_[index];
  if (how == Effort::kSure && stretch.before.empty()) return false;
  const std::vector<Fit> fits = fits_of(stretch);
  Places chain;
  const Places* steps = &stretch.after;
  for (;;) {
    bool is_only_one = false;
    const std::size_t step = likeliest(stretch, fits, *steps, is_only_one);
    if (step == kNone) break;
    if (stretch.before.empty() && !chain.empty() && is_awaited(step, *steps)) break;
    if (!is_only_one && how != Effort::kGuess) return false;
    chain.push_back(step);
    if (is_first(stretch, step)) break;
    steps = &after_[step];
  }
  for (const std::size_t node : chain) stretch_of_[node] = index;
  stretch.first = chain.empty() ? kNone : chain.back();
  stretch.is_done = true;
  return true;
}

// A node that seems to be a stretch's first one can come after others of it: a wait for a stream
// that stood still adds what that came after. Takes such others that are on no stream.
void ScopeLabelSolver::extend(Stretch& stretch) {
  if (stretch.first == kNone) return;
  const std::vector<Fit> fits = fits_of(stretch);
  for (;;) {
    bool is_only_one = false;
    const std::size_t step = likeliest(stretch, fits, after_[stretch.first], is_only_one);
    if (step == kNone) return;
    stretch_of_[step] = stretch_of_[stretch.first];
    stretch.first = step;
  }
}

// What one stretch settles can settle others, so the surest comes first.
void ScopeLabelSolver::find_chains() {
  const auto settle = [this](Effort how) {
    bool is_progress = false;
    for (std::size_t i = 0; i < stretches_.size(); ++i) {
      if (stretches_[i].is_done || !find_chain(i, how)) continue;
      is_progress = true;
      if (how != Effort::kSure) break;
    }
    return is_progress;
  };
  while (settle(Effort::kSure) || settle(Effort::kFromStart) || settle(Effort::kGuess)) {
  }
  for (const bool from_start : {true, false}) {
    for (Stretch& stretch : stretches_) {
      if (stretch.before.empty() == from_start) extend(stretch);
    }
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
             (span.begin.stream == stretch.stream && stretch.stream > kLastDefaultStream);
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
  return thread == std::thread::id() && !open.empty() ? open.back() : kNone;
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
