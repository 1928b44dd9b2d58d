// Why a capture broke: which call the driver refused, and what usually causes that.
//
// Ending a broken capture only reports that something failed earlier. The cause is in the driver's
// log (CUDA 12.9 and later), which has lines of all threads: the first refusal is the cause, and
// later ones, mostly 901, are its consequences. Plain text in, plain text out: no driver is called.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "driver/cuda_error_log.hpp"

namespace gpuprof::graphs {

// An error that only says that an earlier call broke the capture.
inline constexpr int kInvalidated = 901;

// One call that the driver refused because of a capture.
struct Refusal {
  bool own = false;  // whether this thread called it
  int code = 0;
  std::string name;  // CUDA's name of the code
  std::string call;
  std::string remark;  // what the driver said before it, or nothing

  [[nodiscard]] std::string text() const;
};

// What is known of a capture when it broke.
struct CaptureFacts {
  std::string name;  // as it is to be shown, quoted; empty: it has none
  std::optional<std::uintptr_t> stream;
  std::string mode;                  // as in CaptureMode, in lower case; empty: not known
  std::optional<std::size_t> nodes;  // when last seen: of a broken one the driver does not tell
  std::string last_kernel;           // as it is to be shown
  bool keeps_log = true;             // false: of this driver nothing is known
  std::vector<driver::LogLine> log;  // since the capture began, oldest first
  std::string op;                    // what broke it, and the line, where that was watched
  std::string where;
  bool can_watch = false;  // whether to advise debug=True, which Python's captures have
};

// What there is to say about it.
struct Diagnosis {
  int code = 0;               // the error's, or that of the rule for streams that was broken
  std::string first_refused;  // the call; empty where the log does not tell
  std::string hint;           // what usually causes this, and what to do; may be empty
  std::string text;           // all of it
};

// The runtime's text for a code from 900 to 908, and CUDA's name of it; empty for other codes.
[[nodiscard]] const char* capture_text(int code) noexcept;
[[nodiscard]] const char* capture_error_name(int code) noexcept;

// The first refused call in the log, preferring this thread's; echoes (901) are none.
[[nodiscard]] std::optional<Refusal> first_refusal(const std::vector<driver::LogLine>& log);

// What to say of a capture that `call` answered an error for. `detail` is the driver's text, for a
// code that is not of a capture. The code changes where the error is only an echo (901) and the log
// names a rule for streams (902, 903, 905, 906).
[[nodiscard]] Diagnosis diagnose(int code, const std::string& call, const std::string& detail,
                                 const CaptureFacts& facts);

// What to add to an error that the captured code raised by itself: one text, or nothing where the
// driver refused nothing and no operator was seen to fail.
[[nodiscard]] std::string diagnosis_note(const CaptureFacts& facts);

}  // namespace gpuprof::graphs
