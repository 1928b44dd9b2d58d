#include "gpuprof/stats.hpp"

#include <limits>
#include <map>
#include <ostream>
#include <stdexcept>

#include "api/warnings.hpp"
#include "gpuprof/switches.hpp"
#include "timing/device.hpp"
#include "timing/statistics.hpp"

GPUPROF_BEGIN_NAMESPACE
namespace {

constexpr timing::HostNanoseconds kWithoutLimit =
    std::numeric_limits<timing::HostNanoseconds>::max();

struct ByFirstEntry {
  bool operator()(const timing::Path* a, const timing::Path* b) const noexcept {
    return std::pair(a->order, a) < std::pair(b->order, b);  // the root's order is no entry's
  }
};

Summary public_summary(const timing::Summary& of) {
  return {of.count, of.total, of.mean, of.min, of.p50, of.p90, of.p99, of.max, of.first};
}

Row public_row(const timing::Row& of, std::uint64_t pending) {
  Row row;
  row.path = of.path->text;
  for (const timing::Path* path : timing::lineage(*of.path)) row.names.push_back(path->name);
  row.clock = timing::clock_name(of.clock);
  if (of.has_device) row.gpu = public_summary(of.device);
  row.host = public_summary(of.host);
  row.dropped = of.dropped;
  row.pending = pending;
  row.failed = of.failed;
  row.skipped = of.skipped;
  return row;
}

}  // namespace

const Row* Stats::find(std::string_view path) const noexcept {
  for (const Row& row : rows_) {
    if (row.path == path) return &row;
  }
  return nullptr;
}

const Row& Stats::at(std::string_view path) const {
  if (const Row* row = find(path)) return *row;
  std::string message = "gpuprof::Stats has no row '" + std::string(path) + "'; it has ";
  if (rows_.empty()) message += "none";
  for (const Row& row : rows_) message += (&row == rows_.data() ? "'" : ", '") + row.path + "'";
  throw std::out_of_range(message);
}

std::ostream& operator<<(std::ostream& out, const Stats& stats) { return out << stats.table(); }

void flush() {
  for (const timing::SampleRef& tail : timing::device::pending_tails()) {
    timing::device::wait(*tail.get(), kWithoutLimit);
  }
  timing::device::drain();
  api::emit_pending_warnings();
}

Stats stats(bool wait) {
  if (wait) {
    flush();
  } else {
    timing::device::drain();
  }
  std::map<const timing::Path*, std::uint64_t, ByFirstEntry> pending;
  for (const auto& each : timing::device::pending_counts()) pending[each.path] += each.count;
  std::vector<Row> rows;
  for (const timing::Row& row : timing::statistics::rows()) {
    std::uint64_t waiting = 0;
    if (const auto found = pending.find(row.path); row.has_device && found != pending.end()) {
      waiting = found->second;
      pending.erase(found);
    }
    rows.push_back(public_row(row, waiting));
  }
  for (const auto& [path, count] : pending) {  // entered, but nothing measured yet
    rows.push_back(public_row({path, timing::kCudaClock, true, {}, {}, 0, 0, 0}, count));
  }
  return Stats(std::move(rows), is_enabled());
}

void reset() noexcept { timing::statistics::reset(); }

GPUPROF_END_NAMESPACE
