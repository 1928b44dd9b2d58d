#include "cupti/records.hpp"

#include <cstring>
#include <string_view>

namespace gpuprof::cupti {
namespace {

template <typename T>
T field(const std::uint8_t* record, std::size_t offset) noexcept {
  T value;
  std::memcpy(&value, record + offset, sizeof value);
  return value;
}

// Where the fields of GPU work lie.
struct WorkLayout {
  Kind kind;
  std::size_t bytes;  // 0: it has none
  std::size_t begin;
  std::size_t end;
  std::size_t device;
  std::size_t stream;
  std::size_t correlation;
  std::size_t node_id;
  std::size_t graph_id;
  std::size_t size;  // up to here a record is read
};

constexpr WorkLayout kKernelLayout{Kind::kKernel, 0, 16, 24, 40, 48, 92, 144, 156, 160};
constexpr WorkLayout kMemcpyLayout{Kind::kMemcpy, 8, 16, 24, 32, 40, 44, 64, 72, 76};
constexpr WorkLayout kPeerCopyLayout{Kind::kPeerCopy, 8, 16, 24, 32, 40, 60, 72, 80, 84};
constexpr WorkLayout kMemsetLayout{Kind::kMemset, 8, 16, 24, 32, 40, 44, 64, 72, 76};

constexpr std::size_t kKernelSymbol = 104;
constexpr std::size_t kCopyKind = 4;
constexpr std::size_t kSourceKind = 5;
constexpr std::size_t kDestinationKind = 6;
constexpr std::size_t kMemsetMemory = 50;

constexpr std::size_t kCallbackId = 4;
constexpr std::size_t kCallBegin = 8;
constexpr std::size_t kCallEnd = 16;
constexpr std::size_t kCallThread = 28;
constexpr std::size_t kCallCorrelation = 32;
constexpr std::size_t kCallSize = 40;

const WorkLayout* layout_of(int kind) noexcept {
  if (kind == kKernelRecord) return &kKernelLayout;
  if (kind == kMemcpyRecord) return &kMemcpyLayout;
  if (kind == kPeerCopyRecord) return &kPeerCopyLayout;
  return kind == kMemsetRecord ? &kMemsetLayout : nullptr;
}

constexpr const char* kCopyKinds[] = {"<unknown>", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA",
                                      "AtoD",      "DtoA", "DtoD", "HtoH", "PtoP"};
constexpr const char* kMemoryKinds[] = {"Unknown", "Pageable", "Pinned",        "Device",
                                        "Array",   "Managed",  "Device Static", "Managed Static"};

template <std::size_t kCount>
std::string name_of(std::size_t value, const char* const (&names)[kCount]) {
  return names[value < kCount ? value : 0];
}

bool starts_with(std::string_view text, std::string_view start) noexcept {
  return text.substr(0, start.size()) == start;
}

// Takes "_v7000" or one of "_ptsz" and "_ptds", which say whose default stream is meant, off the
// end. False if there is none.
bool take_suffix(std::string_view& name) noexcept {
  const std::size_t at = name.rfind('_');
  if (at == std::string_view::npos || at == 0) return false;
  const std::string_view last = name.substr(at + 1);
  const bool version = last.size() > 1 && last.front() == 'v' &&
                       last.find_first_not_of("0123456789", 1) == std::string_view::npos;
  if (!version && last != "ptsz" && last != "ptds") return false;
  name = name.substr(0, at);
  return true;
}

}  // namespace

int kind_of(const std::uint8_t* record) noexcept { return field<std::int32_t>(record, 0); }

std::size_t bytes_read_of(int kind) noexcept {
  if (kind == kRuntimeRecord || kind == kDriverRecord) return kCallSize;
  const WorkLayout* layout = layout_of(kind);
  return layout != nullptr ? layout->size : 0;
}

Activity activity_of(const std::uint8_t* record) noexcept {
  const WorkLayout& at = *layout_of(kind_of(record));
  Activity read;
  read.kind = at.kind;
  read.begin = field<std::uint64_t>(record, at.begin);
  read.end = field<std::uint64_t>(record, at.end);
  read.device = field<std::uint32_t>(record, at.device);
  read.stream = field<std::uint32_t>(record, at.stream);
  read.correlation = field<std::uint32_t>(record, at.correlation);
  read.node_id = field<std::uint64_t>(record, at.node_id);
  read.graph_id = field<std::uint32_t>(record, at.graph_id);
  if (at.bytes != 0) read.bytes = field<std::uint64_t>(record, at.bytes);
  return read;
}

const char* kernel_symbol(const std::uint8_t* record) noexcept {
  return reinterpret_cast<const char*>(field<std::uintptr_t>(record, kKernelSymbol));
}

std::string work_name(const std::uint8_t* record) {
  const int kind = kind_of(record);
  if (kind == kMemsetRecord) {
    return "Memset (" + name_of(field<std::uint16_t>(record, kMemsetMemory), kMemoryKinds) + ")";
  }
  const auto of_byte = [record](std::size_t offset, const auto& names) {
    return name_of(field<std::uint8_t>(record, offset), names);
  };
  const std::string copy = kind == kPeerCopyRecord ? "PtoP" : of_byte(kCopyKind, kCopyKinds);
  return "Memcpy " + copy + " (" + of_byte(kSourceKind, kMemoryKinds) + " -> " +
         of_byte(kDestinationKind, kMemoryKinds) + ")";
}

Launch launch_of(const std::uint8_t* record, std::uint32_t& callback_id) noexcept {
  callback_id = field<std::uint32_t>(record, kCallbackId);
  Launch read;
  read.begin = field<std::uint64_t>(record, kCallBegin);
  read.end = field<std::uint64_t>(record, kCallEnd);
  read.thread_id = field<std::uint32_t>(record, kCallThread);
  read.correlation = field<std::uint32_t>(record, kCallCorrelation);
  return read;
}

std::string launch_name(const char* callback) {
  if (callback == nullptr) return {};
  std::string_view name = callback;
  while (take_suffix(name)) {
  }
  const std::size_t first = name.find_first_not_of('_');
  if (first == std::string_view::npos) return {};
  name.remove_prefix(first);
  if (!starts_with(name, "cu")) return {};
  const std::string_view act = name.substr(starts_with(name, "cuda") ? 4 : 2);
  const bool queues = (starts_with(act, "Launch") && !starts_with(act, "LaunchHostFunc")) ||
                      starts_with(act, "GraphLaunch") || starts_with(act, "Memcpy") ||
                      starts_with(act, "Memset");
  return queues ? std::string(name) : std::string();
}

}  // namespace gpuprof::cupti
