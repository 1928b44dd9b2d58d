#include "text/graph_text.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <optional>
#include <queue>

#include "text/kernel_name.hpp"

namespace gpuprof::graph_text {
namespace {

std::string byte_size(std::uint64_t size) {
  constexpr std::array<const char*, 5> kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(size);
  std::size_t unit = 0;
  while (value >= 1023.5 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  char text[48];
  std::snprintf(text, sizeof text, unit == 0 || value >= 99.95 ? "%.0f %s" : "%.1f %s", value,
                kUnits[unit]);
  return text;
}

std::string extent_text(const Extent& extent) {
  return "(" + std::to_string(extent[0]) + "," + std::to_string(extent[1]) + "," +
         std::to_string(extent[2]) + ")";
}

template <typename Number>
std::string number_text(const std::optional<Number>& value) {
  return value ? grouped(*value) : "unknown";
}
std::string number_text(const std::optional<Extent>& value) {
  return value ? extent_text(*value) : "unknown";
}

// CUgraphExecUpdateResult: its name after CU_GRAPH_EXEC_UPDATE_, and what it means for a user.
struct UpdateResult {
  const char* name;
  const char* meaning;
};
constexpr std::array<UpdateResult, 9> kUpdateResults{{
    {"SUCCESS", "the update succeeded"},
    {"ERROR", "the driver refused for a reason that it gives by the error of the call"},
    {"ERROR_TOPOLOGY_CHANGED",
     "the graphs have different nodes or edges, or list them in another order"},
    {"ERROR_NODE_TYPE_CHANGED", "a node is of another type"},
    {"ERROR_FUNCTION_CHANGED", "a node runs another kernel, which drivers before 11.2 refuse"},
    {"ERROR_PARAMETERS_CHANGED",
     "a node's parameters changed in a way that no update can follow, such as a copy to or from "
     "memory of another kind or device"},
    {"ERROR_NOT_SUPPORTED",
     "something about a node cannot be updated at all, such as an allocation in the graph"},
    {"ERROR_UNSUPPORTED_FUNCTION_CHANGE",
     "a node runs another kernel that cannot take the place of the first, such as one of another "
     "device or context"},
    {"ERROR_ATTRIBUTES_CHANGED",
     "a kernel's launch attributes changed in a way that no update can follow, such as its "
     "cluster size or cooperative launch"},
}};

const GraphNode* node_at(const std::vector<GraphNode>& nodes, std::ptrdiff_t index) noexcept {
  if (index < 0 || static_cast<std::size_t>(index) >= nodes.size()) return nullptr;
  return &nodes[static_cast<std::size_t>(index)];
}

}  // namespace

std::string title(const GraphNode& node) {
  return "node " + std::to_string(node.index) + " " +
         (node.name.empty() ? node_type_name(node.type) : short_name(node.name));
}

std::vector<std::string> details(const GraphNode& node) {
  std::vector<std::string> found;
  if (node.grid && node.block) {
    found.push_back("grid " + extent_text(*node.grid) + " block " + extent_text(*node.block));
  }
  if (node.shared_memory.value_or(0) != 0) {
    found.push_back("shared " + byte_size(*node.shared_memory));
  }
  if (node.nbytes) found.push_back(byte_size(*node.nbytes));
  if (node.value) {
    char text[24];
    std::snprintf(text, sizeof text, "value %#x", *node.value);
    found.emplace_back(*node.value == 0 ? "value 0x0" : text);
  }
  if (!node.children.empty()) found.push_back(plural(node.children.size(), "node"));
  return found;
}

std::string scope_text(const GraphNode& node) { return cut(shown(node.scope), kMaxName); }

std::pair<std::string, std::string> telling_names(const GraphNode& own, const GraphNode& other) {
  std::pair<std::string, std::string> names{short_name(own.name), short_name(other.name)};
  if (names.first != names.second) return names;
  const bool by_name = own.name != other.name;
  names = {shown(by_name ? own.name : own.symbol), shown(by_name ? other.name : other.symbol)};
  const auto [place, unused] = std::mismatch(names.first.begin(), names.first.end(),
                                             names.second.begin(), names.second.end());
  const auto alike = static_cast<std::size_t>(place - names.first.begin());
  const std::size_t same = characters(std::string_view(names.first).substr(0, alike));
  return {around(names.first, same), around(names.second, same)};
}

std::string changes(const GraphNode& own, const GraphNode& other) {
  std::string text;
  const auto add = [&text](const char* what, const std::string& from, const std::string& to) {
    text += (text.empty() ? "" : ", ") + std::string(what) + " " + from + " -> " + to;
  };
  const auto compare = [&add](const char* what, const auto& from, const auto& to) {
    if (from != to) add(what, number_text(from), number_text(to));
  };
  if (own.type != other.type) add("type", node_type_name(own.type), node_type_name(other.type));
  if (own.symbol != other.symbol) {
    const auto names = telling_names(own, other);
    add("kernel", names.first, names.second);
  }
  compare("grid", own.grid, other.grid);
  compare("block", own.block, other.block);
  compare("shared memory", own.shared_memory, other.shared_memory);
  compare("nbytes", own.nbytes, other.nbytes);
  compare("value", own.value, other.value);
  compare("element size", own.element_size, other.element_size);
  return text;
}

std::string grouped(std::uint64_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t at = digits.size(); at > 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
  return digits;
}

std::string plural(std::size_t count, const std::string& what) {
  return grouped(count) + " " + what + (count == 1 ? "" : "s");
}

std::string table(const std::vector<std::vector<std::string>>& lines,
                  const std::set<std::size_t>& to_left) {
  std::vector<std::size_t> widths(lines.front().size(), 0);
  std::vector<bool> has_text(widths.size(), false);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    for (std::size_t column = 0; column < widths.size(); ++column) {
      widths[column] = std::max(widths[column], characters(lines[i][column]));
      if (i > 0 && !lines[i][column].empty()) has_text[column] = true;
    }
  }
  std::string text;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    std::string line;
    for (std::size_t column = 0; column < widths.size(); ++column) {
      if (column > 0 && !has_text[column]) continue;
      const std::string& cell = lines[i][column];
      const std::string space(widths[column] - characters(cell), ' ');
      if (column > 0) line += "  ";
      line += to_left.count(column) != 0 ? cell + space : space + cell;
    }
    const std::string rule = i == 0 ? std::string(characters(line), '-') + '\n' : "";
    line.erase(line.find_last_not_of(' ') + 1);
    text += line;
    text += '\n';
    text += rule;
  }
  return text;
}

std::string quoted(const std::string& name) {
  std::string result = "'";
  for (const char c : cut(shown(name), kMaxName)) {
    if (c == '\'') result += '\\';
    result += c;
  }
  return result + "'";
}

std::vector<std::size_t> in_order(const std::vector<GraphNode>& nodes) {
  std::vector<std::size_t> waits(nodes.size());
  std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    waits[i] = nodes[i].dependencies.size();
    if (waits[i] == 0) ready.push(i);
  }
  std::vector<std::size_t> order;
  while (!ready.empty()) {
    const std::size_t index = ready.top();
    ready.pop();
    order.push_back(index);
    for (const std::size_t next : nodes[index].dependents) {
      if (next < waits.size() && --waits[next] == 0) ready.push(next);
    }
  }
  return order;
}

std::string update_reason(int result, const std::vector<GraphNode>& own, std::ptrdiff_t own_index,
                          const std::vector<GraphNode>& other, std::ptrdiff_t other_index) {
  const auto number = static_cast<std::size_t>(result);
  const bool known = result >= 0 && number < kUpdateResults.size();
  std::string text =
      known ? std::string("CU_GRAPH_EXEC_UPDATE_") + kUpdateResults[number].name + ": " +
                  kUpdateResults[number].meaning
            : "update result " + std::to_string(result) + ": a reason newer than this gpuprof";
  const GraphNode* node = node_at(own, own_index);
  const GraphNode* of_other = node_at(other, other_index);
  if (node != nullptr && of_other != nullptr) {
    const std::string differs = changes(*node, *of_other);
    text += "; " + title(*node) + ", in the other graph " + title(*of_other) + ": " +
            (differs.empty() ? "nothing that can be shown differs" : differs);
  } else if (of_other != nullptr) {
    text += "; " + title(*of_other) + " of the other graph";
  } else if (node != nullptr) {
    text += "; " + title(*node);
  }
  if (own.size() != other.size()) {
    text += "; " + plural(own.size(), "node") + " here, " + grouped(other.size()) +
            " in the other graph";
  }
  return text;
}

}  // namespace gpuprof::graph_text
