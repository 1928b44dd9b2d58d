// What is wrong with a trace that is read: where, and what was expected instead.
//
// Offsets are bytes from the beginning of the (uncompressed) file. Immutable, any thread. The
// message holds both places, and no text of the file but single characters.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace gpuprof::trace::reading {

// Stands for "in no event".
inline constexpr std::uint64_t kNoEvent = ~std::uint64_t{0};

class ReadError : public std::runtime_error {
 public:
  ReadError(std::uint64_t offset, const std::string& what, std::uint64_t event = kNoEvent)
      : std::runtime_error((event == kNoEvent ? "" : "event " + std::to_string(event) + ", ") +
                           "byte " + std::to_string(offset) + ": " + what),
        offset_(offset),
        event_(event),
        reason_(what) {}

  [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }
  [[nodiscard]] std::uint64_t event() const noexcept { return event_; }
  // The message without the place.
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }

 private:
  std::uint64_t offset_;
  std::uint64_t event_;
  std::string reason_;
};

}  // namespace gpuprof::trace::reading
