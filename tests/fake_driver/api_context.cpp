// Contexts: primary and made, the thread's stack of them, waiting for one.
#include <algorithm>

#include "call.hpp"
#include "capture.hpp"
#include "objects.hpp"
#include "time.hpp"

using namespace fakecuda;

namespace {

Primary& primary_of(State& s, int device) {
  const auto count = static_cast<std::size_t>(s.config.device_count);
  if (s.primaries.size() < count) s.primaries.resize(count);
  return s.primaries[static_cast<std::size_t>(device)];
}

void end_primary(State& s, Primary& primary) {
  destroy_context(s, *primary.context);
  primary.context = nullptr;
  primary.retains = 0;
  primary.abandoned = 0;
}

Result make(State& s, Handle* out, int device, const char* function) {
  if (out == nullptr) return kInvalidValue;
  if (!is_device(s, device)) return kInvalidDevice;
  if (s.device_fault != kSuccess) return s.device_fault;
  const Handle handle = new_handle(Kind::kContext);
  make_context(s, device, handle, new_label(function));
  this_thread().contexts.push_back(handle);
  *out = handle;
  return kSuccess;
}

Result synchronize(State& s, Handle handle) {
  Context* context = nullptr;
  if (const Result answer = named_context(s, handle, context); answer != kSuccess) return answer;
  if (const Result refused = refuse_context_wide(s, *context); refused != kSuccess) return refused;
  wait_until_idle(s, streams_of(s, *context));
  return meet_fault(s, *context);
}

Result device_of(State& s, Handle handle, int* device) {
  Context* context = nullptr;
  if (named_context(s, handle, context) == kInvalidContext) return kInvalidContext;
  *device = context->device;
  return kSuccess;
}

}  // namespace

FAKECUDA_EXPORT Result cuDevicePrimaryCtxRetain(Handle* out, int device) {
  return call({__func__}, [&](const char* function) -> Result {
    State& s = state();
    if (out == nullptr) return kInvalidValue;
    if (!is_device(s, device)) return kInvalidDevice;
    if (s.device_fault != kSuccess) return s.device_fault;
    Primary& primary = primary_of(s, device);
    // The address of a device's primary context does not change when it is made anew.
    if (primary.handle == 0) primary.handle = new_handle(Kind::kContext);
    if (primary.context == nullptr) {
      primary.label = new_label(function);
      primary.context = make_context(s, device, primary.handle, primary.label);
      primary.context->is_primary = true;
    }
    ++primary.retains;
    *out = primary.handle;
    return kSuccess;
  });
}

FAKECUDA_EXPORT Result cuDevicePrimaryCtxRelease_v2(int device) {
  static const Function function{"cuDevicePrimaryCtxRelease_v2"};
  Call entered(function);
  State& s = state();
  if (!is_device(s, device)) return entered.finish(kInvalidDevice);
  Primary& primary = primary_of(s, device);
  if (primary.retains == 0) return entered.finish(kInvalidContext);
  if (entered.refused()) {
    primary.abandoned = std::min(primary.abandoned + 1, primary.retains);
  } else if (--primary.retains == 0) {
    end_primary(s, primary);
  }
  return entered.finish(kSuccess);
}

FAKECUDA_EXPORT Result cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  return call({__func__}, [&]() -> Result {
    if (!is_device(state(), device)) return kInvalidDevice;
    if (flags != nullptr) *flags = 0;
    if (active != nullptr) *active = primary_of(state(), device).context != nullptr ? 1 : 0;
    return kSuccess;
  });
}

FAKECUDA_EXPORT Result cuDevicePrimaryCtxReset_v2(int device) {
  return call({__func__}, [&]() -> Result {
    if (!is_device(state(), device)) return kInvalidDevice;
    Primary& primary = primary_of(state(), device);
    if (primary.context != nullptr) end_primary(state(), primary);
    return kSuccess;
  });
}

FAKECUDA_EXPORT Result cuCtxGetCurrent(Handle* out) {
  return call({__func__}, [&]() -> Result {
    if (out == nullptr) return kInvalidValue;
    const auto& stack = this_thread().contexts;
    *out = stack.empty() ? 0 : stack.back();
    return kSuccess;
  });
}

FAKECUDA_EXPORT Result cuCtxSetCurrent(Handle context) {
  return call({__func__}, [&]() -> Result {
    if (context != 0 && state().contexts.count(context) == 0) return kInvalidContext;
    auto& stack = this_thread().contexts;
    if (!stack.empty()) stack.pop_back();
    if (context != 0) stack.push_back(context);
    return kSuccess;
  });
}

FAKECUDA_EXPORT Result cuCtxPushCurrent_v2(Handle context) {
  return call({__func__}, [&]() -> Result {
    if (state().contexts.count(context) == 0) return kInvalidContext;
    this_thread().contexts.push_back(context);
    return kSuccess;
  });
}

FAKECUDA_EXPORT Result cuCtxPopCurrent_v2(Handle* out) {
  return call({__func__}, [&]() -> Result {
    auto& stack = this_thread().contexts;
    if (stack.empty()) return kInvalidContext;
    if (out != nullptr) *out = stack.back();
    stack.pop_back();
    return kSuccess;
  });
}

FAKECUDA_EXPORT Result cuCtxGetDevice(int* device) {
  return call({__func__}, [&] { return device_of(state(), 0, device); });
}

FAKECUDA_EXPORT Result cuCtxSynchronize() {
  return call({__func__}, [&] { return synchronize(state(), 0); });
}

FAKECUDA_EXPORT Result cuCtxGetId(Handle handle, unsigned long long* id) {
  return call({__func__}, [&]() -> Result {
    Context* context = nullptr;
    const Result answer = named_context(state(), handle, context);
    if (answer == kInvalidContext || answer == kContextIsDestroyed) return answer;
    *id = context->id;
    return kSuccess;
  });
}

FAKECUDA_EXPORT Result cuCtxCreate_v2(Handle* out, unsigned /*flags*/, int device) {
  return call({__func__},
              [&](const char* function) { return make(state(), out, device, function); });
}

FAKECUDA_EXPORT Result cuCtxDestroy_v2(Handle handle) {
  return call_destroying({__func__}, handle, [&]() -> Result {
    State& s = state();
    const auto found = s.contexts.find(handle);
    if (found == s.contexts.end() || found->second->is_primary) return kInvalidContext;
    if (!found->second->alive) return kContextIsDestroyed;
    destroy_context(s, *found->second);
    auto& stack = this_thread().contexts;
    if (!stack.empty() && stack.back() == handle) stack.pop_back();
    return kSuccess;
  });
}
