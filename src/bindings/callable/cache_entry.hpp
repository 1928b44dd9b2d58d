// One captured graph of a graphed callable: which calls it is for, and how it is run for one.
//
// A call fits if its arguments match the patterns, the state outside of them is what it was (the
// probes), and what the function reads besides is as it was (the watch). It runs by pointing the
// copies at the graph's edges at the arrays of the call and at new ones for the result, and a
// launch. An array that the copies cannot take, because of its strides or its kind of memory, goes
// through one of the array library's; what else has to be done by that library, too, is done by the
// functions that were given.
//
// Made by gpuprof._callable.capture. All functions need the interpreter lock, give it up where a
// launch waits, and run Python code. A result is a new reference.
#pragma once

#include <Python.h>
#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "bindings/callable/guards.hpp"
#include "bindings/callable/pattern.hpp"
#include "bindings/interop/streams.hpp"

namespace gpuprof::bindings {

// What one call needs until it is over. let_go() drops its references, and no destructor does: at
// exit a thread may end while it waits for the interpreter lock, and must not touch them then.
struct CallBuffers {
  std::vector<CallArray> arrays;        // of the arguments
  std::vector<std::uintptr_t> outside;  // of each copy
  std::vector<PyObject*> results;       // borrowed
  std::vector<PyObject*> owned;

  void let_go();
};

class CacheEntry {
 public:
  // The names of the dict are those that the source takes from it. Throws what a wrong one raises.
  explicit CacheEntry(const pybind11::dict& described);
  CacheEntry(const CacheEntry&) = delete;
  CacheEntry& operator=(const CacheEntry&) = delete;
  ~CacheEntry() = default;

  // What a call may use: that of the call before, unless it is still in use.
  std::unique_ptr<CallBuffers> take_scratch();
  void give_back(std::unique_ptr<CallBuffers> scratch) noexcept { spare_ = std::move(scratch); }

  // `keywords` is null for none. Fills in the arrays.
  bool matches(PyObject* args, PyObject* keywords, CallBuffers& scratch) const;
  [[nodiscard]] bool state_is_as_captured() const;
  bool look() { return !flagged_ && guards_.look(); }

  // Null where the stream is being captured, with no exception set: nothing was done.
  PyObject* run(CallBuffers& scratch);

  void flag() noexcept { flagged_ = true; }
  [[nodiscard]] std::uint64_t runs() const noexcept { return runs_; }
  [[nodiscard]] const pybind11::object& graph() const noexcept { return graph_; }

  int traverse(visitproc visit, void* arg) const;
  // Breaks cycles that run through here; the entry is of no use any more.
  void clear();

 private:
  class Run;
  struct StateGuard {
    pybind11::object ask;
    pybind11::object expected;
  };
  struct Result {
    pybind11::object make;  // make(like) gives an array for one call; None: `like` is the result
    pybind11::object like;
    bool copied = false;
  };
  // Whether an array that is written to shares memory with another one of the call, or one of the
  // call with what the function writes to besides: then it matters which copy is made first, and
  // the graph was captured for arrays that do not.
  [[nodiscard]] bool is_entangled(const std::vector<CallArray>& arrays) const;
  void read_arrays(const pybind11::tuple& described);
  void read_results(const pybind11::tuple& described);
  [[nodiscard]] CurrentStream stream() const;
  [[nodiscard]] PyObject* build(const std::vector<PyObject*>& arrays) const;

  pybind11::object graph_;
  Pattern args_;
  Pattern keywords_;
  bool in_order_ = true;  // of the keywords
  std::vector<ArraySpec> specs_;
  pybind11::tuple types_;  // keeps the types of the specs
  std::vector<StateGuard> state_guards_;
  Guards guards_;
  std::vector<Result> results_;
  Pattern result_;
  pybind11::object rebuild_;      // rebuild(arrays), where the pattern is none of simple containers
  std::vector<std::size_t> in_;   // the arrays that are copied in
  std::vector<std::size_t> out_;  // the results that are copied out, and then
  // Where the function writes besides, from the first byte to the one after the last.
  std::vector<std::pair<std::uintptr_t, std::uintptr_t>> taken_;
  std::vector<std::size_t> back_;  // the arrays that are copied back
  pybind11::object stage_;         // stage(index, array): a new array that the copies can take
  pybind11::object put_back_;      // put_back(index, array): the array inside into the call's
  pybind11::object fetch_;         // fetch(index, array): the result inside into a new one
  pybind11::object wrote_;         // wrote(index, array): the call's array was copied back to
  // Where a call is: asked of the API; where there is none of `stream_`, a handle or what is called
  // with the device; None is the graph's own stream.
  const DlExchangeApi* api_ = nullptr;
  pybind11::object stream_;
  pybind11::object device_;
  int ordinal_ = 0;  // of the device
  std::unique_ptr<CallBuffers> spare_;
  std::uint64_t runs_ = 0;
  bool flagged_ = false;
};

// The entry inside a `_core._CallEntry`, without a check.
CacheEntry& call_entry(PyObject* object);

}  // namespace gpuprof::bindings
