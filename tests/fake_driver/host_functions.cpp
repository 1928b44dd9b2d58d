#include "host_functions.hpp"

#include <thread>

#include "call.hpp"
#include "capture.hpp"
#include "objects.hpp"
#include "time.hpp"

using namespace fakecuda;

namespace {

// What the driver's thread has to run; guarded by the driver's lock. Never destroyed.
std::deque<std::shared_ptr<HostCall>>& waiting() {
  static auto& calls = *new std::deque<std::shared_ptr<HostCall>>;
  return calls;
}

[[noreturn]] void run_all() {
  lock();
  for (;;) {
    while (waiting().empty()) wait_for_notice();
    const auto call = waiting().front();
    waiting().pop_front();
    unlock();
    call->function(call->argument);
    lock();
    call->over = true;
    pump(state());
  }
}

}  // namespace

void fakecuda::run_on_host(const std::shared_ptr<HostCall>& call) {
  static const bool started = [] {
    std::thread(run_all).detach();
    return true;
  }();
  static_cast<void>(started);
  call->begun = true;
  waiting().push_back(call);
  notify();
}

FAKECUDA_EXPORT Result cuLaunchHostFunc(Handle handle, void (*host_function)(void*),
                                        void* argument) {
  return call({__func__, InChild::kAnswersSuccess}, [&](const char* function) -> Result {
    std::shared_ptr<Stream> stream;
    const Result answer = find_stream(state(), function, handle, stream);
    if (answer != kSuccess) return answer;
    if (host_function == nullptr) return kInvalidValue;
    Op op;
    op.kind = OpKind::kHost;
    op.host = std::make_shared<HostCall>(HostCall{host_function, argument});
    return submit(state(), stream, node_of(kNodeHost, std::move(op)));
  });
}
