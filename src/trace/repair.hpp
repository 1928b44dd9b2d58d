// A damaged or cut off trace made strict JSON again, with every complete event.
//
// Fed with the file in pieces; answers what to write. NaN becomes null, bytes that are not UTF-8
// become U+FFFD, control characters are escaped, stray commas go. Events that are no objects, empty
// or have a key twice are left out and counted. Reading ends where the text is no JSON any more,
// and `stopped` says where. Members of the file that are complete and short are kept. The output
// is always the object form, with what gpuprof's array form says of its clock as a member. Not safe
// to share between threads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trace/edits.hpp"
#include "trace/event_reader.hpp"

namespace gpuprof::trace::reading {

class Repair {
 public:
  Repair() : reader_(true) {}

  // Both append to `out`. Throws only for what is no trace at all.
  void feed(std::string_view piece, std::string& out);
  void finish(std::string& out);

  [[nodiscard]] std::uint64_t events() const noexcept { return written_; }
  [[nodiscard]] std::uint64_t left_out() const noexcept { return left_out_; }
  [[nodiscard]] std::uint64_t mended() const noexcept { return mended_; }
  [[nodiscard]] const std::vector<std::string>& lost_members() const noexcept {
    return lost_members_;
  }
  // The file was complete.
  [[nodiscard]] bool complete() const noexcept { return end_.complete; }
  [[nodiscard]] const End& end() const noexcept { return end_; }
  // Why reading ended early; empty if it did not.
  [[nodiscard]] const std::string& stopped() const noexcept { return stopped_; }

 private:
  void write(const TraceEvent& event, std::string& out);
  void mend(const TraceEvent& event, std::string& out);
  void begin(const TraceEvent* first, std::string& out);
  void write_members(bool after, std::string& out);

  EventReader reader_;
  TraceEvent event_;
  Edits edits_;
  End end_;
  std::string stopped_;
  std::vector<std::string> lost_members_;
  std::size_t members_ = 0;  // how many of the reader's are written
  std::uint64_t written_ = 0;
  std::uint64_t left_out_ = 0;
  std::uint64_t mended_ = 0;
  bool begun_ = false;
};

}  // namespace gpuprof::trace::reading
