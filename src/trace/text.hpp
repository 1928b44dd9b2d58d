// A growing text whose end one may write to directly.
//
// std::string would set every byte before it is overwritten, which costs as much as the writing.
// Not thread safe; growing throws std::bad_alloc.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string_view>

namespace gpuprof::trace {

class Text {
 public:
  // Room for `bytes` more, to be written from the start and then told to used().
  char* room(std::size_t bytes) {
    if (bytes > capacity_ - size_) grow(bytes);
    return data_.get() + size_;
  }
  void used(const char* end) noexcept { size_ = static_cast<std::size_t>(end - data_.get()); }

  void append(std::string_view text) {
    char* place = room(text.size());
    std::memcpy(place, text.data(), text.size());
    size_ += text.size();
  }

  // Moves what stands from `from` on to `to`, before what is there.
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

}  // namespace gpuprof::trace
