// Names of kernels, labels and paths: whatever bytes they are, what is shown of them.
#include "cupti/records.hpp"
#include "fuzz/input.hpp"
#include "gpuprof/nodes.hpp"
#include "nvtx/attributes.hpp"
#include "text/kernel_name.hpp"
#include "timing/path.hpp"

namespace gpuprof::fuzz {
namespace {

constexpr std::size_t kMostShown = 4096;

// UTF-8 on one line, without what would move other text.
bool can_be_shown(std::string_view text) {
  const auto characters = characters_of(text);
  return characters && std::none_of(characters->begin(), characters->end(), [](char32_t code) {
           return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x61C || code == 0x200E ||
                  code == 0x200F || (code >= 0x2028 && code <= 0x202E) ||
                  (code >= 0x2066 && code <= 0x2069);
         });
}

std::size_t count_of(std::string_view text) { return characters_of(text)->size(); }

void check_kernel_name(const std::string& name, std::size_t most) {
  using namespace graph_text;
  const std::string text = shown(name);
  must(can_be_shown(text) && text.empty() == name.empty(), "each name can be shown", name);
  if (can_be_shown(name) && name.size() <= kMostShown) must(text == name, "it stays", name);
  if (text.size() <= kMostShown) must(shown(text) == text, "what is shown stays", name);
  must(characters(text) == count_of(text), "characters are counted", text);
  const std::string brief = short_name(demangled(name));
  must(can_be_shown(brief) && count_of(brief) <= kMaxName, "a short name is short", brief);
  must(brief.empty() == name.empty(), "each name has a short one", name);
  const std::string part = cut(text, most);
  must(can_be_shown(part) && count_of(part) <= most, "a cut text is short", part);
  must((count_of(text) <= most) == (part == text), "only a long text is cut", part);
  must(can_be_shown(around(text, most)), "a part can be shown", text);
  const std::string call = cupti::launch_name(name.c_str());
  must(call.compare(0, 2, "cu") == 0 || call.empty(), "a function is one of CUDA", call);
  must(cupti::launch_name(call.c_str()) == call, "a function's name stays", call);
}

void check_label(const std::string& text, std::size_t most) {
  const std::string label = nvtx::cut_text(text, most);
  must(label.size() <= most && (label == text) == (text.size() <= most), "a label is cut", label);
  if (characters_of(text)) must(characters_of(label).has_value(), "between characters", label);
  const std::size_t whole = std::strlen(text.c_str());
  must(nvtx::valid_label(text) == (whole > 0 && text.size() == whole + 1), "a C string", text);
  const bool is_color = (text.size() == 7 || text.size() == 9) && text[0] == '#' &&
                        text.find_first_not_of("0123456789abcdefABCDEF", 1) == std::string::npos;
  must(nvtx::color_of(text).has_value() == is_color || text[0] != '#', "a colour", text);
}

void check_path(const std::string& outer, const std::string& inner) {
  const std::string first = timing::shortened_path(outer), last = timing::shortened_path(inner);
  must(first.size() <= timing::kMaxPathBytes, "a path is bounded", first);
  if (outer.size() <= timing::kMaxPathBytes) must(first == outer, "a short path stays", outer);
  if (characters_of(outer)) must(characters_of(first).has_value(), "between characters", first);
  must((first == last) == (outer == inner), "different paths stay different", outer);
  const timing::Path& above = timing::path_below(timing::root_path(), outer);
  const timing::Path& path = timing::path_below(above, inner);
  must(&path == &timing::path_below(above, inner), "there is one of each path", path.text);
  if (&path == &timing::other_path()) return;
  must(above.name == first && path.name == last, "a path has its names", path.text);
  const std::string joined = first + (first.empty() ? "" : "/") + last;
  must(path.text == timing::shortened_path(joined), "a path is its names", path.text);
}

// What is left of a drawing without its quoted strings.
std::string bones_of(const std::string& kernel, const std::string& scope) {
  GraphNode first, second;
  first.name = kernel;
  second.index = 1;
  second.dependencies = {0};
  second.scope = scope;
  const std::string dot = to_dot({first, second}, kernel);
  must(characters_of(dot).has_value(), "a drawing is UTF-8", dot);
  std::string bones;
  bool is_quoted = false;
  for (std::size_t i = 0; i < dot.size(); ++i) {
    if (dot[i] == '"') is_quoted = !is_quoted;
    if (!is_quoted) bones += dot[i];
    if (is_quoted && dot[i] == '\\') ++i;
  }
  return bones;
}

}  // namespace
}  // namespace gpuprof::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gpuprof::fuzz;
  Input input(data, size);
  const std::size_t most = 3 + input.number<std::uint8_t>() * 20;
  const std::string first = input.text(), second = input.text();
  check_kernel_name(first, most);
  check_label(first, most);
  check_path(first, second);
  must(bones_of(first, second) == bones_of("k", "s"), "no name breaks out of a drawing", first);
  return 0;
}
