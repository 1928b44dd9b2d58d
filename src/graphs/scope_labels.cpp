#include "graphs/scope_labels.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <unordered_map>
#include <utility>

namespace gpuprof::graphs {
namespace {

constexpr std::uintptr_t kLastDefaultStream = 2;
constexpr std::size_t kNone = SIZE_MAX;

// Of two positions on one stream these are equal. A thread's default stream is its own.
std::pair<std::uintptr_t, std::thread::id> stream_of(const CapturePosition& at,
                                                     std::thread::id thread) {
  return {at.stream, at.stream <= kLastDefaultStream ? thread : std::thread::id()};
}

// What two paths have in common; the root for nothing.
const timing::Path& common(const timing::Path& one, const timing::Path& other) {
  const auto ours = timing::lineage(one);
  const auto theirs = timing::lineage(other);
  const auto end = std::mismatch(ours.begin(), ours.end(), theirs.begin(), theirs.end()).first;
  return end == ours.begin() ? timing::root_path() : **std::prev(end);
}

}  // namespace

void ScopeLabels::begin(const timing::Path& open, std::uintptr_t stream) {
  const CapturePosition start{0, stream, {}};
  note(start);
  for (const timing::Path* path : timing::lineage(open)) add_open(nullptr, *path, start);
}

void ScopeLabels::add_open(const void* scope, const timing::Path& path, const CapturePosition& at) {
  open_.push_back(spans_.size());
  spans_.push_back({scope, &path, std::this_thread::get_id(), at.stream, at.nodes});
}

void ScopeLabels::note(CapturePosition at) {
  notes_.push_back({std::this_thread::get_id(), std::move(at)});
}

void ScopeLabels::enter(const void* scope, const timing::Path& path, CapturePosition at) {
  // A sample that was dropped while its scope was open never told its end.
  if (is_open(scope)) leave(scope, path, at);
  add_open(scope, path, at);
  note(std::move(at));
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
      return span.scope == nullptr && span.path == &path && span.thread == thread;
    });
  }
  if (found == open_.rend()) return;
  spans_[*found].end = at.nodes;
  note(std::move(at));
  open_.erase(std::next(found).base());
}

bool ScopeLabels::is_open(const void* scope) const noexcept {
  return std::any_of(open_.begin(), open_.end(),
                     [&](std::size_t index) { return spans_[index].scope == scope; });
}

// By node: the two notes of the stream that certainly captured it; null where none tell.
std::vector<ScopeLabels::Notes> ScopeLabels::captured_between(
    const std::vector<void*>& nodes, const std::vector<Edge>& edges) const {
  std::unordered_map<void*, std::size_t> place_of;
  for (std::size_t i = 0; i < nodes.size(); ++i) place_of.emplace(nodes[i], i);
  std::vector<std::size_t> only(nodes.size(), kNone);  // by node: the one that it comes after
  std::vector<bool> is_met(nodes.size(), false);
  for (const Edge& edge : edges) {
    only[edge.to] = is_met[edge.to] && only[edge.to] != edge.from ? kNone : edge.from;
    is_met[edge.to] = true;
  }
  std::vector<Notes> between(nodes.size(), Notes{});
  std::map<std::pair<std::uintptr_t, std::thread::id>, const Note*> last;
  const bool is_only_stream = std::all_of(notes_.begin(), notes_.end(), [this](const Note& note) {
    return note.at.stream == notes_.front().at.stream;
  });
  for (const Note& now : notes_) {
    const Note*& before = last[stream_of(now.at, now.thread)];
    // Where a stream came after nothing, what it comes after now may be what it waits for.
    const bool had_own = before != nullptr && (is_only_stream || !before->at.frontier.empty());
    if (had_own && now.at.frontier.size() == 1) {
      const auto tip = place_of.find(now.at.frontier.front());
      std::size_t node = tip == place_of.end() ? kNone : tip->second;
      for (; node != kNone && node >= before->at.nodes; node = only[node]) {
        between[node] = {before, &now};
      }
    }
    before = &now;
  }
  return between;
}

// The path of a node among the spans that were open when it appeared.
const timing::Path* ScopeLabels::choose(const Notes& between, const std::vector<std::size_t>& open,
                                        std::size_t threads) const {
  std::map<std::thread::id, const timing::Path*> innermost;
  for (auto index = open.rbegin(); index != open.rend(); ++index) {
    const Span& span = spans_[*index];
    innermost.emplace(span.thread, span.path);
    if (between[0] == nullptr) continue;
    const bool is_same_thread =
        span.thread == between[0]->thread || span.thread == between[1]->thread;
    if (is_same_thread ||
        (span.stream > kLastDefaultStream && span.stream == between[1]->at.stream)) {
      return span.path;
    }
  }
  // Where nothing tells, any thread may have captured it, also one with no scope open.
  if (between[0] != nullptr || innermost.empty() || innermost.size() < threads) return nullptr;
  const timing::Path* path = innermost.begin()->second;
  for (const auto& [thread, other] : innermost) path = &common(*path, *other);
  return path == &timing::root_path() ? nullptr : path;
}

NodeLabels ScopeLabels::resolve(const std::vector<void*>& nodes,
                                const std::vector<Edge>& edges) const {
  NodeLabels labels;
  const std::vector<Notes> between = captured_between(nodes, edges);
  std::set<std::thread::id> threads;
  for (const Note& note : notes_) threads.insert(note.thread);
  std::vector<std::size_t> later(spans_.size());
  std::iota(later.begin(), later.end(), std::size_t{0});
  std::stable_sort(later.begin(), later.end(), [this](std::size_t a, std::size_t b) {
    return spans_[a].begin < spans_[b].begin;
  });
  std::vector<std::size_t> open;
  auto next = later.begin();
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    for (; next != later.end() && spans_[*next].begin <= node; ++next) {
      open.insert(std::upper_bound(open.begin(), open.end(), *next), *next);
    }
    open.erase(std::remove_if(open.begin(), open.end(),
                              [&](std::size_t index) { return spans_[index].end <= node; }),
               open.end());
    if (const timing::Path* path = choose(between[node], open, threads.size()))
      labels.emplace(nodes[node], path);
  }
  return labels;
}

}  // namespace gpuprof::graphs
