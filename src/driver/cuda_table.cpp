#include "driver/cuda_table.hpp"

#include <dlfcn.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

#include "driver/cuda_error_log.hpp"
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
  std::string load_failure;  // a permanent one
  std::string init_failure;  // a permanent one
  ErrorKind init_failure_kind = ErrorKind::kUnavailable;
  int version = 0;
  std::unique_ptr<const Error> sticky;
  std::atomic<bool> has_table{false};
};

State& state() { return immortal<State>(); }

}  // namespace

// Fills the table with what the driver has.
struct TableFiller {
  State& s;
  PFN_cuGetProcAddress_v12000 get;
  CUresult failure = CUDA_SUCCESS;  // of a query for an entry point
  const char* failed = "";          // its name

  // Whether the driver has the entry, in this version or in an older one of the same signature.
  template <typename Function>
  bool fill(Entry<Function>& slot, const char* name, int version, int older = 0) {
    void* entry = find(name, version);
    if (entry == nullptr && older != 0) entry = find(name, older);
    slot.function = entry != nullptr ? reinterpret_cast<Function>(entry) : &Missing<Function>::call;
    slot.name = name;
    return entry != nullptr;
  }

  // Null where the driver has no such entry. It refuses versions above its own as bad arguments.
  void* find(const char* name, int version) {
    if (version > s.version) return nullptr;
    void* entry = nullptr;
    CUdriverProcAddressQueryResult found{};
    const CUresult status = get(name, &entry, version, CU_GET_PROC_ADDRESS_DEFAULT, &found);
    if (status == CUDA_SUCCESS && found == CU_GET_PROC_ADDRESS_SUCCESS) return entry;
    if (status != CUDA_SUCCESS && status != CUDA_ERROR_NOT_FOUND) {
      failure = status;
      failed = name;
    }
    return nullptr;
  }

  void fill_all() {
    s.version = kOldestDriver;  // until it is known
    fill(s.table.cuDriverGetVersion, "cuDriverGetVersion", 2020);
    int version = 0;
    if (s.table.cuDriverGetVersion(&version) == CUDA_SUCCESS) s.version = version;
    s.missing.clear();
    const auto need = [&](bool found, const char* name) {
      if (!found) s.missing.emplace_back(name);
    };
#define GPUPROF_X(name, version) need(fill(s.table.name, #name, version), #name);
#define GPUPROF_F(name, version, older) need(fill(s.table.name, #name, version, older), #name);
#define GPUPROF_S(name, version, older)                                 \
  {                                                                     \
    const bool has_older = fill(s.table.name##_v##older, #name, older); \
    need(fill(s.table.name, #name, version) || has_older, #name);       \
  }
    GPUPROF_DRIVER_ENTRY_POINTS(GPUPROF_X, GPUPROF_F, GPUPROF_S)
    GPUPROF_EVENT_ENTRY_POINTS(GPUPROF_X, GPUPROF_F)
#undef GPUPROF_X
#undef GPUPROF_F
#undef GPUPROF_S
#define GPUPROF_X(name, version) fill(s.table.name, #name, version);
    GPUPROF_OPTIONAL_ENTRY_POINTS(GPUPROF_X)
#undef GPUPROF_X
  }
};

namespace {

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string name_in(const Table& table, CUresult status) {
  const char* text = nullptr;
  const bool known = table.cuGetErrorName(status, &text) == CUDA_SUCCESS && text != nullptr;
  return known ? text : "CUDA_ERROR_UNRECOGNISED";
}

// With the mutex held. Loads the table, or returns why it cannot.
std::string load(State& s) {
  if (!s.load_failure.empty()) return s.load_failure;
  if (s.opened.handle == nullptr) s.opened = open_library();
  if (s.opened.handle == nullptr) {
    s.load_failure = "the CUDA driver cannot be opened: " + s.opened.reason;
    if (library_choice().override_path.empty()) {
      s.load_failure +=
          ". Install NVIDIA's driver, or give the container its GPUs (docker run --gpus all); "
          "without a GPU there is backend='cpu', in C++ Clock::kCpu";
    }
    return s.load_failure;
  }
  const auto get =
      reinterpret_cast<PFN_cuGetProcAddress_v12000>(dlsym(s.opened.handle, "cuGetProcAddress_v2"));
  if (get == nullptr) {
    return s.load_failure =
               s.opened.path +
               " is too old or no CUDA driver: it has no cuGetProcAddress_v2; gpuprof needs a "
               "driver for CUDA 12.0 or later";
  }
  TableFiller filler{s, get};
  filler.fill_all();
  if (filler.failure != CUDA_SUCCESS) {
    return "cuGetProcAddress of " + s.opened.path + " answered " +
           name_in(s.table, filler.failure) + " (" +
           std::to_string(static_cast<int>(filler.failure)) + ") when it was asked for " +
           filler.failed;
  }
  if (s.version < kOldestDriver) {
    return s.load_failure = s.opened.path + " is too old: it supports CUDA " +
                            version_text(s.version) +
                            "; gpuprof needs a driver for CUDA 12.0 or later";
  }
  s.has_table.store(true, std::memory_order_release);
  return {};
}

// Returns why there is no table; empty where there is one.
std::string ensure_loaded(State& s) {
  if (s.has_table.load(std::memory_order_acquire)) return {};
  library_choice();  // may warn, which takes a ForkMutex of its own
  start_looking();
  const std::lock_guard lock(s.mutex);
  return s.has_table.load(std::memory_order_relaxed) ? std::string() : load(s);
}

// The error as a value, with what the driver's log says of it. Changes nothing, and takes no lock.
Error describe(const State& s, CUresult status, const char* call, const std::string& log) {
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
  const char* text = nullptr;
  const bool known = s.table.cuGetErrorString(status, &text) == CUDA_SUCCESS && text != nullptr;
  std::string detail = known ? text : "";
  if (!log.empty()) {
    detail += detail.empty() ? "" : "; ";
    detail += "the driver's log says: " + log;
  }
  return {static_cast<int>(status), name_in(s.table, status), call, std::move(detail)};
}

// Errors of cuInit that are permanent for the process. Others may pass: a system or service that is
// starting, too little memory.
bool is_permanent(CUresult status) noexcept {
  switch (status) {
    case CUDA_ERROR_NOT_INITIALIZED:
    case CUDA_ERROR_STUB_LIBRARY:
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
      return true;
    default:
      return status == kMissingEntry;
  }
}

std::string init_failure_of(const State& s, CUresult status, const char* call) {
  if (status == CUDA_ERROR_NOT_INITIALIZED) {
    return "cuInit answered CUDA_ERROR_NOT_INITIALIZED (3), as it does in a process forked after "
           "its parent had used CUDA; use the 'spawn' or 'forkserver' start method";
  }
  if (status == CUDA_ERROR_STUB_LIBRARY) {
    return s.opened.path +
           " is the CUDA Toolkit's stub for linking, not a driver; take the toolkit's lib64/stubs "
           "out of LD_LIBRARY_PATH";
  }
  if (status == CUDA_ERROR_NO_DEVICE) {
    return s.opened.path + " finds no device (does CUDA_VISIBLE_DEVICES hide them?)";
  }
  return describe(s, status, call, {}).what();
}

// With the mutex held. Initialises CUDA, or returns why it cannot.
std::string initialise(State& s) {
  const char* call = "cuInit";
  CUresult status = s.table.cuInit(0);
  int count = 0;
  if (status == CUDA_SUCCESS) {
    call = "cuDeviceGetCount";
    status = s.table.cuDeviceGetCount(&count);
  }
  if (status == CUDA_SUCCESS && count == 0) status = CUDA_ERROR_NO_DEVICE;
  if (status != CUDA_SUCCESS) {
    std::string failure = init_failure_of(s, status, call);
    if (is_permanent(status)) s.init_failure = failure;
    if (status == CUDA_ERROR_NOT_INITIALIZED) s.init_failure_kind = ErrorKind::kForked;
    return failure;
  }
  driver_was_initialised();
  ready_table.store(&s.table, std::memory_order_release);
  return {};
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
  const std::string failure = ensure_loaded(s);
  if (!failure.empty()) throw Error(ErrorKind::kUnavailable, failure);
  return s.table;
}

const Table* loaded_or_null() noexcept {
  auto& s = state();
  return s.has_table.load(std::memory_order_acquire) ? &s.table : nullptr;
}

const Table& make_ready() {
  auto& s = state();
  throw_if_blocked();
  start_looking();  // again in a forked child
  if (is_ready()) return s.table;
  loaded();
  std::string failure;
  bool initialised_here = false;
  {
    const std::lock_guard lock(s.mutex);
    if (!is_ready()) {
      failure = s.init_failure.empty() ? initialise(s) : s.init_failure;
      initialised_here = failure.empty();
    }
  }
  if (!failure.empty()) throw Error(s.init_failure_kind, failure);
  if (initialised_here) start_log(s.table);  // takes a ForkMutex of its own
  return s.table;
}

const Table* in_use_or_null() noexcept {
  auto& s = state();
  if (is_blocked()) return nullptr;
  if (is_ready()) return &s.table;
  try {
    if (!s.has_table.load(std::memory_order_acquire) && !library_is_loaded()) return nullptr;
    if (!ensure_loaded(s).empty()) return nullptr;
    CUcontext context = nullptr;
    if (s.table.cuCtxGetCurrent(&context) != CUDA_SUCCESS) return nullptr;
    return &ready();  // CUDA is initialised already, so this starts nothing
  } catch (...) {
    return nullptr;
  }
}

void throw_if_blocked() {
  if (is_blocked()) throw blocked_error();
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
  Error error = describe(state(), status, call, log_since_last_call());
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
