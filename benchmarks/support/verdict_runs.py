"""Verdicts on real runs: processes that measure the same kernels, one after the other.

``main`` is such a process: ``runs FILE`` measures each kernel and the slowed ones;
``interleaved FILE SECONDS`` compares functions in turns. Slower is more work of the same kind: a
spin of more clock cycles, an addition of more numbers.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any

import gpuprof
from gpuprof._results.decision import Verdict
from gpuprof._results.result import BenchResult
from gpuprof._results.verdict import confirm, may_be_slow
from support.loops import BenchmarkError
from support.results import Row

_SCRIPT = str(Path(__file__).resolve().parents[1] / "benchmark_verdicts.py")
BASE_RUNS, NEW_RUNS = 5, 3
MAX_RUNS = 20
# Of all processes, and of the one that compares alternately: together below three minutes.
RUNS_SECONDS = 85.0
TURNS_SECONDS = 30.0
STORED_SLOWER = 1.12
TURNS_SLOWER = 1.05
_TIMEOUT_S = 900.0
_SHORT: dict[str, Any] = {"warmup_s": 0.1, "max_time_s": 2.0, "progress": False}

Function = Callable[[], object]


@dataclass(frozen=True)
class Kernel:
    """One kernel to measure; `of(ratio)` makes a function that does `ratio` times the work."""

    name: str
    of: Callable[[float], Function]
    scales: bool = False


def _kernels(torch: Any) -> list[Kernel]:
    def spin(cycles: int) -> Callable[[float], Function]:
        return lambda ratio: lambda: torch.cuda._sleep(round(cycles * ratio))

    def add(count: int) -> Callable[[float], Function]:
        def of(ratio: float) -> Function:
            left, right, out = (torch.ones(round(count * ratio), device="cuda") for _ in range(3))
            return lambda: torch.add(left, right, out=out)

        return of

    def mm(size: int) -> Callable[[float], Function]:
        def of(_ratio: float) -> Function:
            left, right, out = (torch.rand(size, size, device="cuda") for _ in range(3))
            return lambda: torch.mm(left, right, out=out)

        return of

    return [
        Kernel("spin of 40,000 cycles", spin(40_000), scales=True),
        Kernel("spin of 400,000 cycles", spin(400_000), scales=True),
        Kernel("add of 1 K", add(1 << 10)),
        Kernel("add of 1 M", add(1 << 20)),
        Kernel("add of 16 M", add(1 << 24)),
        Kernel("add of 128 M", add(1 << 27), scales=True),
        Kernel("mm of 256", mm(256)),
        Kernel("mm of 1,024", mm(1024)),
        Kernel("mm of 2,048", mm(2048)),
    ]


def rows(notes: list[str]) -> Iterator[Row]:
    """Measure in separate processes, and yield the shares of wrong verdicts."""
    runs: list[Run] = []
    begun = monotonic()
    while len(runs) < MAX_RUNS:
        runs.append(in_process(_SCRIPT, "runs"))
        per_run = (monotonic() - begun) / len(runs)
        if len(runs) >= BASE_RUNS + NEW_RUNS and monotonic() - begun + per_run > RUNS_SECONDS:
            break
    notes.append(
        f"on the GPU: {len(runs)} processes, each window of {BASE_RUNS} neighbours against the "
        f"next {NEW_RUNS}, forwards and backwards, {len(runs[0]['first'])} kernels"
    )
    yield from _spreads(runs)
    unchanged = Counter(found for _, found in verdicts(runs, "first", "first"))
    yield share("on the GPU: false SLOW, 5 runs", unchanged, missed=False, target=1.0)
    slower = Counter(found for _, found in verdicts(runs, "first", "slower"))
    percent = f"{STORED_SLOWER - 1:.0%}".replace("%", " %")
    name = f"on the GPU: missed, {percent} slower, 5 runs"
    yield share(name, slower, missed=True, target=5.0)
    found = in_process(_SCRIPT, "interleaved", str(TURNS_SECONDS))
    yield share("on the GPU: false SLOW, in turns", found["same"], missed=False, target=1.0)
    percent = f"{TURNS_SLOWER - 1:.0%}".replace("%", " %")
    name = f"on the GPU: missed, {percent} slower, in turns"
    yield share(name, found["slower"], missed=True, target=5.0)
    for what, counts in (
        ("5 runs, unchanged", unchanged),
        ("5 runs, slower", slower),
        ("in turns, unchanged", found["same"]),
        ("in turns, slower", found["slower"]),
    ):
        shown = ", ".join(f"{count} {verdict.upper()}" for verdict, count in counts.items())
        notes.append(f"on the GPU, {what}: {shown}")


Run = dict[str, dict[str, dict[str, Any]]]  # the plain form of a result by kind and function


def verdict_of(base: list[BenchResult], new: list[BenchResult]) -> Verdict:
    """Return the verdict on the first of the new runs, or on more where it may be SLOW."""
    count = 1
    while count < len(new) and may_be_slow(base, new[:count]):
        count += 1
    return confirm(base, new[:count]).verdict


def verdicts(runs: list[Run], old: str, new: str, ratio: float = 1.0) -> Iterator[tuple[str, str]]:
    """Yield each function's verdict in each window of neighbours, forwards and backwards.

    The new runs' times are multiplied by `ratio`: the noise is real, and the change is known.
    """
    for order in (runs, runs[::-1]):
        for begin in range(len(order) - BASE_RUNS - NEW_RUNS + 1):
            last = begin + BASE_RUNS
            for name in order[begin][new]:
                base = [BenchResult.from_dict(run[old][name]) for run in order[begin:last]]
                now = [_slower(run[new][name], ratio) for run in order[last : last + NEW_RUNS]]
                yield name, verdict_of(base, now).value


def _slower(plain: dict[str, Any], ratio: float) -> BenchResult:
    found = BenchResult.from_dict(plain)
    noise = dict(found.noise)
    if "cpu_ms" in noise:
        noise["cpu_ms"] *= ratio
    return replace(found, samples_ms=tuple(ratio * each for each in found.samples_ms), noise=noise)


def _spreads(runs: list[Run]) -> Iterator[Row]:
    spreads = []
    for name in runs[0]["first"]:
        medians = [BenchResult.from_dict(run["first"][name]).median_ms for run in runs]
        spreads.append(100 * statistics.stdev(medians) / statistics.mean(medians))
    yield Row("on the GPU: drift between runs, the median kernel", statistics.median(spreads), "%")
    yield Row("on the GPU: drift between runs, the worst kernel", max(spreads), "%")


def share(name: str, counts: dict[str, int], *, missed: bool, target: float) -> Row:
    """Return the share of SLOW, or of what is missed, as a row."""
    total = sum(counts.values())
    slow = counts.get(Verdict.SLOW.value, 0)
    return Row(name, 100 * (total - slow if missed else slow) / total, "%", target=target)


def in_process(script: str, *arguments: str) -> Any:
    """Run a script in a separate process and return what it wrote."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        command = [sys.executable, script, arguments[0], str(out), *arguments[1:]]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
        )
        if done.returncode != 0:
            raise BenchmarkError(f"{' '.join(command)} failed: {done.stderr[-2000:]}")
        return json.loads(out.read_text(encoding="utf-8"))


def _measure_once(torch: Any) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {"first": {}, "slower": {}}
    for kernel in _kernels(torch):
        pairs = [("first", kernel.of(1.0))]
        if kernel.scales:
            pairs.append(("slower", kernel.of(STORED_SLOWER)))
        for kind, each in pairs:
            measured = gpuprof.benchmark(each, name=kernel.name, min_time_s=0.05, **_SHORT)
            found[kind][kernel.name] = measured.to_dict()
    return found


def _compare_in_turns(torch: Any, seconds: float) -> dict[str, dict[str, int]]:
    found: dict[str, Counter[str]] = {"same": Counter(), "slower": Counter()}
    kernels = [kernel for kernel in _kernels(torch) if kernel.scales]
    functions = [(k.of(1.0), {"same": k.of(1.0), "slower": k.of(TURNS_SLOWER)}) for k in kernels]
    begun = monotonic()
    while True:
        for base, others in functions:
            for kind, other in others.items():
                result = gpuprof.compare({"base": base, "new": other}, **_SHORT)
                found[kind][result["new"].verdict.value] += 1
                if monotonic() - begun > seconds and found["slower"]:
                    return {kind: dict(counts) for kind, counts in found.items()}


def main() -> None:
    """Be one of the processes."""
    import torch

    kind, out, *rest = sys.argv[1:]
    if kind == "runs":
        found: Any = _measure_once(torch)
    else:
        found = _compare_in_turns(torch, float(rest[0]))
    Path(out).write_text(json.dumps(found), encoding="utf-8")
