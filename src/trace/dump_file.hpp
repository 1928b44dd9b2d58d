// A file of its own for each dump: none is ever replaced.
#pragma once

#include <cstdint>
#include <string>

namespace gpuprof::trace {

// The path of a dump is `before`, its number, `after`.
struct DumpName {
  std::string before;
  std::string after;
};

// `PATH.part` for the first PATH that is free, which complete() moves to it. Else it is removed.
// Not thread safe. In a forked child it must not be destroyed.
class DumpFile {
 public:
  // Tries the numbers after `last`, and sets it. Throws std::system_error.
  DumpFile(DumpName name, std::uint64_t& last);
  DumpFile(const DumpFile&) = delete;
  DumpFile& operator=(const DumpFile&) = delete;
  ~DumpFile();

  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] const std::string& part() const noexcept { return part_; }

  // Moves the file to path(), or the next one if somebody has put a file there meanwhile. Throws
  // std::system_error.
  void complete(std::uint64_t& last);

 private:
  [[nodiscard]] std::string numbered(std::uint64_t number) const;

  const DumpName name_;
  std::string path_;
  std::string part_;
  int descriptor_ = -1;
};

}  // namespace gpuprof::trace
