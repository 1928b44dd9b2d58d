#include "script.hpp"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <string_view>

namespace fakecuda {
namespace {

constexpr std::uint64_t kForever = std::numeric_limits<std::uint64_t>::max();

[[noreturn]] void refuse(const std::string& what, std::string_view given) {
  throw std::invalid_argument(what + ": '" + std::string(given) + "'");
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const std::size_t end = text.find(separator);
    if (end != 0) parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return parts;
}

template <typename Number>
Number number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) refuse("not a number", text);
  return value;
}

void set_key(Config& config, std::string_view key, std::string_view value) {
  if (key == "driver_version") {
    config.driver_version = number<int>(value);
  } else if (key == "device_count") {
    config.device_count = number<int>(value);
  } else if (key == "missing") {
    config.missing.clear();
    for (const auto name : split(value, ',')) config.missing.emplace(name);
  } else if (key == "init") {
    config.init = static_cast<Result>(number<int>(value));
  } else if (key == "record_ns") {
    config.record_ns = number<Ns>(value);
  } else if (key == "call_ns") {
    config.call_ns = number<Ns>(value);
  } else if (key == "query_ns") {
    config.query_ns = number<Ns>(value);
  } else if (key == "seen_ns") {
    config.seen_ns = number<Ns>(value);
  } else if (key == "jitter_ns") {
    config.jitter_ns = number<Ns>(value);
  } else if (key == "mode") {
    if (value != "auto" && value != "manual") refuse("mode is auto or manual, not", value);
    config.automatic = value == "auto";
  } else if (key == "reuse") {
    config.reuse = number<int>(value) != 0;
  } else if (key == "spared") {
    config.spared = number<int>(value) != 0;
  } else if (key == "drift_ppb") {
    config.drift_ppb = number<std::int64_t>(value);
  } else if (key == "queue_entries") {
    config.queue_entries = number<std::size_t>(value);
  } else {
    refuse("unknown configuration key", key);
  }
}

void set_calls(Rule& rule, std::string_view calls) {
  if (!calls.empty() && calls.back() == '*') {
    rule.first = number<std::uint64_t>(calls.substr(0, calls.size() - 1));
    rule.last = kForever;
  } else if (const std::size_t dash = calls.find('-'); dash != std::string_view::npos) {
    rule.first = number<std::uint64_t>(calls.substr(0, dash));
    rule.last = number<std::uint64_t>(calls.substr(dash + 1));
  } else {
    rule.first = rule.last = number<std::uint64_t>(calls);
  }
  if (rule.first == 0 || rule.last < rule.first) refuse("calls are counted from 1, upwards", calls);
}

void set_option(Rule& rule, std::string_view option) {
  if (option == "after") {
    rule.after = true;
  } else if (option == "sticky") {
    rule.sticky = true;
  } else if (option == "block") {
    rule.block = true;
  } else {
    refuse("unknown fault option", option);
  }
}

Rule parse_rule(std::string_view text) {
  const std::size_t at = text.find('@');
  const std::size_t equals = text.find('=', at == std::string_view::npos ? 0 : at);
  if (at == std::string_view::npos || at == 0 || equals == std::string_view::npos) {
    refuse("a fault is written fn@n=code", text);
  }
  Rule rule;
  rule.function = text.substr(0, at);
  set_calls(rule, text.substr(at + 1, equals - at - 1));
  const auto parts = split(text.substr(equals + 1), ':');
  if (parts.empty()) refuse("a fault needs a code", text);
  rule.code = static_cast<Result>(number<int>(parts.front()));
  for (std::size_t i = 1; i < parts.size(); ++i) set_option(rule, parts[i]);
  return rule;
}

bool matches(const Rule& rule, const std::string& function) {
  return rule.function == "any" || rule.function == function ||
         rule.function == base_name(function);
}

}  // namespace

std::string base_name(const std::string& symbol) {
  const std::size_t mark = symbol.rfind("_v");
  if (mark == std::string::npos || mark + 3 != symbol.size()) return symbol;
  return symbol.substr(0, mark);
}

void configure(State& s, const std::string& text) {
  Config config = s.config;
  for (const auto part : split(text, ';')) {
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos) refuse("a setting is written key=value", part);
    set_key(config, part.substr(0, equals), part.substr(equals + 1));
  }
  s.config = std::move(config);
}

void set_script(State& s, const std::string& text) {
  std::vector<Rule> rules;
  for (const auto part : split(text, ';')) rules.push_back(parse_rule(part));
  s.rules = std::move(rules);
}

void apply_environment(State& s) {
  try {
    if (const char* text = std::getenv("FAKECUDA_CONFIG")) configure(s, text);
    if (const char* text = std::getenv("FAKECUDA_SCRIPT")) set_script(s, text);
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "FAKECUDA_CONFIG or FAKECUDA_SCRIPT: %s\n", error.what());
    std::exit(2);
  }
}

Rule* match_rule(State& s, const char* function) {
  if (s.rules.empty()) return nullptr;
  Rule* found = nullptr;
  const std::string name = function;
  for (Rule& rule : s.rules) {
    if (!matches(rule, name)) continue;
    ++rule.seen;
    if (found == nullptr && rule.seen >= rule.first && rule.seen <= rule.last) found = &rule;
  }
  return found;
}

}  // namespace fakecuda
