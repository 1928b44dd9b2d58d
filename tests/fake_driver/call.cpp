#include "call.hpp"

#include <cstdio>
#include <ctime>
#include <string_view>
#include <thread>
#include <unordered_set>

#include "errors.hpp"
#include "script.hpp"
#include "time.hpp"

namespace fakecuda {
namespace {

constexpr std::size_t kLogLines = 100;
constexpr std::size_t kRing = 65536;
constexpr int kPollMicroseconds = 20;

void count_call(State& s, const char* symbol) {
  ++s.calls[symbol];
  ++s.calls_of_thread[{std::this_thread::get_id(), symbol}];
  ++s.total_calls;
  s.last_calls.push_back(symbol);
  if (s.last_calls.size() > kRing) s.last_calls.pop_front();
}

void wait_until_released(State& s) {
  const std::uint64_t before = s.releases;
  ++s.blocked_calls;
  while (s.releases == before) wait_for_notice();
  --s.blocked_calls;
}

// Seen on an H200: these wait while another thread's call waits for room in a stream's queue.
void wait_for_calls_without_room(State& s, std::string_view symbol) {
  static const std::unordered_set<std::string_view> waiting{
      "cuEventCreate",      "cuEventDestroy_v2",  "cuStreamCreate",
      "cuStreamDestroy_v2", "cuGraphExecDestroy", "cuStreamBeginCapture_v2"};
  if (s.calls_without_room == 0 || waiting.count(symbol) == 0) return;
  ++s.blocked_calls;
  while (s.calls_without_room != 0) pause(kPollMicroseconds);
  --s.blocked_calls;
}

}  // namespace

Call::Call(const Function& function) : function_(function) {
  lock();
  enter();
}

void Call::enter() {
  State& s = state();
  if (!s.config.spared) count_call(s, function_.symbol);
  if (s.gone) {
    ++s.calls_after_deinit;
    return refuse(kDeinitialized);
  }
  if (s.forked) {
    calls_in_child().fetch_add(1);
    if (function_.in_child == InChild::kCrashes) misuse(function_.symbol, "in a forked child");
    if (function_.in_child == InChild::kNotInitialised) return refuse(kNotInitialized);
    if (function_.in_child == InChild::kAnswersSuccess) return refuse(kSuccess);
    if (function_.in_child == InChild::kInvalidValue) return refuse(kInvalidValue);
  }
  if (s.config.automatic && function_.passes_time) s.now += s.config.call_ns;
  pump(s);
  if (!s.config.spared) wait_for_calls_without_room(s, function_.symbol);
  apply_rule();
  if (!refused_ && function_.needs_init && !s.initialised) refuse(kNotInitialized);
}

Call::~Call() { leave(); }

void Call::refuse(Result answer) {
  refused_ = true;
  answer_ = answer;
}

void Call::apply_rule() {
  if (state().config.spared) return;
  const Rule* found = match_rule(state(), function_.symbol);
  if (found == nullptr) return;
  const Rule rule = *found;  // the script may change while this call waits
  if (rule.block) wait_until_released(state());
  fault_ = rule.code;
  sticky_ = rule.sticky;
  fails_after_ = rule.after;
  if (fault_ == kSuccess || fails_after_) return;
  if (sticky_) poison(fault_);
  refuse(fault_);
}

Result Call::finish(Result answer) {
  if (!refused_) answer_ = answer;
  if (fails_after_ && fault_ != kSuccess) {
    if (sticky_) poison(fault_);
    answer_ = fault_;
  }
  log_answer(answer_, function_.symbol);
  return answer_;
}

void log_answer(Result answer, const char* function) {
  const bool is_worth_a_line = answer != kSuccess && answer != kNotReady;
  if (!is_worth_a_line || state().forked) return;
  log_line("Returning " + std::to_string(answer) + " (" + error_name(answer) + ") from " +
           function);
}

void log_line(const std::string& text) {
  State& s = state();
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  std::tm utc{};
  gmtime_r(&now.tv_sec, &utc);
  char head[64];
  std::snprintf(head, sizeof head, "[%02d:%02d:%02d.%03ld][%lu][CUDA][E] ", utc.tm_hour, utc.tm_min,
                utc.tm_sec, now.tv_nsec / 1000000, pthread_self());
  s.log.push_back(head + text);
  if (s.log.size() > kLogLines) {
    s.log.pop_front();
    ++s.log_dropped;
  }
}

void poison(Result code) {
  State& s = state();
  if (code == kDeinitialized) {
    s.gone = true;
    return;
  }
  s.device_fault = code;
  for (const auto& context : s.all_contexts) context->sticky = code;
}

}  // namespace fakecuda
