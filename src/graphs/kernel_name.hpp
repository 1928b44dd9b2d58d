// Kernels' names as people write them.
#pragma once

#include <string>

namespace gpuprof::graphs {

// `symbol` without its C++ mangling: "void add_k<float>(float*)". Names of C and of other
// languages stay as they are. The runtime's demangler refuses symbols past about a thousand bytes;
// what is left of those is the qualified name, with "<...>" for its template arguments. Any thread.
[[nodiscard]] std::string demangled(const std::string& symbol);

}  // namespace gpuprof::graphs
