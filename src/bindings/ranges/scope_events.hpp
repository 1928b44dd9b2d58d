// What Python adds to timer scopes in traces: when traces open, and how threads are called.
#pragma once

#include "bindings/python/switches.hpp"
#include "ranges/sample_events.hpp"

namespace gpuprof::bindings {

// Whether events noted now reach a trace. The first time after GPUPROF_TRACE_OUT was found set, and
// the first time in a forked child, this opens the trace. Needs the interpreter lock; runs Python
// code then. To be asked where listens(kTrace) is true.
bool trace_records();

// Gives this thread's track the name that Python has for the thread. The first time in each thread
// it runs Python code, with the interpreter lock.
void name_this_thread();

using ranges::trace_host_span;

}  // namespace gpuprof::bindings
