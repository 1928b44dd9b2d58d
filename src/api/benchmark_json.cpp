#include "api/benchmark_json.hpp"

#include <ctime>
#include <fstream>
#include <set>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "driver/devices.hpp"
#include "gpuprof/version.hpp"
#include "trace/label.hpp"

GPUPROF_BEGIN_NAMESPACE
namespace {

using Items = std::vector<std::string>;  // as JSON

constexpr const char* kDriverFile = "/sys/module/nvidia/version";
// The begin of a result.
constexpr const char* kAlways =
    R"("format": "gpuprof-result", "version": 1, "unit": "ms", "requested_mode": "auto", )"
    R"("clock": "cuda", "l2": "hot", "clock_mhz": [], "throttle_reasons": [], "nbytes": null, )"
    R"("flops": null, "extra_info": {})";

std::string json_of(std::string_view text) {
  std::string found;
  trace::append_json(found, text);
  return found;
}

std::string member(std::string_view name, const std::string& json) {
  return json_of(name) + ": " + json;
}

std::string joined(const char* brackets, const Items& items) {
  std::string text(1, brackets[0]);
  for (const std::string& json : items) text += (text.size() == 1 ? "" : ", ") + json;
  return text + brackets[1];
}

}  // namespace
GPUPROF_END_NAMESPACE

namespace gpuprof::api {

void describe_machine(BenchmarkResult& result, int ordinal) {
  const int cuda = driver::driver_version();
  const std::string known = std::to_string(cuda / 1000) + "." + std::to_string(cuda % 1000 / 10);
  Items found{member("cuda", json_of(known)), member("gpuprof", json_of(GPUPROF_VERSION_STRING))};
  std::string release;
  if (std::ifstream(kDriverFile) >> release) found.push_back(member("driver", json_of(release)));
  for (const driver::Device& device : driver::devices()) {
    if (device.index != ordinal) continue;
    const std::string cc = std::to_string(device.major) + "." + std::to_string(device.minor);
    found.push_back(member("gpu", json_of(device.name)));
    found.push_back(member("gpu_uuid", json_of(device.uuid)));
    found.push_back(member("gpu_memory", std::to_string(device.total_memory)));
    found.push_back(member("sms", std::to_string(device.multiprocessors)));
    found.push_back(member("cc", json_of(cc)));
  }
  result.machine = joined("{}", found);
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S+00:00", gmtime_r(&now, &parts));
  result.created = text;
}

}  // namespace gpuprof::api

GPUPROF_BEGIN_NAMESPACE

std::string BenchmarkResult::to_json() const {
  Items samples, told, params;
  for (const double ms : samples_ms) samples.push_back(trace::json_number(ms));
  for (const std::string& text : warnings) told.push_back(json_of(text));
  for (const auto& [axis, value] : axes) params.push_back(member(axis, json_of(value)));
  return joined(
      "{}",
      {kAlways, member("name", json_of(name)), member("mode", json_of(mode)),
       member("samples_ms", joined("[]", samples)), member("host_ms", trace::json_number(host_ms)),
       member("tick_ms", trace::json_number(tick_ms)),
       member("calls_per_sample", std::to_string(calls_per_sample)),
       member("gate", json_of(gated ? "gated" : "ungated")), member("warnings", joined("[]", told)),
       member("params", joined("{}", params)), member("machine", machine),
       member("created", json_of(created)), member("duration_s", trace::json_number(duration_s))});
}

void write_benchmarks(const std::string& path, const std::vector<BenchmarkResult>& results) {
  if (results.empty()) throw std::invalid_argument("write_benchmarks: there is no result");
  std::set<std::string> names;
  Items found;
  for (const BenchmarkResult& result : results) {
    if (!names.insert(json_of(result.name)).second) {  // which cuts long ones
      throw std::invalid_argument("write_benchmarks: two results are called '" + result.name +
                                  "'; tell them apart by BenchmarkOptions::axes");
    }
    found.push_back(
        joined("{}", {member("fullname", json_of(result.name)),
                      member("gpuprof", joined("{}", {member("result", result.to_json())}))}));
  }
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  // As pytest writes benchmarks for --gpu-benchmark-json.
  out << joined("{}", {member("format", json_of("gpuprof-pytest")), member("format_version", "1"),
                       member("benchmarks", joined("[]", found))})
      << '\n';
  out.close();
  if (!out) throw std::runtime_error("write_benchmarks: '" + path + "' cannot be written");
}

GPUPROF_END_NAMESPACE
