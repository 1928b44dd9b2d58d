// The functions with which a test steers the fake driver: fakecuda_*. None of them counts as a
// driver call, and none moves time unless it says so.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "locked.hpp"
#include "objects.hpp"
#include "report.hpp"
#include "script.hpp"
#include "time.hpp"

using namespace fakecuda;

namespace {

// 0, or 1 with the mistake on stderr.
template <typename Parse>
int parsed(const char* text, Parse parse) {
  const Locked locked;
  try {
    parse(state(), text != nullptr ? text : "");
    return 0;
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "FAKECUDA %s\n", error.what());
    return 1;
  }
}

// Kept until the calling thread asks again.
const char* kept(std::string text) {
  std::string& answer = this_thread().answer;
  answer = std::move(text);
  return answer.c_str();
}

__attribute__((destructor)) void write_report() {
  const char* path = std::getenv("FAKECUDA_REPORT_FILE");
  if (path == nullptr) return;
  const Locked locked;
  std::FILE* file = std::fopen(path, "w");
  if (file == nullptr) return;
  std::fputs(report_json(state()).c_str(), file);
  std::fclose(file);
}

}  // namespace

// Everything as it was when the library was loaded, with the environment's settings.
FAKECUDA_EXPORT void fakecuda_reset() {
  const Locked locked;
  reset_state();
}

// 0, or 1 and a message on stderr for a text with a mistake, which changes nothing.
FAKECUDA_EXPORT int fakecuda_configure(const char* text) { return parsed(text, configure); }
FAKECUDA_EXPORT int fakecuda_script(const char* text) { return parsed(text, set_script); }

FAKECUDA_EXPORT void fakecuda_release() {
  const Locked locked;
  ++state().releases;
  notify();
}

// Moves the clock. All devices share the host's time line.
FAKECUDA_EXPORT void fakecuda_advance(Ns ns) {
  const Locked locked;
  state().now += ns;
  pump(state());
}

// Moves the clock to where the stream is idle; 600 if a closed gate is in the way.
FAKECUDA_EXPORT int fakecuda_complete(Handle handle) {
  const Locked locked;
  State& s = state();
  std::shared_ptr<Stream> stream;
  const Result answer = find_stream(s, "fakecuda_complete", handle, stream);
  if (answer != kSuccess) return answer;
  return advance_until_over(s, stream->last) ? kSuccess : kNotReady;
}

FAKECUDA_EXPORT std::uint64_t fakecuda_now() {
  const Locked locked;
  return static_cast<std::uint64_t>(state().now);
}

// When the work of the stream that has its times will be done.
FAKECUDA_EXPORT std::uint64_t fakecuda_stream_tail(Handle handle) {
  const Locked locked;
  std::shared_ptr<Stream> stream;
  const Result answer = find_stream(state(), "fakecuda_stream_tail", handle, stream);
  return answer == kSuccess ? static_cast<std::uint64_t>(stream->tail) : 0;
}

// A symbol counts itself, a name without suffix all its variants, "any" everything.
FAKECUDA_EXPORT std::uint64_t fakecuda_calls(const char* function) {
  const Locked locked;
  const State& s = state();
  const std::string name = function;
  if (name == "any") return s.total_calls;
  std::uint64_t count = 0;
  for (const auto& [symbol, calls] : s.calls) {
    if (symbol == name || base_name(symbol) == name) count += calls;
  }
  return count;
}

// How many calls of a symbol this thread has made.
FAKECUDA_EXPORT std::uint64_t fakecuda_calls_of_this_thread(const char* symbol) {
  const Locked locked;
  const auto& calls = state().calls_of_thread;
  const auto found = calls.find({std::this_thread::get_id(), symbol});
  return found == calls.end() ? 0 : found->second;
}

// -1 for a kind that there is not; "any" is the sum.
FAKECUDA_EXPORT long fakecuda_live(const char* kind) {
  const Locked locked;
  long sum = 0;
  for (const auto& [name, live] : live_objects(state())) {
    if (std::strcmp(name, kind) == 0) return static_cast<long>(live.size());
    sum += static_cast<long>(live.size());
  }
  return std::strcmp(kind, "any") == 0 ? sum : -1;
}

FAKECUDA_EXPORT const char* fakecuda_report() {
  const Locked locked;
  return kept(report_json(state()));
}

FAKECUDA_EXPORT const char* fakecuda_last_calls() {
  const Locked locked;
  std::string text;
  for (const char* symbol : state().last_calls) text += std::string(symbol) + "\n";
  return kept(std::move(text));
}

// As when the process is exiting: every later call answers 4.
FAKECUDA_EXPORT void fakecuda_deinit() {
  const Locked locked;
  state().gone = true;
}

// Destroys any context, a retained primary one too, behind its users' backs.
FAKECUDA_EXPORT int fakecuda_destroy_context(Handle handle) {
  const Locked locked;
  State& s = state();
  const auto found = s.contexts.find(handle);
  if (found == s.contexts.end()) return kInvalidContext;
  if (!found->second->alive) return kContextIsDestroyed;
  destroy_context(s, *found->second);
  for (Primary& primary : s.primaries) {
    if (primary.context == found->second) primary = {nullptr, primary.handle, 0, 0, {}};
  }
  return kSuccess;
}
