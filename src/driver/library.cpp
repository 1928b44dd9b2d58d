#include "driver/library.hpp"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __linux__
#include <link.h>
#endif

#include <algorithm>
#include <atomic>
#include <string_view>

#include "driver/environment.hpp"
#include "driver/error.hpp"

namespace gpuprof::driver {
namespace {

// Empty if `path` may be opened as the driver, else why not.
std::string_view refusal(const std::string& path) {
  if (path.front() != '/') return "it is not an absolute path";
  struct stat info{};
  if (stat(path.c_str(), &info) != 0) return "there is no such file";
  if (!S_ISREG(info.st_mode)) return "it is not a regular file";
  if (info.st_uid != 0 && info.st_uid != geteuid()) return "it belongs to another user";
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) return "others than its owner can write it";
  return {};
}

LibraryChoice choose() {
  LibraryChoice choice;
  if (const char* path = secure_environment("GPUPROF_CUDA_DRIVER"); path != nullptr && *path) {
    const std::string_view why = refusal(path);
    if (why.empty()) {
      choice.override_path = path;
      choice.candidates = {path};
      return choice;
    }
    warn_once(Warning::kDriverOverride,
              std::string("GPUPROF_CUDA_DRIVER=") + path + " is ignored: " + std::string(why) +
                  "; give an absolute path to a regular file that only you or root can write");
  }
  choice.candidates = {"libcuda.so.1", "libcuda.so"};
#ifdef __linux__
  choice.candidates.emplace_back("/usr/lib/wsl/lib/libcuda.so.1");
#endif
  return choice;
}

// How many libraries the process has loaded; 0 where that is not known.
unsigned long long count_loads() noexcept {
  unsigned long long loads = 0;
#ifdef __linux__
  const auto read = [](dl_phdr_info* info, std::size_t /*size*/, void* found) {
    *static_cast<unsigned long long*>(found) = info->dlpi_adds;
    return 1;
  };
  dl_iterate_phdr(read, &loads);
#endif
  return loads;
}

}  // namespace

const LibraryChoice& library_choice() {
  static const LibraryChoice& choice = *new LibraryChoice(choose());
  return choice;
}

OpenedLibrary open_library() {
  OpenedLibrary opened;
  std::string absent;
  const LibraryChoice& choice = library_choice();
  for (const auto& path : choice.candidates) {
    // The file may be another one than when it was chosen.
    if (path == choice.override_path) {
      if (const std::string_view why = refusal(path); !why.empty()) {
        opened.reason = path + ": " + std::string(why);
        return opened;
      }
    }
    opened.handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (opened.handle != nullptr) {
      opened.path = path;
      return opened;
    }
    const char* said = dlerror();
    const std::string words = said != nullptr ? said : path + ": cannot be opened";
    const bool is_absent = words.rfind(path + ":", 0) == 0 &&
                           words.find("No such file or directory") != std::string::npos;
    std::string& list = is_absent ? absent : opened.reason;
    if (!list.empty()) list += is_absent ? ", " : "; ";
    list += is_absent ? path : words;
  }
  if (!absent.empty()) {
    opened.reason += (opened.reason.empty() ? "No such file: " : "; No such file: ") + absent;
  }
  return opened;
}

bool library_is_loaded() noexcept {
  // Scopes ask often, and to look for a library that is nowhere takes some 100 us.
  static std::atomic<unsigned long long> not_loaded_at{0};
  const unsigned long long loads = count_loads();
  if (loads != 0 && loads == not_loaded_at.load(std::memory_order_relaxed)) return false;
  const auto& candidates = library_choice().candidates;
  const bool is_loaded =
      std::any_of(candidates.begin(), candidates.end(), [](const std::string& path) {
        void* handle = dlopen(path.c_str(), RTLD_NOLOAD | RTLD_LAZY);
        if (handle != nullptr) dlclose(handle);
        return handle != nullptr;
      });
  if (!is_loaded) not_loaded_at.store(loads, std::memory_order_relaxed);
  return is_loaded;
}

}  // namespace gpuprof::driver
