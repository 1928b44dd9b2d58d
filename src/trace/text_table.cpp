#include "trace/text_table.hpp"

#include <functional>

namespace gpuprof::trace::reading {

TextTable::TextTable(std::size_t most) : most_(most), texts_(1), slots_(1024) {}

std::uint32_t TextTable::number(std::string_view text) {
  text = text.substr(0, kMaxTextBytes);
  const std::size_t hash = std::hash<std::string_view>{}(text);
  std::size_t at = hash & (slots_.size() - 1);
  for (; slots_[at].number != 0; at = (at + 1) & (slots_.size() - 1)) {
    if (slots_[at].hash == hash && texts_[slots_[at].number] == text) return slots_[at].number;
  }
  if (texts_.size() > most_ || bytes_ + text.size() > kMaxBytes) return kOther;
  const auto number = static_cast<std::uint32_t>(texts_.size());
  texts_.emplace_back(text);
  bytes_ += text.size();
  slots_[at] = {hash, number};
  if (texts_.size() * 2 > slots_.size()) grow();
  return number;
}

void TextTable::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.number == 0) continue;
    std::size_t at = slot.hash & (slots_.size() - 1);
    while (slots_[at].number != 0) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = slot;
  }
}

}  // namespace gpuprof::trace::reading
