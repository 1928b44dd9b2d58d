"""A driver call that never returns: the rest of the program goes on, and is told which call."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.support.hanging_calls import table
from tests.support.processes import (
    ROOT,
    SETUP_CUDA,
    check_cuda,
    run_command,
    run_python,
)
from tests.support.rank_pool import build_shifted_clocks

# A thread runs into a call that does not return, beside one that looks as time passes.
HANGS = """
import ctypes, select
shift = ctypes.c_longlong.in_dll(ctypes.CDLL(os.environ["LD_PRELOAD"]), "monotonic_shift")

def run():
    fake.set_current(context)
    with gpuprof.timer("step", stream=stream), gpuprof.timer("fwd", stream=stream):
        fake.script("cuEventRecord@1=0:block")

def pause():  # time.sleep() would sleep until a time of the shifted clock
    select.select([], [], [], 0.002)

def begin():
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while not fake.report()["blocked_calls"]:
        pause()
    gpuprof.stats(wait=False)
    return thread

def pass_by(seconds):
    for _ in range(seconds // 4):
        shift.value += 4 * 10**9
        gpuprof.stats(wait=False)
"""


def test_every_call_may_hang_and_is_named(fake_path: Path) -> None:
    command = (sys.executable, "-W", "ignore", "-m", "tests.support.hanging_calls")
    done = run_command(*command, cwd=ROOT, driver=fake_path, timeout=280, GPUPROF_HANG_S="0.1")
    assert done.stdout == f"{len(table())} calls, 0 bad\n", done.stdout + done.stderr


def said_in(fake_path: Path, tmp_path: Path, body: str) -> list[str]:
    driver = {"driver": fake_path, "LD_PRELOAD": str(build_shifted_clocks(tmp_path))}
    done = run_python(SETUP_CUDA + HANGS + body, **driver)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    return done.stderr.splitlines()


def test_a_thread_that_drains_says_once_which_call_hangs_and_no_thread_is_started(
    fake_path: Path, tmp_path: Path
) -> None:
    body = """
thread = begin()
pass_by(28)
if os.fork() == 0:  # a child has none of these threads
    pass_by(60)
    os._exit(0)
os.wait()
os.write(2, b"not yet\\n")
pass_by(16)
assert len(os.listdir("/proc/self/task")) == 2
fake.release()  # it only took long
thread.join()
assert gpuprof.stats()["step/fwd"].gpu.count == 1
begin()
pass_by(60)
print("done", flush=True)
"""
    early, late = said_in(fake_path, tmp_path, body)
    assert early == "not yet"
    said = re.fullmatch(r"gpuprof: cuEventRecord has not returned for 32 s \((.*)\)\. It .*", late)
    assert said, late
    assert re.fullmatch(r"thread \d+ \S+; last scope step/fwd", said[1])


def test_a_thread_that_waits_for_a_sample_says_which_call_of_another_hangs(
    fake_path: Path, tmp_path: Path
) -> None:
    body = """
from tests.support.stuck_streams import Driver
driver = Driver(os.environ["GPUPROF_CUDA_DRIVER"])
driver.hold(driver.stream)
with gpuprof.timer("waits", stream=driver.stream) as sample:
    pass
begin()
said = os.memfd_create("stderr")
before = os.dup(2)
os.dup2(said, 2)

def tick():
    while not os.fstat(said).st_size:
        shift.value += 10**9
        pause()
    driver.write()

threading.Thread(target=tick, daemon=True).start()
assert sample.ms >= 0
os.write(before, os.pread(said, 4096, 0))
print("done", flush=True)
"""
    (line,) = said_in(fake_path, tmp_path, body)
    assert line.startswith("gpuprof: cuEventRecord has not returned for 3"), line


@pytest.mark.parametrize("value", ["", "0", "-1", "soon"])
def test_a_value_that_is_no_time_starts_no_thread(fake_path: Path, value: str) -> None:
    body = 'print(len(os.listdir("/proc/self/task")))'
    assert check_cuda(fake_path, f"with scope: pass\n{body}", GPUPROF_HANG_S=value) == "1\n"
