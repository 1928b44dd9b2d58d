#include "cupti/library.hpp"

#include <dlfcn.h>
#ifdef __linux__
#include <link.h>
#endif

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

#include "driver/devices.hpp"
#include "driver/environment.hpp"
#include "driver/process.hpp"

namespace gpuprof::cupti {
namespace {

using driver::Error;
using driver::ErrorKind;

// The versions whose records records.hpp knows. CUPTI counted 1, 2, 3 up to CUDA 12.9, then as CUDA
// does: 13.0 is 130000.
constexpr std::uint32_t kOldest = 18;
constexpr std::uint32_t kFirstUnknown = 140000;
constexpr std::uint32_t kFirstOfThirteen = 130000;

struct Opened {
  std::mutex mutex;
  Library cupti;
  std::atomic<const Library*> ready{nullptr};
};

Opened& opened() { return driver::immortal<Opened>(); }

std::string version_words(std::uint32_t version) {
  if (version >= kFirstOfThirteen) {
    return std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100) +
           " (version " + std::to_string(version) + ")";
  }
  return "version " + std::to_string(version);
}

constexpr const char* kNeeds = "gpuprof needs CUPTI of CUDA 12.0 (version 18) or later";

#ifdef __linux__
int note_if_cupti(dl_phdr_info* info, std::size_t /*size*/, void* found) {
  const std::string path = info->dlpi_name != nullptr ? info->dlpi_name : "";
  const std::size_t slash = path.rfind('/');
  const std::size_t name = slash == std::string::npos ? 0 : slash + 1;
  // A wheel that carries it inside may have put a hash into its name.
  if (path.compare(name, 8, "libcupti") == 0 && path.find(".so", name) != std::string::npos) {
    static_cast<std::vector<std::string>*>(found)->push_back(path);
  }
  return 0;
}
#endif

// The path of a CUPTI that is in the process, else empty. Of several, one of `candidates`.
std::string path_in_process(const std::vector<std::string>& candidates) {
  std::vector<std::string> found;
#ifdef __linux__
  dl_iterate_phdr(&note_if_cupti, &found);
#endif
  for (const std::string& path : found) {
    if (std::find(candidates.begin(), candidates.end(), path) != candidates.end()) return path;
  }
  return found.empty() ? std::string() : found.front();
}

std::vector<std::string> toolkit_folders() {
  std::vector<std::string> roots;
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* value = driver::secure_environment(name); value != nullptr && *value == '/') {
      roots.emplace_back(value);
    }
  }
  if (roots.empty()) roots.emplace_back("/usr/local/cuda");
  roots.erase(std::unique(roots.begin(), roots.end()), roots.end());
#ifdef __aarch64__
  constexpr const char* kTarget = "/targets/sbsa-linux/lib";
#else
  constexpr const char* kTarget = "/targets/x86_64-linux/lib";
#endif
  std::vector<std::string> folders;
  for (const std::string& root : roots) {
    for (const char* part : {"/extras/CUPTI/lib64", kTarget, "/lib64"}) {
      folders.push_back(root + part);
    }
  }
  return folders;
}

// The name of a function that is missing and must be there, else null.
const char* fill(void* handle, Table& table) {
#define GPUPROF_OPTIONAL(name) \
  table.name = reinterpret_cast<decltype(table.name)>(dlsym(handle, #name));
#define GPUPROF_NEEDED(name) \
  GPUPROF_OPTIONAL(name)     \
  if (table.name == nullptr) return #name;
  GPUPROF_NEEDED(cuptiGetVersion)
  GPUPROF_NEEDED(cuptiGetResultString)
  GPUPROF_NEEDED(cuptiGetTimestamp)
  GPUPROF_NEEDED(cuptiGetCallbackName)
  GPUPROF_NEEDED(cuptiGetThreadIdType)
  GPUPROF_NEEDED(cuptiSetThreadIdType)
  GPUPROF_NEEDED(cuptiActivityEnable)
  GPUPROF_NEEDED(cuptiActivityDisable)
  GPUPROF_NEEDED(cuptiActivityRegisterCallbacks)
  GPUPROF_NEEDED(cuptiActivityFlushAll)
  GPUPROF_NEEDED(cuptiActivityGetNextRecord)
  GPUPROF_NEEDED(cuptiActivityGetNumDroppedRecords)
  GPUPROF_NEEDED(cuptiGetGraphNodeId)  // graphs ask it for the nodes' numbers
  GPUPROF_OPTIONAL(cuptiActivityGetEnabledKinds)
  GPUPROF_OPTIONAL(cuptiActivityGetStructSize)
#undef GPUPROF_NEEDED
#undef GPUPROF_OPTIONAL
  return nullptr;
}

std::string name_of_result(const Table& table, Result result) {
  const char* text = nullptr;
  const bool known = table.cuptiGetResultString(result, &text) == kSuccess && text != nullptr;
  return (known ? std::string(text) : "CUPTI's error") + " (" + std::to_string(result) + ")";
}

// Why the library that `handle` opened cannot be used; empty where it can, with `library` filled.
std::string refusal_of(void* handle, const std::string& path, Library& library) {
  Table table{};
  std::uint32_t version = 0;
  const char* missing = fill(handle, table);
  if (table.cuptiGetVersion == nullptr) return path + " is no CUPTI: it has no cuptiGetVersion";
  const Result result = table.cuptiGetVersion(&version);
  if (result != kSuccess) {
    const std::string name =
        table.cuptiGetResultString != nullptr ? name_of_result(table, result) : "an error";
    return path + " cannot be used: cuptiGetVersion answered " + name +
           ", as it does without a CUDA driver that fits";
  }
  if (version < kOldest) {
    return path + " is too old: " + version_words(version) + "; " + kNeeds;
  }
  if (version >= kFirstUnknown) {
    return path + " is too new: it is CUPTI " + version_words(version) +
           ", whose records this gpuprof does not know; it knows those of CUDA 12.0 to 13.x. "
           "Update gpuprof, or install an earlier nvidia-cuda-cupti";
  }
  if (missing != nullptr) {
    return path + " is too old: " + version_words(version) + " has no " + missing + "; " + kNeeds;
  }
  const int driver = driver::driver_version();
  if (version >= kFirstOfThirteen && driver != 0 && driver < 13000) {
    return path + " needs a driver for CUDA 13, and this one supports CUDA " +
           std::to_string(driver / 1000) + "." + std::to_string(driver % 1000 / 10) +
           "; pip install nvidia-cuda-cupti-cu12";
  }
  library.table = table;
  library.version = version;
  library.path = path;
  return {};
}

std::string joined(const std::vector<std::string>& texts, const char* between) {
  std::string all;
  for (const std::string& text : texts) {
    if (!all.empty()) all += between;
    all += text;
  }
  return all;
}

// Tries one path. True if `library` is filled; else the reason, if the file is there, is noted.
bool try_path(const std::string& path, Library& library, std::vector<std::string>& reasons) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* said = dlerror();
    const std::string words = said != nullptr ? said : path + ": cannot be opened";
    const bool absent = words.find("No such file") != std::string::npos ||
                        words.find("no such file") != std::string::npos;
    if (!absent) reasons.push_back(words);
    return false;
  }
  std::string why = refusal_of(handle, path, library);
  if (why.empty()) {
    dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    return true;
  }
  reasons.push_back(std::move(why));
  dlclose(handle);
  return false;
}

// With the mutex held.
void open_one(const std::vector<std::string>& candidates, Library& library) {
  std::vector<std::string> reasons;
  if (const std::string inside = path_in_process(candidates); !inside.empty()) {
    if (try_path(inside, library, reasons)) return;
    throw Error(
        ErrorKind::kUnavailable,
        "the CUPTI that is loaded in this process cannot be used: " + joined(reasons, "; "));
  }
  std::vector<std::string> tried;
  for (const std::string& path : candidates) {
    if (path.empty()) continue;
    if (try_path(path, library, reasons)) return;
    tried.push_back(path);
  }
  constexpr const char* kNames[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so"};
  for (const std::string& folder : toolkit_folders()) {
    for (const char* name : kNames) {
      if (try_path(folder + "/" + name, library, reasons)) return;
    }
    tried.push_back(folder);
  }
  for (const char* name : kNames) {
    if (try_path(name, library, reasons)) return;
    tried.emplace_back(name);
  }
  const std::string unusable = reasons.empty() ? "" : joined(reasons, "; ") + ". ";
  throw Error(ErrorKind::kUnavailable,
              "kernels cannot be collected without CUPTI. " + unusable +
                  "pip install nvidia-cuda-cupti (beside a driver for CUDA 12: "
                  "nvidia-cuda-cupti-cu12), or install the CUDA toolkit. Tried: " +
                  joined(tried, ", "));
}

}  // namespace

const Library& load(const std::vector<std::string>& candidates) {
  Opened& state = opened();
  if (const Library* ready = loaded_or_null(); ready != nullptr) return *ready;
  const std::lock_guard lock(state.mutex);
  if (state.ready.load(std::memory_order_relaxed) == nullptr) {
    open_one(candidates, state.cupti);
    state.ready.store(&state.cupti, std::memory_order_release);
  }
  return state.cupti;
}

const Library* loaded_or_null() noexcept { return opened().ready.load(std::memory_order_acquire); }

Error error_of(const Library& library, Result result, const char* call) {
  std::string text = std::string(call) + " of " + library.path +
                     " failed: " + name_of_result(library.table, result);
  switch (result) {
    case kHeldByAnother:
      text +=
          ". Another tool holds CUPTI: Nsight Systems, Nsight Compute, cuda-gdb, "
          "compute-sanitizer, or a profiler in this process. Use that tool's own kernel times, or "
          "run without it";
      break;
    case kInsufficientPrivileges:
    case kVirtualPrivileges:
      text +=
          ". This user may not profile the GPU: ask the administrator to load the driver with "
          "NVreg_RestrictProfilingToAdminUsers=0, or run with CAP_SYS_ADMIN "
          "(https://developer.nvidia.com/ERR_NVGPUCTRPERM)";
      break;
    case kNotInitialised:
    case kUnknown:
      text +=
          ". CUPTI does not start: there is no GPU, the driver is older than this CUPTI, or "
          "another tool holds it";
      break;
    default:
      break;
  }
  return {ErrorKind::kUnavailable, text};
}

}  // namespace gpuprof::cupti
