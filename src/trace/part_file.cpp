#include "trace/part_file.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace gpuprof::trace {

PartFile::PartFile(int descriptor, std::string where) noexcept
    : descriptor_(descriptor), where_(std::move(where)) {
  struct stat now{};
  if (::fstat(descriptor_, &now) != 0) return;
  device_ = now.st_dev;
  inode_ = now.st_ino;
}

bool PartFile::is_ours() const noexcept {
  struct stat now{};
  return ::fstat(descriptor_, &now) == 0 && now.st_dev == device_ && now.st_ino == inode_;
}

bool PartFile::check_ours() noexcept {
  if (!failed() && !is_ours()) fail("the program closed its file descriptor");
  return !failed();
}

void PartFile::begin(const std::string& first_event) {
  std::string header = "[" + first_event;
  if (header.size() + 2 > kHeaderBytes) header = R"([{"ph":"M","name":"gpuprof","pid":1})";
  header.resize(kHeaderBytes - 2, ' ');
  write(header + ",\n");
}

void PartFile::write(std::string_view text) noexcept {
  while (!text.empty() && check_ours()) {
    const ssize_t written = ::write(descriptor_, text.data(), text.size());
    if (written < 0) {
      if (errno != EINTR) fail(std::strerror(errno));
      continue;
    }
    bytes_ += static_cast<std::uint64_t>(written);
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

// Between the two writes the file is an array with a stray brace after it, which loads; an object
// without its end would not.
void PartFile::finish(const std::string& last_event, const std::string& members) {
  write(last_event + "\n]}\n");
  std::string header = "{" + members + ",\"traceEvents\":[";
  header.resize(kHeaderBytes - 1, ' ');
  header += '\n';
  if (!check_ours()) return;
  const ssize_t written = ::pwrite(descriptor_, header.data(), header.size(), 0);
  if (written != static_cast<ssize_t>(header.size()))
    fail(std::strerror(written < 0 ? errno : ENOSPC));
}

void PartFile::sync() noexcept {
  if (check_ours() && ::fsync(descriptor_) != 0 && errno != EINVAL)
    fail(std::strerror(errno), "sync");
}

void PartFile::abandon() noexcept {
  if (is_ours()) ::close(descriptor_);
}

void PartFile::fail(const char* why, const char* what) noexcept {
  if (failed()) return;
  try {
    error_ = std::string("cannot ") + what + " " + where_ + ": " + why;
  } catch (...) {  // out of memory
    error_ = "failed";
  }
}

}  // namespace gpuprof::trace
