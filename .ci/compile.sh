# What the steps cpp, address and thread compile. A run of all steps does it beside those with torch.
source .ci/common.sh
need_debian g++ libgtest-dev
need_tools

build_plain
build_instrumented "$CI_OUT/address" address,undefined
build_instrumented "$CI_OUT/thread" thread
