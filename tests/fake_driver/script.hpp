// What a test asks of the fake driver in words: its configuration and its scripted faults.
//
// Both are parsed whole before anything changes, so a text with a mistake changes nothing. The
// functions want the lock held and throw std::invalid_argument, naming the part they do not know.
#pragma once

#include <string>

#include "state.hpp"

namespace fakecuda {

// "key=value;key=value"; the keys are those of Config.
void configure(State& s, const std::string& text);

// "fn@n[-m|*]=code[:after][:sticky][:block]", separated by ';'. `fn` is a symbol, a name without
// its version suffix, or "any". Calls are counted from here on. Code 0 lets the call go on.
void set_script(State& s, const std::string& text);

// FAKECUDA_CONFIG and FAKECUDA_SCRIPT; a mistake in them ends the process with a message.
void apply_environment(State& s);

// The first rule that asks for something at this call, or null. Every matching rule counts it.
Rule* match_rule(State& s, const char* function);

// "cuEventElapsedTime_v2" -> "cuEventElapsedTime".
std::string base_name(const std::string& symbol);

}  // namespace fakecuda
