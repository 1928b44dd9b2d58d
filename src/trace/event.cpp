#include "trace/event.hpp"

namespace gpuprof::trace {

void set_name(Event& event, std::string_view text) {
  event.name = intern(text);
  if (event.name != nullptr) return;
  auto label = std::make_unique<Label>();
  append_json(label->json, text);
  event.name = label.get();
  if (event.extra == nullptr) event.extra = new Extra;
  event.extra->own = std::move(label);
}

void set_args(Event& event, std::string members) {
  if (members.empty()) return;
  if (event.extra == nullptr) event.extra = new Extra;
  event.extra->args = std::move(members);
}

}  // namespace gpuprof::trace
