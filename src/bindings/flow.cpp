#include "bindings/flow.hpp"

#include <memory>
#include <unordered_map>
#include <utility>

namespace gpuprof::bindings {
namespace {

// The flows of one thread: the one in use, and those of suspended tasks with open scopes.
struct Flows {
  Flow* current = nullptr;
  std::unordered_map<PyObject*, Flow*> parked;

  Flows() = default;
  Flows(const Flows&) = delete;
  Flows& operator=(const Flows&) = delete;
  // A flow with open scopes stays with them: another thread may close them later.
  ~Flows() {
    if (current != nullptr) current->let_go();
    for (const auto& [context, flow] : parked) flow->let_go();
  }

  void park(PyObject* context, Flow* flow) {
    Flow*& place = parked[context];
    if (place != nullptr)
      place->let_go();  // one that another thread has emptied, for a context now dead
    place = flow;
  }

  Flow* unpark(PyObject* context) {
    const auto found = parked.find(context);
    if (found == parked.end()) return nullptr;
    Flow* flow = found->second;
    parked.erase(found);
    return flow;
  }
};

thread_local Flows flows;

PyObject* current_context() {
  PyThreadState* state = PyThreadState_Get();
  if (state->context == nullptr) {
    // A thread gets its context when it first needs one; that must not happen between two scopes.
    Py_XDECREF(PyContext_CopyCurrent());
    PyErr_Clear();
  }
  return state->context;
}

}  // namespace

Flow& current_flow() {
  PyObject* context = current_context();
  Flow* flow = flows.current;
  if (flow != nullptr && flow->context_ == context) return *flow;
  if (flow != nullptr && !flow->empty()) {
    flows.park(flow->context_, flow);
    flow = nullptr;
  }
  if (!flows.parked.empty()) {
    if (Flow* parked = flows.unpark(context); parked != nullptr) {
      if (flow != nullptr) flow->let_go();
      flow = parked;
    }
  }
  if (flow == nullptr) flow = new Flow;
  flow->context_ = context;
  flows.current = flow;
  return *flow;
}

}  // namespace gpuprof::bindings
