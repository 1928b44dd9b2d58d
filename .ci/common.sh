# What the steps share. Sourced from the repository's root, with CI_OUT set.

: "${CI_OUT:?a step runs through .ci/run}"
tools=$CI_OUT/tools # a virtual environment with what building, testing and linting need
wheels=$CI_OUT/wheels

# What two scripts of a run need is made by one of them, and the other waits for it: a function does
# its work in ( ), with NAME.lock open as file 9, and begins with "flock 9".

# Debian packages, only those that are missing.
need_debian() (
  flock 9
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
      missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  local root=()
  [ "$(id -u)" = 0 ] || root=(sudo)
  "${root[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${root[@]}" apt-get install -qq -y --no-install-recommends \
    "${missing[@]}" >/dev/null
) 9>"$CI_OUT/debian.lock"

# What pyproject.toml asks for under "build" or an extra's name, a line each.
requirements() {
  "$tools/bin/python" - "$@" <<'PYTHON'
import sys
try:
    import tomllib
except ModuleNotFoundError:  # before Python 3.11
    from pip._vendor import tomli as tomllib
with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)
for name in sys.argv[1:]:
    extras = project["project"]["optional-dependencies"]
    print(*(project["build-system"]["requires"] if name == "build" else extras[name]), sep="\n")
PYTHON
}

need_tools() (
  need_uv
  flock 9
  local stamp=$tools/installed
  [ -f "$stamp" ] && [ "$stamp" -nt pyproject.toml ] && return 0
  requirements build test lint >"$CI_OUT/requirements.txt"
  install "$tools/bin/python" -r "$CI_OUT/requirements.txt"
  touch "$stamp"
) 9>"$CI_OUT/tools.lock"

need_uv() (
  flock 9
  [ -x "$tools/bin/uv" ] && return 0
  python3 -m venv "$tools"
  "$tools/bin/pip" install -q 'uv>=0.5'
) 9>"$CI_OUT/uv.lock"

# install PYTHON ARGUMENTS...: packages for an interpreter by uv, which takes a twentieth of pip's
# time. uv does not read pip's settings, so pip is asked where uv fails.
install() {
  "$tools/bin/uv" pip install -q --python "$@" || "$1" -m pip install -q --no-compile "${@:2}"
}

# configure FOLDER [CMAKE OPTIONS]: a build with the tools' Python and header wheels.
configure() {
  local folder=$1
  shift
  PATH=$tools/bin:$PATH cmake -S . -B "$folder" -G Ninja --log-level=WARNING \
    -DPython_EXECUTABLE="$tools/bin/python" \
    -Dpybind11_DIR="$("$tools/bin/python" -m pybind11 --cmakedir)" \
    -DSKBUILD_PROJECT_VERSION=0 "$@"
}

# build FOLDER [TARGET]
build() {
  PATH=$tools/bin:$PATH cmake --build "$1" ${2:+--target "$2"} --parallel 2
}

# The C++ tests as they are, each file compiled by itself, where a warning is an error.
build_plain() (
  flock 9
  configure "$CI_OUT/cpp" -DGPUPROF_PYTHON=OFF -DGPUPROF_CPP_TESTS=ON -DCMAKE_BUILD_TYPE=Release \
    -DGPUPROF_UNITY=OFF -DGPUPROF_WERROR=ON
  build "$CI_OUT/cpp"
) 9>"$CI_OUT/cpp.lock"

# build_instrumented FOLDER SANITIZERS: the C++ tests and the extension in FOLDER/build.
build_instrumented() (
  flock 9
  configure "$1/build" -DGPUPROF_CPP_TESTS=ON -DCMAKE_BUILD_TYPE=Debug -DGPUPROF_SANITIZE="$2"
  build "$1/build"
) 9>"$1.lock"

# The oldest and the newest Python that are here, or with WHEEL_PYTHONS=all those between them too.
wheel_pythons() {
  local here=() version
  for version in 3.10 3.12 3.13 3.14; do
    python3 .ci/wheels.py find --python "$version" >/dev/null && here+=("$version")
  done
  [ "${WHEEL_PYTHONS:-}" = all ] || here=("${here[0]}" "${here[-1]}")
  [ "${WHEEL_SUITE:-}" != whole ] || here+=(3.12)
  printf '%s\n' "${here[@]}" | sort -uV
}

# build_wheel VERSION: the wheel of one Python, without network, once in a run. What is built twice
# is unpacked into folders with random names.
build_wheel() {
  local options=(--here --out "$wheels" --python "$1")
  mkdir -p "$wheels"
  ! compgen -G "$wheels/*-cp${1/./}-cp${1/./}-*.whl" >/dev/null || return 0
  [ "${WHEEL_PYTHONS:-}" != all ] || options+=(--twice)
  python3 .ci/wheels.py wheels "${options[@]}" >"$wheels/build-$1.log" 2>&1 || {
    tail -n 40 "$wheels/build-$1.log"
    return 1
  }
}

# Prints the path of the fake CUDA driver, built into FOLDER with the given compiler flags.
fake_driver() {
  local folder=$1
  shift
  mkdir -p "$folder"
  FAKECUDA_CXXFLAGS="$*" "$tools/bin/python" -c '
import sys
from pathlib import Path
sys.path.insert(0, ".")
from tests.fake_driver.build import build
print(build(Path(sys.argv[1]).resolve()))' "$folder"
}

# cpp_tests FOLDER DRIVER [CTEST OPTIONS]: the C++ tests of a build, one process each.
cpp_tests() {
  GPUPROF_CUDA_DRIVER=$2 "$tools/bin/ctest" --test-dir "$1" --output-on-failure --no-tests=error \
    --parallel 2 "${@:3}" | grep -vE '^ +Start +[0-9]+:| +Passed +[0-9.]+ sec$'
}

# cpp_suites FOLDER DRIVER WITHOUT: those of an instrumented build, one process for each suite but those
# that match: a process of each test's own takes longer to start and to end than most tests do.
cpp_suites() {
  local suites
  mapfile -t suites < <("$1/gpuprof_tests" --gtest_list_tests | sed -n 's/^\([^ ]*\.\)\( .*\)\?$/\1*/p' |
    grep -vE "$3")
  printf '%s\n' "${suites[@]}" | GPUPROF_CUDA_DRIVER=$2 xargs -P 2 -I '{}' \
    timeout 900 "$1/gpuprof_tests" --gtest_brief=1 '--gtest_filter={}' |
    sed -E '/^(Running main|\[ *(PASSED|=+))/d'
  echo "${#suites[@]} suites passed"
  [ "${#suites[@]}" -gt 50 ] || { echo "there were more than 50" >&2; return 1; }
}

# The sanitizers' runtime libraries, to be loaded before an interpreter that was built without them.
runtime() {
  local name path
  for name in "$@" libstdc++.so; do
    path=$(g++ -print-file-name="$name")
    [ -f "$path" ] || { echo "$name is not installed: the sanitizer would check nothing" >&2; return 1; }
    printf '%s ' "$path"
  done
}

# must_report TEXT COMMAND...: fails unless the command fails and TEXT is in what it prints.
must_report() {
  local text=$1 output
  shift
  if output=$("$@" 2>&1); then
    printf 'not reported: %s, planted in: %s\n%s\n' "$text" "$*" "$output" >&2
    return 1
  fi
  if ! grep -q -- "$text" <<<"$output"; then
    printf 'failed without the report %s: %s\n%s\n' "$text" "$*" "$output" >&2
    return 1
  fi
  echo "planted and reported: $text"
}

# planted FOLDER FLAGS...: builds the planted defects as a program and as a library for Python.
planted() {
  local folder=$1
  shift
  mkdir -p "$folder"
  g++ -std=c++17 "$@" tests/planted/defects.cpp -o "$folder/defects" -pthread
  g++ -std=c++17 "$@" -shared -fPIC tests/planted/defects.cpp -o "$folder/defects.so" -pthread
}

# instrumented FOLDER SANITIZERS: one build with the sanitizers, for the C++ tests in FOLDER/build and
# for the extension, which is in a virtual environment with the package and all that the tools'
# environment has. Child processes find it too.
instrumented() {
  local site
  python3 -m venv --clear --without-pip "$1/venv"
  site=$("$1/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  "$tools/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$site/tools.pth"
  build_instrumented "$@"
  cp -r python/gpuprof "$site/"
  cp "$1"/build/_core*.so "$site/gpuprof/"
}

# venv_python WHAT: sets `python` to that of .venv, or ends the step where WHAT is not pinned for its
# version.
venv_python() {
  python=.venv/bin/python
  [ -x "$python" ] || { echo "needs .venv: run the step 'tests' first" >&2; exit 1; }
  if ! "$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))'; then
    echo "left out: $1 pinned for Python 3.11 only"
    exit 0
  fi
}

# beside_venv FOLDER: an environment with all that .venv has, where more can be installed.
beside_venv() {
  local where='import sysconfig; print(sysconfig.get_path("purelib"))'
  "$python" -m venv --clear --without-pip "$1"
  "$python" -c "$where" >"$("$1/bin/python" -c "$where")/venv.pth"
}
