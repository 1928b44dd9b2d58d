// Looking at the errors of the driver layer.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "driver/cuda_table.hpp"

namespace gpuprof::tests {

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The error that `action` throws; one of a kind that nothing expects if it does not.
template <typename Action>
driver::Error error_from(Action&& action) {
  try {
    action();
  } catch (const driver::Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error was thrown";
  return {driver::ErrorKind::kStreamMismatch, "no error was thrown"};
}

inline driver::Error error_of_ready() {
  return error_from([] { driver::ready(); });
}

}  // namespace gpuprof::tests
