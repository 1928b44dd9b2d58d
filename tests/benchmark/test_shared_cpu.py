"""A function that runs longer than a time slice, beside another process on the same CPU."""

from __future__ import annotations

import sys

from tests.support.processes import run_command

SHARED_CPU = """
import os, subprocess, sys
import gpuprof

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
neighbour = subprocess.Popen([sys.executable, "-c", "while True: pass"])


def roots():
    return sum(number**0.5 for number in range(100_000))


try:
    alone = gpuprof.benchmark(roots, max_time_s=0.5)
    turns = gpuprof.compare({"a": roots, "b": lambda: (roots(), roots())}, rounds=15)
finally:
    neighbour.kill()
waited, = (text for text in alone.warnings if text.startswith("the thread waited for a CPU for"))
said = float(waited.partition("the CPU time of a call is ")[2].removesuffix(" ms"))
assert abs(said / alone.noise["cpu_ms"] - 1.0) < 0.01, waited
assert "CPU time" in str(alone)
assert alone.noise["cpu_ms"] < 0.75 * alone.median_ms, (alone.noise, alone.median_ms)
assert turns["b"].verdict == "slow", turns
assert 1.5 < turns["b"].ratio < 2.5, turns
assert turns.warnings[-1].startswith("CPU times are compared"), turns.warnings
"""


def test_a_long_function_is_told_from_its_neighbour_on_the_same_cpu() -> None:
    done = run_command(sys.executable, "-c", SHARED_CPU)
    assert (done.returncode, done.stderr) == (0, "")
