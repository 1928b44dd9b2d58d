// Text with some of its parts replaced.
//
// Parts are noted in any order and must not overlap. Not safe to share between threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gpuprof::trace::reading {

class Edits {
 public:
  void replace(std::size_t begin, std::size_t end, std::string text) {
    parts_.push_back({begin, end, std::move(text)});
  }
  void clear() noexcept { parts_.clear(); }

  // Appends `text` with the parts replaced.
  void apply(std::string_view text, std::string& out) {
    std::sort(parts_.begin(), parts_.end(),
              [](const Part& a, const Part& b) { return a.begin < b.begin; });
    std::size_t at = 0;
    for (const Part& part : parts_) {
      out.append(text.substr(at, part.begin - at)).append(part.text);
      at = part.end;
    }
    out.append(text.substr(at));
  }

 private:
  struct Part {
    std::size_t begin;
    std::size_t end;
    std::string text;
  };
  std::vector<Part> parts_;
};

}  // namespace gpuprof::trace::reading
