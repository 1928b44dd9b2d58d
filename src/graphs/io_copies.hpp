// The copies at the edges of a graph: between arrays of its own and those of a call.
//
// They are copy nodes that are added to a captured graph before it is instantiated. Each has one
// end that stays (`inside`) and one that each launch may choose (`outside`): the executable graph's
// nodes are pointed at it, which changes later launches and leaves those in flight alone. Addresses
// are device addresses as integers, sizes are in bytes; the memory is alive by the caller's promise
// for as long as a launch that was pointed at it runs. Belongs to one CapturedGraph, which
// serialises the calls. Errors are driver::Error.
//
// The driver refuses memory that does not go with what the node was made with (of a pool against
// ordinary memory, of another device, of the host where it is not pinned); such a copy is reported
// and not an error. It takes pinned memory in place of ordinary memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gpuprof::graphs {

struct EdgeCopy {
  std::uintptr_t inside = 0;
  std::uintptr_t outside = 0;  // where the node points until rest(); of the kind of later ones
  std::size_t bytes = 0;       // not 0
};

class IoCopies {
 public:
  // Adds `in` (outside to inside) as a chain before everything in `graph`, and `out` (inside to
  // outside) as one after everything. With the graph's context current. Once. Throws driver::Error;
  // some nodes may have been added then, and the graph is of no use any more.
  void add(void* graph, void* context, const std::vector<EdgeCopy>& in,
           const std::vector<EdgeCopy>& out);

  // Takes the outside addresses out of the graph's nodes: the memory may go, and where nodes name
  // freed memory the driver may crash as it makes an executable graph of them, and refuses an
  // update. Once there is the executable graph, which is not changed; until then the memory is
  // alive by the caller's promise. Updates from the graph then fit executable graphs whose outside
  // memory is of the kind of the inside one: others are refused, those made for a pool's memory.
  // With the graph's context current. Throws driver::Error; a later call does what is left to do.
  void rest();

  // Points the nodes of `exec`, which was made of that graph: one outside address for each copy,
  // those of `in` first; 0 leaves the copy out, and a null pointer leaves out all. With the graph's
  // context current. Returns the index of the first copy that the driver refuses, or -1. Throws
  // driver::Error for any other failure. Either way it is known what each node does, so that the
  // next call is right. Nodes that need no change cost no call.
  std::ptrdiff_t point(void* exec, const std::uintptr_t* outside);

  // The executable graph was updated from the graph that `other` belongs to, which has as many.
  void take_over(const IoCopies& other) noexcept;

  [[nodiscard]] std::size_t size() const noexcept { return copies_.size(); }
  [[nodiscard]] bool empty() const noexcept { return copies_.empty(); }

 private:
  struct Copy {
    void* node = nullptr;
    std::uintptr_t inside = 0;
    std::size_t bytes = 0;
    std::uintptr_t outside = 0;  // where the executable graph's node points; 0: not known
    bool is_input = false;
    bool is_done = true;  // else it is switched off
    bool is_sure = true;  // whether `is_done` is known
  };
  [[nodiscard]] bool point_one(void* exec, Copy& copy, std::uintptr_t outside);
  void switch_one(void* exec, Copy& copy, bool on);

  std::vector<Copy> copies_;
  void* context_ = nullptr;
  bool all_out_ = false;  // every copy is switched off
  bool at_rest_ = false;  // the graph's nodes name no outside address
};

}  // namespace gpuprof::graphs
