#include "driver/cuda_table.hpp"

#include <dlfcn.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

#include "driver/cuda_log.hpp"
#include "driver/library.hpp"

namespace gpuprof::driver {
namespace {

constexpr int kOldestDriver = 12000;

template <typename Function>
struct Missing;

template <typename... Arguments>
struct Missing<CUresult(CUDAAPI*)(Arguments...)> {
  static CUresult CUDAAPI call(Arguments... /*unused*/) { return kMissingEntry; }
};

struct State {
  ForkMutex mutex;
  Table table{};
  OpenedLibrary opened;
  std::vector<std::string> missing;
  std::string load_failure;
  std::string init_failure;
  int version = 0;
  std::unique_ptr<const Error> sticky;
  std::atomic<bool> has_table{false};
  std::atomic<bool> is_ready{false};
};

State& state() {
  static State& storage = *new State;  // never destroyed: read during exit
  return storage;
}

class Resolver {
 public:
  explicit Resolver(void* library)
      : get_(reinterpret_cast<PFN_cuGetProcAddress_v12000>(dlsym(library, "cuGetProcAddress_v2"))) {
  }

  [[nodiscard]] bool usable() const noexcept { return get_ != nullptr; }

  [[nodiscard]] void* find(const char* name, int version) const noexcept {
    void* entry = nullptr;
    CUdriverProcAddressQueryResult found{};
    const CUresult status = get_(name, &entry, version, CU_GET_PROC_ADDRESS_DEFAULT, &found);
    return status == CUDA_SUCCESS && found == CU_GET_PROC_ADDRESS_SUCCESS ? entry : nullptr;
  }

 private:
  PFN_cuGetProcAddress_v12000 get_;
};

template <typename Function>
void fill(Function& slot, void* entry, const char* name, std::vector<std::string>& missing) {
  if (entry != nullptr) {
    slot = reinterpret_cast<Function>(entry);
    return;
  }
  slot = &Missing<Function>::call;
  missing.emplace_back(name);
}

void fill_table(State& s, const Resolver& resolver) {
#define GPUPROF_X(name, version) \
  fill(s.table.name, resolver.find(#name, version), #name, s.missing);
#define GPUPROF_F(name, version, older)                                                           \
  {                                                                                               \
    void* entry = resolver.find(#name, version);                                                  \
    fill(s.table.name, entry != nullptr ? entry : resolver.find(#name, older), #name, s.missing); \
  }
// What the driver lacks is told only where it has neither form.
#define GPUPROF_S(name, version, older)                                          \
  {                                                                              \
    std::vector<std::string> not_told;                                           \
    fill(s.table.name##_v##older, resolver.find(#name, older), #name, not_told); \
    fill(s.table.name, resolver.find(#name, version), #name,                     \
         not_told.empty() ? not_told : s.missing);                               \
  }
  GPUPROF_DRIVER_ENTRY_POINTS(GPUPROF_X, GPUPROF_F, GPUPROF_S)
#undef GPUPROF_X
#undef GPUPROF_F
#undef GPUPROF_S
}

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// With the mutex held. Leaves either a table or a reason, for good.
void load(State& s) {
  s.opened = open_library();
  if (s.opened.handle == nullptr) {
    s.load_failure = "the CUDA driver cannot be opened: " + s.opened.reason;
    return;
  }
  const Resolver resolver(s.opened.handle);
  if (!resolver.usable()) {
    s.load_failure =
        s.opened.path +
        " is too old or no CUDA driver: it has no cuGetProcAddress_v2; gpuprof needs a "
        "driver for CUDA 12.0 or later";
    return;
  }
  fill_table(s, resolver);
  if (s.table.cuDriverGetVersion(&s.version) == CUDA_SUCCESS && s.version < kOldestDriver) {
    s.load_failure = s.opened.path + " is too old: it supports CUDA " + version_text(s.version) +
                     "; gpuprof needs a driver for CUDA 12.0 or later";
    return;
  }
  s.has_table.store(true, std::memory_order_release);
}

bool ensure_loaded(State& s) {
  if (s.has_table.load(std::memory_order_acquire)) return true;
  const std::lock_guard lock(s.mutex);
  if (!s.has_table.load(std::memory_order_relaxed) && s.load_failure.empty()) load(s);
  return s.has_table.load(std::memory_order_relaxed);
}

std::string name_of(CUresult status) {
  if (const Table* table = loaded_or_null(); table != nullptr) {
    const char* text = nullptr;
    if (table->cuGetErrorName(status, &text) == CUDA_SUCCESS && text != nullptr) return text;
  }
  return status == CUDA_ERROR_DEINITIALIZED ? "CUDA_ERROR_DEINITIALIZED"
                                            : "CUDA_ERROR_UNRECOGNISED";
}

std::string description_of(CUresult status) {
  const char* text = nullptr;
  const Table* table = loaded_or_null();
  if (table == nullptr || table->cuGetErrorString(status, &text) != CUDA_SUCCESS) return {};
  return text != nullptr ? text : "";
}

// The error in words and as a value; nothing is remembered, and no lock of ours is taken.
Error describe(const State& s, CUresult status, const char* call) {
  if (status == kMissingEntry) {
    return {static_cast<int>(CUDA_ERROR_NOT_FOUND), "CUDA_ERROR_NOT_FOUND", call,
            "the driver " + s.opened.path + " (CUDA " + version_text(s.version) +
                ") has no such entry point; a newer driver has it"};
  }
  if (status == CUDA_ERROR_DEINITIALIZED) {
    return {ErrorKind::kGone, std::string(call) +
                                  " answered CUDA_ERROR_DEINITIALIZED (4): the CUDA "
                                  "driver has been taken down"};
  }
  std::string detail = description_of(status);
  if (const std::string log = log_since_last_call(); !log.empty()) {
    detail += detail.empty() ? "" : "; ";
    detail += "the driver's log says: " + log;
  }
  return {static_cast<int>(status), name_of(status), call, std::move(detail)};
}

std::string no_device(const State& s) {
  return s.opened.path + " finds no device (does CUDA_VISIBLE_DEVICES hide them?)";
}

// With the mutex held: initialises CUDA, or leaves the reason why not.
void initialise(State& s) {
  const CUresult status = s.table.cuInit(0);
  if (status == CUDA_ERROR_NOT_INITIALIZED) {
    s.init_failure =
        "cuInit answered CUDA_ERROR_NOT_INITIALIZED (3), as it does in a process forked after its "
        "parent had used CUDA; use the 'spawn' or 'forkserver' start method";
    return;
  }
  if (status == CUDA_ERROR_STUB_LIBRARY) {
    s.init_failure = s.opened.path +
                     " is the CUDA Toolkit's stub for linking, not a driver; take the toolkit's "
                     "lib64/stubs out of LD_LIBRARY_PATH";
    return;
  }
  if (status == CUDA_ERROR_NO_DEVICE) {
    s.init_failure = no_device(s);
    return;
  }
  if (status != CUDA_SUCCESS) {
    s.init_failure = describe(s, status, "cuInit").what();
    return;
  }
  int count = 0;
  if (const CUresult counted = s.table.cuDeviceGetCount(&count); counted != CUDA_SUCCESS) {
    s.init_failure = describe(s, counted, "cuDeviceGetCount").what();
    return;
  }
  if (count == 0) {
    s.init_failure = no_device(s);
    return;
  }
  driver_was_initialised();
  start_log(s.table);
  s.is_ready.store(true, std::memory_order_release);
}

bool is_sticky(CUresult status) noexcept {
  switch (status) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
      return true;
    default:
      return false;
  }
}

void remember_sticky(const Error& error) {
  auto& s = state();
  const std::lock_guard lock(s.mutex);
  if (s.sticky) return;
  s.sticky = std::make_unique<const Error>(error);
  blocked.fetch_or(kSticky);
}

}  // namespace

const Table& loaded() {
  auto& s = state();
  if (!ensure_loaded(s)) throw Error(ErrorKind::kUnavailable, s.load_failure);
  return s.table;
}

const Table* loaded_or_null() noexcept {
  auto& s = state();
  return s.has_table.load(std::memory_order_acquire) ? &s.table : nullptr;
}

const Table& ready() {
  auto& s = state();
  if (blocked.load(std::memory_order_relaxed) != 0) throw_if_blocked();
  if (s.is_ready.load(std::memory_order_acquire)) return s.table;
  loaded();
  {
    const std::lock_guard lock(s.mutex);
    if (!s.is_ready.load(std::memory_order_relaxed) && s.init_failure.empty()) initialise(s);
  }
  if (!s.init_failure.empty()) throw Error(ErrorKind::kUnavailable, s.init_failure);
  return s.table;
}

const Table* in_use_or_null() noexcept {
  auto& s = state();
  if (blocked.load(std::memory_order_relaxed) != 0) return nullptr;
  if (s.is_ready.load(std::memory_order_acquire)) return &s.table;
  try {
    if (!s.has_table.load(std::memory_order_acquire) && !library_is_loaded()) return nullptr;
    if (!ensure_loaded(s)) return nullptr;
    CUcontext context = nullptr;
    if (s.table.cuCtxGetCurrent(&context) != CUDA_SUCCESS) return nullptr;
    return &ready();  // CUDA is initialised already, so this starts nothing
  } catch (...) {
    return nullptr;
  }
}

void throw_if_blocked() {
  if (blocked.load(std::memory_order_relaxed) != 0) throw blocked_error();
}

Error blocked_error() {
  const std::uint32_t bits = blocked.load(std::memory_order_relaxed);
  if ((bits & kForked) != 0) {
    return {ErrorKind::kForked,
            "this process was forked after its parent had used CUDA, and the parent's CUDA objects "
            "cannot be used here; use the 'spawn' or 'forkserver' start method"};
  }
  if ((bits & kSticky) != 0) {
    auto& s = state();
    const std::lock_guard lock(s.mutex);
    return *s.sticky;
  }
  return {ErrorKind::kGone, "the CUDA driver has been taken down because the process is exiting"};
}

Error error_of(CUresult status, const char* call) {
  Error error = describe(state(), status, call);
  if (status == CUDA_ERROR_DEINITIALIZED) blocked.fetch_or(kExiting);
  if (is_sticky(status)) remember_sticky(error);
  return error;
}

DriverInfo driver_info() {
  auto& s = state();
  DriverInfo info;
  info.tried = library_choice().candidates;
  info.override_path = library_choice().override_path;
  try {
    ready();
    info.available = true;
  } catch (const Error& error) {
    info.reason = error.what();
  }
  const std::lock_guard lock(s.mutex);
  info.path = s.opened.path;
  info.missing = s.missing;
  info.version = s.version;
  return info;
}

}  // namespace gpuprof::driver
