// Copies of memory as work of a stream or of a graph. Every function wants the lock held.
#pragma once

#include <cstddef>
#include <cstdint>

#include "state.hpp"

namespace fakecuda {

// How long the device takes to write so many bytes.
Ns time_for(std::size_t bytes);

// What a copy of so many bytes does; its ends are taken for memory of the device.
Op copy_op(std::uintptr_t target, std::uintptr_t source, std::size_t size);

// Whose memory the address is.
MemoryKind kind_of(const State& s, std::uintptr_t address);

// Whether the memory that the work touches is still there; the host's is the program's affair.
bool has_memory(const State& s, const Op& op);

// The node of a copy, which notes whose memory it is between.
Node copy_node(const State& s, Op op);

// Whether the copy of an executable graph can be changed to another one.
bool can_become(const Node& own, const Node& other);

}  // namespace fakecuda
