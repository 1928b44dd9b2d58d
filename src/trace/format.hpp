// Events as lines of Chrome trace JSON.
//
// The Trace Event Format as Perfetto's importer reads it: times are microseconds after base_time()
// with three decimals, ids and pids plain integers; each line is one object, a comma and a newline.
// Only the growing text allocates.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "trace/event.hpp"

namespace gpuprof::trace {

// A growing text whose end may be written to directly: std::string would set every byte first,
// which costs as much as the writing. Not thread safe; growing throws std::bad_alloc.
class Text {
 public:
  // Room for `bytes` more: write there, then call used() with the end.
  char* room(std::size_t bytes) {
    if (bytes > capacity_ - size_) grow(bytes);
    return data_.get() + size_;
  }
  void used(const char* end) noexcept { size_ = static_cast<std::size_t>(end - data_.get()); }

  // Moves the text from `from` on before the text at `to`.
  void move_end(std::size_t from, std::size_t to) noexcept {
    std::rotate(data_.get() + to, data_.get() + from, data_.get() + size_);
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::string_view view() const noexcept { return {data_.get(), size_}; }
  void clear() noexcept { size_ = 0; }

 private:
  void grow(std::size_t bytes) {
    const std::size_t capacity = std::max(size_ + bytes, capacity_ * 2);
    std::unique_ptr<char[]> data(new char[capacity]);
    if (size_ > 0) std::memcpy(data.get(), data_.get(), size_);
    data_ = std::move(data);
    capacity_ = capacity;
  }

  std::unique_ptr<char[]> data_;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

// Appends nanoseconds as microseconds with three decimals.
void append_microseconds(Text& out, HostNanoseconds nanoseconds);

// The track of an event; `pid` is written as it is.
struct Position {
  std::string_view pid;
  std::uint32_t tid = 0;
};

// The part of a slice's line that is the same for each entry of a scope.
std::string slice_head(Position at, const Event& event);

// One line each. Times are relative to the base and not negative. `head` is slice_head() of the
// event.
void append_slice(Text& out, std::string_view head, const Event& event, HostNanoseconds begin,
                  HostNanoseconds duration);
void append_async(Text& out, Position at, const Event& event, HostNanoseconds begin,
                  HostNanoseconds end, std::uint64_t id);
// An instant or a counter.
void append_moment(Text& out, Position at, const Event& event, HostNanoseconds time);
// `phase` is s, t or f.
void append_flow(Text& out, Position at, char phase, std::string_view name_json,
                 std::string_view category_json, HostNanoseconds time, std::uint64_t id);
// `args` are the members of the object, without braces.
void append_metadata(Text& out, Position at, std::string_view name, std::string_view args);

}  // namespace gpuprof::trace
