// DLPack's C ABI, as far as it is used here: the structures, and the table of functions by which an
// array library gives them without a capsule (`__dlpack_c_exchange_api__`, DLPack 1.2 and later).
//
// Plain data. Strides and sizes are in elements, addresses as pointers; `data` is before
// `byte_offset`. The functions of the table need the interpreter lock.
#pragma once

#include <cstdint>

namespace gpuprof::bindings {

// Kinds of memory, by DLPack's numbers.
inline constexpr int kDlpackCuda = 2;
inline constexpr int kDlpackManaged = 13;

// Kinds of elements, by DLPack's numbers.
enum class DlCode : std::uint8_t {
  kSigned = 0,
  kUnsigned = 1,
  kFloat = 2,
  kOpaque = 3,
  kBfloat = 4,
  kComplex = 5,
  kBool = 6,
};

struct DlDevice {
  std::int32_t type;
  std::int32_t id;

  bool operator==(const DlDevice& other) const noexcept {
    return type == other.type && id == other.id;
  }
};

struct DlDataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;

  bool operator==(const DlDataType& other) const noexcept {
    return code == other.code && bits == other.bits && lanes == other.lanes;
  }
};

struct DlTensor {
  void* data;
  DlDevice device;
  std::int32_t ndim;
  DlDataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  // null: dense, the last index fastest
  std::uint64_t byte_offset;
};

// What a capsule points at. Its consumer calls the deleter.
struct DlManaged {
  static constexpr const char* kName = "dltensor";

  DlTensor tensor;
  void* owner;
  void (*deleter)(DlManaged*);
};

// The form for consumers that ask for 1.0 or later.
struct DlManagedVersioned {
  static constexpr const char* kName = "dltensor_versioned";

  std::uint32_t major = 1;
  std::uint32_t minor = 0;
  void* owner;
  void (*deleter)(DlManagedVersioned*);
  std::uint64_t flags;  // none: it may be written to, and it is no copy
  DlTensor tensor;
};

struct DlVersion {
  std::uint32_t major;
  std::uint32_t minor;
};

// What a type's capsule `dlpack_exchange_api` points at. Of a higher major version only the header
// can be read.
struct DlExchangeApi {
  DlVersion version;
  DlExchangeApi* previous;
  void* make_like;
  void* from_object;
  void* to_object;
  // 0, or -1 with a Python exception set. May be null. Names no owner: what it gives is good for as
  // long as the object is not changed.
  int (*look)(void* object, DlTensor* out);
  int (*current_stream)(std::int32_t device_type, std::int32_t device, void** out);
};

}  // namespace gpuprof::bindings
