"""Whether the peak of a benchmark's memory grew.

What an allocator is asked for hardly varies from run to run: so there is no statistics here, but a
threshold, with room for what little varies. Only growth is reported.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from gpuprof._common.units import byte_size, percent
from gpuprof._results import statistics
from gpuprof._results.decision import Decision, Verdict, check_threshold
from gpuprof._results.result import BenchResult

MEMORY_THRESHOLD = 0.05
NO_MEMORY = "peak memory was not compared: no baseline run has it; save new runs"
LEAST_GROWTH = 1 << 20  # bytes; allocators round, and small arrays come and go
_decision = partial(Decision, kind="memory")


def judge_memory(
    base: Sequence[BenchResult], new: Sequence[BenchResult], *, threshold: float | None = None
) -> Decision:
    """Decide whether the peak of the memory grew from the baseline's runs to the new ones.

    The medians of the peaks are compared. It grew if the difference is more than `threshold`, a
    fraction (None is 0.05), and than 1 MiB, and if no baseline run had as much.
    """
    if threshold is None:
        threshold = MEMORY_THRESHOLD
    check_threshold(threshold)
    measured = [run for run in new if run.peak_bytes is not None]
    if not measured:
        return _decision(Verdict.NODATA, rule="the new run has no peak memory")
    known = [run for run in base if run.peak_bytes is not None]
    if not known:
        now = _middle(_peaks(measured))
        rule = "no baseline run has its peak memory"
        return _decision(Verdict.NODATA, new=now, rule=rule)
    gpu = measured[-1].machine.get("gpu")
    alike = [run for run in known if run.machine.get("gpu") == gpu]
    if not alike:
        other = known[-1].machine.get("gpu") or "none"
        rule = f"the baseline has another GPU: {other}, not {gpu or 'none'}"
        return _decision(Verdict.INCOMPARABLE, rule=rule)
    peaks = _peaks(alike)
    before, now = _middle(peaks), _middle(_peaks(measured))
    most = byte_size(max(peaks), precise=True)
    growth = now - before
    share = growth / before if before else math.inf
    text = f"peak memory {byte_size(before, precise=True)} -> {byte_size(now, precise=True)}"
    if before and growth:
        text += f", {'+' if growth > 0 else '-'}{percent(abs(share), 2)}"
    verdict = Verdict.SAME
    if growth <= LEAST_GROWTH:
        text += "" if growth <= 0 else f", not more than {byte_size(LEAST_GROWTH)}"
    elif share <= threshold:
        text += f", not more than {percent(threshold, 2)}"
    elif now <= max(peaks):
        text += f", but a baseline run had {most}"
    else:
        verdict = Verdict.MEMORY
        text += f", more than {percent(threshold, 2) if before else byte_size(LEAST_GROWTH)}"
    return _decision(verdict, before, now, floor=threshold, runs=len(alike), rule=text)


def without_memory(decision: Decision) -> bool:
    """Return whether only the time was compared, because the baseline is an older one."""
    memory = decision.memory
    if memory is None or decision.base is None or memory.verdict is not Verdict.NODATA:
        return False
    return memory.new is not None


def _peaks(runs: Sequence[BenchResult]) -> list[int]:
    return [run.peak_bytes or 0 for run in runs]


def _middle(peaks: Sequence[int]) -> int:
    return round(statistics.median([float(peak) for peak in peaks]))
