#include <utility>

#include "trace/event_values.hpp"
#include "trace/json_value.hpp"
#include "trace/merge.hpp"

namespace gpuprof::trace::reading {
namespace {

constexpr std::string_view kBaseKey = "baseTimeNanoseconds";

std::optional<std::int64_t> whole_member(std::string_view object, std::string_view key) {
  const auto found = member(object, key);
  return found && found->kind == TokenKind::kNumber ? whole_number(found->value) : std::nullopt;
}

}  // namespace

void MergeScan::feed(std::string_view piece) {
  reader_.feed(piece);
  while (reader_.next(event_)) take(event_);
}

void MergeScan::take(const TraceEvent& event) {
  const char phase = require_phase(event);
  require_labels(event);
  const std::string pid(event.raw(Field::kPid));
  if (!pid.empty() && processes_.find(pid) == processes_.end()) {
    if (processes_.size() == kMaxProcesses) {
      throw ReadError(event.offset, "there are more than 100000 processes", event.index);
    }
    processes_.emplace(pid, input_.processes.size());
    input_.processes.push_back({pid});
  }
  if (phase != 'M') return;
  const std::string name = event.string(Field::kName);
  if (name == "gpuprof") take_own_metadata(event.raw(Field::kArgs));
  const auto found = processes_.find(pid);
  if (found == processes_.end()) return;
  MergeInput::Process& process = input_.processes[found->second];
  process.named = process.named || name == "process_name";
  process.labelled = process.labelled || name == "process_labels";
}

// What gpuprof's array form says in its first event.
void MergeScan::take_own_metadata(std::string_view args) {
  if (const auto base = whole_member(args, kBaseKey); base && !input_.base) input_.base = base;
  if (const auto rank = whole_member(args, "rank"); rank && !input_.rank) input_.rank = rank;
}

MergeInput MergeScan::finish() {
  input_.end = reader_.finish();
  input_.headers = reader_.headers();
  for (const Header& header : input_.headers) {
    if (header.key == kBaseKey) {
      input_.base = whole_number(header.value);
    } else if (header.key == "viztracer_metadata") {
      if (const auto base = whole_member(header.value, kBaseKey)) input_.base = base;
    } else if (header.key == "distributedInfo") {
      if (const auto rank = whole_member(header.value, "rank")) input_.rank = rank;
    }
  }
  constexpr std::int64_t kMostRank = 1 << 20U;
  if (input_.rank && (*input_.rank < 0 || *input_.rank > kMostRank)) input_.rank.reset();
  if (input_.base && (*input_.base < 0 || *input_.base > kMostNanoseconds)) {
    throw ReadError(0, "\"baseTimeNanoseconds\" is " + std::to_string(*input_.base) +
                           "; expected nanoseconds since 1970");
  }
  return std::move(input_);
}

}  // namespace gpuprof::trace::reading
