// The table of statistics, as gpuprof/_timing/stats_table.py makes it for Python.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "gpuprof/stats.hpp"
#include "text/graph_text.hpp"
#include "text/kernel_name.hpp"

GPUPROF_BEGIN_NAMESPACE
namespace {

using graph_text::cut;
using graph_text::grouped;
using graph_text::shown;
using Names = std::vector<std::string>;

constexpr std::size_t kLabelColumns = 60;
constexpr std::size_t kLeastLabel = 24;
constexpr std::size_t kMostIndent = 40;
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

std::string rounded(double value, int decimals) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
  return text.data();
}

std::string three_digits(double value) {
  if (value < 9.995) return rounded(value, 2);
  if (value < 99.95) return rounded(value, 1);
  return grouped(static_cast<std::uint64_t>(std::nearbyint(value)));
}

// Milliseconds with three digits and the unit that suits them.
std::string duration(double ms) {
  struct Unit {
    double ms;
    const char* name;
  };
  static constexpr std::array<Unit, 4> kUnits{
      {{1e-6, "ns"}, {1e-3, "\xC2\xB5s"}, {1.0, "ms"}, {1e3, "s"}}};
  if (!std::isfinite(ms)) return "-";
  const double size = std::fabs(ms);
  const Unit* unit = &kUnits.back();
  for (auto each = kUnits.rbegin(); each != kUnits.rend(); ++each) {
    if (size < 999.5 * each->ms) unit = &*each;
  }
  const bool in_ns = unit == kUnits.data();
  const std::string digits = in_ns ? rounded(size / unit->ms, 0) : three_digits(size / unit->ms);
  if (digits == "0") return "0 ns";
  return (ms < 0.0 ? "-" : "") + digits + " " + unit->name;
}

class Tree {
 public:
  explicit Tree(const std::vector<Row>& rows) {
    for (const Row& row : rows) of_names_[row.names].push_back(&row);
    std::set<Names> seen;
    for (const Row& row : rows) {
      if (seen.insert(row.names).second) inside_[around(row.names)].push_back(row.names);
      if (const Row* outer = enclosing(row)) inside_ms_[outer] += row.time().total;
    }
  }

  // Calls line(row, depth, label) in the order of the table.
  template <typename Line>
  void walk(Line&& line, const Names& names = {}, std::size_t depth = 0) const {
    const auto found = inside_.find(names);
    if (found == inside_.end()) return;
    for (const Names& child : found->second) {
      std::string label;
      for (std::size_t i = names.size(); i < child.size(); ++i) {
        label += (i > names.size() ? "/" : "") + child[i];
      }
      for (const Row* row : of_names_.at(child)) line(*row, depth, label);
      walk(line, child, depth + 1);
    }
  }

  // The closest row around it on the same clock; null at the root.
  [[nodiscard]] const Row* enclosing(const Row& row) const {
    for (Names outer = row.names; outer.size() > 1;) {
      outer.pop_back();
      const auto found = of_names_.find(outer);
      if (found == of_names_.end()) continue;
      for (const Row* each : found->second) {
        if (each->clock == row.clock) return each;
      }
    }
    return nullptr;
  }

  [[nodiscard]] double self_ms(const Row& row) const {
    if (row.time().count == 0) return kNone;
    const auto found = inside_ms_.find(&row);
    return row.time().total - (found != inside_ms_.end() ? found->second : 0.0);
  }

  [[nodiscard]] std::string share(const Row& row) const {
    const Row* outer = enclosing(row);
    if (row.time().count == 0 || outer == nullptr || !(outer->time().total > 0.0)) return "-";
    return rounded(100.0 * row.time().total / outer->time().total, 1);
  }

 private:
  // The names of the closest path around that has a row.
  [[nodiscard]] Names around(Names names) const {
    do {
      names.pop_back();
    } while (!names.empty() && of_names_.count(names) == 0);
    return names;
  }

  std::map<Names, std::vector<const Row*>> of_names_;
  std::map<Names, std::vector<Names>> inside_;
  std::map<const Row*, double> inside_ms_;
};

std::string notes_of(const Row& row) {
  const std::array<std::pair<std::uint64_t, const char*>, 4> counts{{{row.dropped, "dropped"},
                                                                     {row.pending, "pending"},
                                                                     {row.failed, "failed"},
                                                                     {row.skipped, "skipped"}}};
  std::string notes;
  for (const auto& [count, what] : counts) {
    if (count != 0) notes += (notes.empty() ? "" : ", ") + grouped(count) + " " + what;
  }
  if (row.host_bound()) notes += notes.empty() ? "host-bound" : ", host-bound";
  return notes;
}

std::string title_of(const std::vector<std::string>& clocks, bool enabled) {
  if (clocks.empty() && !enabled) return "no samples: timing is switched off";
  if (clocks.empty()) return "no samples yet: `gpuprof::timer t{\"name\"};` in some block adds one";
  if (clocks.size() > 1) {
    std::string names;
    for (const std::string& clock : clocks) names += (names.empty() ? "" : ", ") + clock;
    return "clocks: " + names + " (shares and self time are within one clock)";
  }
  if (clocks[0] == "cuda") return "clock: cuda (GPU time, from events in the stream)";
  return "clock: cpu (host time; no GPU time was measured)";
}

double p50_of(const Summary& summary) { return summary.count > 0 ? summary.p50 : kNone; }

}  // namespace

std::string Stats::table() const {
  std::vector<std::string> clocks;
  std::uint64_t dropped = 0;
  for (const Row& row : rows_) {
    dropped += row.dropped;
    if (std::find(clocks.begin(), clocks.end(), row.clock) == clocks.end()) {
      clocks.push_back(row.clock);
    }
  }
  std::string text = title_of(clocks, enabled_) + '\n';
  if (rows_.empty()) return text;
  const bool on_gpu = std::find(clocks.begin(), clocks.end(), "cuda") != clocks.end();
  const Tree tree(rows_);
  std::vector<std::vector<std::string>> lines{{"scope", "clock", "GPU p50", "host p50", "count",
                                               "total", "self", "% parent", "first call", "notes"}};
  tree.walk([&](const Row& row, std::size_t depth, const std::string& label) {
    const std::string indent(2 * std::min(depth, kMostIndent), ' ');
    const std::size_t room =
        std::max(kLabelColumns - std::min(kLabelColumns, indent.size()), kLeastLabel);
    const Summary& time = row.time();
    lines.push_back(
        {indent + cut(shown(label), room, (room - 1) / 2), clocks.size() > 1 ? row.clock : "",
         on_gpu ? duration(p50_of(row.gpu)) : "", duration(p50_of(row.host)), grouped(time.count),
         duration(time.count > 0 ? time.total : kNone), duration(tree.self_ms(row)),
         tree.share(row), duration(time.count > 0 ? time.first : kNone), notes_of(row)});
  });
  text += graph_text::table(lines, {0, 1, 9});
  if (dropped != 0) {
    text += grouped(dropped) +
            " samples dropped: too many were waiting for the GPU; read values or call "
            "gpuprof::flush() more often\n";
  }
  return text;
}

GPUPROF_END_NAMESPACE
