# C++ tests and the Python tests with threads under ThreadSanitizer.
source .ci/common.sh
need_debian g++ libgtest-dev
need_tools

folder=$CI_OUT/thread
flags=(-O1 -g -fno-omit-frame-pointer -fsanitize=thread)
# A forked child has its parent's threads on its books, which are no leak of its own.
TSAN_OPTIONS=exitcode=66:halt_on_error=1:second_deadlock_stack=1:report_thread_leaks=0
export TSAN_OPTIONS=$TSAN_OPTIONS:suppressions=$PWD/.ci/thread.supp
preload=$(runtime libtsan.so)
instrumented "$folder" thread
python=(env LD_PRELOAD="$preload" "$folder/venv/bin/python")

echo "-- planted defects"
planted "$folder/planted" "${flags[@]}"
call='import ctypes, sys; getattr(ctypes.CDLL(sys.argv[1]), sys.argv[2])()'
must_report 'data race' "$folder/planted/defects" data_race
must_report 'data race' "${python[@]}" -c "$call" "$folder/planted/defects.so" data_race

echo "-- C++"
driver=$(fake_driver "$folder/cache/d/fake_driver" "${flags[@]}") # where pytest's cache is
# Left out: simulations of one thread, which are more than half of the time of all others.
cpp_suites "$folder/build" "$driver" '^Budget\.|BudgetOf'

echo "-- Python"
FAKECUDA_CXXFLAGS="${flags[*]}" "${python[@]}" -m pytest -q -n 2 -o cache_dir="$folder/cache" \
  tests/timing/test_threads.py tests/trace/test_writer.py tests/graphs/test_{capture,graph,pool}.py \
  -k 'thread or others_record'
