#include "trace/format.hpp"

#include <charconv>

namespace gpuprof::trace {
namespace {

constexpr std::string_view kEnd = "},\n";

constexpr std::size_t kFixed = 256;  // more than all keys and numbers of a line

// Writes one line into room that was made for it.
class Line {
 public:
  Line(Text& out, std::size_t variable) : out_(out), end_(out.room(kFixed + variable)) {}
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;
  ~Line() { out_.used(end_); }

  void text(std::string_view piece) noexcept {
    std::memcpy(end_, piece.data(), piece.size());
    end_ += piece.size();
  }
  void integer(std::uint64_t value) noexcept {
    constexpr std::ptrdiff_t kMostDigits = 20;
    end_ = std::to_chars(end_, end_ + kMostDigits, value).ptr;
  }
  void track(Position at) noexcept {
    text(",\"pid\":");
    text(at.pid);
    text(",\"tid\":");
    integer(at.tid);
  }
  void microseconds(HostNanoseconds nanoseconds) noexcept {
    const auto value = static_cast<std::uint64_t>(nanoseconds < 0 ? 0 : nanoseconds);
    integer(value / 1000);
    const std::uint64_t rest = value % 1000;
    *end_++ = '.';
    for (const std::uint64_t digit : {rest / 100, rest / 10 % 10, rest % 10}) {
      *end_++ = static_cast<char>('0' + digit);
    }
  }

 private:
  Text& out_;
  char* end_;
};

std::size_t args_size(const Event& event) noexcept {
  return event.name->args.size() + (event.extra != nullptr ? event.extra->args.size() : 0);
}

std::size_t variable_size(Position at, const Event& event) noexcept {
  return at.pid.size() + event.name->json.size() +
         (event.category != nullptr ? event.category->json.size() : 0) + args_size(event);
}

void begin_line(Line& line, std::string_view phase, const Event& event, Position at) {
  line.text(phase);
  line.text(event.name->json);
  if (event.category != nullptr) {
    line.text(",\"cat\":");
    line.text(event.category->json);
  }
  line.track(at);
}

void end_line(Line& line, const Event& event) {
  const bool has_more = event.extra != nullptr && !event.extra->args.empty();
  if (has_more || !event.name->args.empty()) {
    line.text(",\"args\":{");
    line.text(event.name->args);
    if (has_more && !event.name->args.empty()) line.text(",");
    if (has_more) line.text(event.extra->args);
    line.text("}");
  }
  line.text(kEnd);
}

void add_time(Line& line, HostNanoseconds time) {
  line.text(",\"ts\":");
  line.microseconds(time);
}

// An id of this process alone; with a plain one viewers put the slice outside of the process.
void add_local_id(Line& line, std::uint64_t id) {
  line.text(R"(,"id2":{"local":)");
  line.integer(id);
  line.text("}");
}

}  // namespace

void append_microseconds(Text& out, HostNanoseconds nanoseconds) {
  Line line(out, 0);
  line.microseconds(nanoseconds);
}

std::string slice_head(Position at, const Event& event) {
  Text text;
  {
    Line line(text, variable_size(at, event));
    begin_line(line, R"({"ph":"X","name":)", event, at);
    line.text(",\"ts\":");
  }
  return std::string(text.view());
}

void append_slice(Text& out, std::string_view head, const Event& event, HostNanoseconds begin,
                  HostNanoseconds duration) {
  Line line(out, head.size() + args_size(event));
  line.text(head);
  line.microseconds(begin);
  line.text(",\"dur\":");
  line.microseconds(duration);
  end_line(line, event);
}

void append_async(Text& out, Position at, const Event& event, HostNanoseconds begin,
                  HostNanoseconds end, std::uint64_t id) {
  Line line(out, kFixed + 2 * variable_size(at, event));
  begin_line(line, R"({"ph":"b","name":)", event, at);
  add_local_id(line, id);
  add_time(line, begin);
  end_line(line, event);
  begin_line(line, R"({"ph":"e","name":)", event, at);
  add_local_id(line, id);
  add_time(line, end);
  line.text(kEnd);
}

void append_moment(Text& out, Position at, const Event& event, HostNanoseconds time) {
  Line line(out, variable_size(at, event));
  const bool is_counter = event.kind == Kind::kCounter;
  begin_line(line, is_counter ? R"({"ph":"C","name":)" : R"({"ph":"i","s":"t","name":)", event, at);
  add_time(line, time);
  end_line(line, event);
}

void append_flow(Text& out, Position at, char phase, std::string_view name_json,
                 std::string_view category_json, HostNanoseconds time, std::uint64_t id) {
  Line line(out, at.pid.size() + name_json.size() + category_json.size());
  line.text(R"({"ph":")");
  line.text({&phase, 1});
  line.text(phase == 'f' ? R"(","bp":"e","name":)" : R"(","name":)");
  line.text(name_json);
  line.text(",\"cat\":");
  line.text(category_json);
  line.track(at);
  line.text(",\"id\":");
  line.integer(id);
  add_time(line, time);
  line.text(kEnd);
}

void append_metadata(Text& out, Position at, std::string_view name, std::string_view args) {
  Line line(out, at.pid.size() + name.size() + args.size());
  line.text(R"({"ph":"M","name":")");
  line.text(name);
  line.text("\"");
  line.track(at);
  line.text(",\"args\":{");
  line.text(args);
  line.text("}},\n");
}

}  // namespace gpuprof::trace
