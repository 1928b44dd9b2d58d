#include "api/warnings.hpp"

#include <cstdio>
#include <mutex>
#include <utility>

#include "driver/process.hpp"
#include "gpuprof/warnings.hpp"

namespace gpuprof {
namespace {

struct Handler {
  driver::ForkMutex mutex;
  WarningHandler handler = [](const std::string& message) {
    std::fprintf(stderr, "%s\n", message.c_str());
  };
};

Handler& warning_handler() { return driver::immortal<Handler>(); }

// A handler that times something itself must not come back here.
thread_local bool is_in_handler = false;

}  // namespace

void api::pass_on_warnings() noexcept {
  if (is_in_handler) return;
  is_in_handler = true;
  try {
    Handler& h = warning_handler();
    WarningHandler handler;
    {
      const std::lock_guard lock(h.mutex);
      handler = h.handler;
    }
    for (const std::string& message : driver::take_warnings()) {
      if (handler) handler(message);
    }
  } catch (...) {  // out of memory, or the handler's, of any type: the program goes on
  }
  is_in_handler = false;
}

}  // namespace gpuprof

GPUPROF_BEGIN_NAMESPACE

void set_warning_handler(WarningHandler handler) {
  Handler& h = warning_handler();
  const std::lock_guard lock(h.mutex);
  h.handler = std::move(handler);
}

GPUPROF_END_NAMESPACE
