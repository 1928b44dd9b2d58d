# gpuprof beside other versions than those of the other steps: drivers by the fake one, pytest, NumPy,
# CuPy, torch. Not among the steps that `.ci/run` takes by itself, for a torch is a wheel of 900 MB:
# `.ci/run tests versions`.
source .ci/common.sh
need_debian g++

venv_python "the versions are"
need_uv
# What older drivers have not: the names of kernels in graphs, and a log of refused calls.
names=(graphs/test_capture.py::test_the_last_kernel_is_named_behind_nodes_of_other_kinds
  graphs/test_graph.py::test_handles_of_others_can_be_replayed_and_looked_into_and_stay_theirs
  callable/test_calls.py::test_a_call_in_a_capture_becomes_part_of_it
  callable/test_calls.py::test_a_callable_inside_of_another_becomes_part_of_its_graph)
log=graphs/test_capture.py::test_a_broken_capture_raises_at_the_end_and_says_what_was_refused
for driver in 12000 12030 12090; do
  echo "-- driver $driver"
  absent=()
  [ $driver -ge 12030 ] || absent+=("${names[@]}")
  [ $driver -ge 12090 ] || absent+=("$log")
  FAKECUDA_CONFIG=driver_version=$driver "$python" -m pytest -q "${absent[@]/#/--deselect=tests/}" \
    tests/timing/test_cuda.py tests/graphs/test_{graph,capture,update}.py tests/callable/test_calls.py
done

folder=$CI_OUT/versions
for package in pytest==8.4.2 numpy==1.26.4; do
  echo "-- $package"
  beside_venv "$folder"
  install "$folder/bin/python" --no-deps "$package"
  "$folder/bin/python" -m pytest -q tests/pytest_plugin/test_{fixture,options}.py \
    tests/frameworks/test_arrays.py tests/graphs/test_scalar_arrays.py
done

for cupy in 13.6.0 14.2.0; do # 12 does not load without a driver
  echo "-- CuPy $cupy"
  beside_venv "$folder"
  install "$folder/bin/python" --no-deps "cupy-cuda12x==$cupy" fastrlock==0.8.4 cuda-pathfinder==1.9.1
  "$folder/bin/python" -m pytest -q tests/doubles/test_cupy_names.py
done

export OMP_NUM_THREADS=1
# Older ones make other kernels of a backward pass than those that these tests list, and refuse to
# compile a model in place that has hooks of `watch` already. 2.10 warns once of its profiler.
other=(kernels/test_compiled.py::test_{kernels_have_their_modules_in_forward_and_backward,modules_are_rows_below_their_scopes}
  kernels/test_compiled.py::test_code_{from_a_cache_has_its_modules,compiled_before_gpuprof_was_used_has_modules}
  "watch/test_compiled.py::test_a_model_compiled_in_place_is_one_row[before]")
for torch in 2.8.0 2.10.0; do
  echo "-- torch $torch"
  beside_venv "$folder"
  install "$folder/bin/python" --no-deps "torch==$torch" nvidia-cuda-runtime-cu12==12.8.90 \
    nvidia-cuda-cupti-cu12==12.8.90
  install "$folder/bin/python" filelock typing-extensions sympy networkx jinja2 fsspec
  site=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  cp "$site"/nvidia/cuda_{runtime,cupti}/lib/*.so* "$site/torch/lib/"
  "$python" .ci/torch_on_cpu.py "$site/torch/lib"
  "$folder/bin/python" -m pytest -q -m torch "${other[@]/#/--deselect=tests/}" \
    -W ignore::UserWarning:torch.profiler.profiler \
    tests/frameworks tests/callable/test_guards_torch.py tests/run/test_torch_scopes.py \
    tests/kernels/test_{compiled,compiled_match,torch}.py tests/watch/test_compiled.py
done
rm -rf "$folder"
