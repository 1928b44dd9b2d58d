// Number formats of device scalars, and Python numbers as their bits. Needs the interpreter lock.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "bindings/interop/dlpack.hpp"

namespace gpuprof::bindings {

struct ScalarFormat {
  const char* name;  // NumPy's, or "bfloat16"
  DlCode kind;
  char code;  // the array interface's letter; 0: it has none
  std::uint8_t bytes;

  [[nodiscard]] bool is_float() const noexcept {
    return kind == DlCode::kFloat || kind == DlCode::kBfloat;
  }
};

// The format with this name. Throws py::value_error that lists the names.
const ScalarFormat& scalar_format(std::string_view name);

// The bits of `value` in `format`, in the low bytes. Takes what has __index__ or __float__, NumPy's
// scalars among them. An integer format needs an integer in its range. A floating-point format
// rounds to nearest, ties to even; what is beyond its range becomes infinity, as in NumPy. Throws
// py::type_error, py::value_error, or what the object's own conversion raised.
std::uint64_t scalar_bits(PyObject* value, const ScalarFormat& format);

// A Python bool, int or float. Higher bits are ignored.
pybind11::object scalar_value(const ScalarFormat& format, std::uint64_t bits);

}  // namespace gpuprof::bindings
