// JSON, token by token, from a text that arrives in pieces.
//
// Strict by RFC 8259: UTF-8 is checked, NaN is no number, nothing is left over. feed() takes the
// next piece, which must stay alive until next() answers false, and next() answers the tokens that
// end in it.
// A token is where it stands, not what it says: the reader keeps no text, so that its memory does
// not depend on the file. Containers nest at most kMaxDepth deep. A violation is a ReadError, after
// which the reader is of no use.
//
// Told to tolerate, it reads on over what a repair can mend, and notes each as a Defect. Not safe
// to share between threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace gpuprof::trace::reading {

inline constexpr int kMaxDepth = 64;
// Defects that may wait to be taken.
inline constexpr std::size_t kMaxDefects = 100'000;

enum class TokenKind : std::uint8_t {
  kBeginObject,
  kEndObject,
  kBeginArray,
  kEndArray,
  kKey,
  kString,
  kNumber,
  kTrue,
  kFalse,
  kNull,
};

struct Token {
  TokenKind kind = TokenKind::kNull;
  bool escaped = false;     // a string with a backslash in it
  int depth = 0;            // how many containers are around it
  std::uint64_t begin = 0;  // of its text, quotes included
  std::uint64_t end = 0;    // one past it
};

struct Defect {
  enum class Kind : std::uint8_t {
    kByteOrderMark,
    kNotANumber,     // NaN, Infinity
    kControl,        // a control character in a string
    kNotUtf8,        // bytes of a string
    kTrailingComma,  // before the end of a container
    kDuplicateKey,   // of an event or of the file; from an EventReader
  };
  Kind kind = Kind::kControl;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

class JsonReader {
 public:
  explicit JsonReader(bool tolerant = false) : tolerant_(tolerant) {}

  // The next piece. The one before must have been read to its end.
  void feed(std::string_view piece) noexcept;

  // The next token, or false where the piece ends before it does.
  bool next(Token& token);

  // Where the piece that is being read begins, and how far it was read.
  [[nodiscard]] std::uint64_t piece_begin() const noexcept { return base_; }
  [[nodiscard]] std::uint64_t position() const noexcept { return base_ + at_; }

  // Whether the piece ended inside a token, and where that token began.
  [[nodiscard]] bool in_token() const noexcept { return lex_ != Lex::kBetween; }
  [[nodiscard]] std::uint64_t token_begin() const noexcept { return token_begin_; }

  [[nodiscard]] int depth() const noexcept { return depth_; }
  // Whether the one value of the text has ended.
  [[nodiscard]] bool done() const noexcept { return state_ == State::kDone && !in_token(); }

  // What was tolerated since the last call.
  std::vector<Defect> take_defects() noexcept;
  [[nodiscard]] bool has_defects() const noexcept { return !defects_.empty(); }

 private:
  enum class State : std::uint8_t {
    kValue,
    kValueOrEnd,  // after [
    kKeyOrEnd,    // after {
    kKey,
    kColon,
    kCommaOrEnd,
    kDone,
  };
  enum class Lex : std::uint8_t {
    kBetween,
    kMark,  // a byte order mark
    kString,
    kEscape,
    kUnicode,
    kUtf8,
    kMinus,
    kZero,
    kDigits,
    kPoint,
    kFraction,
    kExponent,
    kExponentSign,
    kExponentDigits,
    kWord,
  };

  bool between(Token& token);
  bool begin_value(char c, Token& token);
  bool open(TokenKind kind, Token& token);
  bool close(bool object, Token& token);
  bool continue_token(Token& token);
  bool string(Token& token);
  void escape();
  void unicode();
  void utf8();
  void bad_utf8(std::uint64_t begin, std::uint64_t end);
  bool number(Token& token);
  bool number_step(char c);
  bool word(Token& token);
  bool mark();
  void begin_word(const char* text, TokenKind kind) noexcept;
  bool end_token(TokenKind kind, Token& token);
  void after_value() noexcept { state_ = depth_ == 0 ? State::kDone : State::kCommaOrEnd; }
  void note(Defect::Kind kind, std::uint64_t begin, std::uint64_t end);
  [[noreturn]] void unexpected(char c, const char* expected) const;
  [[nodiscard]] const char* expectation() const noexcept;
  [[nodiscard]] bool in_object() const noexcept {
    return depth_ > 0 && ((objects_ >> (depth_ - 1)) & 1U) != 0;
  }

  const char* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t at_ = 0;
  std::uint64_t base_ = 0;
  std::uint64_t token_begin_ = 0;
  std::uint64_t comma_ = 0;    // where the last comma stood
  std::uint64_t objects_ = 0;  // a bit a container: whether it is an object
  const char* word_ = nullptr;
  std::uint64_t character_begin_ = 0;  // of a character of several bytes
  std::vector<Defect> defects_;
  int depth_ = 0;
  State state_ = State::kValue;
  Lex lex_ = Lex::kBetween;
  TokenKind pending_ = TokenKind::kNull;  // what the token will be
  std::uint8_t count_ = 0;                // hex digits, bytes of a character, letters of a word
  std::uint8_t lowest_ = 0;               // of the next byte of a character
  std::uint8_t highest_ = 0;
  bool escaped_ = false;
  bool tolerant_;
  bool after_comma_ = false;
};

}  // namespace gpuprof::trace::reading
