#include <algorithm>
#include <cstdio>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "gpuprof/graph.hpp"
#include "text/graph_text.hpp"
#include "text/kernel_name.hpp"

GPUPROF_BEGIN_NAMESPACE
namespace {

// The sum of the known values, and how many there are.
std::pair<double, std::size_t> known_sum(const SpanTiming& row) noexcept {
  double sum = 0.0;
  std::size_t known = 0;
  for (const std::optional<double>& value : row.values) {
    if (!value) continue;
    sum += *value;
    ++known;
  }
  return {known > 0 ? sum : std::numeric_limits<double>::quiet_NaN(), known};
}

std::string cell_of(double ms) {
  char text[48];
  std::snprintf(text, sizeof text, "%.4f", ms);
  return text;
}

}  // namespace

double SpanTiming::ms() const noexcept { return known_sum(*this).first; }

double SpanTiming::mean() const noexcept {
  const auto [sum, known] = known_sum(*this);
  return sum / static_cast<double>(std::max<std::size_t>(known, 1));
}

const SpanTiming* GraphTimings::find(std::string_view path) const noexcept {
  for (const SpanTiming& row : rows_) {
    if (row.path == path) return &row;
  }
  return nullptr;
}

const SpanTiming& GraphTimings::at(std::string_view path) const {
  if (const SpanTiming* row = find(path)) return *row;
  std::string known;
  for (const SpanTiming& row : rows_) {
    known += (known.empty() ? "" : ", ") + graph_text::quoted(row.path);
  }
  throw std::out_of_range("path: the graph has no scope " + graph_text::quoted(std::string(path)) +
                          "; it has: " + (known.empty() ? "none" : known));
}

std::string GraphTimings::to_string() const {
  if (rows_.empty()) return "no timer in the graph\n";
  std::vector<std::vector<std::string>> lines{{"span", "count", "ms", "mean"}};
  for (const SpanTiming& row : rows_) {
    lines.push_back({graph_text::shown(row.path), std::to_string(row.count()), cell_of(row.ms()),
                     cell_of(row.mean())});
  }
  return graph_text::table(lines);
}

GPUPROF_END_NAMESPACE
