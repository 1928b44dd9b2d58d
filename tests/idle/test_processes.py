"""`gpuprof.idle` and how processes end: exits, forks, interrupts, no driver, and what is off."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import SETUP_CUDA, check_cuda, check_python, environment
from tests.support.torch_blocks import Run

BUSY_END = """
with scope:
    pass
found = gpuprof.idle().__enter__()
time.sleep(0.05)
"""


@pytest.mark.parametrize(
    "end",
    [
        "pass",
        "os._exit(0)",
        "sys.exit(0)",
        "import atexit; atexit.register(gpuprof.idle().__enter__)",
        "threading.Thread(target=lambda: [sum(range(1000)) for _ in iter(int, 1)], "
        "daemon=True).start(); time.sleep(0.05)",
        "threading.Thread(target=time.sleep, args=(0.2,)).start()",
    ],
)
def test_a_program_may_end_while_it_is_open(in_cuda: Run, end: str) -> None:
    in_cuda(f"import sys\n{BUSY_END}\n{end}")


def test_at_exit_the_result_is_there(in_cuda: Run) -> None:
    out = in_cuda(f"""
        import atexit
        atexit.register(lambda: print(found.rows[0].idle_ms > 0))
        {BUSY_END.replace(chr(10), chr(10) + " " * 8)}
        """)
    assert out.split() == ["True"]


def test_a_fork_leaves_the_parent_looking_and_the_child_free(in_cuda: Run) -> None:
    out = in_cuda(f"""
        {BUSY_END.replace(chr(10), chr(10) + " " * 8)}
        for _ in range(20):
            child = os.fork()
            if child == 0:
                found.__exit__(None, None, None)
                assert len(os.listdir("/proc/self/task")) == 1
                found.rows
                os._exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            time.sleep(0.003)
        before = len(found._looks.found()[0])
        time.sleep(0.1)  # a line that was not met before
        found.__exit__(None, None, None)
        print(len(found._looks.found()[0]) > before)
        """)
    assert out.split() == ["True"]


def test_children_that_go_on_in_the_block_end_as_they_should(in_cuda: Run) -> None:
    in_cuda(f"""
        {BUSY_END.replace(chr(10), chr(10) + " " * 8)}
        child = os.fork()
        time.sleep(0.05)
        if child:
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        """)


def test_ctrl_c_ends_the_block_as_any_other(fake_path: Path) -> None:
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
{SETUP_CUDA}
with scope:
    pass
with gpuprof.idle() as found:
    try:
        time.sleep(0.05)
        print("now", flush=True)
        time.sleep(60)
    except KeyboardInterrupt:
        print("interrupted")
print(found.rows[0].idle_ms > 0)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment(fake_path),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "now\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[0].split() == ["interrupted", "True"]
    assert process.returncode == 0


def test_many_threads_may_launch_while_it_looks(in_cuda: Run) -> None:
    out = in_cuda("""
        def launch():
            fake.set_current(context)
            for _ in range(200):
                with gpuprof.timer("step", stream=stream):
                    fake.work(stream, 1000)
                gpuprof.flush()
                time.sleep(0.001)
        with gpuprof.idle() as found:
            threads = [threading.Thread(target=launch) for _ in range(4)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
        print(gpuprof.stats()["step"].gpu.count, found.seconds > 0)
        """)
    assert out.split() == ["800", "True"]


def test_a_context_that_is_reset_is_nothing_to_look_at(in_cuda: Run) -> None:
    in_cuda("""
        with scope:
            fake.work(stream, 10**12)
        with gpuprof.idle():
            time.sleep(0.03)
            fake.primary_reset()
            time.sleep(0.05)
        """)


def test_without_a_driver_it_is_refused() -> None:
    check_python(
        """
        import gpuprof
        try:
            gpuprof.idle().__enter__()
        except gpuprof.CudaUnavailableError:
            pass
        else:
            raise SystemExit("not refused")
        """,
        GPUPROF_CUDA_DRIVER="/missing/libcuda.so.1",
    )


def test_switched_off_it_starts_no_thread(fake_path: Path) -> None:
    out = check_cuda(
        fake_path,
        """
        with gpuprof.idle() as found:
            print(len(os.listdir("/proc/self/task")))
        print(found)
        """,
        GPUPROF_DISABLE="1",
    )
    assert out.splitlines() == ["1", "nothing was watched: GPUPROF_DISABLE is set"]
