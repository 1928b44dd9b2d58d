# The C++ tests, each file compiled by itself.
source .ci/common.sh
need_debian g++ libgtest-dev
need_tools

driver=$(fake_driver "$CI_OUT/cpp/fake")
build_plain
cpp_tests "$CI_OUT/cpp" "$driver"
