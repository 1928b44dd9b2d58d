#include "trace/last_counters.hpp"

#include <string_view>

#include "trace/sink.hpp"

namespace gpuprof::trace {
namespace {

// The end of a JSON string that begins at `at`.
std::size_t end_of_string(std::string_view text, std::size_t at) noexcept {
  for (++at; at < text.size() && text[at] != '"'; ++at) {
    if (text[at] == '\\') ++at;
  }
  return std::min(at + 1, text.size());
}

}  // namespace

// The members of a counter are names with numbers.
void LastCounters::set(const Event& counter) {
  if (counter.extra == nullptr) return;
  const std::string_view members = counter.extra->args;
  std::size_t at = 0;
  while (at < members.size()) {
    const std::size_t colon = end_of_string(members, at);
    const std::size_t end = std::min(members.find(',', colon), members.size());
    std::pair<std::string, std::string> key(counter.name->json, members.substr(at, colon - at));
    const auto found = values_.find(key);
    if (found != values_.end() || values_.size() < kMost) {
      values_[std::move(key)] = {counter.tid, std::string(members.substr(colon, end - colon))};
    }
    at = end + 1;
  }
}

void LastCounters::add_to(EventSink& sink, HostNanoseconds time) const {
  for (const auto& [key, value] : values_) {
    const Label name{key.first, {}};
    Extra extra;
    extra.args = key.second + value.text;
    Event event;
    event.kind = Kind::kCounter;
    event.tid = value.tid;
    event.name = &name;
    event.end = time;
    event.extra = &extra;
    sink.add(event, value.tid);
  }
}

}  // namespace gpuprof::trace
