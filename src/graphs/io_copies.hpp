// Copy nodes for a graph's inputs and outputs: between arrays of the graph and arrays of a call.
//
// They are added to a captured graph before it is instantiated. Each copies between a fixed graph
// address and a user address that every launch may choose: retarget() changes the nodes of the
// executable graph, which affects later launches but not those in flight. Addresses are device
// addresses as integers, sizes are bytes. The caller keeps the memory alive while a launch that
// uses it runs. Belongs to one CapturedGraph, which serialises the calls. Errors are driver::Error.
//
// The driver refuses memory of another kind than the node was made with (of a pool against ordinary
// memory, of another device, pageable host memory). That is reported and not an error. Pinned
// memory is accepted in place of ordinary memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace gpuprof::graphs {

struct IoCopy {
  std::uintptr_t graph_address = 0;
  std::uintptr_t user_address = 0;  // until disarm(); of the same kind of memory as later ones
  std::size_t bytes = 0;            // not 0
};

class IoCopies {
 public:
  // Adds `in` (user to graph) as a chain before everything in `graph`, and `out` (graph to user) as
  // one after everything. Once, with the graph's context current. After an error some nodes may be
  // there, and the graph is useless.
  void add(void* graph, void* context, const std::vector<IoCopy>& in,
           const std::vector<IoCopy>& out);

  // Points the graph's nodes back at graph memory, once the executable graph is made, which does
  // not change. Without this, instantiating or updating from the graph after the user's arrays are
  // freed may crash. Updates from the graph then match only executable graphs whose user memory is
  // of the kind of the graph's own. With the graph's context current. May be called again after an
  // error.
  void disarm();

  // Points the nodes of `exec`, which was made of the graph, at one user address for each copy,
  // those of `in` first; 0 disables the copy, and a null pointer disables all. With the graph's
  // context current. Returns the index of the first copy that the driver refuses, or -1; other
  // failures throw. The next call is right either way. Nodes that stay the same cost no call.
  std::ptrdiff_t retarget(void* exec, const std::uintptr_t* user_addresses);

  // For an executable graph that was updated from the graph of `other`, which has as many copies.
  void take_over(const IoCopies& other) noexcept;

  [[nodiscard]] std::size_t size() const noexcept { return copies_.size(); }
  [[nodiscard]] bool empty() const noexcept { return copies_.empty(); }

 private:
  struct Copy {
    void* node = nullptr;
    std::uintptr_t graph_address = 0;
    std::size_t bytes = 0;
    std::uintptr_t user_address = 0;  // in the executable graph; 0: not known
    bool is_input = false;
    std::optional<bool> is_enabled = true;  // empty: not known
  };
  [[nodiscard]] bool retarget_one(void* exec, Copy& copy, std::uintptr_t user_address);
  void enable(void* exec, Copy& copy, bool on);

  std::vector<Copy> copies_;
  void* context_ = nullptr;
  bool all_disabled_ = false;
  bool disarmed_ = false;
};

}  // namespace gpuprof::graphs
