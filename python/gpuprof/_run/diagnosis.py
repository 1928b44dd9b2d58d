"""What bounds a program's steps: a tree of where they spend their time, and three lines.

Where scopes have GPU times, the time in which the GPU had nothing queued decides; elsewhere the
host's. Nothing is said of few steps, of small shares, or where a part of the steps says otherwise.
docs/run.md has the rules; `CAUSES` the sections there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from gpuprof._common.units import NOTHING, byte_size, duration
from gpuprof._display.table import Table, html_list
from gpuprof._run import batches
from gpuprof._run.step_times import Names, Step, cut
from gpuprof._run.steps import FORWARD, OPTIMIZER, Steps

FEWEST_SHOWN, FEWEST_STEPS, PARTS = 3, 16, 4
LEAST_SHARE_GPU, LEAST_SHARE_CPU, LEAST_BUSY, MARGIN = 0.25, 0.4, 0.8, 0.1
LEAST_READINGS, LEAST_GROWTH, LEAST_BYTES = 24, 0.1, 32 << 20
_LEAST_NESTED = 0.01  # of a step, for a row below another one
_REST = "(rest)"
_PAGE = "docs/run.md#"

# What bounds the step, what to do, and the section of the page.
CAUSES = {
    "input": (
        "input: the program waits for its next batch",
        "give the DataLoader more workers and pin_memory=True, or do less for each item",
        "input",
    ),
    "host": (
        "the host: it launches work more slowly than the GPU does it",
        "larger batches, torch.compile, or CUDA graphs by gpuprof.make_graphed_callable",
        "host-and-launches",
    ),
    "waiting": (
        "waiting: .item(), copies and synchronize() keep the host from running ahead",
        "read values every 100 steps, copy from pinned memory with non_blocking=True",
        "waiting-and-copies",
    ),
    "communication": (
        "communication: collectives wait for data or for other ranks",
        "fewer or larger collectives; gpuprof.distributed.gather_stats() names the slowest rank",
        "communication",
    ),
    "computation": (
        "computation: the GPU has work all the time",
        "lower precision, torch.compile, or what gpuprof.kernels() shows as the longest kernels",
        "computation",
    ),
    "memory": (
        "growing memory: what is in use grows from step to step",
        "keep no tensor that has a graph: losses.append(loss.item()), or loss.detach()",
        "growing-memory",
    ),
}


class Diagnosis(NamedTuple):
    """The tree, None where no steps were found, and the lines, which may be none."""

    tree: Table | None = None
    lines: tuple[str, ...] = ()

    def plain(self) -> list[str]:
        return [*(self.tree.plain() if self.tree else ()), *self.lines]

    def html(self) -> str:
        return (self.tree.html() if self.tree else "") + html_list(self.lines)


def diagnose(noted: Steps, idle: str = "") -> Diagnosis:
    """Return what bounds the steps; `idle` is what else is known of the GPU's idle time."""
    steps, long = cut(noted.spans(), tuple(noted.looks), tuple(noted.marks))
    lines = []
    if len(steps) >= FEWEST_STEPS and (cause := _cause(steps)):
        lines += _lines(cause, [*_figures(cause, steps), *([idle] if idle else [])])
    for kind in (OPTIMIZER, FORWARD):
        if growth := grows(noted.memory.get(kind, ())):
            first, last = (byte_size(size) for size in growth)
            whose = "torch's memory on the GPU" if noted.memory_is_gpus else "the process's memory"
            lines += _lines("memory", [f"{whose} grew from {first} to {last} between steps"])
            break
    return Diagnosis(_tree(steps, long) if len(steps) >= FEWEST_SHOWN else None, tuple(lines))


def _lines(cause: str, figures: Sequence[str]) -> list[str]:
    title, advice, section = CAUSES[cause]
    return [
        f"bound by {title}" if cause != "memory" else title,
        f"  why: {'; '.join(figures)}",
        f"  next: {advice} ({_PAGE}{section})",
    ]


def _shares(steps: Sequence[Step]) -> dict[str, float]:
    """Return the share of the steps that each cause has; without a GPU there are fewer."""
    causes = {"communication": sum(step.communication for step in steps)}
    if _has_gpu(steps):
        for cause in ("input", "waiting", "host"):
            causes[cause] = sum(step.idle[cause] for step in steps)
        causes["computation"] = sum(step.ns for step in steps) - sum(causes.values())
    else:
        causes["input"] = sum(ns for s in steps for names, ns in s.host.items() if _loads(names))
    return {cause: ns / sum(step.ns for step in steps) for cause, ns in causes.items()}


def _loads(names: Names) -> bool:
    return names[-1] == batches.NAME


def _has_gpu(steps: Sequence[Step]) -> bool:
    return any(step.gpu for step in steps)


def _cause(steps: Sequence[Step]) -> str:
    """Return what bounds all steps and each part of them; empty where the evidence is thin."""
    size = len(steps) // PARTS
    parts = [steps[place * size : (place + 1) * size] for place in range(PARTS)]
    found = {_cause_of(_shares(part), _has_gpu(steps)) for part in (steps, *parts)}
    return found.pop() if len(found) == 1 else ""


def _cause_of(shares: dict[str, float], has_gpu: bool) -> str:
    busy = shares.pop("computation", 0)
    first, other, *_ = sorted(shares, key=lambda cause: -shares[cause])
    most, second = shares[first], shares[other]
    if most >= (LEAST_SHARE_GPU if has_gpu else LEAST_SHARE_CPU) and most - second >= MARGIN:
        return first
    return "computation" if busy >= LEAST_BUSY else ""


def _figures(cause: str, steps: Sequence[Step]) -> list[str]:
    share = _shares(steps)[cause]
    mean_ms = sum(step.ns for step in steps) / len(steps) / 1e6
    amount = f"{100 * share:.0f} % of a step, {duration(share * mean_ms)} of {duration(mean_ms)}"
    if cause == "communication":
        return [f"collectives take {amount}"]
    if not _has_gpu(steps):
        return [f"dataloader takes {amount}"]
    if cause == "computation":
        return [f"the GPU had work queued for {amount}"]
    found = {
        "input": "the GPU has nothing to do while the program waits for a batch: {}",
        "host": "the GPU has caught up with the host: {}",
        "waiting": "the GPU has nothing to do because the host waited for it: {}",
    }[cause].format(amount)
    waited = sum(step.waited for step in steps) / len(steps) / 1e6
    return [found, *([f"the host waits {duration(waited)} a step"] if cause == "waiting" else [])]


def grows(readings: Sequence[int]) -> tuple[int, int] | None:
    """Return from what to what memory grows, if it does so all the time after the warm-up."""
    if len(readings) < LEAST_READINGS:
        return None
    size = len(readings) // 8
    readings = readings[-6 * size :]  # without a quarter, the warm-up
    lows = [min(readings[place * size : (place + 1) * size]) for place in range(6)]
    growth = lows[-1] - lows[0]
    steady = all(after - before >= growth / 15 for before, after in pairwise(lows))
    is_large = growth >= max(LEAST_BYTES, LEAST_GROWTH * lows[0])
    return (lows[0], lows[-1]) if steady and is_large else None


def _tree(steps: Sequence[Step], long: int) -> Table:
    """Return the mean step; the outermost rows with the rest are all of it, on each clock."""
    count, whole = len(steps), sum(step.ns for step in steps)
    host, gpu = Counter[Names](), Counter[Names]()
    for step in steps:
        host.update(step.host)
        gpu.update(step.gpu)
    named = (_REST,)
    host[named] = whole - sum(ns for names, ns in host.items() if len(names) == 1)
    gpu_whole = max(whole, sum(step.outermost_gpu for step in steps))
    if gpu:
        gpu[named] = gpu_whole - sum(step.outermost_gpu for step in steps)

    def cells(names: Names) -> dict[str, str]:
        part, on_gpu = host[names], gpu.get(names)
        return {
            "step": names[-1],
            "host": duration(part / count / 1e6),
            "% step": f"{100 * part / whole:.1f}",
            "GPU": duration(on_gpu / count / 1e6) if on_gpu is not None else NOTHING if gpu else "",
            "% GPU": f"{100 * on_gpu / gpu_whole:.1f}" if on_gpu is not None else "",
        }

    shown = [names for names in _in_order(host) if _is_shown(names, host, whole)]
    left_out = f"; {long:,} longer ones are left out" if long else ""
    return Table.of(
        [cells(names) for names in shown],
        left={"step"},
        title=f"a step: {duration(whole / count / 1e6)}, the mean of {count:,}{left_out}",
        depths=[len(names) - 1 for names in shown],
        paths=["/".join(names) for names in shown],
    )


def _in_order(host: Counter[Names]) -> list[Names]:
    """Return the paths, each before those below it, in the order in which they were met."""
    place = {names: number for number, names in enumerate(host)}
    return sorted(host, key=lambda names: [place[names[: d + 1]] for d in range(len(names))])


def _is_shown(names: Names, host: Counter[Names], whole: int) -> bool:
    return len(names) == 1 or all(
        host[names[:depth]] >= _LEAST_NESTED * whole for depth in range(2, len(names) + 1)
    )
