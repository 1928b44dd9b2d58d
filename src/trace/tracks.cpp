#include "trace/tracks.hpp"

#include <algorithm>
#include <array>

#include "trace/json_value.hpp"

namespace gpuprof::trace::reading {
namespace {

constexpr std::string_view kOwnName = "gpuprof";  // of the metadata that gpuprof adds

std::int64_t count_in(std::string_view args, std::string_view key) {
  constexpr std::int64_t kMost = std::int64_t{1} << 48U;  // so that no sum overflows
  const auto found = member(args, key);
  const auto count = found ? whole_number(found->value) : std::nullopt;
  return count ? std::clamp<std::int64_t>(*count, 0, kMost) : 0;
}

std::string cut(std::string text, std::size_t most) {
  if (text.size() <= most) return text;
  std::size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0U) == 0x80U) --end;
  text.resize(end);
  return text;
}

}  // namespace

bool is_gpu_category(std::string_view category) noexcept {
  constexpr std::array<std::string_view, 5> kCategories{"gpu", "kernel", "gpu_memcpy", "gpu_memset",
                                                        kGpuAnnotation};
  return std::find(kCategories.begin(), kCategories.end(), category) != kCategories.end();
}

Tracks::Tracks() : tracks_(1) {}

std::string Tracks::key_of(std::string_view pid, std::string_view tid) {
  std::string key(pid.substr(0, kMaxNameBytes));
  key += '\0';
  key += tid.substr(0, kMaxNameBytes);
  return key;
}

std::size_t Tracks::number(const TraceEvent& event) {
  const std::string_view pid = event.raw(Field::kPid);
  const std::string_view tid = event.raw(Field::kTid);
  if (last_ != kOther && pid == last_pid_ && tid == last_tid_) return last_;
  const std::string key = key_of(pid, tid);
  const auto found = numbers_.find(key);
  if (found == numbers_.end() && tracks_.size() > kMaxTracks) return kOther;
  last_pid_ = pid;
  last_tid_ = tid;
  if (found != numbers_.end()) return last_ = found->second;
  last_ = tracks_.size();
  numbers_.emplace(key, last_);
  tracks_.push_back(
      {std::string(pid.substr(0, kMaxNameBytes)), std::string(tid.substr(0, kMaxNameBytes))});
  return last_;
}

void Tracks::metadata(const TraceEvent& event) {
  const std::string name = event.string(Field::kName);
  const std::string_view args = event.raw(Field::kArgs);
  const std::string pid(event.raw(Field::kPid));
  if (name == kOwnName) {
    dropped_ += count_in(args, "dropped");
    unplaced_ += count_in(args, "unplaced");
    return;
  }
  const bool process = name == "process_name";
  if (!process && name != "thread_name") return;
  const auto value = member(args, "name");
  if (!value || value->kind != TokenKind::kString) return;
  auto& names = process ? processes_ : threads_;
  if (names.size() >= kMaxTracks) return;
  names[process ? pid.substr(0, kMaxNameBytes) : key_of(pid, event.raw(Field::kTid))] =
      cut(unquoted(value->value), kMaxNameBytes);
}

bool Tracks::is_gpu(const TraceEvent& event) {
  const Value& category = event.value(Field::kCat);
  if (category.kind == ValueKind::kString &&
      is_gpu_category(event.text.substr(category.begin + 1, category.end - category.begin - 2))) {
    return true;
  }
  const auto tid = whole_number(event.raw(Field::kTid));
  return tid && *tid >= kFirstGpuTid && *tid <= kLastTid;
}

Track Tracks::track(std::size_t number) const {
  Track result;
  if (number == kOther) return result;
  result.pid = tracks_[number].pid;
  result.tid = tracks_[number].tid;
  const auto process = processes_.find(result.pid);
  if (process != processes_.end()) result.process = process->second;
  const auto thread = threads_.find(key_of(result.pid, result.tid));
  if (thread != threads_.end()) result.thread = thread->second;
  return result;
}

}  // namespace gpuprof::trace::reading
