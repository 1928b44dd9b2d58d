#include "trace/dump_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

namespace gpuprof::trace {
namespace {

constexpr std::uint64_t kMostTries = 100'000;

bool is_there(const std::string& path) noexcept {
  struct stat status{};
  return ::lstat(path.c_str(), &status) == 0;
}

[[noreturn]] void fail_with(int code) { throw std::system_error(code, std::generic_category()); }

}  // namespace

std::string DumpFile::numbered(std::uint64_t number) const {
  return name_.before + std::to_string(number) + name_.after;
}

DumpFile::DumpFile(DumpName name, std::uint64_t& last) : name_(std::move(name)) {
  for (std::uint64_t tries = 0; tries < kMostTries; ++tries) {
    path_ = numbered(++last);
    part_ = path_ + ".part";
    if (is_there(path_)) continue;
    descriptor_ = ::open(part_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (descriptor_ >= 0) {
      ::flock(descriptor_, LOCK_EX | LOCK_NB);  // else others would take it for one left behind
      return;
    }
    if (errno != EEXIST && errno != EINTR) fail_with(errno);
  }
  fail_with(EEXIST);
}

DumpFile::~DumpFile() {
  if (descriptor_ < 0) return;
  ::unlink(part_.c_str());
  ::close(descriptor_);
}

// A link fails where a file is, which a rename would replace. Not all file systems have links.
void DumpFile::complete(std::uint64_t& last) {
  for (std::uint64_t tries = 0; tries < kMostTries; ++tries) {
    if (::link(part_.c_str(), path_.c_str()) == 0) {
      ::unlink(part_.c_str());
      break;
    }
    if (errno != EEXIST && !is_there(path_)) {
      if (::rename(part_.c_str(), path_.c_str()) != 0) fail_with(errno);
      break;
    }
    path_ = numbered(++last);
  }
  ::close(descriptor_);
  descriptor_ = -1;
}

}  // namespace gpuprof::trace
