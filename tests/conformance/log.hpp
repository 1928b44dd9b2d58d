// The driver's log, as rows.
#pragma once

namespace conformance {

// Prints the lines after `from`, with every number of their heads as '#', and moves `from` on.
void print_log(unsigned& from);

}  // namespace conformance
