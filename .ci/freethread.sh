# The package on a free-threaded Python, where one is on PATH: python3.14t, else python3.13t.
# FREETHREADED_PYTHON names another. One that was built with --with-thread-sanitizer runs the tests
# with threads under ThreadSanitizer. The build declares that it needs no interpreter lock, which
# the wheels do not.
source .ci/common.sh

python=${FREETHREADED_PYTHON:-}
for name in python3.14t python3.13t; do
  [ -n "$python" ] || python=$(command -v "$name") || true
done
if [ -z "$python" ]; then
  echo "not here: neither python3.14t nor python3.13t is on PATH"
  exit 0
fi
need_debian g++

folder=$CI_OUT/freethread
"$python" -m venv --clear "$folder/venv"
run=$folder/venv/bin/python
"$run" -m pip install -q --only-binary :all: "pytest>=8.0" "pytest-timeout>=2.3" "hypothesis>=6.100" "numpy>=1.24"
sanitized=()
flags=$("$run" -c 'import sysconfig; print(sysconfig.get_config_var("CONFIG_ARGS"))')
if [[ $flags == *--with-thread-sanitizer* ]]; then
  # The interpreter's own synchronisation is seen only where it was built so, too.
  sanitized=(--config-settings=cmake.define.GPUPROF_SANITIZE=thread)
  export FAKECUDA_CXXFLAGS="-O1 -g -fsanitize=thread"
  TSAN_OPTIONS=exitcode=66:second_deadlock_stack=1:report_thread_leaks=0
  export TSAN_OPTIONS=$TSAN_OPTIONS:suppressions=$PWD/.ci/thread.supp:log_path=$folder/report
  rm -f "$folder"/report.*
fi
TSAN_OPTIONS=report_bugs=0 "$run" -m pip install -q "${sanitized[@]}" \
  --config-settings=cmake.define.GPUPROF_FREE_THREADED=ON \
  --config-settings=build-dir="$folder/build" .

"$run" -W error - <<'PYTHON'
import sys
import gpuprof

with gpuprof.timer("work", backend="cpu"):
    pass
print(sys.version, "- the interpreter lock is", "on" if sys._is_gil_enabled() else "off")
PYTHON
if [ -n "${sanitized[*]-}" ]; then
  "$run" -m pytest -q -o cache_dir="$folder/cache" -m threads tests/promises tests/timing tests/graphs
  ! ls "$folder"/report.* 2>/dev/null
else
  "$run" -m pytest -q -o cache_dir="$folder/cache" tests/{promises,timing,trace,nvtx,graphs,callable}
fi
