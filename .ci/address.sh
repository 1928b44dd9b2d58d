# C++ tests and the Python tests of timing, graphs, callables and traces under AddressSanitizer, LeakSanitizer and
# UndefinedBehaviorSanitizer.
source .ci/common.sh
need_debian g++ libgtest-dev
need_tools

folder=$CI_OUT/address
flags=(-O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all)
export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1
export UBSAN_OPTIONS=print_stacktrace=1
preload=$(runtime libasan.so libubsan.so)
instrumented "$folder" address,undefined
python=(env PYTHONMALLOC=malloc LD_PRELOAD="$preload" "$folder/venv/bin/python")

echo "-- planted defects"
planted "$folder/planted" "${flags[@]}"
call='import ctypes, sys; getattr(ctypes.CDLL(sys.argv[1]), sys.argv[2])()'
for run in "$folder/planted/defects" "python"; do
  command=("$run")
  [ "$run" = python ] && command=("${python[@]}" -c "$call" "$folder/planted/defects.so")
  must_report heap-buffer-overflow "${command[@]}" heap_overflow
  must_report 'LeakSanitizer: detected memory leaks' "${command[@]}" leak
  must_report 'shift exponent' "${command[@]}" shift_too_far
done

echo "-- C++"
# Where pytest's cache is; built here, because a preloaded compiler leaks.
driver=$(fake_driver "$folder/cache/d/fake_driver" "${flags[@]}")
# Left out: a simulation of one thread, which takes four tenths of the time of all of them.
cpp_suites "$folder/build" "$driver" BudgetOf
cpp_tests "$folder/build" "$driver" --tests-regex fuzz_

echo "-- Python"
# Left out: what ends a process beside daemon threads, which leaves all that those hold, and what
# forks beside running threads, where AddressSanitizer's own locks are not safe; and what imports
# NumPy or pandas, as tables and plots of statistics do, which leaves objects of its own behind; and
# what reads the memory of the process, which AddressSanitizer does not give back at once. So are two
# kinds of tests that start a process each, for locks and for random numbers, half of all the time.
FAKECUDA_CXXFLAGS="${flags[*]}" "${python[@]}" -m pytest -q -n 2 -o cache_dir="$folder/cache" \
  -k 'not daemon and not fork_while_other_threads and not numpy and not pandas and not keep_no_memory and not draw_as_many' \
  tests/timing --ignore=tests/timing/test_{stuck_streams,stats_model,stats_table}.py \
  tests/graphs/test_{capture,graph,update,timers,nodes,scalar,scalar_arrays,scalar_memory}.py \
  tests/callable/test_{calls,policies,closures,lifetime,stale}.py \
  tests/trace/test_writer.py tests/trace/test_values.py
