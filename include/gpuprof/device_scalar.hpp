/// @file
/// A number in device memory that the host changes between launches of a graph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>

#include "gpuprof/stream.hpp"

namespace gpuprof::graphs {
class DeviceScalar;
}

GPUPROF_BEGIN_NAMESPACE

namespace detail {

struct ScalarAccess;

/// The bits of a DeviceScalar, whatever its type.
class ScalarMemory {
 public:
  ScalarMemory(std::size_t bytes, std::uint64_t bits, Stream stream);
  ScalarMemory(const ScalarMemory&) = default;  // which a move is too: it is never without memory
  ScalarMemory& operator=(const ScalarMemory&) = default;
  ~ScalarMemory() = default;

  void update(std::uint64_t bits, Stream stream, bool record) const;
  [[nodiscard]] std::uint64_t read(const Stream* stream) const;
  [[nodiscard]] std::uintptr_t address() const;
  [[nodiscard]] int device() const;

 private:
  friend struct ScalarAccess;
  std::shared_ptr<graphs::DeviceScalar> scalar_;
};

}  // namespace detail

/// What DeviceScalar::update() does on a stream that is being captured.
enum class WhileCapturing : std::uint8_t {
  kRefuse,  ///< Error: the write would be repeated at each replay, which is seldom meant
  kRecord,  ///< a node of the graph, which writes this value at each replay
};

/// One value in device memory, changed by calls that carry it themselves.
///
/// A kernel in a graph sees its arguments as they were at the capture. Give it `ptr()` instead, and
/// call `update` between the replays. `update` does not wait and needs no host memory that has to
/// outlive it; what is queued on its stream afterwards sees the new value. So does a launch on
/// another stream, if the graph keeps the scalar (Capture::keep, or a pool), or if the scalar was
/// last updated on the stream of the capture when that ended. Other work on other streams has to be
/// ordered by you.
///
/// The memory, 256-byte aligned, is used for nothing else until the scalar is gone, the graphs that
/// keep it are closed, and the GPU has done what was queued by then. Destruction makes no driver
/// call. Values of 8 bytes are written by cuStreamWriteValue64; where a device has none, two 4-byte
/// writes follow each other in the stream.
///
/// A handle: copies name the same memory. Any thread may call. The stream of the last update must
/// still exist at `get()` and at launches on another stream.
///
/// @tparam T a trivially copyable type of 1, 2, 4 or 8 bytes: a number, `__half`, a small struct
template <typename T>
class DeviceScalar {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>,
                "DeviceScalar<T>: T is copied to the device as bytes; it must be trivially "
                "copyable and not const");
  static_assert(sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8,
                "DeviceScalar<T>: the driver writes 1, 2, 4 or 8 bytes; take a type of that size");

 public:
  /// Takes memory in the context of `stream` and writes the first value there.
  /// @throws Error the stream is being captured, or the driver refused
  GPUPROF_HIDDEN explicit DeviceScalar(const T& value, Stream stream = {})
      : stream_(stream), memory_(sizeof(T), bits_of(value), stream) {}

  /// Writes a value in a stream's order, without waiting.
  /// @param stream without it, the stream that the scalar was made with
  /// @throws Error the stream is being captured and that is to be refused, or is of another context
  GPUPROF_HIDDEN void update(const T& value, Stream stream,
                             WhileCapturing while_capturing = WhileCapturing::kRefuse) {
    memory_.update(bits_of(value), stream, while_capturing == WhileCapturing::kRecord);
  }
  GPUPROF_HIDDEN void update(const T& value,
                             WhileCapturing while_capturing = WhileCapturing::kRefuse) {
    update(value, stream_, while_capturing);
  }

  /// The value after what is queued on the stream of the last update now, or on `stream`. Waits.
  [[nodiscard]] GPUPROF_HIDDEN T get() const { return value_of(memory_.read(nullptr)); }
  [[nodiscard]] GPUPROF_HIDDEN T get(Stream stream) const {
    return value_of(memory_.read(&stream));
  }

  /// The address in device memory, which never changes: for kernels.
  [[nodiscard]] GPUPROF_HIDDEN T* ptr() const { return reinterpret_cast<T*>(memory_.address()); }
  /// The index of the device that it lies on.
  [[nodiscard]] GPUPROF_HIDDEN int device() const { return memory_.device(); }
  /// For Capture::keep and CapturePool::record_buffer.
  [[nodiscard]] const detail::ScalarMemory& memory() const noexcept { return memory_; }

 private:
  static std::uint64_t bits_of(const T& value) noexcept {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    return bits;
  }
  static T value_of(std::uint64_t bits) noexcept {
    union Holder {  // T may have no default constructor
      Holder() noexcept {}
      T value;
    } holder;
    std::memcpy(&holder.value, &bits, sizeof holder.value);
    return holder.value;
  }

  Stream stream_;
  detail::ScalarMemory memory_;
};

GPUPROF_END_NAMESPACE
