# What the steps cpp, address, thread and wheel compile. A run of all steps does it beside the others;
# what does not compile is said by the step that needs it.
source .ci/common.sh
need_debian g++ libgtest-dev
need_tools

build_plain
build_instrumented "$CI_OUT/address" address,undefined
build_instrumented "$CI_OUT/thread" thread
versions=$(wheel_pythons)
for version in $versions; do
  build_wheel "$version"
done
