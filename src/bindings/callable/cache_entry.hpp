// One captured graph of a graphed callable: which calls it serves, and how it runs for one.
//
// A call fits if its arguments match the patterns, the state guards answer as they did at the
// capture, and what the function reads besides is unchanged (the guards). To run it, the graph's
// I/O copies are retargeted at the arrays of the call and at new ones for the results, and the
// graph is launched. An array that the copies cannot take, because of its strides or its kind of
// memory, is staged through a new one by the array's library.
//
// Made by gpuprof._callable.capture. All functions need the interpreter lock, give it up where a
// launch waits, and run Python code. A result is a new reference.
#pragma once

#include <Python.h>
#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/callable/guards.hpp"
#include "bindings/callable/pattern.hpp"
#include "bindings/interop/streams.hpp"

namespace gpuprof::bindings {

// What one call needs until it is over. let_go() drops its references, and no destructor does: at
// exit a thread may end while it waits for the interpreter lock, and must not touch them then.
struct CallBuffers {
  std::vector<CallArray> arrays;               // of the arguments
  std::vector<std::uintptr_t> user_addresses;  // of each copy
  std::vector<PyObject*> results;              // borrowed
  std::vector<PyObject*> owned;

  void let_go();
};

// Disjoint byte ranges in order, each from its first byte to the one after the last.
using Ranges = std::vector<std::pair<std::uintptr_t, std::uintptr_t>>;

class CacheEntry {
 public:
  // Of what gpuprof._callable.capture describes, by the names of the members below.
  explicit CacheEntry(const pybind11::kwargs& given);

  // What a call may use: that of the call before, unless it is still in use.
  std::unique_ptr<CallBuffers> take_buffers();
  void give_back(std::unique_ptr<CallBuffers> buffers) noexcept { spare_ = std::move(buffers); }

  // `keywords` is null for none. Fills in the arrays.
  bool matches(PyObject* args, PyObject* keywords, CallBuffers& buffers) const;
  [[nodiscard]] bool state_is_as_captured() const;
  [[nodiscard]] bool guards_hold() const { return bindings::guards_hold(guards_.ptr()); }
  // Whether this call is one that Python compares with the function itself.
  bool is_to_be_verified() { return verify_every_ != 0 && ++calls_ % verify_every_ == 0; }

  // Null where the stream is being captured, with no exception set: nothing was done.
  PyObject* run(CallBuffers& buffers);
  // The results of one run, for `apply`, which C++ has given these arrays of a call.
  pybind11::tuple replay(const pybind11::tuple& arrays);

  // Whether it matters for arrays at these places which copy is made first.
  [[nodiscard]] bool overlap_at(const Ranges& places) const;

  [[nodiscard]] std::uint64_t runs() const noexcept { return runs_; }
  [[nodiscard]] const pybind11::object& graph() const noexcept { return graph_; }

  int traverse(visitproc visit, void* arg) const;
  // Breaks cycles that run through here; the entry is of no use any more.
  void clear();

 private:
  class Run;
  // Whether an array that is written to shares memory with another one of the call or with what the
  // function reads besides, or one of the call with what the function writes to besides: then it
  // matters which copy is made first, and the graph was captured for arrays that do not.
  [[nodiscard]] bool overlaps(const std::vector<CallArray>& arrays) const;
  [[nodiscard]] CurrentStream stream() const;

  // Owns the objects that are borrowed below; null once they are gone. All is in tuples, as the
  // collector empties no tuple by itself.
  pybind11::object kept_;
  pybind11::object graph_;  // a CapturedGraph
  Pattern args_;            // of positional arguments
  Pattern keywords_;        // of keyword arguments
  bool keywords_in_order_;  // whether the function may see their order
  std::vector<ArraySpec> arrays_;
  // Questions about state outside of the arguments, each with the answer at the capture, which has
  // to be the same still.
  std::vector<std::pair<pybind11::handle, pybind11::handle>> state_guards_;
  pybind11::handle guards_;  // _Guards, of the modules and tensors that the function reads
  // Each is (framework, make, like, whether it is copied): make(like) gives an array for one call;
  // where `make` is None, `like` is the result.
  std::vector<std::tuple<pybind11::handle, pybind11::handle, pybind11::handle, bool>> results_;
  Pattern result_;
  Ranges written_;              // where the function writes besides
  Ranges read_;                 // where it reads besides, or leaves its results
  pybind11::handle after_;      // after(*arrays written): tells torch what a run changes, or None
  pybind11::handle apply_;      // apply(entry, *arrays): the results, by autograd, which calls
                                // replay(); None for a run without
  std::uint64_t verify_every_;  // which calls Python compares with the function; 0: none
  // Where a call is: asked of the API of `stream_type`; where it has none of `stream`, a handle or
  // what is called with the device; None is the graph's own stream.
  pybind11::handle device_;
  pybind11::handle stream_;

  std::vector<std::size_t> in_;    // the arrays that are copied in
  std::vector<std::size_t> out_;   // the results that are copied out, and then
  std::vector<std::size_t> back_;  // the arrays that are copied back
  const DlExchangeApi* api_ = nullptr;
  int ordinal_ = 0;  // of the device
  std::unique_ptr<CallBuffers> spare_;
  std::uint64_t runs_ = 0;
  std::uint64_t calls_ = 0;
};

// The entry inside a `_core._CacheEntry`, without a check.
CacheEntry& call_entry(PyObject* object);

}  // namespace gpuprof::bindings
