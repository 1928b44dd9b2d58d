// From a handle to its object, with the answer the driver gives where there is none.
//
// A stale or invented handle of a stream or event is misuse and ends the process, as it crashes
// with the real driver; one of a graph is a plain error. Every function wants the lock held.
#pragma once

#include "state.hpp"

namespace fakecuda {

// The thread's current context: 201 without one, 709 if it is destroyed, its sticky error.
Result current_context(State& s, Context*& context);

// The same for a context named by its handle; 0 names the current one.
Result named_context(State& s, Handle handle, Context*& context);

// Null and 1 are the current context's legacy stream, 2 is the thread's own default stream.
Result find_stream(State& s, const char* function, Handle handle, std::shared_ptr<Stream>& stream);

// 400 for null, 709 in a destroyed context, the sticky error of its context.
Result find_event(State& s, const char* function, Handle handle, std::shared_ptr<Event>& event);

std::shared_ptr<Graph> find_graph(const State& s, Handle handle);     // null if there is none
std::shared_ptr<GraphExec> find_exec(const State& s, Handle handle);  // null if there is none

// The numbers by which tools name nodes and executable graphs.
Result number_of_node(const State& s, Handle node, unsigned long long* number);
Result number_of_exec(const State& s, Handle handle, unsigned* number);

// After time has passed: a kernel's failure that this query or wait is the first to meet.
Result meet_fault(State& s, Context& context);

bool is_allocated(const State& s, DevicePtr address, std::size_t size);
// Ends an allocation. Memory of a graph is only unmapped: the graph keeps its address.
void free_memory(State& s, std::uintptr_t address);

Context* make_context(State& s, int device, Handle handle, const std::string& label);
void destroy_context(State& s, Context& context);  // ends its work, frees its memory
bool is_device(const State& s, int device);

}  // namespace fakecuda
