#include "api/benchmark_json.hpp"

#include <cmath>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <set>
#include <stdexcept>
#include <string_view>

#include "driver/devices.hpp"
#include "gpuprof/benchmark.hpp"
#include "gpuprof/version.hpp"
#include "trace/label.hpp"

GPUPROF_BEGIN_NAMESPACE
namespace {

constexpr const char* kDriverFile = "/sys/module/nvidia/version";

// A JSON object or array that is being written.
class Members {
 public:
  explicit Members(char begin) : text_(1, begin), end_(begin == '{' ? '}' : ']') {}

  Members& add(std::string_view name, const std::string& json) {
    separate();
    trace::append_json(text_, name);
    text_ += ": " + json;
    return *this;
  }
  Members& add(const std::string& json) {
    separate();
    text_ += json;
    return *this;
  }
  [[nodiscard]] std::string end() const { return text_ + end_; }

 private:
  void separate() {
    if (text_.size() > 1) text_ += ", ";
  }

  std::string text_;
  char end_;
};

std::string json_of(std::string_view text) {
  std::string found;
  trace::append_json(found, text);
  return found;
}

std::string json_of(double value) {
  if (!std::isfinite(value)) return "null";
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

}  // namespace
GPUPROF_END_NAMESPACE

namespace gpuprof::api {

std::string machine_json(int ordinal) {
  Members found('{');
  for (const driver::Device& device : driver::devices()) {
    if (device.index != ordinal) continue;
    found.add("gpu", json_of(device.name));
    found.add("gpu_uuid", json_of(device.uuid));
    found.add("sms", std::to_string(device.multiprocessors));
    found.add("cc", json_of(std::to_string(device.major) + "." + std::to_string(device.minor)));
    found.add("gpu_memory", std::to_string(device.total_memory));
  }
  std::string release;
  if (std::ifstream(kDriverFile) >> release) found.add("driver", json_of(release));
  const int cuda = driver::driver_version();
  const std::string known = std::to_string(cuda / 1000) + "." + std::to_string(cuda % 1000 / 10);
  return found.add("cuda", json_of(known)).add("gpuprof", json_of(GPUPROF_VERSION_STRING)).end();
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S+00:00", &parts);
  return text;
}

}  // namespace gpuprof::api

GPUPROF_BEGIN_NAMESPACE

std::string BenchmarkResult::to_json() const {
  Members samples('['), told('['), params('{');
  for (const double ms : samples_ms) samples.add(json_of(ms));
  for (const std::string& text : warnings) told.add(json_of(text));
  for (const auto& [axis, value] : axes) params.add(axis, json_of(value));
  return Members('{')
      .add("format", json_of("gpuprof-result"))
      .add("version", "1")
      .add("unit", json_of("ms"))
      .add("name", json_of(name))
      .add("mode", json_of(mode))
      .add("requested_mode", json_of(graph_wanted ? "auto" : "batched"))
      .add("clock", json_of("cuda"))
      .add("l2", json_of("hot"))
      .add("samples_ms", samples.end())
      .add("host_ms", json_of(host_ms))
      .add("tick_ms", json_of(tick_ms))
      .add("calls_per_sample", std::to_string(calls_per_sample))
      .add("gate", json_of(gated ? "gated" : "ungated"))
      .add("clock_mhz", "[]")
      .add("throttle_reasons", "[]")
      .add("nbytes", "null")
      .add("flops", "null")
      .add("warnings", told.end())
      .add("params", params.end())
      .add("extra_info", "{}")
      .add("machine", machine)
      .add("created", json_of(created))
      .add("duration_s", json_of(duration_s))
      .end();
}

void write_benchmarks(const std::string& path, const std::vector<BenchmarkResult>& results) {
  if (results.empty()) throw std::invalid_argument("write_benchmarks: there is no result");
  Members named('{');
  std::set<std::string> names;
  for (const BenchmarkResult& result : results) {
    if (!names.insert(result.name).second) {
      throw std::invalid_argument("write_benchmarks: two results are called '" + result.name +
                                  "'; tell them apart by BenchmarkOptions::axes");
    }
    named.add(result.name, result.to_json());
  }
  const BenchmarkResult& last = results.back();
  Members run('{');
  run.add("created", json_of(last.created)).add("commit", "null").add("machine", last.machine);
  run.add("results", named.end());
  Members file('{');
  file.add("format", json_of("gpuprof-baseline")).add("version", "1");
  file.add("runs", Members('[').add(run.end()).end());
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << file.end() << '\n';
  out.close();
  if (!out) throw std::runtime_error("write_benchmarks: '" + path + "' cannot be written");
}

GPUPROF_END_NAMESPACE
