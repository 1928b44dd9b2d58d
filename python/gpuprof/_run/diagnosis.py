"""What bounds a program's steps: a tree of where they spend their time, and three lines.

Where scopes have GPU times, the time in which the GPU had nothing queued decides; elsewhere the
host's. Nothing is said of few steps, of small shares, or where a part of the steps says otherwise.
docs/run.md has the rules; `CAUSES` the sections there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from gpuprof._common.units import NOTHING, byte_size, duration
from gpuprof._display.table import Table
from gpuprof._run.step_times import Names, Step, cut
from gpuprof._run.steps import Steps

FEWEST_SHOWN, FEWEST_STEPS, PARTS = 3, 16, 4
LEAST_SHARE_GPU, LEAST_SHARE_CPU, LEAST_BUSY, MARGIN = 0.25, 0.4, 0.8, 0.1
MOST_LEFT_OUT = 0.2  # of the time of all steps, for a cause to be said
LEAST_READINGS, LEAST_GROWTH_GPU, LEAST_GROWTH_CPU = 24, (0.1, 32 << 20), (0.25, 256 << 20)
_LEAST_NESTED = 0.01  # of a step, for a row below another one
_REST = ("(rest)",)

# What bounds the step and what to do, by the section of the page.
CAUSES = {
    "input": ("input", "more workers and pin_memory=True, or less work for each item"),
    "host": ("the host's launches", "larger batches, compile, CUDA graphs; no .cpu() in models"),
    "waiting": ("waiting for the GPU", "read values every 100 steps; until then keep .detach()"),
    "communication": ("communication", "fewer collectives; gather_stats() names the slowest rank"),
    "computation": ("computation", "lower precision, torch.compile, the kernels of kernels()"),
    "memory": ("memory grows", "keep loss.detach(), no graph; or a buffer fills, as it should"),
}
_FIGURES = {
    "input": "the GPU has nothing to do while the program waits for a batch, {}",
    "host": "the GPU has caught up with the host for {}",
    "waiting": "the GPU has nothing to do because the host waited for it, {}",
    "communication": "collectives take {}",
    "computation": "the GPU has work queued for {}",
}


def diagnose(noted: Steps) -> Table | None:
    """Return the tree of a step, and what bounds it if that is clear; None without steps."""
    steps, long = cut(noted)
    if len(steps) < FEWEST_SHOWN:
        return None
    if noted.is_partial:
        return Table([], [], title="a step: not shown, a budget leaves visits of scopes out")
    lines = []
    is_most = _left_out(steps, long) <= MOST_LEFT_OUT
    if len(steps) >= FEWEST_STEPS and is_most and (cause := _cause(steps)):
        lines += _lines(cause, _figures(cause, steps))
    if growth := _growth(noted.memory, noted.memory_is_gpus):
        first, last = map(byte_size, growth)
        whose = "torch's memory on the GPU" if noted.memory_is_gpus else "the process's memory"
        lines += _lines("memory", f"{whose} grew from {first} to {last} between steps")
    return _tree(steps, long, lines)


def _lines(cause: str, figures: str) -> list[str]:
    title, advice = CAUSES[cause]
    said = title if cause == "memory" else f"bound by {title}"
    return [said, f"  why: {figures}", f"  next: {advice} (docs/run.md#{cause})"]


def _left_out(steps: Sequence[Step], long: Sequence[Step]) -> float:
    """Return the share of all steps' time that is in the long ones."""
    ns = sum(step.ns for step in long)
    return ns / (ns + sum(step.ns for step in steps))


def _shares(steps: Sequence[Step]) -> dict[str, float]:
    """Return the share of the steps that each cause has; without a GPU there are fewer."""
    causes = {"communication": sum(step.communication for step in steps)}
    if any(step.gpu for step in steps):
        for cause in ("input", "waiting", "host"):
            causes[cause] = sum(step.idle[cause] for step in steps)
        causes["computation"] = sum(step.ns for step in steps) - sum(causes.values())
    else:
        causes["input"] = sum(step.total("input") for step in steps)
    return {cause: ns / sum(step.ns for step in steps) for cause, ns in causes.items()}


def _cause(steps: Sequence[Step]) -> str:
    """Return what bounds all steps and each part of them; empty where the evidence is thin."""
    size = len(steps) // PARTS
    parts = [steps[place * size : (place + 1) * size] for place in range(PARTS)]
    found = {_cause_of(_shares(part)) for part in (steps, *parts)}
    return found.pop() if len(found) == 1 else ""


def _cause_of(shares: dict[str, float]) -> str:
    least = LEAST_SHARE_GPU if "computation" in shares else LEAST_SHARE_CPU
    busy = shares.pop("computation", 0)
    first, second, *_ = sorted(shares, key=lambda cause: -shares[cause])
    if shares[first] >= max(least, shares[second] + MARGIN):
        return first
    return "computation" if busy >= LEAST_BUSY else ""


def _figures(cause: str, steps: Sequence[Step]) -> str:
    shares, count = _shares(steps), len(steps) * 1e6
    share = shares[cause]
    mean_ms = sum(step.ns for step in steps) / count
    amount = f"{100 * share:.0f} % of a step, {duration(share * mean_ms)} of {duration(mean_ms)}"
    if cause == "input" and "computation" not in shares:
        return f"dataloader takes {amount}"
    waited = sum(step.total("reads") for step in steps) / count
    more = f"; the host waits {duration(waited)} a step" if cause == "waiting" else ""
    return _FIGURES[cause].format(amount) + more


def _growth(readings: Sequence[int], of_gpu: bool) -> tuple[int, int] | None:
    """Return from what to what memory grows, if it does so all the time after the warm-up."""
    if len(readings) < LEAST_READINGS:
        return None
    size = len(readings) // 8
    readings = readings[-6 * size :]  # without a quarter, the warm-up
    lows = [min(readings[place * size : (place + 1) * size]) for place in range(6)]
    growth = lows[-1] - lows[0]
    steady = all(after - before >= growth / 15 for before, after in pairwise(lows))
    share, least = LEAST_GROWTH_GPU if of_gpu else LEAST_GROWTH_CPU
    is_large = growth >= max(least, share * lows[0])
    return (lows[0], lows[-1]) if steady and is_large else None


def _tree(steps: Sequence[Step], long: Sequence[Step], lines: Sequence[str]) -> Table:
    """Return the mean step; the outermost rows with the rest are all of it, on each clock."""
    count, whole = len(steps) * 1e6, sum(step.ns for step in steps)
    host, gpu = Counter[Names](), Counter[Names]()
    for step in steps:
        host.update(step.host)
        gpu.update(step.gpu)
    host[_REST] = whole - sum(ns for names, ns in host.items() if len(names) == 1)
    on_gpu = sum(step.total("gpu") for step in steps)
    if gpu:
        gpu[_REST] = max(whole - on_gpu, 0)

    def cells(names: Names) -> dict[str, str]:
        part, of_gpu = host[names], gpu.get(names)
        return {
            "step": names[-1],
            "host": duration(part / count),
            "% step": f"{100 * part / whole:.1f}",
            "GPU": (NOTHING if gpu else "") if of_gpu is None else duration(of_gpu / count),
            "% GPU": "" if of_gpu is None else f"{100 * of_gpu / max(whole, on_gpu):.1f}",
        }

    place = {names: number for number, names in enumerate(host)}
    shown = [names for names, ns in host.items() if not names[1:] or ns >= _LEAST_NESTED * whole]
    shown.sort(key=lambda names: [place[names[: depth + 1]] for depth in range(len(names))])
    share = f"{100 * _left_out(steps, long):.0f} % of the time"
    left_out = f"; {len(long):,} longer ones, {share}, are left out" if long else ""
    return Table.of(
        [cells(names) for names in shown],
        left={"step"},
        title=f"a step: {duration(whole / count)}, the mean of {len(steps):,}{left_out}",
        notes=lines,
        depths=[len(names) - 1 for names in shown],
        paths=["/".join(names) for names in shown],
    )
