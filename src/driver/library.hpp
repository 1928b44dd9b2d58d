// Finds and opens the shared library of the CUDA driver.
//
// It is opened by name on first use and never closed; nothing is linked. GPUPROF_CUDA_DRIVER names
// another one. Because that runs code, it must be an absolute path to a regular file that only root
// or the user can write.
#pragma once

#include <string>
#include <vector>

namespace gpuprof::driver {

struct LibraryChoice {
  std::vector<std::string> candidates;  // tried in order
  std::string override_path;            // from GPUPROF_CUDA_DRIVER, empty if unset or refused
};

// Reads the environment at the first call. Any thread.
const LibraryChoice& library_choice();

struct OpenedLibrary {
  void* handle = nullptr;  // null if none of the candidates could be opened
  std::string path;        // the candidate that was opened
  std::string reason;      // the loader's messages for the others
};

OpenedLibrary open_library();

// Whether one of the candidates is loaded in this process. Loads nothing.
bool library_is_loaded() noexcept;

}  // namespace gpuprof::driver
