// The file that a trace is while it is open: `PATH.part`.
//
// It begins as a JSON array, which viewers read even if it ends anywhere. Closing it turns it into
// a JSON object: the first event, which is padded to kHeaderBytes, is overwritten by the object's
// keys. Not thread safe. No function throws; the first failure of the system stays in error().
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace gpuprof::trace {

class PartFile {
 public:
  static constexpr std::size_t kHeaderBytes = 512;

  // Takes over an empty file that is open for writing; `where` names it in messages.
  PartFile(int descriptor, std::string where) noexcept
      : descriptor_(descriptor), where_(std::move(where)) {}
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;
  ~PartFile() { abandon(); }

  // Begins the array with an event, given without its comma.
  void begin(const std::string& first_event);
  void write(std::string_view text) noexcept;
  // Ends the array and makes it an object with these members before the events. `last_event` is
  // without its comma.
  void finish(const std::string& last_event, const std::string& members);
  // Puts the finished file on the disk, which may take long, and closes it.
  void sync() noexcept;
  // Closes the file as it is.
  void abandon() noexcept;
  // Writes nothing any more, for this reason.
  void fail(const char* why) noexcept;

  [[nodiscard]] bool failed() const noexcept { return !error_.empty(); }
  [[nodiscard]] const std::string& error() const noexcept { return error_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  void fail(const char* what, int code) noexcept;

  int descriptor_;
  std::string where_;
  std::string error_;
  std::uint64_t bytes_ = 0;
};

}  // namespace gpuprof::trace
