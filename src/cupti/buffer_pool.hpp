// What CUPTI writes records into.
//
// A buffer that CUPTI has is never freed before it is given back: CUPTI may still write into it.
// One that a collection left behind may come back in any later one. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <unordered_map>
#include <utility>
#include <vector>

namespace gpuprof::cupti {

// CUPTI asks for a buffer inside a call of the program, which waits. A buffer of this size holds
// about five thousand kernels, and its pages are there after some 100 us.
inline constexpr std::size_t kBufferBytes = std::size_t{1} << 20U;
// CUPTI keeps a buffer until the last kernel in it has run, so a long queue takes many. Past this
// CUPTI drops records, and counts them.
inline constexpr std::size_t kMaxBuffers = 256;

using Buffer = std::unique_ptr<std::uint8_t[]>;

class BufferPool {
 public:
  // Null past the limit, and for lack of memory.
  std::uint8_t* lend() {
    const std::lock_guard lock(mutex_);
    if (missing_ >= kMaxBuffers) return nullptr;
    Buffer buffer;
    if (idle_.empty()) {
      buffer.reset(new (std::nothrow) std::uint8_t[kBufferBytes]);
      if (buffer == nullptr) return nullptr;
    } else {
      buffer = std::move(idle_.back());
      idle_.pop_back();
    }
    std::uint8_t* const address = buffer.get();
    lent_.emplace(address, Lent{std::move(buffer), collection_});
    ++missing_;
    return address;
  }

  // Empty for an address that was not lent: it belongs to another tool.
  Buffer take_back(std::uint8_t* address) {
    const std::lock_guard lock(mutex_);
    const auto found = lent_.find(address);
    if (found == lent_.end()) return {};
    Lent back = std::move(found->second);
    lent_.erase(found);
    if (back.collection == collection_) --missing_;
    return std::move(back.buffer);
  }

  void keep(Buffer buffer) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(buffer));
  }

  void free_idle() {
    const std::lock_guard lock(mutex_);
    idle_.clear();
    idle_.shrink_to_fit();
  }

  // A new collection begins: what is still lent now may never come back.
  void begin() {
    const std::lock_guard lock(mutex_);
    ++collection_;
    missing_ = 0;
  }

  // Whether buffers that were lent since begin() are missing.
  bool is_missing_some() {
    const std::lock_guard lock(mutex_);
    return missing_ != 0;
  }

 private:
  struct Lent {
    Buffer buffer;
    std::uint64_t collection;
  };

  std::mutex mutex_;
  std::uint64_t collection_ = 0;
  std::size_t missing_ = 0;  // lent in this collection and not back
  std::unordered_map<std::uint8_t*, Lent> lent_;
  std::vector<Buffer> idle_;
};

}  // namespace gpuprof::cupti
