// The events of a trace file, one after the other, from a file that arrives in pieces.
//
// Reads the two forms of the Trace Event Format: an object with the array "traceEvents" and other
// members before or after it, and the array alone, whose closing bracket may be missing. feed()
// takes the next piece, which must stay alive until next() answers false, and next() answers the
// events that end in it; finish() says how the file ended. An event is handed out with its own text
// and where its members stand in it, valid until the next call. Memory is bounded by the largest
// event (kMaxEventBytes); other members of the file are kept up to kMaxHeaderBytes in all. What is
// no JSON, a duplicate key of the file or of an event, and an event that is no object are
// ReadErrors; a tolerant reader hands out what can be mended as defects instead. Not safe to share
// between threads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trace/json_reader.hpp"

namespace gpuprof::trace::reading {

inline constexpr std::size_t kMaxEventBytes = std::size_t{64} << 20U;
inline constexpr std::size_t kMaxHeaderBytes = std::size_t{16} << 20U;
inline constexpr std::size_t kMaxHeaders = 256;

enum class ValueKind : std::uint8_t {
  kAbsent,
  kString,
  kNumber,
  kTrue,
  kFalse,
  kNull,
  kObject,
  kArray,
};

// "a number" and the like.
const char* name_of(ValueKind kind) noexcept;

// A value as it stands in the text of its event.
struct Value {
  ValueKind kind = ValueKind::kAbsent;
  bool escaped = false;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
};

// The members that mean something to a reader.
enum class Field : std::uint8_t {
  kPh,
  kName,
  kCat,
  kTs,
  kDur,
  kPid,
  kTid,
  kId,
  kId2,
  kBindId,
  kBp,
  kArgs,
  kScope,
  kCount,
};
inline constexpr auto kFields = static_cast<std::size_t>(Field::kCount);

struct TraceEvent {
  std::uint64_t index = 0;   // in the file, from 0
  std::uint64_t offset = 0;  // of its first byte
  std::string_view text;
  std::array<Value, kFields> fields;
  std::vector<Defect> defects;  // of a tolerant reader; offsets are the file's
  bool is_object = true;        // an empty object or no object: only from a tolerant reader
  bool empty = false;

  [[nodiscard]] const Value& value(Field field) const noexcept {
    return fields[static_cast<std::size_t>(field)];
  }
  [[nodiscard]] std::string_view raw(const Value& value) const noexcept {
    return text.substr(value.begin, value.end - value.begin);
  }
  [[nodiscard]] std::string_view raw(Field field) const noexcept { return raw(value(field)); }
  // The phase, or 0 where it is no string of one character.
  [[nodiscard]] char phase() const noexcept;
  // The characters of a string member; empty for anything else.
  [[nodiscard]] std::string string(Field field) const;
};

// A member of the file beside the events.
struct Header {
  std::string key;
  std::string value;  // its JSON text; empty where it was too long to keep
};

enum class Form : std::uint8_t { kUnknown, kObject, kArray };

struct End {
  Form form = Form::kUnknown;
  bool complete = false;      // the JSON text is
  std::uint64_t events = 0;   // complete ones
  std::uint64_t bytes = 0;    // of the file
  std::uint64_t kept = 0;     // up to the end of the last complete event
  bool inside_event = false;  // where it was cut off
  bool events_ended = false;  // the array was closed
};

class EventReader {
 public:
  explicit EventReader(bool tolerant = false) : json_(tolerant), tolerant_(tolerant) {}

  void feed(std::string_view piece);
  bool next(TraceEvent& event);

  // The end of the file. Throws where there was no trace at all: nothing, or an object without
  // "traceEvents" that is complete.
  End finish();

  // In the order of the file; complete ones only.
  [[nodiscard]] const std::vector<Header>& headers() const noexcept { return headers_; }
  [[nodiscard]] std::uint64_t events() const noexcept { return index_; }
  // Defects that were in no event.
  std::vector<Defect> take_defects() noexcept;

 private:
  enum class Where : std::uint8_t {
    kStart,
    kFile,    // in the object, beside the events
    kHeader,  // in a member's value
    kEvents,  // between events
    kEvent,
    kAfter,  // the array form has ended
  };

  bool step(const Token& token, TraceEvent& event);
  void file_member(const Token& token);
  void begin_header(const Token& token);
  void end_header(const Token& token);
  void begin_event(const Token& token);
  bool odd_event(const Token& token, TraceEvent& event);
  void event_token(const Token& token);
  void event_key(const Token& token);
  void duplicate_key(const Token& token, std::string_view key);
  bool end_event(const Token& token, TraceEvent& event);
  void check_other_keys();
  void capture(std::uint64_t begin) noexcept;
  std::string_view text_of(std::uint64_t begin, std::uint64_t end);
  void keep_rest();
  [[noreturn]] void fail(std::uint64_t offset, const std::string& what) const;

  JsonReader json_;
  std::string_view piece_;
  std::string carry_;  // what is needed of earlier pieces
  std::uint64_t carry_begin_ = 0;
  std::uint64_t captured_ = 0;  // where what is being read began
  std::uint64_t index_ = 0;
  std::uint64_t kept_ = 0;
  std::vector<Header> headers_;
  std::vector<std::string> file_keys_;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> other_keys_;
  std::vector<Defect> outside_;
  std::vector<Defect> duplicates_;  // of this event
  std::array<Value, kFields> fields_;
  std::string header_key_;
  std::size_t header_room_ = kMaxHeaderBytes;
  int event_depth_ = 0;
  int field_ = -1;  // whose value comes next; -1: none that counts
  std::uint64_t members_ = 0;
  Form form_ = Form::kUnknown;
  Where where_ = Where::kStart;
  bool capturing_ = false;
  bool header_too_long_ = false;
  bool skip_header_ = false;  // its key was there before
  bool has_events_ = false;
  bool events_ended_ = false;
  bool next_is_events_ = false;
  bool tolerant_;
};

}  // namespace gpuprof::trace::reading
