// Timer scopes in traces: the slice of the host thread at the exit, and the GPU's once it is known.
#pragma once

#include <cstdint>
#include <string_view>

#include "bindings/python/switches.hpp"
#include "timing/sample.hpp"
#include "trace/event.hpp"

namespace gpuprof::bindings {

// Whether events noted now reach a trace. The first time after GPUPROF_TRACE_OUT was found set, and
// the first time in a forked child, this opens the trace. Needs the interpreter lock; runs Python
// code then. To be asked where listens(kTrace) is true.
bool trace_records();

// Gives this thread's track the name that Python has for the thread. The first time in each thread
// it runs Python code, with the interpreter lock.
void name_this_thread();

// Notes on an open sample which thread it belongs to. Before it is closed; runs no Python code.
void note_thread(timing::Sample& sample) noexcept;

// Notes the host's span of a closed sample. `depth`: how many slices of this thread are open around
// it. Never throws.
void trace_host_span(const timing::Sample& sample, std::uint16_t depth) noexcept;

// Notes an event with a name; swallows the lack of memory, with the event.
void note_named(trace::Event event, std::string_view name) noexcept;

}  // namespace gpuprof::bindings
