#include "graphs/cuda_handles.hpp"
#include "graphs/io_copies.hpp"
#include "graphs/nodes.hpp"

namespace gpuprof::graphs {

using driver::check;
using driver::Table;

namespace {

CUDA_MEMCPY3D copy_between(std::uintptr_t source, std::uintptr_t target, std::size_t bytes) {
  CUDA_MEMCPY3D copy;  // has no empty value
  std::memset(&copy, 0, sizeof copy);
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = source;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = target;
  copy.WidthInBytes = bytes;
  copy.Height = 1;
  copy.Depth = 1;
  return copy;
}

CUDA_MEMCPY3D params_of(const IoCopy& copy, bool is_input) {
  return is_input ? copy_between(copy.user_address, copy.graph_address, copy.bytes)
                  : copy_between(copy.graph_address, copy.user_address, copy.bytes);
}

struct Ends {
  std::vector<CUgraphNode> roots;   // depend on nothing
  std::vector<CUgraphNode> leaves;  // nothing depends on them
};

Ends ends_of(const Table& table, CUgraph graph) {
  const std::vector<CUgraphNode> nodes = nodes_of(table, graph);
  std::vector<bool> is_root(nodes.size(), true);
  std::vector<bool> is_leaf(nodes.size(), true);
  for (const Edge& edge : edges(graph)) {
    is_leaf.at(edge.from) = false;
    is_root.at(edge.to) = false;
  }
  Ends ends;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (is_root[i]) ends.roots.push_back(nodes[i]);
    if (is_leaf[i]) ends.leaves.push_back(nodes[i]);
  }
  return ends;
}

}  // namespace

void IoCopies::add(void* graph, void* context, const std::vector<IoCopy>& in,
                   const std::vector<IoCopy>& out) {
  const Table& table = driver::ready();
  context_ = context;
  const Ends ends = ends_of(table, as_graph(graph));
  // Adds each node after `after`, and the next node after it.
  const auto add_chain = [&](const std::vector<IoCopy>& chain, bool is_input,
                             std::vector<CUgraphNode> after) {
    for (const IoCopy& copy : chain) {
      const CUDA_MEMCPY3D params = params_of(copy, is_input);
      CUgraphNode node = nullptr;
      check(table.cuGraphAddMemcpyNode(&node, as_graph(graph), after.data(), after.size(), &params,
                                       static_cast<CUcontext>(context)),
            "cuGraphAddMemcpyNode");
      copies_.push_back({node, copy.graph_address, copy.bytes, 0, is_input});
      after = {node};
    }
    return after;
  };
  const std::vector<CUgraphNode> last_in = add_chain(in, true, {});
  if (!last_in.empty() && !ends.roots.empty()) {
    const std::vector<CUgraphNode> from(ends.roots.size(), last_in.front());
    check(table.cuGraphAddDependencies(as_graph(graph), from.data(), ends.roots.data(),
                                       ends.roots.size()),
          "cuGraphAddDependencies");
  }
  add_chain(out, false, ends.leaves.empty() ? last_in : ends.leaves);
}

void IoCopies::disarm() {
  if (disarmed_) return;
  for (const Copy& copy : copies_) {
    const CUDA_MEMCPY3D onto_itself =
        copy_between(copy.graph_address, copy.graph_address, copy.bytes);
    check(driver::ready().cuGraphMemcpyNodeSetParams(as_node(copy.node), &onto_itself),
          "cuGraphMemcpyNodeSetParams");
  }
  disarmed_ = true;
}

void IoCopies::take_over(const IoCopies& other) noexcept {
  for (std::size_t i = 0; i < copies_.size(); ++i) {
    Copy& copy = copies_[i];
    copy.graph_address = other.copies_[i].graph_address;
    copy.bytes = other.copies_[i].bytes;
    copy.user_address = 0;
    copy.is_enabled.reset();
  }
  all_disabled_ = false;
}

void IoCopies::enable(void* exec, Copy& copy, bool on) {
  if (copy.is_enabled == on) return;
  copy.is_enabled.reset();
  check(driver::ready().cuGraphNodeSetEnabled(as_exec(exec), as_node(copy.node), on ? 1 : 0),
        "cuGraphNodeSetEnabled");
  copy.is_enabled = on;
}

// False where the driver refuses the address.
bool IoCopies::retarget_one(void* exec, Copy& copy, std::uintptr_t user_address) {
  if (copy.user_address != user_address) {
    copy.user_address = 0;
    const CUDA_MEMCPY3D params =
        params_of({copy.graph_address, user_address, copy.bytes}, copy.is_input);
    const CUresult status = driver::ready().cuGraphExecMemcpyNodeSetParams(
        as_exec(exec), as_node(copy.node), &params, static_cast<CUcontext>(context_));
    if (status != CUDA_SUCCESS) {
      // Also consumes the log's lines of a refusal, so that the next error does not show them.
      const driver::Error error = driver::error_of(status, "cuGraphExecMemcpyNodeSetParams");
      if (status == CUDA_ERROR_INVALID_VALUE) return false;
      throw error;
    }
    copy.user_address = user_address;
  }
  enable(exec, copy, true);
  return true;
}

std::ptrdiff_t IoCopies::retarget(void* exec, const std::uintptr_t* user_addresses) {
  if (user_addresses == nullptr && all_disabled_) return -1;
  all_disabled_ = false;
  for (std::size_t i = 0; i < copies_.size(); ++i) {
    const std::uintptr_t address = user_addresses != nullptr ? user_addresses[i] : 0;
    if (address == 0) {
      enable(exec, copies_[i], false);
    } else if (!retarget_one(exec, copies_[i], address)) {
      return static_cast<std::ptrdiff_t>(i);
    }
  }
  all_disabled_ = user_addresses == nullptr;
  return -1;
}

}  // namespace gpuprof::graphs
