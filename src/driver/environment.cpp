#include "driver/environment.hpp"

#include <unistd.h>

#include <cctype>
#include <cstdlib>

namespace gpuprof::driver {

bool is_set(const std::string& variable) {
  const char* value = std::getenv(variable.c_str());
  if (value == nullptr) return false;
  std::string word;
  for (const char* c = value; *c != '\0'; ++c) {
    if (std::isspace(static_cast<unsigned char>(*c)) == 0) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(*c)));
    }
  }
  return word == "1" || word == "true" || word == "on" || word == "yes";
}

const char* secure_environment(const char* name) noexcept {
#ifdef __GLIBC__
  return secure_getenv(name);
#else
  return issetugid() ? nullptr : std::getenv(name);
#endif
}

}  // namespace gpuprof::driver
