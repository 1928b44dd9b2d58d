// What gpuprof reads of CUPTI's activity records.
//
// A record is a kind, then fields at fixed offsets; later versions of CUPTI add fields behind them.
// The offsets here were compared with the headers of CUDA 12.0, 12.3, 12.6, 12.9, 13.0 and 13.5, in
// which they are the same. No field is read behind the end of the buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace gpuprof::cupti {

// CUPTI's numbers of the kinds of records that are asked for.
inline constexpr int kMemcpyRecord = 1;
inline constexpr int kMemsetRecord = 2;
inline constexpr int kDriverRecord = 4;
inline constexpr int kRuntimeRecord = 5;
inline constexpr int kKernelRecord = 10;  // CONCURRENT_KERNEL
inline constexpr int kPeerCopyRecord = 22;

inline constexpr std::size_t kRecordAlignment = 8;

// How kernels, copies and memsets are told apart in results.
enum class Kind : std::uint8_t { kKernel = 0, kMemcpy = 1, kPeerCopy = 2, kMemset = 3 };

// Work of the GPU. Times are CUPTI's.
struct Activity {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t node_id = 0;  // 0 outside graphs
  std::uint64_t bytes = 0;    // of copies and memsets
  std::uint32_t name = 0;     // set by who keeps names
  std::uint32_t device = 0;
  std::uint32_t stream = 0;
  std::uint32_t correlation = 0;
  std::uint32_t graph_id = 0;  // 0 outside graphs
  Kind kind = Kind::kKernel;
};

// The call that queued such work.
struct Launch {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint32_t name = 0;  // set by who keeps names
  std::uint32_t thread_id = 0;
  std::uint32_t correlation = 0;
};

// How many bytes of a record of this kind are read; 0 for a kind that was not asked for.
std::size_t bytes_read_of(int kind) noexcept;

// The kind of the record; four bytes are read.
int kind_of(const std::uint8_t* record) noexcept;

// The record as an activity: one of kKernelRecord, kMemcpyRecord, kPeerCopyRecord, kMemsetRecord.
Activity activity_of(const std::uint8_t* record) noexcept;

// The kernel's symbol; it belongs to CUPTI. Null where it has none.
const char* kernel_symbol(const std::uint8_t* record) noexcept;

// The name of a copy or a memset, as torch writes it: "Memcpy HtoD (Pinned -> Device)".
std::string work_name(const std::uint8_t* record);

// The record as a launch: one of kRuntimeRecord, kDriverRecord. The function that it names is
// `callback_id`.
Launch launch_of(const std::uint8_t* record, std::uint32_t& callback_id) noexcept;

// The function of CUDA that `callback` names, without its version: cudaLaunchKernel for
// cudaLaunchKernel_ptsz_v7000. Empty for a function that queues neither a kernel nor a graph nor a
// copy nor a memset.
std::string launch_name(const char* callback);

}  // namespace gpuprof::cupti
