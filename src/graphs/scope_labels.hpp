// Which scopes were open when a node of a capture appeared.
//
// A ScopeLabels is told when a scope is entered and left on a stream of one capture, with how far
// the capture had come, and works out the innermost scope of each node when the capture ends. It
// adds nothing to the graph and calls no driver.
//
// The nodes of a capture are listed in the order in which they appeared, so the counts of nodes say
// which scopes were open. Of several threads' scopes a node has that of the thread that captured
// it, where the notes of a stream tell: its next node takes the place of all that it came after, so
// what one note finds there alone, and what that alone came after, back to the note before, is the
// stream's own. A thread without a scope works in another one's that began on the same stream, as
// torch's backward threads do. Where the notes do not tell, the label is what the scopes of all
// threads have in common.
//
// The caller serialises calls. Nodes are handles, for comparing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "graphs/nodes.hpp"
#include "timing/path.hpp"

namespace gpuprof::graphs {

// How far a capture has come, seen from one of its streams.
struct CapturePosition {
  std::size_t nodes = 0;  // how many there are in the capture
  std::uintptr_t stream = 0;
  std::vector<void*> frontier;  // what the stream's next node will come after
};

class ScopeLabels {
 public:
  // `open`: the scopes that are open on this thread as the capture begins on `stream`.
  void begin(const timing::Path& open, std::uintptr_t stream);

  // `scope` tells entries apart and may be used again once it was left.
  void enter(const void* scope, const timing::Path& path, CapturePosition at);
  // Of a scope that began before the capture only the path is known.
  void leave(const void* scope, const timing::Path& path, CapturePosition at);

  [[nodiscard]] bool empty() const noexcept { return spans_.empty(); }
  [[nodiscard]] bool is_open(const void* scope) const noexcept;

  // Where a stream is, to be told of that of begin() as the capture ends.
  void note(CapturePosition at);

  // The labels of `nodes`, in the order in which they appeared; `edges` as edges() returns them.
  [[nodiscard]] NodeLabels resolve(const std::vector<void*>& nodes,
                                   const std::vector<Edge>& edges) const;

 private:
  // From the entry of a scope to its exit, in the order of the entries.
  struct Span {
    const void* scope = nullptr;  // null: it began before the capture
    const timing::Path* path = nullptr;
    std::thread::id thread;
    std::uintptr_t stream = 0;   // that it began on
    std::size_t begin = 0;       // how many nodes there were
    std::size_t end = SIZE_MAX;  // the same, or this as long as it is open
  };
  // One note: where a stream was.
  struct Note {
    std::thread::id thread;
    CapturePosition at;
  };
  using Notes = std::array<const Note*, 2>;

  void add_open(const void* scope, const timing::Path& path, const CapturePosition& at);
  [[nodiscard]] std::vector<Notes> captured_between(const std::vector<void*>& nodes,
                                                    const std::vector<Edge>& edges) const;
  [[nodiscard]] const timing::Path* choose(const Notes& between,
                                           const std::vector<std::size_t>& open,
                                           std::size_t threads) const;

  std::vector<Span> spans_;
  std::vector<std::size_t> open_;  // indices of spans_
  std::vector<Note> notes_;
};

}  // namespace gpuprof::graphs
