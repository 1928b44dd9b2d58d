// The file of an open trace: `PATH.part`.
//
// It begins as a JSON array, which viewers read even where it is cut off. Finishing turns it into a
// JSON object: the object's keys overwrite the first event, which is padded to kHeaderBytes. The
// descriptor is borrowed and stays open. A program may close descriptors that it does not know, and
// the number may become another file's; so each write first compares device and inode. Not thread
// safe. Never throws; the first failure stays in error().
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace gpuprof::trace {

class PartFile {
 public:
  static constexpr std::size_t kHeaderBytes = 512;

  // An empty file that is open for writing; `where` names it in messages.
  PartFile(int descriptor, std::string where) noexcept;
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;
  ~PartFile() = default;

  // Begins the array with an event, without its comma.
  void begin(const std::string& first_event);
  void write(std::string_view text) noexcept;
  // Ends the array with `last_event` (without a comma) and makes it an object, with `members`
  // before the events.
  void finish(const std::string& last_event, const std::string& members);
  // Syncs the finished file to disk. Slow.
  void sync() noexcept;
  // Closes a forked child's copy of the descriptor, which would keep the parent's lock.
  void abandon() noexcept;
  // Stops writing, for this reason; `what` is what it cannot do.
  void fail(const char* why, const char* what = "write to") noexcept;

  [[nodiscard]] bool failed() const noexcept { return !error_.empty(); }
  [[nodiscard]] const std::string& error() const noexcept { return error_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  [[nodiscard]] bool is_ours() const noexcept;
  bool check_ours() noexcept;

  const int descriptor_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  std::string where_;
  std::string error_;
  std::uint64_t bytes_ = 0;
};

}  // namespace gpuprof::trace
