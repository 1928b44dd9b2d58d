// What an array of any library is: where it is, and how it is laid out.
//
// Read by DLPack's C exchange API where the array's type has it (80 ns for a tensor of torch's),
// else from `__cuda_array_interface__`. Both name the memory as it is: that a tensor stands for the
// negative or the conjugate of it, they do not tell. All functions need the interpreter lock and
// run Python code, so none may be noexcept.
#pragma once

#include <Python.h>
#include <pybind11/pybind11.h>

#include <array>
#include <cstdint>
#include <vector>

#include "bindings/interop/dlpack.hpp"

namespace gpuprof::bindings {

inline constexpr int kMaxRank = 64;

// Sizes and strides in elements. They may be the array's own memory: good until it is changed.
struct ArrayDesc {
  std::uintptr_t address = 0;  // of the first element; 0 if there is none
  DlDevice device{kDlpackCuda, 0};
  DlDataType dtype{0, 0, 1};
  int rank = 0;
  const std::int64_t* shape = nullptr;
  const std::int64_t* strides = nullptr;
  std::array<std::int64_t, 2 * kMaxRank> storage;  // NOLINT: written only where it is used
};

// What `_core._array_facts` has told of an array.
struct ArrayFacts {
  std::uintptr_t address = 0;
  DlDevice device{kDlpackCuda, 0};
  DlDataType dtype{0, 0, 1};
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
};
// Throws py::value_error and py::cast_error for anything else.
ArrayFacts array_facts(pybind11::handle described);

// False if the object is no array in memory: no such protocol, or one that refuses, as for sparse
// tensors. No Python exception is left set, other than an interrupt, which is thrown.
bool read_array(PyObject* object, ArrayDesc& desc);

// The table of the object's type, or null. Types that were asked about are kept.
const DlExchangeApi* exchange_api(PyTypeObject* type);

}  // namespace gpuprof::bindings
