# The package on the other Python versions that are here: install, demo, a few tests.
source .ci/common.sh

for version in 3.10 3.12 3.13 3.14; do
  python=python$version
  if ! "$python" -c '' 2>/dev/null; then
    echo "-- Python $version: not here"
    continue
  fi
  echo "-- Python $version"
  venv=$CI_OUT/python$version
  "$python" -m venv --clear "$venv"
  "$venv/bin/pip" install -q . 'pytest>=8.0' 'pytest-timeout>=2.3' 'pybind11-stubgen>=2.5'
  GPUPROF_CUDA_DRIVER='' "$venv/bin/gpuprof" demo
  "$venv/bin/python" -m pytest -q -p no:cacheprovider \
    tests/test_stubs.py tests/test_timing_scope.py
done
