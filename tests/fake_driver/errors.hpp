// CUDA's names and descriptions of its error codes; null for a code that is none.
#pragma once

#include "fake.h"

namespace fakecuda {

inline const char* error_name_or_null(int code) {
  switch (code) {
    case kSuccess:
      return "CUDA_SUCCESS";
#define FAKECUDA_X(ours, theirs, value, text) \
  case ours:                                  \
    return "CUDA_ERROR_" #theirs;
      FAKECUDA_ERRORS(FAKECUDA_X)
#undef FAKECUDA_X
    default:
      return nullptr;
  }
}

inline const char* error_text_or_null(int code) {
  switch (code) {
    case kSuccess:
      return "no error";
#define FAKECUDA_X(ours, theirs, value, text) \
  case ours:                                  \
    return text;
      FAKECUDA_ERRORS(FAKECUDA_X)
#undef FAKECUDA_X
    default:
      return nullptr;
  }
}

inline const char* error_name(int code) {
  const char* name = error_name_or_null(code);
  return name != nullptr ? name : "unrecognized error code";
}

}  // namespace fakecuda
