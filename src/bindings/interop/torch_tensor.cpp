#include "bindings/interop/torch_tensor.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace gpuprof::bindings {

namespace {

// Where the at::Tensor may be in the Python object: up to torch 2.12 a flag comes before it.
constexpr std::size_t kObjectSlots[] = {sizeof(PyObject), sizeof(PyObject) + sizeof(void*)};

// Each returns 0, or an error that torch has logged.
template <typename Value>
using Ask = std::int32_t (*)(void* tensor, Value* out);

struct TorchLibrary {
  Ask<void*> data = nullptr;
  Ask<std::int64_t> rank = nullptr;
  Ask<std::int64_t*> sizes = nullptr;
  Ask<std::int64_t*> strides = nullptr;
  Ask<std::int32_t> dtype = nullptr;

  [[nodiscard]] bool is_whole() const {
    return data != nullptr && rank != nullptr && sizes != nullptr && strides != nullptr &&
           dtype != nullptr;
  }
};

TorchLibrary find_library() {
  TorchLibrary found;
  void* library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);  // kept
  if (library == nullptr) return found;
  const auto load = [library](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
  };
  load(found.data, "aoti_torch_get_data_ptr");
  load(found.rank, "aoti_torch_get_dim");
  load(found.sizes, "aoti_torch_get_sizes");
  load(found.strides, "aoti_torch_get_strides");
  load(found.dtype, "aoti_torch_get_dtype");
  return found;
}

// Asked for with a tensor at hand, so torch is loaded.
const TorchLibrary& library() {
  static const TorchLibrary found = find_library();
  return found;
}

bool is_torch_type(PyTypeObject* type) {
  while (type != nullptr && std::strcmp(type->tp_name, "torch._C.TensorBase") != 0) {
    type = type->tp_base;
  }
  return type != nullptr &&
         type->tp_basicsize >= static_cast<Py_ssize_t>(kObjectSlots[1] + sizeof(void*));
}

// A tensor of up to five dimensions has its sizes inside, at most this far from its beginning.
constexpr std::uintptr_t kTensorBytes = 256;

}  // namespace

TorchTensorView::TorchTensorView(PyObject* tensor, const ArrayDesc& known) {
  if (!is_torch_type(Py_TYPE(tensor)) || !library().is_whole()) return;
  const auto sizes = reinterpret_cast<std::uintptr_t>(known.shape);
  for (const std::size_t slot : kObjectSlots) {
    // An at::Tensor is a pointer at what has the sizes inside.
    void* candidate = reinterpret_cast<char*>(tensor) + slot;
    const auto inside = reinterpret_cast<std::uintptr_t>(*static_cast<void**>(candidate));
    if (inside == 0 || sizes <= inside || sizes - inside >= kTensorBytes) continue;
    if (library().dtype(candidate, &dtype_) != 0) continue;
    tensor_ = candidate;
    if (is_at(known.address, known.rank, known.shape, known.strides)) return;
    tensor_ = nullptr;
  }
}

bool TorchTensorView::is_at(std::uintptr_t address, int rank, const std::int64_t* sizes,
                            const std::int64_t* strides) const {
  const TorchLibrary& torch = library();
  void* data = nullptr;
  std::int32_t dtype = -1;
  std::int64_t dimensions = -1;
  std::int64_t* now = nullptr;
  return torch.data(tensor_, &data) == 0 && reinterpret_cast<std::uintptr_t>(data) == address &&
         torch.dtype(tensor_, &dtype) == 0 && dtype == dtype_ &&
         torch.rank(tensor_, &dimensions) == 0 && dimensions == rank &&
         torch.sizes(tensor_, &now) == 0 && std::equal(sizes, sizes + rank, now) &&
         torch.strides(tensor_, &now) == 0 && std::equal(strides, strides + rank, now);
}

}  // namespace gpuprof::bindings
