#include "report.hpp"

#include <algorithm>
#include <cstdio>

namespace fakecuda {
namespace {

bool is_live(const State& s, Handle handle, const Context* context) {
  return s.abandoned.count(handle) == 0 && (context == nullptr || context->alive);
}

template <typename T>
Live live_of(const State& s, const Table<T>& table) {
  Live live;
  for (const auto& [handle, object] : table) {
    if (is_live(s, handle, object->context)) live.emplace_back(handle, object->label);
  }
  std::sort(live.begin(), live.end());
  return live;
}

Live live_graphs(const State& s) {
  Live live;
  for (const auto& [handle, graph] : s.graphs) {
    const bool counts = !graph->in_capture && !graph->embedded;
    if (counts && is_live(s, handle, nullptr)) live.emplace_back(handle, graph->label);
  }
  std::sort(live.begin(), live.end());
  return live;
}

Live live_contexts(const State& s) {
  Live live;
  for (const auto& context : s.all_contexts) {
    const bool counts = !context->is_primary && is_live(s, context->handle, context.get());
    if (counts) live.emplace_back(context->handle, context->label);
  }
  return live;
}

Live live_retains(const State& s) {
  Live live;
  for (const Primary& primary : s.primaries) {
    for (int i = primary.abandoned; i < primary.retains; ++i) {
      live.emplace_back(primary.handle, primary.label);
    }
  }
  return live;
}

Live live_memory(const State& s, bool host) {
  Live live;
  for (const auto& [address, allocation] : s.memory) {
    const bool is_there = allocation.mapped && !allocation.leaving;
    const bool counts =
        is_there && allocation.host == host && is_live(s, address, allocation.context);
    if (counts) live.emplace_back(address, allocation.label);
  }
  return live;
}

std::string quoted(const std::string& text) { return '"' + text + '"'; }

std::string hex(Handle handle) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(handle));
  return text;
}

void add(std::string& json, const char* key, const std::string& value) {
  if (json.size() > 1) json += ", ";
  json += quoted(key) + ": " + value;
}

void add(std::string& json, const char* key, std::uint64_t value) {
  add(json, key, std::to_string(value));
}

std::string live_json(const State& s) {
  std::string json = "{";
  for (const auto& [kind, live] : live_objects(s)) {
    std::string list = "[";
    for (const auto& [handle, label] : live) {
      if (list.size() > 1) list += ", ";
      list += "{\"handle\": " + quoted(hex(handle)) + ", \"label\": " + quoted(label) + "}";
    }
    add(json, kind, list + "]");
  }
  return json + "}";
}

}  // namespace

std::vector<std::pair<const char*, Live>> live_objects(const State& s) {
  return {
      {"event", live_of(s, s.events)},   {"stream", live_of(s, s.streams)},
      {"graph", live_graphs(s)},         {"exec", live_of(s, s.execs)},
      {"context", live_contexts(s)},     {"primary", live_retains(s)},
      {"memory", live_memory(s, false)}, {"host_memory", live_memory(s, true)},
  };
}

std::string report_json(const State& s) {
  const Thread& thread = this_thread();
  std::string json = "{";
  add(json, "live", live_json(s));
  add(json, "open_captures", s.sessions.size());
  add(json, "calls_after_deinit", s.calls_after_deinit);
  add(json, "calls_in_child", calls_in_child().load());
  add(json, "blocked_calls", static_cast<std::uint64_t>(s.blocked_calls));
  add(json, "thread_mode", static_cast<std::uint64_t>(thread.mode));
  add(json, "context_depth", thread.contexts.size());
  return json + "}";
}

}  // namespace fakecuda
