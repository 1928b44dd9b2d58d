# The package on the other Python versions that are here: install, demo, a few tests.
source .ci/common.sh

# The path of an interpreter: on PATH, or one that pyenv keeps without showing it.
find_python() {
  local path
  for path in "$(command -v "python$1")" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
    "$path" -c 'import venv' 2>/dev/null && echo "$path" && return 0
  done
  return 1
}

for version in 3.10 3.12 3.13 3.14; do
  if ! python=$(find_python "$version"); then
    echo "-- Python $version: not here"
    continue
  fi
  echo "-- Python $version"
  venv=$CI_OUT/python$version
  "$python" -m venv --clear "$venv"
  "$venv/bin/pip" install -q . 'pytest>=8.0' 'pytest-timeout>=2.3' 'pybind11-stubgen>=2.5'
  "$venv/bin/gpuprof" demo
  "$venv/bin/python" -m pytest -q -p no:cacheprovider tests/package/test_stubs.py tests/timing/test_scope.py \
    tests/trace/test_writer.py tests/run tests/benchmark/test_benchmark.py tests/benchmark/test_modes.py
done
