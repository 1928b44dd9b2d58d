# The C++ tests as they are, each file compiled by itself, where a warning is an error.
source .ci/common.sh
need_debian g++ libgtest-dev
need_tools

folder=$CI_OUT/cpp
driver=$(fake_driver "$folder/fake")
configure "$folder" -DGPUPROF_PYTHON=OFF -DGPUPROF_CPP_TESTS=ON -DCMAKE_BUILD_TYPE=Release \
  -DGPUPROF_UNITY=OFF -DGPUPROF_WERROR=ON
build "$folder"
cpp_tests "$folder" "$driver"
