// Reading a torch tensor without counting a reference: 15 ns instead of DLPack's 55.
//
// Torch's stable C interface for compiled models tells of a C++ tensor by its address. That lies in
// the Python object, right behind its head, which is checked for each tensor before it is used.
// Without the libraries, or with another layout, there is no such view. All functions need the
// interpreter lock; none runs Python code.
#pragma once

#include <Python.h>

#include <cstdint>

#include "bindings/interop/array_desc.hpp"

namespace gpuprof::bindings {

// Good for as long as the Python object lives.
class TorchTensorView {
 public:
  TorchTensorView() = default;
  // `known` is what read_array() tells of the object now. There is no view where torch's own
  // answers differ.
  TorchTensorView(PyObject* tensor, const ArrayDesc& known);

  [[nodiscard]] bool exists() const noexcept { return tensor_ != nullptr; }
  // Whether the tensor still has this address, this rank, these sizes and strides, and the type of
  // elements that it had when the view was made. Memory of another device has another address.
  [[nodiscard]] bool is_at(std::uintptr_t address, int rank, const std::int64_t* sizes,
                           const std::int64_t* strides) const;

 private:
  void* tensor_ = nullptr;   // an at::Tensor of torch's
  std::int32_t dtype_ = -1;  // by torch's number
};

}  // namespace gpuprof::bindings
