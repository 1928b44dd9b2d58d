#include "graphs/diagnosis.hpp"

#include <array>
#include <cctype>
#include <cstdio>
#include <string_view>
#include <utility>

namespace gpuprof::graphs {
namespace {

constexpr int kFirstCode = 900;

struct CaptureCode {
  const char* name;
  const char* text;
};
constexpr std::array<CaptureCode, 9> kCodes{{
    {"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {"CUDA_ERROR_STREAM_CAPTURE_MERGE",
     "operation would result in a merge of separate capture sequences"},
    {"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "capture was not initiated in this stream"},
    {"CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
    {"CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another stream"},
    {"CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {"CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last recorded in a capturing stream"},
    {"CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
     "attempt to terminate a thread-local capture sequence from another thread"},
}};

CaptureCode code_of(int code) noexcept {
  const int index = code - kFirstCode;
  if (index < 0 || index >= static_cast<int>(kCodes.size())) return {"", ""};
  return kCodes[static_cast<unsigned>(index)];
}

constexpr char kWait[] =
    "likely .item(), .cpu(), .tolist() or the printing of a tensor, or a synchronize() of a stream "
    "or an event: the host cannot wait for work that is only being recorded, so do it after the "
    "capture";
constexpr char kCopy[] =
    "likely .item(), .cpu(), .numpy() or the printing of a tensor, or a copy that waits: copy "
    "after the capture, or between device memory and pinned memory with non_blocking=True";
constexpr char kMemory[] =
    "memory was allocated or freed: run the body once before the capture, so that what it needs is "
    "there, or capture with mode=\"relaxed\"";
constexpr char kQuery[] =
    "likely event.query() or stream.query(), or a thread that polls: what is being recorded has no "
    "state to ask for, so ask after a replay";
constexpr char kLoading[] =
    "a kernel was loaded or unloaded: run the body once before the capture, so that every kernel "
    "is there";

// By the beginning of the call's name.
constexpr std::array<std::pair<std::string_view, const char*>, 17> kByCall{{
    {"cuStreamSynchronize", kWait},
    {"cuEventSynchronize", kWait},
    {"cuCtxSynchronize",
     "likely torch.cuda.synchronize() or another wait for the whole device: do it after the "
     "capture"},
    {"cuEventQuery", kQuery},
    {"cuStreamQuery", kQuery},
    {"cuEventElapsedTime",
     "the time between two events was asked for while they are only being recorded: ask after "
     "a replay, or use gpuprof.timer() in the body"},
    {"cuMemcpy", kCopy},
    {"cuMemset", "a memset that waits: use one that takes a stream"},
    {"cuMemAlloc", kMemory},
    {"cuMemFree", kMemory},
    {"cuMemHost", kMemory},
    {"cuMemCreate", kMemory},
    {"cuMemMap", kMemory},
    {"cuMemUnmap", kMemory},
    {"cuMemRelease", kMemory},
    {"cuModule", kLoading},
    {"cuLibrary", kLoading},
}};
constexpr char kGraphCall[] =
    "a graph was made, launched or destroyed in the body, which the garbage collector may do "
    "too: drop graphs before the capture";

constexpr char kValue[] =
    "a value on the GPU decides what the host does next (.item(), int(), bool(), if): keep it "
    "there, with torch.where(condition, a, b) in place of an if, or decide outside";
constexpr char kMask[] =
    "a mask picks as many elements as the data says, and an index on the CPU is copied: use "
    "torch.where(mask, x, 0), or indices on the GPU of a fixed number";
constexpr char kDistinct[] =
    "how many values differ depends on the data: compare neighbours after torch.sort(x), or do it "
    "outside";

// By the beginning of an operator's name: what depends on the data, and the call that does not.
constexpr std::array<std::pair<std::string_view, const char*>, 16> kByOperator{{
    {"aten::_local_scalar_dense", kValue},
    {"aten::item", kValue},
    {"aten::is_nonzero", kValue},
    {"aten::equal", kValue},
    {"aten::nonzero",
     "how many elements are not zero depends on the data: torch.nonzero_static(x, size=n) finds a "
     "fixed number, and torch.where(mask, a, b) needs none"},
    {"aten::index.Tensor", kMask},
    {"aten::masked_select", kMask},
    {"aten::index_put",
     "a mask writes as many elements as the data says, and an index on the CPU is copied: use "
     "torch.where(mask, value, x), x.masked_fill_(mask, number), or indices on the GPU"},
    {"aten::_unique", kDistinct},
    {"aten::unique", kDistinct},
    {"aten::repeat_interleave",
     "the length of the result depends on the data: give it as output_size=n"},
    {"aten::bincount",
     "the number of bins depends on the data: torch.zeros(n, ...).scatter_add_(0, x, weights) has "
     "a fixed one"},
    {"aten::_linalg_check_errors",
     "the host waits for the error flags: torch.linalg.inv_ex, cholesky_ex, solve_ex and "
     "lu_factor_ex do not look at them"},
    {"torchvision::nms",
     "how many boxes are kept depends on the data: return boxes and scores, and do it after the "
     "call"},
    {"aten::_to_copy", kCopy},
    {"aten::copy_", kCopy},
}};

const char* hint_of_code(int code) noexcept {
  switch (code) {
    case 902:
      return "a stream of one capture waited for an event of another: two captures cannot become "
             "one, so keep their streams and events apart";
    case 903:
      return "the capture was ended on another stream than the one that it was begun on";
    case 904:
      return "a stream that the capture forked to was not joined again: make the capture's stream "
             "wait for it before the end, with capture_stream.wait_stream(other) or by waiting for "
             "an event that was recorded on it";
    case 905:
      return "the body waits for an event or a stream from outside of the capture: wait before the "
             "capture begins, or record the event in the body";
    case 906:
      return "work on the legacy default stream met the capture. On another thread it is autograd, "
             "which adds gradients on the stream where the parameter was used first, as long as "
             "results of that use are kept: keep them detached, or use torch.cuda.stream(...) from "
             "the first call on. Else capture on a non-blocking stream, and keep the default "
             "stream out of the body";
    case 907:
      return "an event of the capture was asked for a result: it has one once the graph was "
             "launched, if it was recorded with the external flag";
    case 908:
      return "the capture was ended on another thread than the one that began it: end it where it "
             "began, or capture with mode=\"relaxed\"";
    default:
      return "";
  }
}

bool starts_with(std::string_view text, std::string_view beginning) noexcept {
  return text.substr(0, beginning.size()) == beginning;
}

bool is_space(char c) noexcept { return std::isspace(static_cast<unsigned char>(c)) != 0; }

std::string_view stripped(std::string_view text) noexcept {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

// A line without the time, thread and level that stand before it in brackets.
std::string_view without_header(std::string_view line) noexcept {
  line = stripped(line);
  while (!line.empty() && line.front() == '[') {
    const std::size_t end = line.find(']');
    if (end == std::string_view::npos) break;
    line = stripped(line.substr(end + 1));
  }
  return line;
}

// "Returning 900 (NAME) from call", anywhere in the line.
std::optional<Refusal> refusal_in(std::string_view text) {
  constexpr std::string_view kReturning = "Returning ";
  for (std::size_t at = text.find(kReturning); at != std::string_view::npos;
       at = text.find(kReturning, at + 1)) {
    const std::string rest(text.substr(at));
    std::array<char, 128> name{};
    std::array<char, 128> call{};
    Refusal found;
    // NOLINTNEXTLINE(bugprone-unchecked-string-to-number-conversion): a code, from the driver
    if (std::sscanf(rest.c_str(), "Returning %d (%127[A-Za-z0-9_]) from %127[A-Za-z0-9_]",
                    &found.code, name.data(), call.data()) != 3) {
      continue;
    }
    found.name = name.data();
    found.call = call.data();
    return found;
  }
  return std::nullopt;
}

bool is_rule_for_streams(int code) noexcept {
  return code == 902 || code == 903 || code == 905 || code == 906;
}

const char* hint_of_call(const Refusal& refusal) noexcept {
  // These codes say more than the call that they came from.
  if (is_rule_for_streams(refusal.code) || refusal.code == 904 || refusal.code == 908) {
    return hint_of_code(refusal.code);
  }
  for (const auto& [beginning, hint] : kByCall) {
    if (starts_with(refusal.call, beginning)) return hint;
  }
  return starts_with(refusal.call, "cuGraph") ? kGraphCall : hint_of_code(refusal.code);
}

const char* hint_of_operator(std::string_view op) noexcept {
  for (const auto& [beginning, hint] : kByOperator) {
    if (starts_with(op, beginning)) return hint;
  }
  return "";
}

std::string hint_of(int code, const std::optional<Refusal>& refusal, const CaptureFacts& facts) {
  if (refusal && !refusal->own && facts.mode == "global") {
    // What to do in the body is no advice: the call is another thread's.
    return "in global mode a capture binds all threads of the process; mode=\"thread_local\" binds "
           "only the one that captures";
  }
  std::string hint = refusal ? hint_of_call(*refusal) : "";
  const std::string of_operator = hint_of_operator(facts.op);  // knows what the host waits for
  const bool is_wait = hint.empty() || hint == kWait || hint == kCopy;
  if (is_wait && !of_operator.empty()) hint = of_operator;
  if (hint.empty()) hint = hint_of_code(code);
  const bool unknown = hint.empty() && !refusal && code == kInvalidated && facts.where.empty();
  if (unknown && facts.can_watch) {
    return "debug=True finds the line";
  }
  return hint;
}

// The capture's name and what is known of it: capture 'step' (stream 7, mode thread_local, ...).
std::string title_of(const CaptureFacts& facts) {
  std::vector<std::string> known;
  if (facts.stream) known.push_back("stream " + std::to_string(*facts.stream));
  if (!facts.mode.empty()) known.push_back("mode " + facts.mode);
  if (facts.nodes) {
    known.push_back(std::to_string(*facts.nodes) + (*facts.nodes == 1 ? " node" : " nodes") +
                    " when last seen");
  }
  if (!facts.last_kernel.empty()) known.push_back("last kernel " + facts.last_kernel);
  std::string title = facts.name.empty() ? "the capture" : "capture " + facts.name;
  for (std::size_t i = 0; i < known.size(); ++i) title += (i == 0 ? " (" : ", ") + known[i];
  return known.empty() ? title : title + ")";
}

// What broke it, as far as it was seen: in aten::item at model.py:88 in forward.
std::string place_of(const CaptureFacts& facts) {
  return (facts.op.empty() ? "" : " in " + facts.op) +
         (facts.where.empty() ? "" : " at " + facts.where);
}

std::string capitalised(std::string text) {
  if (!text.empty()) {
    text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  }
  return text;
}

}  // namespace

std::string Refusal::text() const {
  std::string result = call + (own ? " on this thread" : " on another thread") + ", refused with " +
                       std::to_string(code) + " (" + name + ")";
  if (!remark.empty()) result += "; the driver says \"" + remark + "\"";
  return result;
}

const char* capture_text(int code) noexcept { return code_of(code).text; }

const char* capture_error_name(int code) noexcept { return code_of(code).name; }

std::optional<Refusal> first_refusal(const std::vector<driver::LogLine>& log) {
  std::optional<Refusal> first;
  std::array<std::string, 2> remarks;  // of other threads, and of this one
  for (const driver::LogLine& line : log) {
    const std::string_view text = without_header(line.text);
    std::string& remark = remarks[line.own ? 1 : 0];
    std::optional<Refusal> found = refusal_in(text);
    if (!found) {
      remark = text;
      continue;
    }
    found->own = line.own;
    found->remark = std::exchange(remark, {});
    if (*capture_text(found->code) == '\0' || found->code == kInvalidated) continue;
    if (found->own) return found;
    if (!first) first = std::move(found);
  }
  return first;
}

Diagnosis diagnose(int code, const std::string& call, const std::string& detail,
                   const CaptureFacts& facts) {
  const std::optional<Refusal> refusal = facts.keeps_log ? first_refusal(facts.log) : std::nullopt;
  if (code == kInvalidated && refusal && is_rule_for_streams(refusal->code)) code = refusal->code;
  Diagnosis result{code, refusal ? refusal->call : "", hint_of(code, refusal, facts), {}};
  std::string& text = result.text;
  text = title_of(facts) + " broke" + place_of(facts);
  if (!refusal || code != kInvalidated) {
    const std::string said = capture_text(code);
    text += ": " + (said.empty() ? detail : said);
  }
  if (refusal && (refusal->code != code || refusal->call != call)) {
    text += ". First refused call: " + refusal->text();
  } else if (refusal) {
    if (!refusal->remark.empty()) text += ". The driver says \"" + refusal->remark + "\"";
  } else if (!facts.keeps_log) {
    text += ". This driver keeps no log of what it refuses (CUDA 12.9 and later do)";
  } else if (code == kInvalidated) {
    text += ". The driver's log names no refused call";
  }
  if (!result.hint.empty()) text += ". " + capitalised(result.hint);
  return result;
}

std::string diagnosis_note(const CaptureFacts& facts) {
  const std::optional<Refusal> refusal = facts.keeps_log ? first_refusal(facts.log) : std::nullopt;
  const std::string place = place_of(facts);
  if (!refusal && place.empty()) return {};
  // Without a place it is not sure: another thread may have been refused for another capture.
  std::string text = title_of(facts) + " " + (place.empty() ? "was discarded" : "broke" + place);
  if (refusal) text += ". First refused call: " + refusal->text();
  const std::string hint = hint_of(refusal ? refusal->code : 0, refusal, facts);
  return text + (hint.empty() ? "." : ". " + capitalised(hint) + ".");
}

}  // namespace gpuprof::graphs
