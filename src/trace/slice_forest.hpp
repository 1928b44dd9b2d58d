// Which slices of a track lie inside which, for slices that come in any order.
//
// Tells a visitor, once for each slice, the slice directly around it or that there is none, and
// once for each crossing, the two slices that overlap and do not nest. A slice without length lies
// inside one that ends there. Exact while at most kMaxSlices wait; then what is
// settled is let go: slices that have their parent and whose time is over. What is left at the top
// of a track is put together where it must be, and `approximate` says so once something came too
// late to be placed. So traces written in the order of begins or of ends are exact at any length.
// Times are nanoseconds. Not safe to share between threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gpuprof::trace::reading {

struct Slice {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::uint64_t tag = 0;      // the owner's
  std::uint64_t where = 0;    // the owner's
  std::int64_t covered = -1;  // nanoseconds inside; negative: not settled yet
  bool loose = false;         // several slices put together
};

class SliceVisitor {
 public:
  SliceVisitor() = default;
  SliceVisitor(const SliceVisitor&) = delete;
  SliceVisitor& operator=(const SliceVisitor&) = delete;
  virtual ~SliceVisitor() = default;
  // `ns` of `outer` belong to slices directly inside it.
  virtual void inside(const Slice& outer, std::int64_t ns) = 0;
  virtual void crossing(const Slice& first, const Slice& second) = 0;
  // There is nothing around `slice`.
  virtual void outside(const Slice& slice) = 0;
};

class SliceForest {
 public:
  static constexpr std::size_t kMaxSlices = 1'500'000;

  explicit SliceForest(SliceVisitor& visitor, std::size_t most = kMaxSlices)
      : visitor_(visitor), most_(most) {}

  void add(std::size_t track, const Slice& slice);
  void finish();
  [[nodiscard]] bool approximate() const noexcept { return approximate_; }

 private:
  using Slices = std::vector<Slice>;
  void settle_all();
  void settle(Slices& slices, bool last);
  void leave(std::vector<Slice>& open, const Slice& slice);
  void tell_inside(const Slice& outer, const Slice& slice);
  static void put_together(Slices& slices, std::size_t groups_of);

  SliceVisitor& visitor_;
  std::size_t most_;
  std::size_t waiting_ = 0;
  std::vector<Slices> tracks_;
  bool approximate_ = false;
};

}  // namespace gpuprof::trace::reading
