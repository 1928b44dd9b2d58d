// How samples are taken: as Python's _benchmark/harness.py, samplers.py and loop.py, for one stream
// and without its readings beside the time.
#include "gpuprof/benchmark.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <stdexcept>

#include "api/benchmark_json.hpp"
#include "api/warnings.hpp"
#include "driver/devices.hpp"
#include "gpuprof/capture.hpp"
#include "gpuprof/device.hpp"
#include "gpuprof/timer.hpp"
#include "timing/clock.hpp"
#include "timing/device.hpp"
#include "timing/gate.hpp"

GPUPROF_BEGIN_NAMESPACE
namespace {

using Body = std::function<void()>;
using Calls = std::size_t;

constexpr double kSlopeMs = 0.4;  // that the calls of a slope take together, if they are short
constexpr double kLongMs = 5.0;   // of a call: a slope over one is precise enough
constexpr Calls kMaxSlope = 400;
constexpr Calls kMaxQueued = 112;  // of a queue of 1,020 entries, 8 for a call
constexpr Calls kMaxNodes = 50'000;
constexpr double kCaptureMs = 2000.0;  // of the host's time for capturing
constexpr double kProbeMs = 50.0;
constexpr std::size_t kProbeCalls = 50;
constexpr double kLeastGpuMs = 250e-6;  // under half of the shortest kernel
constexpr int kReadings = 3;
constexpr double kGateLimitMs = 250.0;  // after which the gate opens, besides the host's time
constexpr double kPatience = 1.5;       // times that, which varies
constexpr Calls kLeastCalls = 3;        // of a slope: 1 and 2
constexpr double kBatchMs = 20.0;       // of the warm-up
constexpr double kStable = 0.02;        // the largest difference of two batches' medians
constexpr double kWarmUpFactor = 5.0;
constexpr std::size_t kMaxSamples = 5'000;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double now_ms() noexcept { return timing::milliseconds(timing::monotonic_now()); }

double median_of(std::vector<double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 != 0) return *middle;
  return (*std::max_element(values.begin(), middle) + *middle) / 2.0;
}

// Half the 95 % interval of the median over the median, by order statistics of independent samples.
// What it gets wrong: samples that are alike tell less. Python's interval counts that in.
double precision_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto count = static_cast<double>(values.size());
  const auto low =
      static_cast<std::size_t>(std::max(0.0, std::floor((count - 1.96 * std::sqrt(count)) / 2)));
  const double middle = values[values.size() / 2];
  return middle > 0.0 ? (values[values.size() - 1 - low] - values[low]) / 2.0 / middle : 0.0;
}

void check_options(const BenchmarkOptions& options) {
  bool good = !options.name.empty() && options.min_samples > 0 && options.max_time_s > 0.0;
  for (const auto& [name, value] : options.axes) good = good && !name.empty() && !value.empty();
  for (const double value : {options.warmup_s, options.min_time_s, options.rel_precision}) {
    good = good && value >= 0.0;
  }
  if (good) return;
  throw std::invalid_argument(
      "benchmark: names and values of axes are not empty, max_time_s and min_samples are above 0, "
      "and the others at least 0");
}

class Measurement {
 public:
  Measurement(Stream stream, const Body& f, const BenchmarkOptions& options)
      : stream_(stream), f_(f), options_(options) {
    result_.name = options.name;
    for (const auto& [name, value] : options.axes) {
      result_.name.append(result_.axes.empty() ? "[" : ",").append(name).append("=").append(value);
      result_.axes.emplace_back(name, value);
    }
    if (!result_.axes.empty()) result_.name += ']';
  }

  BenchmarkResult run() {
    if (capture_status(stream_) != CaptureStatus::kNone) {
      driver::refuse("benchmark: the stream is being captured, and a benchmark waits for the GPU");
    }
    const double begun = now_ms();
    prepare();
    warm_up();
    take_samples();
    result_.calls_per_sample = many_ - few_;
    result_.tick_ms = calibration_.tick_ns * 1e-6 / static_cast<double>(many_ - few_);
    result_.gated = gate_ != nullptr;
    api::describe_machine(result_, std::max(driver::current_ordinal(), 0));
    result_.duration_s = (now_ms() - begun) * 1e-3;
    api::emit_pending_warnings();
    return std::move(result_);
  }

 private:
  void warn(const std::string& text) { result_.warnings.push_back(text); }

  void synchronize() const { timing::device::synchronize(stream_.handle(), 0); }

  void call(Calls calls) const {
    for (Calls i = 0; i < calls; ++i) f_();
  }

  void prepare() {
    for (int i = 0; i < 2; ++i) {  // which loads and compiles, and may wait
      f_();
      synchronize();
    }
    calibration_ = timing::device::calibrate(std::max(driver::current_ordinal(), 0));
    open_gate();
    probe();
    if (!options_.graph || !captured()) queue_calls();
  }

  void open_gate() {
    try {
      gate_ = std::make_unique<timing::Gate>(stream_.handle(), 0);
      held([] {});
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kCuda) throw;
      give_up(error.what());  // a device that cannot wait for a word in memory
    }
  }

  void give_up(const std::string& why) {
    gate_.reset();
    warn("the GPU was not held back: " + why);
  }

  // Queues with the GPU held back. False: the watchdog had to open the gate.
  bool held(const Body& queue) {
    if (gate_ == nullptr) {
      queue();
      return true;
    }
    gate_->close(static_cast<timing::HostNanoseconds>(limit_ms_ * 1e6));
    queue();  // after an exception the destructor of the gate opens it
    return gate_->open();
  }

  static void time(Timer& timer, Stream stream, const Body& body) {
    timer.start(stream);
    body();
    timer.stop();
  }

  // The least reading of `body` less an empty interval; infinite if `body` waits for the GPU.
  double reading_ms(const Body& body) {
    double least = kInfinity;
    for (int i = 0; i < kReadings; ++i) {
      if (!held([&] { time(first_, stream_, body); })) return kInfinity;
      least = std::min(least, first_.elapsed_ms());
    }
    const double empty = gate_ == nullptr ? calibration_.idle_ns : calibration_.queued_ns;
    return least - (std::isnan(empty) ? 0.0 : empty * 1e-6);
  }

  void probe() {
    std::vector<double> host, wall;
    const double begun = now_ms();
    while (host.size() < 3 || (host.size() < kProbeCalls && now_ms() - begun < kProbeMs)) {
      const double called = now_ms();
      f_();
      host.push_back(now_ms() - called);
      synchronize();
      wall.push_back(now_ms() - called);
    }
    result_.host_ms = median_of(host);
    limit_ms_ = kGateLimitMs + kPatience * kLeastCalls * result_.host_ms;
    call_ms_ = reading_ms(f_);
    if (std::isinf(call_ms_)) {
      synchronize();
      give_up("the function waits for the GPU, so the host's time is in its own");
      call_ms_ = median_of(wall);
    } else if (call_ms_ <= kLeastGpuMs) {
      driver::refuse("benchmark: no work of the function was seen on stream " +
                     std::to_string(stream_.handle()) + "; give it the stream that it uses");
    }
  }

  // Chooses how many calls the two sides of a slope have, for calls of about `ms`.
  void choose_calls(double ms, Calls most) {
    const Calls least = ms >= kLongMs ? 1 : 3;
    const auto wanted = std::ceil(std::min(kSlopeMs / ms, static_cast<double>(kMaxSlope)));
    Calls more = std::max(static_cast<Calls>(wanted), least);
    few_ = std::max<Calls>(1, more / 3);
    if (few_ + few_ + more > most) {
      few_ = 1;
      more = most > 3 ? std::min(more, most - 2) : 1;
    }
    many_ = few_ + more;
  }

  CapturedGraph capture(Calls calls) const {
    CaptureOptions how;
    how.name = result_.name;
    how.timers = GraphTimers::kStrip;
    Capture open{stream_, how};
    call(calls);
    CapturedGraph graph = open.finish();
    graph.launch(stream_);  // the first one uploads it, which may wait for a closed gate
    synchronize();
    return graph;
  }

  bool captured() {
    try {
      CapturedGraph once = capture(1);
      const double ms = std::max(reading_ms([&] { once.launch(stream_); }), 1e-4);
      const double in_time = kCaptureMs / std::max(result_.host_ms, 1e-3);
      const Calls fit = kMaxNodes / std::max<std::size_t>(once.num_nodes(), 1);
      choose_calls(ms, std::min(std::max(kLeastCalls, static_cast<Calls>(in_time)), fit));
      few_graph_ = std::make_unique<CapturedGraph>(capture(few_));
      many_graph_ = std::make_unique<CapturedGraph>(capture(many_));
    } catch (const std::exception& error) {  // whatever the function throws where it is captured
      const std::string text = error.what();
      warn("it cannot be captured into a graph, so its calls were queued one by one: " +
           text.substr(0, text.find('\n')));
      few_graph_.reset();
      return false;
    }
    queue_few_ = [this] { few_graph_->launch(stream_); };
    queue_many_ = [this] { many_graph_->launch(stream_); };
    result_.mode = "graph";
    return true;
  }

  void queue_calls() {
    const double in_time = limit_ms_ / kPatience / std::max(result_.host_ms, 1e-3);
    choose_calls(call_ms_, std::min(kMaxQueued, static_cast<Calls>(in_time)));
    queue_few_ = [this] { call(few_); };
    queue_many_ = [this] { call(many_); };
    result_.mode = "batched";
  }

  // The time of one call. n and m take turns in which comes first, so that drift cancels out.
  double sample() {
    few_first_ = !few_first_;
    const Body queue = [this] {
      if (few_first_) time(first_, stream_, queue_few_);
      time(second_, stream_, queue_many_);
      if (!few_first_) time(first_, stream_, queue_few_);
    };
    for (int tries = 0; !held(queue); ++tries) {
      synchronize();
      if (tries == 2) {
        give_up("queueing its work waits for the GPU");
      } else if (many_graph_ == nullptr && many_ > 2) {  // fewer calls may fit into the queue
        few_ = std::max<Calls>(1, few_ / 4);
        many_ = std::max<Calls>(2, many_ / 4);
      }
    }
    const double ms = second_.elapsed_ms() - first_.elapsed_ms();
    return ms / static_cast<double>(many_ - few_);
  }

  void warm_up() {
    const double least = options_.warmup_s * 1e3;
    const double begun = now_ms();
    for (double before = 0.0; now_ms() - begun < kWarmUpFactor * least;) {
      std::vector<double> batch;
      for (const double until = now_ms() + kBatchMs; batch.empty() || now_ms() < until;) {
        batch.push_back(sample());
      }
      const double median = median_of(batch);
      const bool stable = batch.size() == 1 || std::abs(median - before) <= kStable * median;
      if (stable && now_ms() - begun >= least) return;
      before = median;
    }
    if (least > 0.0) warn("its time was still changing after the warm-up");
  }

  void take_samples() {
    std::vector<double>& samples = result_.samples_ms;
    std::size_t check_at = options_.min_samples;
    const std::size_t most = std::max(kMaxSamples, check_at);
    const double begun = now_ms();
    for (;;) {
      samples.push_back(sample());
      const double spent_s = (now_ms() - begun) * 1e-3;
      if (spent_s >= options_.max_time_s || samples.size() >= most) break;
      if (samples.size() < check_at || spent_s < options_.min_time_s) continue;
      if (precision_of(samples) <= options_.rel_precision) return;
      check_at = samples.size() + std::max<std::size_t>(10, samples.size() / 5);
    }
    if (precision_of(samples) > options_.rel_precision) {
      warn("the median is not known as well as was wanted, after max_time_s or 5,000 samples");
    }
  }

  Stream stream_;
  const Body& f_;
  const BenchmarkOptions& options_;
  BenchmarkResult result_;
  timing::device::Calibration calibration_;
  std::unique_ptr<timing::Gate> gate_;  // null: the GPU is not held back
  double limit_ms_ = kGateLimitMs;
  double call_ms_ = 0.0;
  Timer first_{Clock::kCuda};
  Timer second_{Clock::kCuda};
  std::unique_ptr<CapturedGraph> few_graph_, many_graph_;
  Body queue_few_, queue_many_;
  Calls few_ = 1;
  Calls many_ = 2;
  bool few_first_ = false;
};

}  // namespace

double BenchmarkResult::median_ms() const { return median_of(samples_ms); }

BenchmarkResult benchmark(Stream stream, const std::function<void()>& f,
                          const BenchmarkOptions& options) {
  check_options(options);
  timing::device::require();
  return Measurement(stream, f, options).run();
}

GPUPROF_END_NAMESPACE
