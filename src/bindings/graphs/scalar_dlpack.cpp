#include "bindings/graphs/scalar_dlpack.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;

namespace {

struct DlManaged {
  static constexpr const char* kName = "dltensor";

  DlTensor tensor;
  void* owner;
  void (*deleter)(DlManaged*);
};

struct DlManagedVersioned {
  static constexpr const char* kName = "dltensor_versioned";

  std::uint32_t major;
  std::uint32_t minor;
  void* owner;
  void (*deleter)(DlManagedVersioned*);
  std::uint64_t flags;  // none: it may be written to, and it is no copy
  DlTensor tensor;
};

DlTensor tensor_of(const DlpackScalar& scalar) noexcept {
  DlTensor tensor{};
  tensor.data = reinterpret_cast<void*>(scalar.address);
  tensor.device = {kDlpackCuda, scalar.ordinal};
  tensor.dtype = {static_cast<std::uint8_t>(scalar.format.kind),
                  static_cast<std::uint8_t>(8 * scalar.format.bytes), 1};
  return tensor;
}

void stamp(DlManaged& /*managed*/) noexcept {}
void stamp(DlManagedVersioned& managed) noexcept { managed.major = 1; }

// The structure that a consumer sees, with what it must keep alive.
template <typename Managed>
struct Exported {
  Managed managed{};
  std::shared_ptr<void> memory;
};

// A consumer renames the capsule; one with its first name was never taken.
template <typename Managed>
void drop_untaken(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, Managed::kName) == 0) return;
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, Managed::kName));
  managed->deleter(managed);
}

template <typename Managed>
py::capsule export_as(const DlpackScalar& scalar) {
  auto exported = std::make_unique<Exported<Managed>>();
  exported->memory = scalar.memory;
  Managed& managed = exported->managed;
  stamp(managed);
  managed.owner = exported.get();
  managed.deleter = [](Managed* done) { delete static_cast<Exported<Managed>*>(done->owner); };
  managed.tensor = tensor_of(scalar);
  PyObject* capsule = PyCapsule_New(&managed, Managed::kName, &drop_untaken<Managed>);
  if (capsule == nullptr) throw py::error_already_set();
  exported.release();  // the capsule's now
  return py::reinterpret_steal<py::capsule>(capsule);
}

}  // namespace

py::capsule dlpack_capsule(const DlpackScalar& scalar, bool versioned) {
  return versioned ? export_as<DlManagedVersioned>(scalar) : export_as<DlManaged>(scalar);
}

}  // namespace gpuprof::bindings
