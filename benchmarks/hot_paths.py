"""Compares what hot paths cost in two builds of gpuprof: `hot_paths.py OLD NEW`, folders of
`pip install --target`.

Each build is measured in processes of its own, in turns and on one core, so that slow spells of the
host meet both. A figure is the least of a build's processes, each of which gives the median of its
bursts; the stream is empty when a burst begins. Beside a busy thread another Python thread computes
all the time, and the deep bursts have a fill of the GPU's memory in each scope. Needs a GPU.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_PAIRS = 6
_BURSTS = 60
_SIZES = {5: 16 << 20, 20: 64 << 20, 33: 104 << 20}  # bytes that a fill needs about so many us for
Step = Callable[[], object]


class Driver:
    """A stream of the primary context, and memory to fill on it."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(os.environ.get("GPUPROF_CUDA_DRIVER", "libcuda.so.1"))
        self._call("cuInit", 0)
        self._call("cuCtxSetCurrent", self._made("cuDevicePrimaryCtxRetain", 0))
        self.stream = self._made("cuStreamCreate", 1)
        self._memory = self._made("cuMemAlloc_v2", max(_SIZES.values()))

    def fill(self, nbytes: int) -> None:
        self._call("cuMemsetD8Async", self._memory, 0, nbytes, self.stream)

    def wait(self) -> None:
        self._call("cuStreamSynchronize", self.stream)

    def _call(self, function: str, *arguments: Any) -> None:
        values = [ctypes.c_uint64(a) if isinstance(a, int) else a for a in arguments]
        if code := getattr(self._library, function)(*values):
            sys.exit(f"{function} answers {code}")

    def _made(self, function: str, *arguments: Any) -> int:
        out = ctypes.c_uint64(0)
        self._call(function, ctypes.byref(out), *arguments)
        return out.value


def measured(beside: bool) -> dict[str, float]:
    """Return the nanoseconds of a step in each kind of burst, also beside a busy thread."""
    import gpuprof

    driver = Driver()
    scope = gpuprof.timer("hot", stream=driver.stream)
    timer = gpuprof.Timer("cuda", driver.stream)
    with gpuprof.capture(driver.stream) as cap:
        driver.fill(256)

    def enter() -> None:
        with scope:
            pass

    def pair() -> None:
        timer.record_start()
        timer.record_end()

    def burst(step: Step, count: int, bursts: int = _BURSTS) -> float:
        times = []
        for number in range(bursts + 5):
            driver.wait()
            begun = time.perf_counter_ns()
            for _ in range(count):
                step()
            if number >= 5:
                times.append((time.perf_counter_ns() - begun) / count)
        gpuprof.flush()
        return statistics.median(times)

    def launch() -> None:
        cap.graph.launch(driver.stream)

    def filled(nbytes: int) -> Step:
        def step() -> None:
            with scope:
                driver.fill(nbytes)

        return step

    found = {f"scope, bursts of {count}": burst(enter, count) for count in (10, 50, 200, 1000)}
    found["Timer, bursts of 200"] = burst(pair, 200)
    found |= {f"launch, bursts of {n}": burst(launch, n) for n in (10, 50, 100, 200, 400)}
    if not beside:
        return found
    stop = threading.Event()
    busy = threading.Thread(target=_compute, args=(stop,), daemon=True)
    busy.start()
    try:
        found["scope beside a busy thread, bursts of 10"] = burst(enter, 10)
        for us, nbytes in _SIZES.items():
            name = f"scope beside a busy thread, 200 fills of {us} us"
            found[name] = burst(filled(nbytes), 200, 10)
    finally:
        stop.set()
        busy.join()
    return found


def _compute(stop: threading.Event) -> None:
    while not stop.is_set():
        sum(range(1000))


def _of_build(site: Path, core: int, options: list[str]) -> dict[str, float]:
    command = [sys.executable, __file__, "--measure", *options]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(site)},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {core, core + 1}),
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    """Measure both builds in turns, and print a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("builds", nargs="*", type=Path, metavar="OLD NEW")
    parser.add_argument("--pairs", type=int, default=_PAIRS, help="processes of each (%(default)s)")
    parser.add_argument("--core", type=int, default=0, help="the first of two (%(default)s)")
    parser.add_argument("--alone", action="store_true", help="leave out what needs a busy thread")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measured(not given.alone)))
        return
    if len(given.builds) != 2:
        parser.error("two folders are needed: the old build and the new one")
    options = ["--alone"] if given.alone else []
    runs: list[list[dict[str, float]]] = [[], []]
    for number in range(given.pairs):
        for which in (0, 1) if number % 2 else (1, 0):
            runs[which].append(_of_build(given.builds[which], given.core, options))
    for name in runs[0][0]:
        old, new = (min(run[name] for run in side) for side in runs)
        middle = [statistics.median(run[name] for run in side) for side in runs]
        ratio = f"{new / old:.3f} ({middle[1] / middle[0]:.3f} of the medians)"
        print(f"{name:<50} {old:>10,.0f} ns {new:>10,.0f} ns  {ratio}")


if __name__ == "__main__":
    main()
