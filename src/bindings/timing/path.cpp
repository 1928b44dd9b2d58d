#include "bindings/timing/path.hpp"

#include <vector>

#include "bindings/python/objects.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;

py::str path_text(const timing::Path& path) { return from_utf8(path.text); }

py::typing::Tuple<py::str, py::ellipsis> path_names(const timing::Path& path) {
  const std::vector<const timing::Path*> around = timing::lineage(path);
  py::tuple names(around.size());
  for (std::size_t i = 0; i < around.size(); ++i) names[i] = from_utf8(around[i]->name);
  return names;
}

}  // namespace gpuprof::bindings
