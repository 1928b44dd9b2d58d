// Queues of finished samples for those who listen, such as functions of Python.
//
// A listener may be slow, may need a lock of its own, or may enter scopes itself, so it cannot be a
// sink: a sink runs wherever a sample is found finished. Here the sink only puts a reference into
// the bounded queue of each listener that wants the sample's path, and sets bits in `attention`;
// whoever may run the listener's code looks at these and takes the samples out. A sample comes once
// to each listener: kDone or kFailed ones with a name, as in the statistics, whatever reset() does.
// Any thread. In a forked child the queues are empty.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "timing/sample.hpp"

namespace gpuprof::timing {

namespace listeners {

enum Attention : std::uint32_t {
  kListening = 1,  // there is a queue
  kDue = 2,        // a batch is complete, or something waits for a second
  kUrgent = 4,     // a queue is half full, or something waits for ten seconds
};
// Zero where nobody listens, which is all that a scope pays for then.
inline std::atomic<std::uint32_t> attention{0};
// How many samples are in all queues.
inline std::atomic<std::size_t> queued{0};

inline constexpr std::size_t kBatch = 256;
inline constexpr std::size_t kCapacity = 16384;
inline constexpr HostNanoseconds kDueAfter = 1'000'000'000;
inline constexpr HostNanoseconds kUrgentAfter = 10'000'000'000;

// Clears kDue and kUrgent: the caller empties the queues now, which is at `now`.
void take_notice(HostNanoseconds now) noexcept;

// Whether nobody has looked for a second what the GPU has finished; says so once a second.
bool should_drain(HostNanoseconds now) noexcept;

}  // namespace listeners

class SampleQueue {
 public:
  // `paths` are texts of paths; one that ends in "/*" stands for all below it. None: every path.
  // `name` says in the warning whose queue is full.
  SampleQueue(std::string name, std::vector<std::string> paths,
              std::size_t capacity = listeners::kCapacity);
  SampleQueue(const SampleQueue&) = delete;
  SampleQueue& operator=(const SampleQueue&) = delete;
  ~SampleQueue();

  // Gets no more samples; those that wait can still be taken. Idempotent.
  void close() noexcept;

  // Only one caller at a time takes samples out and hands them on: true for that one, which calls
  // end() afterwards, whatever thread it is on then.
  bool begin() noexcept;
  void end() noexcept;
  // What waits, oldest first.
  std::vector<SampleRef> take() noexcept;

  [[nodiscard]] std::size_t size() const noexcept;
  // Samples that came while the queue was full.
  [[nodiscard]] std::uint64_t dropped() const noexcept {
    return dropped_.load(std::memory_order_relaxed);
  }

  [[nodiscard]] bool is_wanted(const Path& path);

  // For the sink, with the lock of all queues held: puts the sample into the queue if it is wanted.
  // True for the first one that had no room.
  bool offer(const Sample& sample) noexcept;
  [[nodiscard]] std::string warning() const;

 private:
  [[nodiscard]] bool wants(const Path& path);
  [[nodiscard]] bool matches(const Path& path) const;

  const std::string name_;
  std::vector<std::string> paths_;
  const std::size_t capacity_;
  std::vector<std::int8_t> wanted_;  // by the order of the path: 1 yes, -1 no, 0 not known yet
  std::vector<SampleRef> waiting_;
  std::uint32_t generation_;  // of the process that queued them
  bool open_ = true;
  std::atomic<std::uint64_t> taken_by_{0};  // generation + 1 while somebody takes, else 0
  std::atomic<std::uint64_t> dropped_{0};
};

}  // namespace gpuprof::timing
