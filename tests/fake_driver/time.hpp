// Virtual time: in-order streams whose work starts, takes its cost and ends, without any thread.
//
// Work gets its times as soon as everything before it has them; work behind a closed gate has none
// until the gate's word changes. Every function wants the lock held.
#pragma once

#include "state.hpp"

namespace fakecuda {

// Gives work its times and applies what has ended by now: gates open, memory is written.
void pump(State& s);

// Where a stream's queue is bounded and full, the functions that append to it wait first, with the
// lock given up: until the clock has moved to where there is room, or somebody opens the gate.

// Appends `op` to the stream and returns when it will be done. Blocking streams and the legacy
// stream of a context wait for each other.
Done enqueue(State& s, const std::shared_ptr<Stream>& stream, Op op);

// Appends every node of a graph, then a join of all of them.
void enqueue_graph(State& s, const std::shared_ptr<Stream>& stream, GraphExec& exec);

bool is_over(const State& s, const Done& done);  // null counts as over
bool is_idle(const State& s, const Stream& stream);

// Moves the clock to where `done` is over. False: a closed gate is in the way.
bool advance_until_over(State& s, const Done& done);

// The same, waiting in real time, with the lock given up, for somebody to open the gate.
void wait_until_over(State& s, const Done& done);
void wait_until_idle(State& s, const std::vector<std::shared_ptr<Stream>>& streams);

// The time an event shows: the device's clock, in its steps of 32 ns.
Ns stamp_of(const State& s, const Completion& done);

// What a query that was answered with "not ready" takes. The first one after something was queued
// takes no time, because who queues work may ask in between, as often as real time lets it: only
// who waits for an answer makes the clock move.
void pass_polling_time(State& s, std::uint64_t& polled_at);

// From 0 to jitter_ns, the same sequence after every reset.
Ns jitter(State& s);

// Ends everything queued on a stream whose context is gone.
void drop_work(State& s, Stream& stream);

// Every stream of `context` that has work or may get it.
std::vector<std::shared_ptr<Stream>> streams_of(const State& s, const Context& context);

}  // namespace fakecuda
