// Launches of a CapturedGraph for the parts of the bindings that call graphs: with the copies at
// its edges pointed at the arrays of a call. `graph` is a GraphBase, without a check. All functions
// need the interpreter lock, which they may give up meanwhile; they throw driver::Error and
// Python's exceptions. The frames around them own no Python object by a destructor.
#pragma once

#include <Python.h>

#include "bindings/interop/streams.hpp"
#include "graphs/captured_graph.hpp"

namespace gpuprof::bindings {

// The stream of a launch to which none was given.
CurrentStream graph_stream(PyObject* graph);

graphs::LaunchResult launch_pointed(PyObject* graph, const CurrentStream& on,
                                    graphs::IoAddresses& at);

// Until the turn is given back, on the same thread, no other thread launches in the graph's turns.
void keep_turn(PyObject* graph);
void give_turn_back(PyObject* graph);

// What the stream was given since the launch uses the graph's own arrays, too.
void note_graph_use(PyObject* graph, const CurrentStream& on);

// Puts back what captures hold that were ended with their thread: their hold on collections, a
// range. With the interpreter lock.
void close_lost_captures();

}  // namespace gpuprof::bindings
