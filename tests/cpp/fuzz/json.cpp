// The writer of JSON: texts, numbers, results and lines of traces, read back by another reader.
#include <cmath>

#include "fuzz/input.hpp"
#include "gpuprof/benchmark.hpp"
#include "trace/format.hpp"

namespace gpuprof::fuzz {
namespace {

// A text as JSON, which must say what append_json() promises.
std::string checked_json(std::string_view text) {
  std::string json;
  trace::append_json(json, text);
  const bool is_cut = text.size() > trace::kMaxTextBytes;
  if (is_cut) {
    std::size_t keep = trace::kMaxTextBytes - 3;
    while (keep > 0 && (text[keep] & 0xC0) == 0x80) --keep;
    text = text.substr(0, keep);
  }
  const char* end = is_cut                                 ? "\xE2\x80\xA6"
                    : !text.empty() && text.back() == '\\' ? "\xE2\x80\x8B"
                                                           : "";
  std::string promised;
  while (!text.empty()) {
    const std::optional<char32_t> code = character_of(text);
    const bool is_surrogate = text.size() > 2 && text[0] == '\xED' && (text[1] & 0xE0) == 0xA0 &&
                              (text[2] & 0xC0) == 0x80;
    promised += utf8(code.value_or(0) == 0 ? 0xFFFD : *code);
    text.remove_prefix(code ? utf8(*code).size() : is_surrogate ? 3 : 1);
  }
  must(Json(json)[""] == promised + end, "a text comes back", json);
  return json;
}

void check_number(const std::string& json, double value) {
  if (!std::isfinite(value)) return must(json == "null", "no number is null", json);
  const double read = std::strtod(json.c_str(), nullptr);
  must(std::memcmp(&read, &value, sizeof value) == 0, "a number comes back", json);
}

void check_result(Input input) {
  BenchmarkResult result;
  result.host_ms = input.number<double>();
  result.samples_ms = {input.number<double>(), input.number<float>()};
  result.name = input.text();
  result.warnings = {input.text(), input.text()};
  result.axes = {{result.name, result.warnings[0]}};
  const Json read(result.to_json());
  const auto same = [](const std::string& found, const std::string& text) {
    must(found == Json(checked_json(text))[""], "a text comes back", found);
  };
  check_number(read["/host_ms"], result.host_ms);
  for (const std::size_t i : {0, 1}) {
    check_number(read["/samples_ms/" + std::to_string(i)], result.samples_ms[i]);
    same(read["/warnings/" + std::to_string(i)], result.warnings[i]);
  }
  same(read["/name"], result.name);
  same(read["/params/" + read["/name"]], result.warnings[0]);
}

std::string microseconds(std::int64_t time) {
  char text[32];
  time = std::max<std::int64_t>(time, 0);
  std::snprintf(text, sizeof text, "%lld.%03d", static_cast<long long>(time / 1000),
                static_cast<int>(time % 1000));
  return text;
}

// A line for each way in which an event is written.
void check_lines(Input input) {
  const std::string pid = std::to_string(input.number<std::uint32_t>());
  const trace::Position at{pid, input.number<std::uint32_t>()};
  const auto id = input.number<std::uint64_t>();
  const auto begin = input.number<std::int64_t>(), end = input.number<std::int64_t>();
  const std::string path = checked_json(input.text()), payload = checked_json(input.text());
  const trace::Label name{checked_json(input.text()), "\"path\":" + path};
  const trace::Label category{checked_json(input.text()), {}};
  trace::Extra extra;
  extra.args = "\"payload\":" + payload;
  trace::Event event;
  event.kind = trace::Kind::kInstant;
  event.name = &name;
  event.category = &category;
  event.extra = &extra;
  trace::Text text;
  trace::append_slice(text, trace::slice_head(at, event), event, begin, end);
  trace::append_async(text, at, event, begin, end, id);
  trace::append_moment(text, at, event, begin);
  trace::append_flow(text, at, 'f', name.json, category.json, begin, id);
  std::string_view left = text.view();
  for (const std::string phase : {"X", "b", "e", "i", "f"}) {
    const std::size_t size = left.find(",\n");
    must(size != std::string_view::npos, "a line ends", left);
    const Json line(left.substr(0, size));
    left.remove_prefix(size + 2);
    must(line["/ph"] == phase && line["/pid"] == pid, "phase and process", phase);
    must(line["/tid"] == std::to_string(at.tid), "the thread", phase);
    must(line["/name"] == Json(name.json)[""], "the name", name.json);
    must(line["/cat"] == Json(category.json)[""], "the category", category.json);
    must(line["/ts"] == microseconds(phase == "e" ? end : begin), "the time", line["/ts"]);
    if (phase == "X") must(line["/dur"] == microseconds(end), "the duration", line["/dur"]);
    if (phase == "f") must(line["/id"] == std::to_string(id), "the id", line["/id"]);
    if (phase == "b") must(line["/id2/local"] == std::to_string(id), "the id", phase);
    if (phase == "e" || phase == "f") continue;
    must(line["/args/path"] == Json(path)[""], "the path", path);
    must(line["/args/payload"] == Json(payload)[""], "the payload", payload);
  }
  must(left.empty(), "there are no more lines", left);
}

}  // namespace
}  // namespace gpuprof::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const gpuprof::fuzz::Input input(data, size);
  gpuprof::fuzz::check_result(input);
  gpuprof::fuzz::check_lines(input);
  return 0;
}
