#include "objects.hpp"

#include <cstdlib>
#include <vector>

#include "capture.hpp"
#include "time.hpp"

namespace fakecuda {
namespace {

Result state_of(const Context& context) {
  if (!context.alive) return kContextIsDestroyed;
  return context.sticky;
}

std::shared_ptr<Stream> make_default_stream(State& s, Context& context, bool legacy) {
  auto stream = std::make_shared<Stream>();
  stream->handle = legacy ? kLegacyStream : kPerThreadStream;
  // The first context's legacy stream is the seventh stream of a process on the real driver.
  stream->id = legacy && s.all_contexts.size() <= 1 ? 7 : s.next_stream_id++;
  stream->context = &context;
  stream->legacy = legacy;
  return stream;
}

std::shared_ptr<Stream> default_stream(State& s, Context& context, Handle handle) {
  if (handle != kPerThreadStream) return context.legacy;
  auto& stream = context.per_thread[this_thread().id];
  if (!stream) stream = make_default_stream(s, context, false);
  return stream;
}

void drop_captures(State& s, const Context& context) {
  const auto sessions = s.sessions;
  for (const auto& session : sessions) {
    if (session->origin->context == &context) close_capture(s, session, false);
  }
}

void free_memory_of(State& s, const Context& context) {
  for (const auto& [handle, exec] : s.execs) {
    if (exec->context != &context) continue;
    s.memory_used -= exec->memory;
    exec->memory = 0;
  }
  for (auto it = s.memory.begin(); it != s.memory.end();) {
    if (it->second.context != &context) {
      ++it;
      continue;
    }
    if (!it->second.host && it->second.mapped) s.memory_used -= it->second.size;
    if (it->second.of_graph) --s.graph_allocations;
    std::free(reinterpret_cast<void*>(it->first));
    it = s.memory.erase(it);
  }
}

}  // namespace

Result current_context(State& s, Context*& context) {
  const auto& stack = this_thread().contexts;
  if (stack.empty() || stack.back() == 0) return kInvalidContext;
  return named_context(s, stack.back(), context);
}

Result named_context(State& s, Handle handle, Context*& context) {
  if (handle == 0) return current_context(s, context);
  const auto found = s.contexts.find(handle);
  if (found == s.contexts.end()) return kInvalidContext;
  context = found->second;
  return state_of(*context);
}

Result find_stream(State& s, const char* function, Handle handle, std::shared_ptr<Stream>& stream) {
  if (handle <= kPerThreadStream) {
    Context* context = nullptr;
    const Result answer = current_context(s, context);
    if (answer == kSuccess) stream = default_stream(s, *context, handle);
    return answer;
  }
  const auto found = s.streams.find(handle);
  if (found == s.streams.end()) misuse(function, "with a stream that is destroyed or never was");
  stream = found->second;
  if (!stream->context->alive) misuse(function, "with a stream of a destroyed context");
  return stream->context->sticky;
}

Result find_event(State& s, const char* function, Handle handle, std::shared_ptr<Event>& event) {
  if (handle == 0) return kInvalidHandle;
  const auto found = s.events.find(handle);
  if (found == s.events.end()) misuse(function, "with an event that is destroyed or never was");
  event = found->second;
  const Context& context = *event->context;
  if (!context.alive && s.contexts[context.handle]->alive) {
    misuse(function, "with an event of a context that has been reset and made anew");
  }
  return state_of(context);
}

std::shared_ptr<Graph> find_graph(const State& s, Handle handle) {
  const auto found = s.graphs.find(handle);
  return found == s.graphs.end() ? nullptr : found->second;
}

std::shared_ptr<GraphExec> find_exec(const State& s, Handle handle) {
  const auto found = s.execs.find(handle);
  return found == s.execs.end() ? nullptr : found->second;
}

Result number_of_node(const State& s, Handle node, unsigned long long* number) {
  const auto found = s.nodes.find(node);
  const auto graph = found == s.nodes.end() ? nullptr : find_graph(s, found->second.first);
  if (!graph || number == nullptr) return kInvalidValue;
  *number = (static_cast<unsigned long long>(graph->id) << 32U) |
            static_cast<unsigned long long>(found->second.second);
  return kSuccess;
}

Result number_of_exec(const State& s, Handle handle, unsigned* number) {
  const auto exec = find_exec(s, handle);
  if (!exec || number == nullptr) return kInvalidValue;
  *number = exec->id;
  return kSuccess;
}

Result meet_fault(State& s, Context& context) {
  if (context.sticky == kSuccess && context.unseen_fault != kSuccess) {
    context.sticky = context.unseen_fault;
    s.device_fault = context.unseen_fault;
  }
  return context.sticky;
}

bool is_allocated(const State& s, DevicePtr address, std::size_t size) {
  auto after = s.memory.upper_bound(static_cast<std::uintptr_t>(address));
  if (after == s.memory.begin()) return false;
  const auto& [start, allocation] = *--after;
  return address - start <= allocation.size && size <= allocation.size - (address - start);
}

void free_memory(State& s, std::uintptr_t address) {
  const auto found = s.memory.find(address);
  if (found == s.memory.end()) return;
  Allocation& allocation = found->second;
  if (!allocation.host && allocation.mapped) s.memory_used -= allocation.size;
  allocation.mapped = allocation.leaving = false;
  if (allocation.of_graph) return;
  s.memory.erase(found);
  std::free(reinterpret_cast<void*>(address));
}

Context* make_context(State& s, int device, Handle handle, const std::string& label) {
  auto context = std::make_unique<Context>();
  context->handle = handle;
  context->id = s.next_context_id++;
  context->device = device;
  context->label = label;
  Context* made = context.get();
  s.all_contexts.push_back(std::move(context));
  made->legacy = make_default_stream(s, *made, true);
  s.contexts[handle] = made;
  return made;
}

void destroy_context(State& s, Context& context) {
  pump(s);
  meet_fault(s, context);
  drop_captures(s, context);
  for (const auto& stream : streams_of(s, context)) drop_work(s, *stream);
  free_memory_of(s, context);
  context.per_thread.clear();
  context.alive = false;
}

bool is_device(const State& s, int device) { return device >= 0 && device < s.config.device_count; }

}  // namespace fakecuda
