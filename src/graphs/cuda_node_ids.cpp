#include <dlfcn.h>

#include <mutex>
#include <string>

#include "driver/cuda_table.hpp"
#include "driver/process.hpp"
#include "graphs/cuda_handles.hpp"
#include "graphs/cuda_node_ids.hpp"

namespace gpuprof::graphs {

using driver::check;

namespace {

struct KnownFunctions {
  driver::ForkMutex mutex;
  NodeIdFunctions functions;
};

KnownFunctions& known_functions() { return driver::immortal<KnownFunctions>(); }

// Those of a CUPTI that the process has loaded, such as torch's. Loads nothing.
NodeIdFunctions look_for_cupti() noexcept {
  for (const char* name : {"libcupti.so.13", "libcupti.so.12", "libcupti.so"}) {
    void* library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) continue;
    NodeIdFunctions found;
    found.of_node =
        reinterpret_cast<decltype(found.of_node)>(dlsym(library, "cuptiGetGraphNodeId"));
    found.of_exec =
        reinterpret_cast<decltype(found.of_exec)>(dlsym(library, "cuptiGetGraphExecId"));
    if (found.of_node != nullptr && found.of_exec != nullptr) return found;  // stays loaded
    dlclose(library);
  }
  return {};
}

NodeIdFunctions cupti_or_throw() {
  KnownFunctions& known = known_functions();
  const std::lock_guard lock(known.mutex);
  if (known.functions.of_node == nullptr) known.functions = look_for_cupti();
  if (known.functions.of_node != nullptr) return known.functions;
  refuse(
      "the numbers of graph nodes are not known here: the driver tells them from CUDA 13.1 "
      "on, and no CUPTI that tells them (libcupti.so with cuptiGetGraphNodeId and "
      "cuptiGetGraphExecId) is loaded in this process; use a newer driver, or load CUPTI "
      "first, as torch.profiler does");
}

void check_cupti(int status, const char* call) {
  if (status == 0) return;
  refuse(std::string(call) + " answered CUPTI error " + std::to_string(status) +
         ", so the numbers of graph nodes are not known; drivers from CUDA 13.1 on tell "
         "them without CUPTI");
}

}  // namespace

void set_node_ids(const NodeIdFunctions& functions) noexcept {
  KnownFunctions& known = known_functions();
  const std::lock_guard lock(known.mutex);
  known.functions = functions;
}

std::uint64_t id_of_node(void* node) {
  unsigned long long by_driver = 0;
  const CUresult status = driver::ready().cuGraphNodeGetToolsId(as_node(node), &by_driver);
  if (status != driver::kMissingEntry) {
    check(status, "cuGraphNodeGetToolsId");
    return by_driver;
  }
  std::uint64_t id = 0;
  check_cupti(cupti_or_throw().of_node(node, &id), "cuptiGetGraphNodeId");
  return id;
}

std::uint32_t id_of_exec(void* exec) {
  unsigned by_driver = 0;
  const CUresult status = driver::ready().cuGraphExecGetId(as_exec(exec), &by_driver);
  if (status != driver::kMissingEntry) {
    check(status, "cuGraphExecGetId");
    return by_driver;
  }
  std::uint32_t id = 0;
  check_cupti(cupti_or_throw().of_exec(exec, &id), "cuptiGetGraphExecId");
  return id;
}

}  // namespace gpuprof::graphs
