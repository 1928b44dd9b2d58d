#include "trace/merge.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <unordered_set>
#include <utility>

#include "trace/event_values.hpp"
#include "trace/json_value.hpp"

namespace gpuprof::trace::reading {
namespace {

constexpr std::int64_t kPidStep = std::int64_t{1} << 22U;  // Linux has no pid as large
constexpr std::int64_t kMostPid = std::int64_t{1} << 32U;
constexpr std::uint64_t kExactInDoubles = std::uint64_t{1} << 53U;

std::string hexadecimal(std::uint64_t value) {
  std::array<char, 16> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value, 16).ptr;
  return "0x" + std::string(digits.data(), end);
}

// The number that an id stands for: digits, or hexadecimal digits in quotes.
std::optional<std::uint64_t> number_of_id(std::string_view text, bool is_string) {
  if (is_string && text.substr(0, 2) == "0x") text.remove_prefix(2);
  if (text.empty()) return std::nullopt;
  std::uint64_t value = 0;
  const char* begin = &text.front();
  const char* end = begin + text.size();
  const auto parsed = std::from_chars(begin, end, value, is_string ? 16 : 10);
  if (parsed.ec != std::errc{} || parsed.ptr != end) return std::nullopt;
  return value;
}

}  // namespace

Merge::Merge(std::vector<MergeInput> inputs, bool align) : inputs_(std::move(inputs)) {
  for (const MergeInput& input : inputs_) {
    if (align && input.base && (!base_ || *input.base < *base_)) base_ = input.base;
  }
  if (!align && !inputs_.empty()) base_ = inputs_.front().base;
  const std::int64_t smallest = base_.value_or(0);
  for (const MergeInput& input : inputs_) {
    shifts_.push_back(align ? input.base.value_or(smallest) - smallest : 0);
  }
  plan_pids();
}

// The pid `old` in the place of another file's: with a number of steps added, or written behind it.
std::string Merge::other_pid(const std::string& old, std::int64_t steps) {
  const auto number = whole_number(old);
  const bool fits = number && *number >= 0 && *number < kPidStep && steps < kMostPid / kPidStep;
  if (fits) return std::to_string(steps * kPidStep + *number);
  return quoted((number ? old : unquoted(old)) + " #" + std::to_string(steps));
}

void Merge::plan_pids() {
  std::unordered_set<std::string> taken;
  for (const MergeInput& input : inputs_) {
    const auto position = static_cast<std::int64_t>(pids_.size());
    PidMap& map = pids_.emplace_back();
    std::unordered_set<std::string> own;
    for (const MergeInput::Process& process : input.processes) own.insert(process.pid);
    for (const MergeInput::Process& process : input.processes) {
      if (taken.count(process.pid) == 0) continue;
      std::int64_t steps = std::max<std::int64_t>(input.rank.value_or(position), 1);
      std::string pid = other_pid(process.pid, steps);
      while (taken.count(pid) != 0 || !own.insert(pid).second) {
        pid = other_pid(process.pid, ++steps);
      }
      map.emplace(process.pid, std::move(pid));
    }
    for (const MergeInput::Process& process : input.processes) {
      const auto found = map.find(process.pid);
      taken.insert(found == map.end() ? process.pid : found->second);
    }
  }
}

// What a person should see beside the name of a process; empty where there is nothing to tell
// apart.
std::string Merge::label_of(std::size_t number, const std::string& pid) const {
  const MergeInput& input = inputs_[number];
  if (input.rank) return "rank " + std::to_string(*input.rank);
  return pids_[number].count(pid) != 0 ? input.name : std::string();
}

std::string Merge::description(std::size_t number) const {
  constexpr std::size_t kMostMembers = 4096;
  const MergeInput& input = inputs_[number];
  std::string out = "{\"file\":" + quoted(input.name);
  if (input.rank) out += ",\"rank\":" + std::to_string(*input.rank);
  if (input.base) out += ",\"baseTimeNanoseconds\":" + std::to_string(*input.base);
  std::string members;
  for (const Header& header : input.headers) {
    const bool known = header.key == "baseTimeNanoseconds" || header.key == "displayTimeUnit";
    if (known || header.value.empty() || header.value.size() > kMostMembers) continue;
    members += (members.empty() ? "" : ",") + quoted(header.key) + ":" + header.value;
  }
  if (!members.empty()) out += ",\"members\":{" + members + "}";
  return out + "}";
}

void Merge::begin(std::string& out) {
  out += R"({"displayTimeUnit":"ns",)";
  if (base_) out += "\"baseTimeNanoseconds\":" + std::to_string(*base_) + ",";
  out += "\"mergedFrom\":[";
  for (std::size_t number = 0; number < inputs_.size(); ++number) {
    out += (number == 0 ? "" : ",") + description(number);
  }
  out += "],\"traceEvents\":[";
  for (std::size_t number = 0; number < inputs_.size(); ++number) {
    for (const MergeInput::Process& process : inputs_[number].processes) {
      const std::string label = label_of(number, process.pid);
      if (process.labelled || label.empty()) continue;
      const auto found = pids_[number].find(process.pid);
      separate(out);
      out += R"({"ph":"M","name":"process_labels","pid":)";
      out += found == pids_[number].end() ? process.pid : found->second;
      out += R"(,"tid":0,"args":{"labels":)" + quoted(label) + "}}";
    }
  }
}

void Merge::separate(std::string& out) {
  out += any_ ? ",\n" : "\n";
  any_ = true;
}

void Merge::begin_file() { reader_ = EventReader(); }

void Merge::feed(std::string_view piece, std::string& out) {
  reader_.feed(piece);
  while (reader_.next(event_)) write(event_, out);
}

void Merge::end_file() {
  reader_.finish();
  ++current_;
}

void Merge::finish(std::string& out) { out += "\n]}\n"; }

void Merge::write(const TraceEvent& event, std::string& out) {
  const char phase = require_phase(event);
  require_labels(event);
  edits_.clear();
  const Value& pid = event.value(Field::kPid);
  const auto found = pids_[current_].find(std::string(event.raw(pid)));
  if (found != pids_[current_].end()) edits_.replace(pid.begin, pid.end, found->second);
  if (event.value(Field::kTs).kind != ValueKind::kAbsent) move_time(event);
  if (phase == 'M' && event.string(Field::kName) == "process_name") rename_process(event);
  if (phase != 'C' && phase != 'M') change_ids(event);
  separate(out);
  edits_.apply(event.text, out);
  ++events_;
}

void Merge::move_time(const TraceEvent& event) {
  const std::int64_t time = require_time(event, Field::kTs).value;
  const std::int64_t shift = shifts_[current_];
  if (shift == 0) return;
  if (time > kMostNanoseconds - shift) {
    throw unexpected(event, Field::kTs, "a time within 146 years of the other traces'");
  }
  const Value& ts = event.value(Field::kTs);
  edits_.replace(ts.begin, ts.end, microseconds(time + shift));
}

void Merge::rename_process(const TraceEvent& event) {
  const std::string label = label_of(current_, std::string(event.raw(Field::kPid)));
  const auto name = member(event.raw(Field::kArgs), "name");
  if (label.empty() || !name || name->kind != TokenKind::kString) return;
  const auto begin = static_cast<std::size_t>(name->value.data() - event.text.data());
  const std::string tail = quoted(" (" + label + ")");
  edits_.replace(begin + name->value.size() - 1, begin + name->value.size(), tail.substr(1));
}

void Merge::change_ids(const TraceEvent& event) {
  for (const Field field : {Field::kId, Field::kBindId}) {
    const Value& value = event.value(field);
    const bool is_string = value.kind == ValueKind::kString;
    if (!is_string && value.kind != ValueKind::kNumber) continue;
    if (auto id = new_id(event.raw(value), is_string)) {
      edits_.replace(value.begin, value.end, std::move(*id));
    }
  }
  const auto global = member(event.raw(Field::kId2), "global");
  if (!global || global->kind != TokenKind::kString) return;
  const auto begin = static_cast<std::size_t>(global->value.data() - event.text.data());
  if (auto id = new_id(global->value, true)) {
    edits_.replace(begin, begin + global->value.size(), std::move(*id));
  }
}

// Small ids are multiplied, so that each file has a residue of its own; large ones are scattered.
std::optional<std::string> Merge::new_id(std::string_view raw, bool is_string) const {
  const std::uint64_t files = inputs_.size();
  if (files == 1) return std::nullopt;
  const std::string text = is_string ? unquoted(raw) : std::string(raw);
  const auto old = number_of_id(text, is_string);
  if (!old) {
    if (current_ == 0 || !is_string) return std::nullopt;
    return quoted(text + " #" + std::to_string(current_));
  }
  constexpr std::uint64_t kScatter = 0x9e3779b97f4a7c15;
  const bool small = *old < kExactInDoubles / files - 1;
  const std::uint64_t id = small ? *old * files + current_ : *old ^ (current_ * kScatter);
  if (!is_string && id < kExactInDoubles) return std::to_string(id);
  return "\"" + hexadecimal(id) + "\"";
}

}  // namespace gpuprof::trace::reading
