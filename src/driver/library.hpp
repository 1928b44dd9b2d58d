// Which shared library is the CUDA driver, and opening it.
//
// Nothing is linked: the library is opened by name at run time, on first use, and never closed.
// GPUPROF_CUDA_DRIVER names another one; because that runs code, it is obeyed only as an absolute
// path to a regular file that nobody but root and the user can write.
#pragma once

#include <string>
#include <vector>

namespace gpuprof::driver {

struct LibraryChoice {
  std::vector<std::string> candidates;  // tried in order
  std::string override_path;            // from GPUPROF_CUDA_DRIVER, empty if unset or refused
};

// The choice, made once: the environment is read at the first call. Any thread.
const LibraryChoice& library_choice();

struct OpenedLibrary {
  void* handle = nullptr;  // null if none of the candidates could be opened
  std::string path;        // the candidate that was opened
  std::string reason;      // the loader's words for each one that was not
};

OpenedLibrary open_library();

// Whether one of the candidates is already part of this process, without loading anything.
bool library_is_loaded() noexcept;

}  // namespace gpuprof::driver
