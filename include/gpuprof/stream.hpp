/// @file
/// A CUDA stream, as gpuprof takes one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "gpuprof/version.hpp"

struct CUstream_st;  // what cudaStream_t and CUstream point to

GPUPROF_BEGIN_NAMESPACE

/// A CUDA stream's handle. Does not own the stream; nothing here uses it, so any stream may be
/// named.
///
/// Everything that converts to `cudaStream_t` converts to it: a `cudaStream_t`, a `CUstream`, a
/// `c10::cuda::CUDAStream`, a `rmm::cuda_stream_view`.
class Stream {
 public:
  /// The legacy default stream, which 0 and `<<<grid, block>>>` name.
  constexpr Stream() noexcept = default;
  constexpr Stream(std::nullptr_t) noexcept {}  // NOLINT: as cudaStream_t{} would convert
  template <typename Handle,
            typename = std::enable_if_t<std::is_convertible_v<const Handle&, CUstream_st*> &&
                                        !std::is_same_v<std::decay_t<Handle>, Stream>>>
  Stream(const Handle& stream) : stream_(stream) {}  // NOLINT: converts as the handle does

  /// The default stream of the calling thread, of programs compiled with
  /// `--default-stream per-thread`.
  static Stream per_thread() noexcept { return from_handle(2); }
  /// A stream by its handle as a number, as Python and other languages pass it.
  static Stream from_handle(std::uintptr_t handle) noexcept {
    Stream stream;
    stream.stream_ = reinterpret_cast<CUstream_st*>(handle);
    return stream;
  }

  [[nodiscard]] CUstream_st* get() const noexcept { return stream_; }
  [[nodiscard]] std::uintptr_t handle() const noexcept {
    return reinterpret_cast<std::uintptr_t>(stream_);
  }

  friend bool operator==(Stream a, Stream b) noexcept { return a.stream_ == b.stream_; }
  friend bool operator!=(Stream a, Stream b) noexcept { return a.stream_ != b.stream_; }

 private:
  CUstream_st* stream_ = nullptr;
};

GPUPROF_END_NAMESPACE
