#include "api/benchmark_json.hpp"

#include <ctime>
#include <fstream>
#include <set>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "driver/devices.hpp"
#include "gpuprof/version.hpp"
#include "trace/label.hpp"

GPUPROF_BEGIN_NAMESPACE
namespace {

using Members = std::vector<std::pair<std::string, std::string>>;  // names, and values as JSON

constexpr const char* kDriverFile = "/sys/module/nvidia/version";
// The begin of a result.
constexpr const char* kAlways =
    R"({"format": "gpuprof-result", "version": 1, "unit": "ms", "requested_mode": "auto", )"
    R"("clock": "cuda", "l2": "hot", "clock_mhz": [], "throttle_reasons": [], "nbytes": null, )"
    R"("flops": null, "extra_info": {}, )";

std::string json_of(std::string_view text) {
  std::string found;
  trace::append_json(found, text);
  return found;
}

std::string list(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& json : items) text += (text.empty() ? "" : ", ") + json;
  return "[" + text + "]";
}

std::string object(const Members& members) {
  std::string text;
  for (const auto& [name, json] : members) {
    text += (text.empty() ? "" : ", ") + json_of(name) + ": " + json;
  }
  return "{" + text + "}";
}

}  // namespace
GPUPROF_END_NAMESPACE

namespace gpuprof::api {

void describe_machine(BenchmarkResult& result, int ordinal) {
  const int cuda = driver::driver_version();
  const std::string known = std::to_string(cuda / 1000) + "." + std::to_string(cuda % 1000 / 10);
  Members found{{"cuda", json_of(known)}, {"gpuprof", json_of(GPUPROF_VERSION_STRING)}};
  std::string release;
  if (std::ifstream(kDriverFile) >> release) found.emplace_back("driver", json_of(release));
  for (const driver::Device& device : driver::devices()) {
    if (device.index != ordinal) continue;
    const std::string cc = std::to_string(device.major) + "." + std::to_string(device.minor);
    found.emplace_back("gpu", json_of(device.name));
    found.emplace_back("gpu_uuid", json_of(device.uuid));
    found.emplace_back("gpu_memory", std::to_string(device.total_memory));
    found.emplace_back("sms", std::to_string(device.multiprocessors));
    found.emplace_back("cc", json_of(cc));
  }
  result.machine = object(found);
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S+00:00", gmtime_r(&now, &parts));
  result.created = text;
}

}  // namespace gpuprof::api

GPUPROF_BEGIN_NAMESPACE

std::string BenchmarkResult::to_json() const {
  std::vector<std::string> samples, told;
  Members params;
  for (const double ms : samples_ms) samples.push_back(trace::json_number(ms));
  for (const std::string& text : warnings) told.push_back(json_of(text));
  for (const auto& [axis, value] : axes) params.emplace_back(axis, json_of(value));
  return kAlways + object({{"name", json_of(name)},
                           {"mode", json_of(mode)},
                           {"samples_ms", list(samples)},
                           {"host_ms", trace::json_number(host_ms)},
                           {"tick_ms", trace::json_number(tick_ms)},
                           {"calls_per_sample", std::to_string(calls_per_sample)},
                           {"gate", json_of(gated ? "gated" : "ungated")},
                           {"warnings", list(told)},
                           {"params", object(params)},
                           {"machine", machine},
                           {"created", json_of(created)},
                           {"duration_s", trace::json_number(duration_s)}})
                       .substr(1);
}

void write_benchmarks(const std::string& path, const std::vector<BenchmarkResult>& results) {
  if (results.empty()) throw std::invalid_argument("write_benchmarks: there is no result");
  std::set<std::string> names;
  Members members;
  for (const BenchmarkResult& result : results) {
    if (!names.insert(json_of(result.name)).second) {  // which cuts long ones
      throw std::invalid_argument("write_benchmarks: two results are called '" + result.name +
                                  "'; tell them apart by BenchmarkOptions::axes");
    }
    members.emplace_back(result.name, result.to_json());
  }
  const std::string run = object({{"created", json_of(results.back().created)},
                                  {"commit", "null"},
                                  {"machine", results.back().machine},
                                  {"results", object(members)}});
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << object({{"format", json_of("gpuprof-baseline")}, {"version", "1"}, {"runs", list({run})}})
      << '\n';
  out.close();
  if (!out) throw std::runtime_error("write_benchmarks: '" + path + "' cannot be written");
}

GPUPROF_END_NAMESPACE
