#include "trace/json_reader.hpp"

#include <array>
#include <string>
#include <utility>

#include "trace/read_error.hpp"

namespace gpuprof::trace::reading {
namespace {

constexpr std::uint8_t kPlain = 0;
constexpr std::uint8_t kQuote = 1;
constexpr std::uint8_t kBackslash = 2;
constexpr std::uint8_t kControl = 3;
constexpr std::uint8_t kHigh = 4;

// What a byte means inside a string.
constexpr std::array<std::uint8_t, 256> kInString = [] {
  std::array<std::uint8_t, 256> classes{};
  for (std::size_t byte = 0; byte < 0x20; ++byte) classes[byte] = kControl;
  for (std::size_t byte = 0x80; byte < 0x100; ++byte) classes[byte] = kHigh;
  classes['"'] = kQuote;
  classes['\\'] = kBackslash;
  return classes;
}();

constexpr std::uint8_t byte_of(char c) noexcept { return static_cast<std::uint8_t>(c); }
constexpr bool is_space(char c) noexcept { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
constexpr bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }
constexpr bool is_hex(char c) noexcept {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

constexpr const char* kMarkBytes = "\xef\xbb\xbf";
constexpr const char* kInfinity = "Infinity";
constexpr const char* kNaN = "NaN";

std::string shown(char c) {
  if (c > 0x20 && c < 0x7f) return std::string("'") + c + "'";
  constexpr const char* kDigits = "0123456789abcdef";
  return std::string("byte 0x") + kDigits[byte_of(c) >> 4U] + kDigits[byte_of(c) & 0xfU];
}

}  // namespace

void JsonReader::feed(std::string_view piece) noexcept {
  base_ += at_;
  data_ = piece.data();
  size_ = piece.size();
  at_ = 0;
}

bool JsonReader::next(Token& token) {
  for (;;) {
    if (lex_ != Lex::kBetween) {
      if (continue_token(token)) return true;
      if (lex_ != Lex::kBetween) return false;
    }
    while (at_ < size_ && is_space(data_[at_])) ++at_;
    if (at_ == size_) return false;
    if (between(token)) return true;
  }
}

std::vector<Defect> JsonReader::take_defects() noexcept { return std::exchange(defects_, {}); }

// At a character that is not white space: answers whether that alone is a token.
bool JsonReader::between(Token& token) {
  const char c = data_[at_];
  switch (state_) {
    case State::kCommaOrEnd:
      if (c == ',') {
        comma_ = position();
        ++at_;
        state_ = in_object() ? State::kKey : State::kValue;
        after_comma_ = true;
        return false;
      }
      if (c == '}' || c == ']') return close(c == '}', token);
      break;
    case State::kColon:
      if (c != ':') break;
      ++at_;
      state_ = State::kValue;
      after_comma_ = false;
      return false;
    case State::kKey:
    case State::kKeyOrEnd:
      if (c == '"') {
        token_begin_ = position();
        ++at_;
        pending_ = TokenKind::kKey;
        escaped_ = false;
        lex_ = Lex::kString;
        return false;
      }
      if (c == '}' && (state_ == State::kKeyOrEnd || tolerant_)) return close(true, token);
      break;
    case State::kValueOrEnd:
      if (c == ']') return close(false, token);
      return begin_value(c, token);
    case State::kValue:
      if (c == ']' && tolerant_ && after_comma_) return close(false, token);
      return begin_value(c, token);
    case State::kDone:
      break;
  }
  unexpected(c, expectation());
}

bool JsonReader::begin_value(char c, Token& token) {
  token_begin_ = position();
  switch (c) {
    case '{':
      return open(TokenKind::kBeginObject, token);
    case '[':
      return open(TokenKind::kBeginArray, token);
    case '"':
      pending_ = TokenKind::kString;
      escaped_ = false;
      lex_ = Lex::kString;
      break;
    case 't':
      begin_word("true", TokenKind::kTrue);
      break;
    case 'f':
      begin_word("false", TokenKind::kFalse);
      break;
    case 'n':
      begin_word("null", TokenKind::kNull);
      break;
    case 'N':
      begin_word(kNaN, TokenKind::kNumber);
      break;
    case 'I':
      begin_word(kInfinity, TokenKind::kNumber);
      break;
    case '-':
      lex_ = Lex::kMinus;
      break;
    case '0':
      lex_ = Lex::kZero;
      break;
    default:
      if (is_digit(c)) {
        lex_ = Lex::kDigits;
        break;
      }
      if (c == kMarkBytes[0] && token_begin_ == 0) {
        begin_word(kMarkBytes, TokenKind::kNull);
        lex_ = Lex::kMark;
        break;
      }
      unexpected(c, expectation());
  }
  ++at_;
  return false;
}

bool JsonReader::open(TokenKind kind, Token& token) {
  if (depth_ == kMaxDepth) {
    throw ReadError(position(), "nested deeper than " + std::to_string(kMaxDepth) + " levels");
  }
  const bool object = kind == TokenKind::kBeginObject;
  token = {kind, false, depth_, position(), position() + 1};
  ++at_;
  const std::uint64_t bit = std::uint64_t{1} << static_cast<unsigned>(depth_);
  objects_ = object ? objects_ | bit : objects_ & ~bit;
  ++depth_;
  state_ = object ? State::kKeyOrEnd : State::kValueOrEnd;
  after_comma_ = false;
  return true;
}

bool JsonReader::close(bool object, Token& token) {
  if (object != in_object()) unexpected(data_[at_], object ? "',' or ']'" : "',' or '}'");
  if (after_comma_ && (state_ == State::kKey || state_ == State::kValue)) {
    note(Defect::Kind::kTrailingComma, comma_, comma_ + 1);
  }
  --depth_;
  token = {object ? TokenKind::kEndObject : TokenKind::kEndArray, false, depth_, position(),
           position() + 1};
  ++at_;
  after_comma_ = false;
  after_value();
  return true;
}

bool JsonReader::continue_token(Token& token) {
  for (;;) {
    if (at_ == size_) return false;
    switch (lex_) {
      case Lex::kBetween:
        return false;
      case Lex::kMark:
        if (!mark()) return false;
        break;
      case Lex::kString:
        if (string(token)) return true;
        break;
      case Lex::kEscape:
        escape();
        break;
      case Lex::kUnicode:
        unicode();
        break;
      case Lex::kUtf8:
        utf8();
        break;
      case Lex::kWord:
        if (word(token)) return true;
        break;
      default:
        if (number(token)) return true;
        break;
    }
  }
}

bool JsonReader::end_token(TokenKind kind, Token& token) {
  token = {kind, escaped_, depth_, token_begin_, position()};
  escaped_ = false;
  lex_ = Lex::kBetween;
  if (kind == TokenKind::kKey) {
    state_ = State::kColon;
  } else {
    after_value();
  }
  return true;
}

bool JsonReader::string(Token& token) {
  std::size_t at = at_;
  while (at < size_ && kInString[byte_of(data_[at])] == kPlain) ++at;
  at_ = at;
  if (at == size_) return false;
  const char c = data_[at];
  switch (kInString[byte_of(c)]) {
    case kQuote:
      ++at_;
      return end_token(pending_, token);
    case kBackslash:
      escaped_ = true;
      ++at_;
      lex_ = Lex::kEscape;
      return false;
    case kControl:
      if (!tolerant_) {
        throw ReadError(position(), "found " + shown(c) +
                                        " in a string; control characters "
                                        "must be escaped");
      }
      note(Defect::Kind::kControl, position(), position() + 1);
      ++at_;
      return false;
    default:
      break;
  }
  // The first byte of a character: how many follow, and what the next one may be.
  const std::uint8_t byte = byte_of(c);
  character_begin_ = position();
  lowest_ = byte == 0xe0 ? 0xa0 : byte == 0xf0 ? 0x90 : 0x80;
  highest_ = byte == 0xed ? 0x9f : byte == 0xf4 ? 0x8f : 0xbf;
  count_ = byte >= 0xc2 && byte <= 0xdf   ? 1
           : byte >= 0xe0 && byte <= 0xef ? 2
           : byte >= 0xf0 && byte <= 0xf4 ? 3
                                          : 0;
  ++at_;
  if (count_ == 0) {
    bad_utf8(character_begin_, position());
  } else {
    lex_ = Lex::kUtf8;
  }
  return false;
}

void JsonReader::escape() {
  const char c = data_[at_];
  constexpr std::string_view kShort = "\"\\/bfnrt";
  if (c == 'u') {
    lex_ = Lex::kUnicode;
    count_ = 4;
  } else if (kShort.find(c) != std::string_view::npos) {
    lex_ = Lex::kString;
  } else {
    unexpected(c, "one of \" \\ / b f n r t u after a backslash");
  }
  ++at_;
}

void JsonReader::unicode() {
  if (!is_hex(data_[at_])) unexpected(data_[at_], "four hexadecimal digits after \\u");
  ++at_;
  if (--count_ == 0) lex_ = Lex::kString;
}

void JsonReader::utf8() {
  const std::uint8_t byte = byte_of(data_[at_]);
  if (byte < lowest_ || byte > highest_) {
    lex_ = Lex::kString;  // the byte may begin something else
    bad_utf8(character_begin_, position());
    return;
  }
  ++at_;
  lowest_ = 0x80;
  highest_ = 0xbf;
  if (--count_ == 0) lex_ = Lex::kString;
}

void JsonReader::bad_utf8(std::uint64_t begin, std::uint64_t end) {
  if (!tolerant_) throw ReadError(begin, "found bytes that are not UTF-8 in a string");
  note(Defect::Kind::kNotUtf8, begin, end);
}

bool JsonReader::number(Token& token) {
  while (at_ < size_) {
    const char c = data_[at_];
    if (lex_ == Lex::kMinus && c == 'I') {
      begin_word(kInfinity, TokenKind::kNumber);
      ++at_;
      return false;
    }
    if (!number_step(c)) return end_token(TokenKind::kNumber, token);
    ++at_;
  }
  return false;
}

// Whether `c` belongs to the number; throws where the number cannot end here.
bool JsonReader::number_step(char c) {
  const bool digit = is_digit(c);
  switch (lex_) {
    case Lex::kMinus:
      if (!digit) unexpected(c, "a digit after '-'");
      lex_ = c == '0' ? Lex::kZero : Lex::kDigits;
      return true;
    case Lex::kDigits:
      if (digit) return true;
      [[fallthrough]];
    case Lex::kZero:
      if (digit) unexpected(c, "no digit after a leading zero");
      if (c == '.') {
        lex_ = Lex::kPoint;
        return true;
      }
      break;
    case Lex::kPoint:
      if (!digit) unexpected(c, "a digit after the decimal point");
      lex_ = Lex::kFraction;
      return true;
    case Lex::kFraction:
      if (digit) return true;
      break;
    case Lex::kExponent:
      if (c == '+' || c == '-') {
        lex_ = Lex::kExponentSign;
        return true;
      }
      [[fallthrough]];
    case Lex::kExponentSign:
      if (!digit) unexpected(c, "a digit in the exponent");
      lex_ = Lex::kExponentDigits;
      return true;
    default:
      return digit;  // the exponent's
  }
  if (c != 'e' && c != 'E') return false;
  lex_ = Lex::kExponent;
  return true;
}

void JsonReader::begin_word(const char* text, TokenKind kind) noexcept {
  word_ = text;
  pending_ = kind;
  count_ = 1;
  lex_ = Lex::kWord;
}

bool JsonReader::word(Token& token) {
  while (word_[count_] != '\0') {
    if (at_ == size_) return false;
    if (data_[at_] != word_[count_]) {
      unexpected(data_[at_], (std::string("the rest of ") + word_).c_str());
    }
    ++at_;
    ++count_;
  }
  if (pending_ == TokenKind::kNumber) {
    if (!tolerant_) {
      throw ReadError(token_begin_,
                      std::string("found ") + word_ + "; JSON has finite numbers only");
    }
    note(Defect::Kind::kNotANumber, token_begin_, position());
    pending_ = TokenKind::kNull;
  }
  return end_token(pending_, token);
}

// Answers whether the mark has been read to its end.
bool JsonReader::mark() {
  while (kMarkBytes[count_] != '\0') {
    if (at_ == size_) return false;
    if (data_[at_] != kMarkBytes[count_]) unexpected(data_[at_], "JSON");
    ++at_;
    ++count_;
  }
  if (!tolerant_) throw ReadError(0, "found a byte order mark; expected '{' or '['");
  note(Defect::Kind::kByteOrderMark, 0, 3);
  lex_ = Lex::kBetween;
  return true;
}

void JsonReader::note(Defect::Kind kind, std::uint64_t begin, std::uint64_t end) {
  if (defects_.size() == kMaxDefects) throw ReadError(begin, "too much is damaged here to go on");
  defects_.push_back({kind, begin, end});
}

void JsonReader::unexpected(char c, const char* expected) const {
  throw ReadError(position(), "found " + shown(c) + "; expected " + expected);
}

const char* JsonReader::expectation() const noexcept {
  switch (state_) {
    case State::kValue:
      return after_comma_ ? "a value after ','" : "a value";
    case State::kValueOrEnd:
      return "a value or ']'";
    case State::kKey:
      return "a key in quotes after ','";
    case State::kKeyOrEnd:
      return "a key in quotes or '}'";
    case State::kColon:
      return "':' after a key";
    case State::kCommaOrEnd:
      return in_object() ? "',' or '}'" : "',' or ']'";
    case State::kDone:
      break;
  }
  return "nothing more, because the JSON text has ended";
}

}  // namespace gpuprof::trace::reading
