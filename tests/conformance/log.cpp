#include "log.hpp"

#include <vector>

#include "driver.hpp"

namespace conformance {

void print_log(unsigned& from) {
  std::vector<char> text(25600);
  std::size_t size = text.size();
  P(cuLogsDumpToMemory(&from, text.data(), &size, 0));
  bool digits = false;
  for (std::size_t i = 0, head = 0; i < size && text[i] != '\0'; ++i) {
    const char c = text[i];
    if (i == 0 || text[i - 1] == '\n') {
      std::printf("  log ");
      head = 1;
    }
    const bool is_digit = head != 0 && c >= '0' && c <= '9';
    if (is_digit && !digits) std::putchar('#');
    if (!is_digit) std::putchar(c);
    if (c == ' ') head = 0;
    digits = is_digit;
  }
}

}  // namespace conformance
