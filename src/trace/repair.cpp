#include "trace/repair.hpp"

#include <algorithm>

#include "trace/json_value.hpp"
#include "trace/read_error.hpp"

namespace gpuprof::trace::reading {
namespace {

bool is_strict(std::string_view json) {
  try {
    JsonReader reader;
    reader.feed(json);
    Token token;
    while (reader.next(token)) {
    }
    // A number at the end of a text goes on for all that its reader knows.
    reader.feed(" ");
    while (reader.next(token)) {
    }
    return reader.done();
  } catch (const ReadError&) {
    return false;
  }
}

std::string replacement(Defect::Kind kind, char found) {
  switch (kind) {
    case Defect::Kind::kNotANumber:
      return "null";
    case Defect::Kind::kNotUtf8:
      return "\xef\xbf\xbd";
    case Defect::Kind::kControl: {
      std::string escaped = quoted({&found, 1});
      return escaped.substr(1, escaped.size() - 2);
    }
    default:
      return "";
  }
}

}  // namespace

void Repair::feed(std::string_view piece, std::string& out) {
  if (!stopped_.empty()) return;
  try {
    reader_.feed(piece);
    while (reader_.next(event_)) write(event_, out);
  } catch (const ReadError& error) {
    if (reader_.events() == 0 && error.event() == kNoEvent) throw;  // this is no trace
    stopped_ = error.what();
  }
}

void Repair::finish(std::string& out) {
  if (stopped_.empty()) end_ = reader_.finish();
  if (!begun_) begin(nullptr, out);
  out += "\n]";
  write_members(true, out);
  out += "}\n";
}

void Repair::write(const TraceEvent& event, std::string& out) {
  const bool twice =
      std::any_of(event.defects.begin(), event.defects.end(),
                  [](const Defect& defect) { return defect.kind == Defect::Kind::kDuplicateKey; });
  if (!event.is_object || event.empty || twice) {
    ++left_out_;
    return;
  }
  if (!begun_) begin(&event, out);
  out += written_ == 0 ? "\n" : ",\n";
  ++written_;
  if (event.defects.empty()) {
    out += event.text;
  } else {
    mend(event, out);
  }
}

void Repair::mend(const TraceEvent& event, std::string& out) {
  ++mended_;
  edits_.clear();
  for (const Defect& defect : event.defects) {
    const auto begin = static_cast<std::size_t>(defect.begin - event.offset);
    const auto end = static_cast<std::size_t>(defect.end - event.offset);
    edits_.replace(begin, end, replacement(defect.kind, event.text[begin]));
  }
  edits_.apply(event.text, out);
}

void Repair::begin(const TraceEvent* first, std::string& out) {
  begun_ = true;
  out += '{';
  write_members(false, out);
  if (first != nullptr && first->phase() == 'M' && first->string(Field::kName) == "gpuprof") {
    const std::string_view args = first->raw(Field::kArgs);
    const auto has = [this](std::string_view key) {
      const auto& headers = reader_.headers();
      return std::any_of(headers.begin(), headers.end(),
                         [key](const Header& header) { return header.key == key; });
    };
    const auto base = member(args, "baseTimeNanoseconds");
    if (base && base->kind == TokenKind::kNumber && !has("baseTimeNanoseconds")) {
      out += R"("displayTimeUnit":"ns","baseTimeNanoseconds":)";
      out.append(base->value).append(",");
    }
    const auto rank = member(args, "rank");
    if (rank && rank->kind == TokenKind::kNumber && !has("distributedInfo")) {
      out.append(R"("distributedInfo":{"rank":)").append(rank->value).append("},");
    }
  }
  out += "\"traceEvents\":[";
}

// The members that have ended and are not written yet: before the events with a comma behind each,
// after them with one before.
void Repair::write_members(bool after, std::string& out) {
  const auto& headers = reader_.headers();
  for (; members_ < headers.size(); ++members_) {
    const Header& header = headers[members_];
    const std::string key = quoted(header.key);
    if (header.value.empty() || !is_strict(header.value) || !is_strict(key)) {
      lost_members_.push_back(header.key.substr(0, 256));
      continue;
    }
    if (after) out += ',';
    out.append(key).append(":").append(header.value);
    if (!after) out += ',';
  }
}

}  // namespace gpuprof::trace::reading
