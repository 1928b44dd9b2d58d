# A build without CUDA's headers, as on macOS, and the tests that need the CPU's clock alone.
source .ci/common.sh
need_debian g++
need_tools

folder=$CI_OUT/nocuda
"$tools/bin/python" -m venv --clear --without-pip "$folder/venv"
site=$("$folder/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"$tools/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$site/tools.pth"
PATH=$tools/bin:$PATH "$tools/bin/pip" install -q --no-build-isolation --no-deps --target "$site" \
  --config-settings=cmake.define.GPUPROF_CUDA_INCLUDE=OFF --config-settings=build-dir="$folder/build" .

"$folder/venv/bin/python" - <<'PYTHON'
import gpuprof

with gpuprof.timer("work") as sample:
    sum(range(1000))
assert (sample.clock, sample.ms > 0.0, gpuprof.stats()["work"].host.count) == ("cpu", True, 1)
assert not gpuprof.cuda_available()
assert "no CUDA support" in gpuprof.backends()["cuda"].reason
try:
    gpuprof.timer(backend="cuda")
except gpuprof.errors.CudaUnavailableError as error:
    assert "no CUDA support" in str(error)
else:
    raise AssertionError("a clock that is not there was accepted")
PYTHON
# Left out is what wants the test driver, which such a build never loads.
"$folder/venv/bin/python" -m pytest -q -p no:cacheprovider \
  tests/timing/test_{backends,decorate,decorated_calls,flow,stats_table,timer}.py \
  tests/trace/test_{disk,path,process,slices,use,values}.py
