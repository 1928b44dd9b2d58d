// Which scope each node of a capture belongs to where several threads note scopes at once.
//
// Serves ScopeLabels, whose header says what is decided. First each stream's nodes between two
// notes are found: they form a chain from what the stream came after at the first note to what it
// comes after at the second. Chains that the edges leave open are settled by those that they do
// not. Then each node, in the order of appearance, gets a scope that was open at that place.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <unordered_map>
#include <vector>

#include "graphs/scope_labels.hpp"

namespace gpuprof::graphs {

// The spans that were open when a node appeared; asked for one node after the other.
class OpenSpans {
 public:
  explicit OpenSpans(const std::vector<ScopeLabels::Span>& spans);
  void move_to(std::size_t node);
  // Indices of the spans, in the order of their entries.
  [[nodiscard]] const std::vector<std::size_t>& now() const noexcept { return now_; }

 private:
  const std::vector<ScopeLabels::Span>& spans_;
  std::vector<std::size_t> by_begin_;
  std::size_t next_ = 0;
  std::vector<std::size_t> now_;
};

class ScopeLabelSolver {
 public:
  // Keeps references to all of them.
  ScopeLabelSolver(const std::vector<ScopeLabels::Span>& spans,
                   const std::vector<ScopeLabels::Note>& notes, const std::vector<void*>& nodes,
                   const std::vector<Edge>& edges);

  void label(NodeLabels& labels);

 private:
  using Places = std::vector<std::size_t>;  // of nodes in the list
  static constexpr std::size_t kNone = SIZE_MAX;

  // What one stream did between two of its notes.
  struct Stretch {
    std::size_t begin = 0;  // nodes that appeared meanwhile, on whatever stream
    std::size_t end = 0;
    Places before;  // what the stream's next node comes after, at the first note
    Places after;   // and at the second
    std::uintptr_t stream = 0;
    std::array<std::thread::id, 2> threads;
    std::size_t first = kNone;  // of the nodes that were put on the stream
    bool is_done = false;
  };

  enum class Effort {
    kSure,       // only where what the stretch comes after is known
    kFromStart,  // also for a stream's first nodes, once others are settled
    kGuess,      // also where there are several ways
  };

  enum class Fit { kNo, kYes, kPlain };

  [[nodiscard]] Places places_of(const CapturePosition& at) const;
  void add_stretches(const std::vector<ScopeLabels::Note>& notes);
  void find_chains();
  bool find_chain(std::size_t index, Effort how);
  void extend(Stretch& stretch);
  [[nodiscard]] std::vector<Fit> fits_of(const Stretch& stretch) const;
  [[nodiscard]] bool comes_after(std::size_t node, std::size_t other) const;
  [[nodiscard]] bool is_awaited(std::size_t node, const Places& places) const;
  std::size_t likeliest(const Stretch& stretch, const std::vector<Fit>& fits, const Places& places,
                        bool& is_only_one) const;
  [[nodiscard]] bool is_first(const Stretch& stretch, std::size_t node) const;
  [[nodiscard]] bool encloses(std::size_t index, std::size_t node);
  [[nodiscard]] Places reached_from(const Places& begin, std::size_t end) const;
  std::size_t choose(std::size_t node, const Places& open);

  const std::vector<ScopeLabels::Span>& spans_;
  const std::vector<void*>& nodes_;
  std::unordered_map<void*, std::size_t> place_of_;
  std::vector<Places> after_;           // by node: those that it comes after
  std::vector<std::size_t> followers_;  // by node: how many come directly after it
  std::vector<Stretch> stretches_;
  std::vector<std::size_t> stretch_of_;     // by node, kNone where it is not known
  std::vector<std::thread::id> thread_of_;  // by node: whose scopes it is under
  std::vector<std::vector<bool>> inside_;   // by span: the nodes from its begin on
  std::vector<bool> is_inside_known_;
};

}  // namespace gpuprof::graphs
