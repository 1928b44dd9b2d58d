// Host functions in streams and graphs, which run on a thread of their own.
#pragma once

#include "state.hpp"

namespace fakecuda {

// Lets the driver's thread call the function, after those it was given before, and notes when it is
// over. With the lock held; the function runs without it.
void run_on_host(const std::shared_ptr<HostCall>& call);

}  // namespace fakecuda
