#include "bindings/timing_path.hpp"

#include <vector>

namespace gpuprof::bindings {

namespace py = pybind11;

namespace {

py::str decoded(const std::string& text) {
  PyObject* decoded =
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
  if (decoded == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::str>(decoded);
}

}  // namespace

py::str path_text(const timing::Path& path) { return decoded(path.text); }

py::typing::Tuple<py::str, py::ellipsis> path_names(const timing::Path& path) {
  const std::vector<const timing::Path*> around = timing::lineage(path);
  py::tuple names(around.size());
  for (std::size_t i = 0; i < around.size(); ++i) names[i] = decoded(around[i]->name);
  return names;
}

}  // namespace gpuprof::bindings
