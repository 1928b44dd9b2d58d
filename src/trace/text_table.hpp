// Texts, each kept once and known by a number.
//
// Bounded: past the given count, or past kMaxBytes of text together, new texts are all number
// kOther. A text is kept up to kMaxTextBytes; longer ones that begin alike are one. Not safe to
// share between threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gpuprof::trace::reading {

class TextTable {
 public:
  static constexpr std::uint32_t kOther = 0;
  static constexpr std::size_t kMaxTextBytes = 4096;
  static constexpr std::size_t kMaxBytes = std::size_t{32} << 20U;

  explicit TextTable(std::size_t most);

  std::uint32_t number(std::string_view text);

  [[nodiscard]] const std::string& text(std::uint32_t number) const { return texts_[number]; }
  // How many numbers there are, kOther included.
  [[nodiscard]] std::size_t size() const noexcept { return texts_.size(); }

 private:
  struct Slot {
    std::size_t hash = 0;
    std::uint32_t number = 0;  // 0: free
  };
  void grow();

  std::size_t most_;
  std::size_t bytes_ = 0;
  std::vector<std::string> texts_;
  std::vector<Slot> slots_;  // open addressing, a power of two, at most half full
};

}  // namespace gpuprof::trace::reading
