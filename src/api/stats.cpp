#include "gpuprof/stats.hpp"

#include <ostream>
#include <stdexcept>

#include "api/warnings.hpp"
#include "gpuprof/switches.hpp"
#include "timing/device.hpp"
#include "timing/statistics.hpp"

GPUPROF_BEGIN_NAMESPACE
namespace {

Summary public_summary(const timing::Summary& of) {
  return {of.count, of.total, of.mean, of.min, of.p50, of.p90, of.p99, of.max, of.first};
}

Row public_row(const timing::Row& of) {
  Row row;
  row.path = of.path->text;
  for (const timing::Path* path : timing::lineage(*of.path)) row.names.push_back(path->name);
  row.clock = timing::clock_name(of.clock);
  if (of.has_device) row.gpu = public_summary(of.device);
  row.host = public_summary(of.host);
  row.dropped = of.dropped;
  row.pending = of.pending;
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
    timing::device::wait(*tail.get(), timing::kNoDeadline);
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
  std::vector<Row> rows;
  for (const timing::Row& row : timing::device::rows_with_pending()) {
    rows.push_back(public_row(row));
  }
  return Stats(std::move(rows), is_enabled());
}

void reset() noexcept { timing::statistics::reset(); }

GPUPROF_END_NAMESPACE
