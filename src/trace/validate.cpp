#include "trace/validate.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <tuple>
#include <utility>

namespace gpuprof::trace::reading {
namespace {

constexpr std::string_view kPhases = "BEXiICMbnesStTpFPNODRvVc(),=";
constexpr std::string_view kNamed = "BXiICMbnstfNODPR";
constexpr std::int64_t kExactInDoubles = std::int64_t{1} << 53U;
constexpr std::int64_t kMostId32 = std::int64_t{1} << 32U;
// The last moment that a double of microseconds still tells from the next nanosecond.
constexpr std::int64_t kExactMicroseconds = 9'000'000'000'000'000;
// How far slices may cross whose times were rounded to nanoseconds.
constexpr std::int64_t kRounding = 2;

constexpr std::uint64_t kPoint = 1;  // bits of a slice's tag, below the event's index
constexpr std::uint64_t kInexact = 2;
constexpr unsigned kTagBits = 2;

bool is_hex(std::string_view text) {
  if (text.substr(0, 2) == "0x") text.remove_prefix(2);
  return !text.empty() &&
         text.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
}

std::string pair_key(const TraceEvent& event) {
  std::string key;
  for (const Field field : {Field::kCat, Field::kName, Field::kId, Field::kId2}) {
    key += event.raw(field).substr(0, 1024);
    key += '\0';
  }
  if (event.raw(Field::kId2).find("local") != std::string_view::npos) {
    key += event.raw(Field::kPid).substr(0, 1024);
  }
  return key;
}

std::string number_of(std::uint64_t event) { return "event " + std::to_string(event); }

}  // namespace

void Validation::feed(std::string_view piece) {
  if (stopped_) return;
  try {
    reader_.feed(piece);
    while (reader_.next(event_)) check(event_);
  } catch (const ReadError& error) {
    if (reader_.events() == 0 && error.event() == kNoEvent) throw;  // this is no trace
    add(true, "json", {error.event(), error.offset()}, error.reason() + "; read up to here");
    stopped_ = true;
  }
}

void Validation::finish() {
  if (!stopped_) {
    end_ = reader_.finish();
    check_end();
  } else {
    end_.events = reader_.events();
  }
  forest_.finish();
  for (const auto& entry : open_) {
    for (const Open& open : entry.second) add(true, "unbalanced", open.place, "B without an E");
  }
  for (const auto& entry : open_async_) {
    for (const Open& open : entry.second) {
      add(true, "unbalanced", open.place, "asynchronous begin without an end");
    }
  }
  for (const auto& entry : flows_) {
    const Flow& flow = entry.second;
    if (forgot_flows_ && !flow.started && !flow.ended) continue;
    if (!flow.started) add(true, "flow", flow.place, "flow without its start (s)");
    if (!flow.ended) add(true, "flow", flow.place, "flow without its end (f)");
  }
  check_names();
  if (without_room_ != 0) {
    unchecked_.push_back(std::to_string(without_room_) +
                         " begins or flows: too many were open at once");
  }
  if (forest_.approximate()) {
    unchecked_.emplace_back("overlaps of slices that came long after their neighbours");
  }
  std::sort(findings_.begin(), findings_.end(), [](const Finding& a, const Finding& b) {
    return std::tie(a.offset, a.message) < std::tie(b.offset, b.message);
  });
}

void Validation::check(const TraceEvent& event) {
  for (const Defect& defect : event.defects) add_defect(defect, event.index);
  if (!event.is_object) {
    fault(event, 0, "event", "not an object");
    return;
  }
  if (event.empty) {
    fault(event, 0, "event", "an empty object");
    return;
  }
  const Value& ph = event.value(Field::kPh);
  const char phase = event.phase();
  if (phase == '\0') {
    fault(event, ph.begin, "ph",
          std::string("\"ph\" is ") + name_of(ph.kind) + "; expected a letter in quotes");
    return;
  }
  check_identity(event, phase);
  check_inner(event);
  check_phase(event, phase);
}

void Validation::check_phase(const TraceEvent& event, char phase) {
  if (phase == 'M') {
    tracks_.metadata(event);
    return;
  }
  const std::optional<std::int64_t> time = check_time(event);
  if (!time) return;
  switch (phase) {
    case 'X':
      check_slice(event);
      break;
    case 'B':
    case 'E':
      check_duration(event, phase, *time);
      break;
    case 'b':
    case 'e':
      check_async(event, phase == 'b', *time);
      break;
    case 's':
    case 't':
    case 'f':
      check_flow(event, phase, *time);
      break;
    case 'C':
      check_counter(event);
      break;
    default:
      if (kPhases.find(phase) == std::string_view::npos) {
        note(event, event.value(Field::kPh).begin, "ph", "a phase that readers do not know");
      }
      break;
  }
}

// Names, categories, pids and tids.
void Validation::check_identity(const TraceEvent& event, char phase) {
  const Value& name = event.value(Field::kName);
  if (name.kind == ValueKind::kAbsent) {
    if (kNamed.find(phase) != std::string_view::npos) fault(event, 0, "name", "no \"name\"");
  } else if (name.kind != ValueKind::kString) {
    fault(event, name.begin, "name", std::string("\"name\" is ") + name_of(name.kind));
  }
  const Value& category = event.value(Field::kCat);
  if (category.kind != ValueKind::kAbsent && category.kind != ValueKind::kString) {
    fault(event, category.begin, "cat", std::string("\"cat\" is ") + name_of(category.kind));
  }
  const Value& args = event.value(Field::kArgs);
  if (args.kind != ValueKind::kAbsent && args.kind != ValueKind::kObject) {
    fault(event, args.begin, "args",
          std::string("\"args\" is ") + name_of(args.kind) + "; expected an object");
  }
  check_number(event, Field::kPid);
  if (phase != 'M') check_number(event, Field::kTid);
}

void Validation::check_number(const TraceEvent& event, Field field) {
  const Value& value = event.value(field);
  const std::string key = std::string("\"") + key_of(field) + "\"";
  const char* code = key_of(field);
  if (value.kind == ValueKind::kAbsent || value.kind == ValueKind::kString) {
    note(event, value.begin, code, key + " is " + name_of(value.kind) + "; expected a number");
    return;
  }
  const auto number =
      value.kind == ValueKind::kNumber ? whole_number(event.raw(value)) : std::nullopt;
  if (!number || *number < 0 || *number >= kMostId32) {
    fault(event, value.begin, code,
          key + " is not a whole number from 0 to 4294967295; readers merge such tracks");
  } else if (field == Field::kTid && *number == 0) {
    fault(event, value.begin, code, "\"tid\" is 0, which readers take for the pid");
  }
}

std::optional<std::int64_t> Validation::check_time(const TraceEvent& event) {
  const Value& value = event.value(Field::kTs);
  if (value.kind != ValueKind::kNumber) {
    fault(event, value.begin, "ts",
          std::string("\"ts\" is ") + name_of(value.kind) + "; expected a number of microseconds");
    return std::nullopt;
  }
  const auto time = nanoseconds(event.raw(value));
  if (!time) {
    fault(event, value.begin, "ts", "\"ts\" does not fit into 146 years");
    return std::nullopt;
  }
  if (time->value < 0)
    fault(event, value.begin, "ts", "\"ts\" is negative; readers drop the event");
  if (time->value > kExactMicroseconds && time->value % 1000 != 0) {
    note(event, value.begin, "ts", "\"ts\" is so large that readers lose its nanoseconds");
  }
  return time->value;
}

void Validation::check_slice(const TraceEvent& event) {
  const Value& value = event.value(Field::kDur);
  try {
    const Span span = require_span(event);
    const std::size_t track = tracks_.number(event);
    if (track == Tracks::kOther) return;
    const std::uint64_t flag = span.exact ? 0 : kInexact;
    forest_.add(track, {span.begin, span.end, event.index << kTagBits | flag, event.offset});
  } catch (const ReadError& error) {
    fault(event, value.begin, "dur", error.reason());
  }
}

void Validation::check_duration(const TraceEvent& event, char phase, std::int64_t time) {
  std::vector<Open>& open = open_[tracks_.number(event)];
  const std::string name = event.string(Field::kName).substr(0, 256);
  if (phase == 'B') {
    if (open_count_ == kMaxPairs) {
      ++without_room_;
      return;
    }
    ++open_count_;
    open.push_back({{event.index, event.offset}, name, time});
    return;
  }
  if (open.empty()) {
    if (without_room_ == 0) fault(event, 0, "unbalanced", "E without a B");
    return;
  }
  const Open begun = open.back();
  open.pop_back();
  --open_count_;
  if (!name.empty() && name != begun.name) {
    fault(event, 0, "unbalanced", "E of another name than its B, " + number_of(begun.place.event));
  }
  if (time < begun.time) {
    fault(event, 0, "unbalanced", "E before its B, " + number_of(begun.place.event));
  }
}

void Validation::check_async(const TraceEvent& event, bool begins, std::int64_t time) {
  if (event.value(Field::kId).kind == ValueKind::kAbsent &&
      event.value(Field::kId2).kind == ValueKind::kAbsent) {
    fault(event, 0, "id", "an asynchronous range without \"id\"");
    return;
  }
  const std::string key = pair_key(event);
  if (begins) {
    if (open_count_ == kMaxPairs) {
      ++without_room_;
      return;
    }
    ++open_count_;
    open_async_[key].push_back({{event.index, event.offset}, {}, time});
    return;
  }
  const auto found = open_async_.find(key);
  if (found == open_async_.end()) {
    if (without_room_ == 0) fault(event, 0, "unbalanced", "asynchronous end without a begin");
    return;
  }
  if (time < found->second.back().time) {
    fault(event, 0, "unbalanced",
          "asynchronous end before its begin, " + number_of(found->second.back().place.event));
  }
  found->second.pop_back();
  --open_count_;
  if (found->second.empty()) open_async_.erase(found);
}

void Validation::check_flow(const TraceEvent& event, char phase, std::int64_t time) {
  const Value& id = event.value(Field::kId);
  const bool text = id.kind == ValueKind::kString && is_hex(event.string(Field::kId));
  const bool number = id.kind == ValueKind::kNumber && whole_number(event.raw(id)).has_value();
  if (!text && !number) {
    fault(event, id.begin, "id", "a flow's \"id\" must be a whole number or a hexadecimal string");
    return;
  }
  const std::string key = pair_key(event);
  auto found = flows_.find(key);
  if (found == flows_.end()) {
    if (flows_.size() == kMaxPairs) forget_whole_flows();
    if (flows_.size() == kMaxPairs) {
      ++without_room_;
      return;
    }
    found = flows_.emplace(key, Flow{{event.index, event.offset}}).first;
  }
  found->second.started = found->second.started || phase == 's';
  found->second.ended = found->second.ended || phase == 'f';
  // An end that does not bind to what is around it binds to what comes next.
  if (phase == 'f' && event.string(Field::kBp) != "e") return;
  const std::size_t track = tracks_.number(event);
  if (track == Tracks::kOther) return;
  forest_.add(track, {time, time, event.index << kTagBits | kPoint, event.offset});
}

// Makes room. A step that comes after both ends of its flow looks like one without, from then on.
void Validation::forget_whole_flows() {
  for (auto at = flows_.begin(); at != flows_.end();) {
    at = at->second.started && at->second.ended ? flows_.erase(at) : std::next(at);
  }
  forgot_flows_ = true;
}

void Validation::check_counter(const TraceEvent& event) {
  const Value& args = event.value(Field::kArgs);
  if (args.kind != ValueKind::kObject) {
    fault(event, args.begin, "args", "a counter without an object of values");
    return;
  }
  JsonReader reader(true);
  reader.feed(event.raw(args));
  Token token;
  while (reader.next(token)) {
    const bool value = token.depth == 1 && token.kind != TokenKind::kKey &&
                       token.kind != TokenKind::kEndObject && token.kind != TokenKind::kEndArray;
    if (value && token.kind != TokenKind::kNumber) {
      fault(event, args.begin + token.begin, "args", "a counter's value is no number");
    }
  }
}

// What stands in strings and numbers at any depth, and keys that are there twice.
void Validation::check_inner(const TraceEvent& event) {
  JsonReader reader(true);
  reader.feed(event.text);
  Token token;
  std::vector<std::unordered_set<std::string>> keys;
  while (reader.next(token)) {
    const std::string_view text = event.text.substr(token.begin, token.end - token.begin);
    switch (token.kind) {
      case TokenKind::kBeginObject:
        keys.resize(static_cast<std::size_t>(token.depth) + 1);
        keys.back().clear();
        break;
      case TokenKind::kKey:
        // Those of the event itself are the reader's.
        if (token.depth > 1 &&
            !keys[static_cast<std::size_t>(token.depth) - 1].insert(unquoted(text)).second) {
          fault(event, token.begin, "key", "a key is there twice");
        }
        break;
      case TokenKind::kString:
        if (token.escaped && text.size() > 3 && text.substr(text.size() - 3) == R"(\\")") {
          note(event, token.begin, "backslash",
               "a string that ends in a backslash; Perfetto before v53 refuses the file");
        }
        if (token.escaped && (text.find("\\ud") != std::string_view::npos ||
                              text.find("\\uD") != std::string_view::npos)) {
          note(event, token.begin, "surrogate",
               "a surrogate written as \\u; Perfetto refuses some of them");
        }
        break;
      case TokenKind::kNumber: {
        // Metadata are for readers that know their keys and their range.
        const bool digits = text.find_first_of(".eE") == std::string_view::npos;
        const auto number = whole_number(text);
        const bool exact = number && *number <= kExactInDoubles && *number >= -kExactInDoubles;
        if (digits && !exact && event.phase() != 'M') {
          fault(event, token.begin, "number",
                "a whole number beyond 2^53, which readers round; write it as a string");
        }
        break;
      }
      default:
        break;
    }
  }
}

void Validation::crossing(const Slice& first, const Slice& second) {
  const std::int64_t overlap = first.end - second.begin;
  if (((first.tag | second.tag) & kInexact) != 0 && overlap <= kRounding) return;
  // The fault is that of the one that comes later in the file.
  const bool swap = first.tag > second.tag;
  const Slice& later = swap ? first : second;
  const Slice& earlier = swap ? second : first;
  add(true, "overlap", {later.tag >> kTagBits, later.where},
      "overlaps " + number_of(earlier.tag >> kTagBits) + " on its track by " +
          std::to_string(overlap) + " ns without being inside; some readers drop it");
}

void Validation::outside(const Slice& slice) {
  if ((slice.tag & kPoint) == 0) return;
  add(true, "flow", {slice.tag >> kTagBits, slice.where},
      "a flow event that is in no slice of its track");
}

void Validation::check_names() {
  std::unordered_set<std::string> pids;
  std::uint64_t unnamed_processes = 0;
  std::uint64_t unnamed_threads = 0;
  for (std::size_t number = 1; number < tracks_.size(); ++number) {
    const Track track = tracks_.track(number);
    if (track.thread.empty()) ++unnamed_threads;
    if (track.process.empty() && pids.insert(track.pid).second) ++unnamed_processes;
  }
  if (unnamed_processes != 0) {
    add(false, "metadata", {kNoEvent, 0},
        std::to_string(unnamed_processes) + " processes without a process_name");
  }
  if (unnamed_threads != 0) {
    add(false, "metadata", {kNoEvent, 0},
        std::to_string(unnamed_threads) + " tracks without a thread_name");
  }
}

void Validation::check_end() {
  for (const Defect& defect : reader_.take_defects()) add_defect(defect, kNoEvent);
  if (end_.events == 0) {
    add(true, "empty", {kNoEvent, end_.bytes}, "no complete event; readers cannot tell what it is");
  }
  if (end_.complete) return;
  if (end_.form == Form::kArray && !end_.inside_event) {
    add(false, "cut", {kNoEvent, end_.bytes},
        "the array's end is missing, as while a trace is being written");
  } else {
    add(true, "cut", {kNoEvent, end_.bytes},
        std::string("the file is cut off here") + (end_.inside_event ? ", inside an event" : ""));
  }
}

void Validation::fault(const TraceEvent& event, std::uint64_t at, const char* code,
                       std::string message) {
  add(true, code, {event.index, event.offset + at}, std::move(message));
}

void Validation::note(const TraceEvent& event, std::uint64_t at, const char* code,
                      std::string message) {
  add(false, code, {event.index, event.offset + at}, std::move(message));
}

void Validation::add(bool is_fault, const char* code, Place place, std::string message) {
  ++(is_fault ? faults_ : notes_)[code];
  // Faults are what one came for: notes leave half of the room to them.
  const std::size_t most = is_fault ? kMaxFindings : kMaxFindings / 2;
  if (findings_.size() >= most) return;
  findings_.push_back({is_fault, code, place.event, place.offset, std::move(message)});
}

void Validation::add_defect(const Defect& defect, std::uint64_t event) {
  constexpr std::array<std::pair<const char*, const char*>, 6> kTexts{{
      {"bom", "a byte order mark"},
      {"nan", "NaN or Infinity, which is no JSON"},
      {"control", "a control character in a string that is not escaped"},
      {"utf8", "bytes in a string that are not UTF-8"},
      {"comma", "a comma before the end of an array or object"},
      {"key", "a key is there twice"},
  }};
  const auto& [code, message] = kTexts[static_cast<std::size_t>(defect.kind)];
  add(true, code, {event, defect.begin}, message);
}

}  // namespace gpuprof::trace::reading
