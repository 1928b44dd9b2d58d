// What the hooks of one watch share: it opens and closes the scopes of modules' passes.
//
// A full backward hook of torch wraps the tensors that go in and out, and so fails where a module
// works in place on views. Nothing is wrapped here. Autograd numbers the nodes of a thread as they
// are made, and of those that are ready it runs the one with the highest number first, so the nodes
// of one call run one after the other: the first is that of a result, the last has the lowest
// number.
//
// Everything here needs the interpreter lock. Torch's functions may run Python code, in which a
// daemon thread may end at exit: what is owned meanwhile is owned by an object, not by a frame.
#pragma once

#include <Python.h>
#include <pybind11/pybind11.h>
#include <structmember.h>

#include <cstdint>
#include <map>
#include <memory>
#include <new>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bindings/python/errors.hpp"
#include "bindings/python/objects.hpp"
#include "bindings/watch/sums.hpp"

namespace gpuprof::bindings::watch {

// Of an object whose vectorcall comes first.
inline PyMemberDef vectorcall_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, sizeof(PyObject), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

// An object with a `T`, which has a name `kName` and a static vectorcallfunc `called`.
template <typename T>
struct Callable {
  PyObject_HEAD vectorcallfunc vectorcall;
  T value;

  // A new reference.
  static PyObject* make() {
    static PyTypeObject* const type = make_type();
    auto* made = checked(PyObject_New(Callable, type));
    made->vectorcall = &T::called;
    new (&made->value) T();
    return reinterpret_cast<PyObject*>(made);
  }
  static T& of(PyObject* object) noexcept { return reinterpret_cast<Callable*>(object)->value; }

 private:
  static void dealloc(PyObject* self) {
    std::destroy_at(&of(self));
    free_object(self);
  }

  static PyTypeObject* make_type() {
    static PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(&dealloc)},
                                  {Py_tp_call, reinterpret_cast<void*>(&PyVectorcall_Call)},
                                  {Py_tp_members, vectorcall_members},
                                  {0, nullptr}};
    static PyType_Spec spec = {
        T::kName, sizeof(Callable), 0,
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
    return make_internal_type(spec);
  }
};

using Objects = std::vector<pybind11::object>;

// One call of a module. Autograd's nodes hold it for as long as there can be a backward pass, and
// call it before the first node of that and after the last.
struct Call {
  static constexpr const char* kName = "gpuprof._core._WatchedCall";
  static PyObject* called(PyObject* self, PyObject* const* gradients, size_t count,
                          PyObject* names);

  // Lets go of all nodes inside, whose hooks hold this call: no collector sees that cycle.
  void abandon(bool with_its_nodes);
  void forget_nodes();
  [[nodiscard]] bool is_inside(const Call& other) const;
  [[nodiscard]] Pass& pass() const { return recomputed ? entry->recomputed : entry->forward; }

  pybind11::object watch;
  pybind11::object entries;  // of its module, by whose identity its end is found
  Entry* entry = nullptr;
  pybind11::object outer;    // another Call, or null
  Objects inner;             // the Calls inside, while it runs
  bool opens_outer = false;  // a node of its results made one of those of `outer`, too
  // Until the call around it is over:
  pybind11::object tensors;  // in its results, while these are looked at
  Objects results;           // the nodes that made its results
  pybind11::object last;     // the node with the lowest number
  std::uint64_t last_number = 0;
  Objects beyond;  // the nodes after it
  long task = -1;  // torch's number of the backward pass around it
  bool recomputed = false;
  bool reads_memory = false;
  const void* handled = nullptr;  // the exception that is being handled around it
  pybind11::object frame;         // of Python that runs it; null once it is over
  pybind11::object memory;
  std::int64_t first = -1;  // the number of its first node
  pybind11::object scope, sample;
};

inline Call& call_of(pybind11::handle object) { return Callable<Call>::of(object.ptr()); }

// What is open on one thread in one backward pass of autograd.
//
// Autograd's own record of that pass holds it and calls it at the end. When that is gone, also
// after an error, so is this, and what was open is abandoned.
struct Task {
  static constexpr const char* kName = "gpuprof._core._WatchedTask";
  static PyObject* called(PyObject* self, PyObject* const* none, size_t count, PyObject* names);
  struct Opened {
    pybind11::object call, scope, sample;
    std::vector<timing::SampleRef> recomputed;  // forward passes that ran again inside
  };
  ~Task();
  pybind11::object watch;
  long number = 0;
  unsigned long thread = 0;
  std::vector<Opened> opened;
};

// Torch's functions, a threading.local, and two of Python's: `allocated()` for the bytes on the GPU
// or None, and `tensors_in(result)`.
struct Functions {
  pybind11::kwargs given;
  pybind11::object tensor_type = given["tensor_type"];
  pybind11::object is_compiling = given["is_compiling"];
  // What compiles the frames that run now, None or False.
  pybind11::object frame_callback = given["frame_callback"];
  pybind11::object is_grad_enabled = given["is_grad_enabled"];
  pybind11::object task_number = given["task_number"];
  // None in an old torch: then no backward pass is measured.
  pybind11::object node_number = given["node_number"];
  pybind11::object queue_callback = given["queue_callback"];
  pybind11::object thread_local_data = given["thread_local_data"];
  pybind11::object allocated = given["allocated"];
  pybind11::object tensors_in = given["tensors_in"];
};

// The base of a class of Python with `fail(error)` and `scope(entry, direction)`.
class Watch {
 public:
  explicit Watch(const pybind11::kwargs& functions) : functions_{functions} {}

  // Opens the scope of a module's forward pass.
  void enter(pybind11::handle self, PyObject* entries, PyObject* frame);
  // Closes it, and follows the results into the backward pass. `error` is what is being handled.
  void leave(pybind11::handle entries, pybind11::handle module, pybind11::handle result,
             pybind11::handle error);
  // Opens the scope of a call's backward pass, unless it is open.
  void begin_backward(PyObject* object);
  // Closes it, and what is open in it.
  void end_backward(PyObject* object);
  // Closes what is open, at the end of autograd's pass.
  void finish(Task& task);
  // Forgets what is open in forward passes.
  void end();
  void forget(const Task& task);

  [[nodiscard]] bool is_compiling() const;
  [[nodiscard]] bool closed() const noexcept { return closed_; }
  [[nodiscard]] pybind11::typing::List<pybind11::object> entries() const { return entries_; }
  [[nodiscard]] pybind11::typing::List<pybind11::object> scopes() const { return scopes_; }
  Sums sums;

 private:
  struct Thread {
    Watch* watch = nullptr;
    unsigned long number = 0;
    Objects calls;             // whose forward pass runs
    std::vector<Task*> tasks;  // alive, as they are taken out when they go

    void end();
  };

  Thread& this_thread();
  Task* task(pybind11::handle self, bool make);
  std::vector<Task::Opened*> open_backwards();
  pybind11::object take_scope(pybind11::handle self, Entry& entry, const char* direction);
  timing::SampleRef leave_scope(PyObject* scope, PyObject* sample, bool raised);
  void close(Task& task);
  void finish_forward(PyObject* object, PyObject* module, PyObject* result, PyObject* error);
  void follow(PyObject* object, PyObject* result);

  std::map<unsigned long, Thread> threads_;  // by their numbers
  Functions functions_;                      // its threading.local goes before the threads
  bool closed_ = false;
  pybind11::typing::List<pybind11::object> entries_;
  pybind11::typing::List<pybind11::object> scopes_;  // that are not open
};

// A new reference to the exception that is being handled, or None.
PyObject* handled_exception();

// Autograd's number of a node; very high for the node of a parameter.
std::uint64_t number_of(PyObject* node);

// Adds the nodes that made a tensor.
void add_nodes_of(PyObject* tensor, Objects& nodes);

using Inside = std::unordered_map<PyObject*, Call*>;

// The calls inside of one by the nodes of their results.
Inside calls_inside(const Call& call);

// Finds the last of a call's nodes, which have the numbers from `first` up to `end`. Calls inside
// are passed over in one step, so that each node is looked at about once.
void find_last_node(Call& call, std::uint64_t end, const Inside& inside);

}  // namespace gpuprof::bindings::watch
