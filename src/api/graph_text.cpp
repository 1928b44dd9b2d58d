#include "api/graph_text.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <queue>
#include <utility>

namespace gpuprof::graph_text {
namespace {

constexpr std::size_t kMaxText = 4096;  // bytes
constexpr char kReplacement[] = "\xEF\xBF\xBD";
constexpr char kEllipsis[] = "\xE2\x80\xA6";

bool continues(char byte) noexcept { return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U; }

// The bytes of the character at the beginning of `text`; 0 where they are no UTF-8.
std::size_t character_size(std::string_view text, std::uint32_t& code) noexcept {
  const auto first = static_cast<unsigned char>(text[0]);
  code = first;
  if (first < 0x80) return 1;
  const std::size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < size) return 0;
  code = first & (0xFFU >> (size + 1));
  for (std::size_t i = 1; i < size; ++i) {
    if (!continues(text[i])) return 0;
    code = code << 6U | (static_cast<unsigned char>(text[i]) & 0x3FU);
  }
  constexpr std::array<std::uint32_t, 5> kLeast{0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  return code < kLeast[size] || surrogate || code > 0x10FFFF ? 0 : size;
}

// Characters that would move or reorder what stands beside them.
bool is_direction(std::uint32_t code) noexcept {
  return code == 0x061C || code == 0x200E || code == 0x200F || (code >= 0x2028 && code <= 0x202E) ||
         (code >= 0x2066 && code <= 0x2069);
}

std::string escape_of(std::uint32_t code) {
  char text[16];
  std::snprintf(text, sizeof text, code < 0x100 ? "\\x%02x" : "\\u%04x", code);
  return text;
}

std::size_t characters(std::string_view text) noexcept {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char byte) { return !continues(byte); }));
}

// Where the character with this number begins.
std::size_t offset_of(std::string_view text, std::size_t character) noexcept {
  std::size_t at = 0;
  for (; at < text.size(); ++at) {
    if (continues(text[at])) continue;
    if (character-- == 0) break;
  }
  return at;
}

// Anonymous namespaces without their parentheses, which would end the name.
std::string with_short_anonymous(std::string text) {
  constexpr std::string_view kLong = "(anonymous namespace)";
  for (std::size_t at = text.find(kLong); at != std::string::npos; at = text.find(kLong, at)) {
    text.replace(at, kLong.size(), "{anonymous}");
  }
  return text;
}

char closer_of(char opener) noexcept {
  switch (opener) {
    case '<':
      return '>';
    case '(':
      return ')';
    case '[':
      return ']';
    case '{':
      return '}';
    default:
      return 0;
  }
}

// Drops the result and the parameters, and what stands in angle and square brackets.
std::string without_types(const std::string& name) {
  std::string kept;
  std::string closers;
  for (const char c : name) {
    if (!closers.empty()) {
      if (c == closers.back()) {
        closers.pop_back();
      } else if (closer_of(c) != 0) {
        closers.push_back(closer_of(c));
      } else if (closers.front() != '}') {
        continue;
      }
      if (closers.empty() && c == '>') {
        kept += "<...>";
      } else if (closers.empty() ? c == '}' : closers.front() == '}') {
        kept += c;
      }
    } else if (c == '(') {
      break;
    } else if (closer_of(c) != 0) {
      closers.push_back(closer_of(c));
      if (c == '{') kept += c;
    } else if (c == ' ') {
      kept.clear();
    } else {
      kept += c;
    }
  }
  return kept;
}

std::string grouped(std::uint64_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t at = digits.size(); at > 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
  return digits;
}

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

// What a long name has around a place in it.
std::string around(const std::string& name, std::size_t place) {
  const std::size_t count = characters(name);
  const std::size_t begin = place > kMaxName / 3 ? place - kMaxName / 3 : 0;
  const std::size_t end = std::min(place + kMaxName, count);
  const std::size_t from = offset_of(name, begin);
  return (begin > 0 ? kEllipsis : "") + name.substr(from, offset_of(name, end) - from) +
         (end < count ? kEllipsis : "");
}

// Both kernels' names in the shortest form in which they differ.
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

template <typename Number>
std::string number_text(const std::optional<Number>& value) {
  return value ? grouped(*value) : "unknown";
}
std::string number_text(const std::optional<Extent>& value) {
  return value ? extent_text(*value) : "unknown";
}

// How two nodes differ: "grid (1,1,1) -> (2,1,1)"; empty where nothing that can be shown does.
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

std::string shown(std::string_view text) {
  std::string result;
  const bool is_long = text.size() > kMaxText;
  if (is_long) {
    std::size_t end = kMaxText - 3;
    while (end > 0 && continues(text[end])) --end;
    text = text.substr(0, end);
  }
  while (!text.empty()) {
    std::uint32_t code = 0;
    const std::size_t size = character_size(text, code);
    if (size == 0 || code == 0) {
      result += kReplacement;
    } else if (code < 0x20 || (code >= 0x7F && code < 0xA0) || is_direction(code)) {
      result += escape_of(code);
    } else {
      result += text.substr(0, size);
    }
    text.remove_prefix(std::max<std::size_t>(size, 1));
  }
  return is_long ? result + kEllipsis : result;
}

std::string cut(std::string_view text, std::size_t most) {
  const std::size_t count = characters(text);
  if (count <= most) return std::string(text);
  const std::size_t tail = most / 3;
  return std::string(text.substr(0, offset_of(text, most - tail - 1))) + kEllipsis +
         std::string(text.substr(offset_of(text, count - tail)));
}

std::string short_name(const std::string& name) {
  const std::string plain = shown(name);
  const std::string bare = without_types(with_short_anonymous(plain));
  return cut(bare.empty() ? plain : bare, kMaxName);
}

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

std::string plural(std::size_t count, const std::string& what) {
  return grouped(count) + " " + what + (count == 1 ? "" : "s");
}

std::string table(const std::vector<std::vector<std::string>>& lines) {
  std::vector<std::size_t> widths;
  for (const auto& line : lines) {
    widths.resize(std::max(widths.size(), line.size()));
    for (std::size_t i = 0; i < line.size(); ++i) {
      widths[i] = std::max(widths[i], characters(line[i]));
    }
  }
  std::string text;
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      const std::string padding(widths[i] - characters(line[i]), ' ');
      text += i == 0 ? line[i] + (line.size() > 1 ? padding : "") : "  " + padding + line[i];
    }
    text += '\n';
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
