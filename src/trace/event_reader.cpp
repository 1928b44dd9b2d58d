#include "trace/event_reader.hpp"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "trace/json_value.hpp"
#include "trace/read_error.hpp"

namespace gpuprof::trace::reading {
namespace {

struct FieldName {
  std::string_view key;
  Field field;
};

constexpr std::array<FieldName, kFields> kFieldNames{{
    {"ph", Field::kPh},
    {"name", Field::kName},
    {"cat", Field::kCat},
    {"ts", Field::kTs},
    {"dur", Field::kDur},
    {"pid", Field::kPid},
    {"tid", Field::kTid},
    {"id", Field::kId},
    {"id2", Field::kId2},
    {"bind_id", Field::kBindId},
    {"bp", Field::kBp},
    {"args", Field::kArgs},
    {"s", Field::kScope},
}};

int field_of(std::string_view key) noexcept {
  for (const FieldName& name : kFieldNames) {
    if (name.key == key) return static_cast<int>(name.field);
  }
  return -1;
}

ValueKind kind_of(TokenKind kind) noexcept {
  switch (kind) {
    case TokenKind::kBeginObject:
      return ValueKind::kObject;
    case TokenKind::kBeginArray:
      return ValueKind::kArray;
    case TokenKind::kString:
      return ValueKind::kString;
    case TokenKind::kNumber:
      return ValueKind::kNumber;
    case TokenKind::kTrue:
      return ValueKind::kTrue;
    case TokenKind::kFalse:
      return ValueKind::kFalse;
    default:
      return ValueKind::kNull;
  }
}

bool begins(TokenKind kind) noexcept {
  return kind == TokenKind::kBeginObject || kind == TokenKind::kBeginArray;
}

bool ends(TokenKind kind) noexcept {
  return kind == TokenKind::kEndObject || kind == TokenKind::kEndArray;
}

constexpr std::string_view kEventsKey = "traceEvents";

}  // namespace

const char* name_of(ValueKind kind) noexcept {
  constexpr std::array<const char*, 8> kNames{"missing", "a string", "a number",  "true",
                                              "false",   "null",     "an object", "an array"};
  return kNames[static_cast<std::size_t>(kind)];
}

char TraceEvent::phase() const noexcept {
  const Value& ph = value(Field::kPh);
  return ph.kind == ValueKind::kString && ph.end - ph.begin == 3 ? text[ph.begin + 1] : '\0';
}

std::string TraceEvent::string(Field field) const {
  const Value& found = value(field);
  if (found.kind != ValueKind::kString) return {};
  if (found.escaped) return unquoted(raw(found));
  return std::string(text.substr(found.begin + 1, found.end - found.begin - 2));
}

void EventReader::feed(std::string_view piece) {
  json_.feed(piece);
  piece_ = piece;
}

// Saves from a piece that was read to its end what is still needed of it.
void EventReader::keep_rest() {
  if (!capturing_ && !json_.in_token()) {
    carry_.clear();
    return;
  }
  const std::uint64_t begin = capturing_ ? captured_ : json_.token_begin();
  const std::uint64_t piece_begin = json_.piece_begin();
  if (begin >= piece_begin) {
    carry_.assign(piece_.substr(begin - piece_begin));
    carry_begin_ = begin;
  } else if (!header_too_long_) {
    carry_.append(piece_.substr(carry_begin_ + carry_.size() - piece_begin));
  }
  const bool event = where_ == Where::kEvent;
  if (carry_.size() <= (event ? kMaxEventBytes : header_room_)) return;
  if (event) fail(begin, "the event is longer than " + std::to_string(kMaxEventBytes) + " bytes");
  header_too_long_ = true;
  carry_.clear();
}

// The text between two offsets, of which the first was captured or is in this piece.
std::string_view EventReader::text_of(std::uint64_t begin, std::uint64_t end) {
  const std::uint64_t piece_begin = json_.piece_begin();
  if (begin >= piece_begin) return piece_.substr(begin - piece_begin, end - begin);
  if (carry_begin_ + carry_.size() < end) {
    const std::uint64_t from = carry_begin_ + carry_.size() - piece_begin;
    carry_.append(piece_.substr(from, end - piece_begin - from));
  }
  return std::string_view(carry_).substr(begin - carry_begin_, end - begin);
}

bool EventReader::next(TraceEvent& event) {
  Token token;
  try {
    while (json_.next(token)) {
      if (step(token, event)) return true;
    }
  } catch (const ReadError& error) {
    const bool in_events = where_ == Where::kEvents || where_ == Where::kEvent;
    if (in_events && error.event() == kNoEvent) {
      throw ReadError(error.offset(), error.reason(), index_);
    }
    throw;
  }
  keep_rest();
  piece_ = {};
  return false;
}

bool EventReader::step(const Token& token, TraceEvent& event) {
  switch (where_) {
    case Where::kStart:
      if (!begins(token.kind)) {
        fail(token.begin, "found neither an object nor an array; a trace is one of them");
      }
      form_ = token.kind == TokenKind::kBeginObject ? Form::kObject : Form::kArray;
      where_ = form_ == Form::kObject ? Where::kFile : Where::kEvents;
      event_depth_ = 1;
      return false;
    case Where::kFile:
      file_member(token);
      return false;
    case Where::kHeader:
      if (token.depth == 1 && ends(token.kind)) end_header(token);
      return false;
    case Where::kEvents:
      if (ends(token.kind)) {
        events_ended_ = true;
        where_ = form_ == Form::kObject ? Where::kFile : Where::kAfter;
        return false;
      }
      begin_event(token);
      return token.kind == TokenKind::kBeginObject ? false : odd_event(token, event);
    case Where::kEvent:
      if (token.depth == event_depth_) return end_event(token, event);
      if (token.depth == event_depth_ + 1) event_token(token);
      return false;
    case Where::kAfter:
      break;
  }
  return false;
}

void EventReader::capture(std::uint64_t begin) noexcept {
  captured_ = begin;
  capturing_ = true;
  header_too_long_ = false;
}

void EventReader::file_member(const Token& token) {
  if (token.kind == TokenKind::kEndObject) {
    where_ = Where::kAfter;
    return;
  }
  if (token.kind != TokenKind::kKey) {
    begin_header(token);
    return;
  }
  if (header_too_long_) fail(token.begin, "the key is longer than a trace has any");
  const std::string_view text = text_of(token.begin, token.end);
  header_key_ = unquoted(text);
  skip_header_ = std::find(file_keys_.begin(), file_keys_.end(), header_key_) != file_keys_.end();
  next_is_events_ = header_key_ == kEventsKey;
  if (skip_header_ && (!tolerant_ || next_is_events_)) {
    fail(token.begin, "the key " + quoted(header_key_.substr(0, 64)) + " is there twice");
  }
  if (skip_header_) {
    outside_.push_back({Defect::Kind::kDuplicateKey, token.begin, token.end});
  } else if (file_keys_.size() < kMaxHeaders || next_is_events_) {
    file_keys_.push_back(header_key_);
  }
}

void EventReader::begin_header(const Token& token) {
  if (next_is_events_) {
    if (token.kind != TokenKind::kBeginArray) {
      fail(token.begin, std::string("\"traceEvents\" is ") + name_of(kind_of(token.kind)) +
                            "; expected an array");
    }
    has_events_ = true;
    next_is_events_ = false;
    where_ = Where::kEvents;
    event_depth_ = 2;
    return;
  }
  if (begins(token.kind)) {
    capture(token.begin);
    where_ = Where::kHeader;
    return;
  }
  captured_ = token.begin;
  end_header(token);
}

void EventReader::end_header(const Token& token) {
  if (!skip_header_ && headers_.size() < kMaxHeaders) {
    const bool keep = !header_too_long_ && token.end - captured_ <= header_room_;
    if (keep) header_room_ -= static_cast<std::size_t>(token.end - captured_);
    headers_.push_back({header_key_, keep ? std::string(text_of(captured_, token.end)) : ""});
  }
  capturing_ = false;
  header_too_long_ = false;
  where_ = Where::kFile;
}

void EventReader::begin_event(const Token& token) {
  if (json_.has_defects()) {
    for (const Defect& defect : json_.take_defects()) outside_.push_back(defect);
  }
  if (token.kind != TokenKind::kBeginObject && !tolerant_) {
    fail(token.begin,
         std::string("the event is ") + name_of(kind_of(token.kind)) + "; expected an object");
  }
  capture(token.begin);
  where_ = Where::kEvent;
  fields_.fill({});
  other_keys_.clear();
  duplicates_.clear();
  members_ = 0;
  field_ = -1;
}

// What stands where an event should: an array is skipped like one.
bool EventReader::odd_event(const Token& token, TraceEvent& event) {
  if (token.kind == TokenKind::kBeginArray) return false;
  return end_event(token, event);
}

void EventReader::event_token(const Token& token) {
  if (token.kind == TokenKind::kKey) {
    ++members_;
    event_key(token);
    return;
  }
  if (field_ < 0) return;
  Value& value = fields_[static_cast<std::size_t>(field_)];
  if (!ends(token.kind)) {
    value.kind = kind_of(token.kind);
    value.escaped = token.escaped;
    value.begin = static_cast<std::uint32_t>(token.begin - captured_);
  }
  value.end = static_cast<std::uint32_t>(token.end - captured_);
}

void EventReader::event_key(const Token& token) {
  const std::string_view quoted_key = text_of(token.begin, token.end);
  field_ = token.escaped ? field_of(unquoted(quoted_key))
                         : field_of(quoted_key.substr(1, quoted_key.size() - 2));
  if (field_ < 0) {
    other_keys_.emplace_back(token.begin, token.end);
    return;
  }
  Value& value = fields_[static_cast<std::size_t>(field_)];
  if (value.kind == ValueKind::kAbsent) return;
  duplicate_key(token, kFieldNames[static_cast<std::size_t>(field_)].key);
  field_ = -1;
}

void EventReader::duplicate_key(const Token& token, std::string_view key) {
  if (!tolerant_) fail(token.begin, "the key " + quoted(key.substr(0, 64)) + " is there twice");
  duplicates_.push_back({Defect::Kind::kDuplicateKey, token.begin, token.end});
}

void EventReader::check_other_keys() {
  std::unordered_set<std::string> seen;
  for (const auto& [begin, end] : other_keys_) {
    const auto [key, is_new] = seen.insert(unquoted(text_of(begin, end)));
    if (!is_new) duplicate_key({TokenKind::kKey, false, 0, begin, end}, *key);
  }
}

bool EventReader::end_event(const Token& token, TraceEvent& event) {
  if (token.end - captured_ > kMaxEventBytes) {
    fail(captured_, "the event is longer than " + std::to_string(kMaxEventBytes) + " bytes");
  }
  event.text = text_of(captured_, token.end);
  if (other_keys_.size() > 1) check_other_keys();
  event.index = index_++;
  event.offset = captured_;
  event.fields = fields_;
  event.is_object = token.kind == TokenKind::kEndObject;
  event.empty = event.is_object && members_ == 0;
  event.defects.clear();
  if (json_.has_defects()) event.defects = json_.take_defects();
  event.defects.insert(event.defects.end(), duplicates_.begin(), duplicates_.end());
  capturing_ = false;
  kept_ = token.end;
  where_ = Where::kEvents;
  return true;
}

End EventReader::finish() {
  End end;
  end.form = form_;
  end.complete = json_.done();
  end.events = index_;
  end.bytes = json_.position();
  end.kept = kept_;
  end.inside_event = where_ == Where::kEvent;
  end.events_ended = events_ended_;
  if (end.bytes == 0) throw ReadError(0, "the file is empty; expected a trace");
  if (form_ == Form::kUnknown) throw ReadError(0, "found no JSON; expected '{' or '['");
  if (form_ == Form::kObject && !has_events_) {
    throw ReadError(end.bytes, end.complete ? "the object has no \"traceEvents\"; this is no trace"
                                            : "the file is cut off before its \"traceEvents\"");
  }
  return end;
}

std::vector<Defect> EventReader::take_defects() noexcept {
  std::vector<Defect> result = std::exchange(outside_, {});
  for (const Defect& defect : json_.take_defects()) result.push_back(defect);
  return result;
}

void EventReader::fail(std::uint64_t offset, const std::string& what) const {
  throw ReadError(offset, what, where_ == Where::kEvent ? index_ : kNoEvent);
}

}  // namespace gpuprof::trace::reading
