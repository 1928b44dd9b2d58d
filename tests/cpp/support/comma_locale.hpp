// A locale whose numbers have a comma, in which outputs must have none. Systems need not have one
// installed, so this writes a file of the C library's; one that does not take it fails the test.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <clocale>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>

namespace gpuprof::tests {

class CommaLocale {
 public:
  CommaLocale() {
    EXPECT_NE(::mkdtemp(folder_.data()), nullptr);
    ::mkdir((folder_ + "/comma").c_str(), 0700);
    // The category, how many members there are, where they begin, and their texts: the comma, no
    // thousands, both as wide characters, and the encoding.
    const std::uint32_t head[] = {0x20031114, 6, 32, 34, 36, 40, 44, 48};
    file_ = folder_ + "/comma/LC_NUMERIC";
    std::ofstream file(file_, std::ios::binary);
    file.write(reinterpret_cast<const char*>(head), sizeof head);
    file.write(",\0.\0\3\3\0\0,\0\0\0.\0\0\0UTF-8", 22);
    file.close();
    ::setenv("LOCPATH", folder_.c_str(), 1);
    EXPECT_NE(std::setlocale(LC_NUMERIC, "comma"), nullptr);
    EXPECT_EQ(std::to_string(0.5).substr(0, 3), "0,5");
  }
  CommaLocale(const CommaLocale&) = delete;
  CommaLocale& operator=(const CommaLocale&) = delete;
  ~CommaLocale() {
    std::setlocale(LC_NUMERIC, "C");
    ::unsetenv("LOCPATH");
    ::unlink(file_.c_str());
    ::rmdir((folder_ + "/comma").c_str());
    ::rmdir(folder_.c_str());
  }

 private:
  std::string folder_ = ::testing::TempDir() + "locale-XXXXXX";
  std::string file_;
};

}  // namespace gpuprof::tests
