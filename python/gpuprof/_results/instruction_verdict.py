"""Whether a call takes more instructions on the CPU than it did.

A busy neighbour, another clock rate or a lost CPU change how long instructions take, but hardly how
many there are. So their count is steady where the time is not. It sees no wait, no sleep and no
cache miss, which is why it never takes back what the time says, unless the caller asks for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from gpuprof._common.instructions import Instructions, amount
from gpuprof._common.units import percent, percent_change
from gpuprof._results import statistics
from gpuprof._results.decision import Decision, Verdict
from gpuprof._results.result import BenchResult

# The seed of Python's hashes and the order of addresses move the count of unchanged Python code.
THRESHOLD = 0.03
SIGMAS = 3.0
UNCHANGED = (
    "the instructions are unchanged, so the machine is the likelier cause, or what takes none: "
    "waiting, memory, I/O"
)
_SAME_ON = ("cpu", "python")  # what must be the same in both machines
_decision = partial(Decision, kind="instructions")


def judge_instructions(base: Sequence[BenchResult], new: Sequence[BenchResult]) -> Decision | None:
    """Decide whether the new runs take more instructions a call than the baseline's.

    The medians of runs are compared. More is more by 3 %, by 3 standard deviations of the
    baseline's runs and by how much the samples of a run spread, and more than each of the
    baseline's runs. None is where neither side was counted.
    """
    counted = [run for run in new if _median(run)]
    known = [run for run in base if _median(run)]
    if not counted:
        if not known:
            return None
        why = [run.instructions.reason for run in new if run.instructions is not None]
        rule = f"instructions were not counted: {why[-1]}" if why else "they were not counted"
        return _decision(Verdict.NODATA, rule=rule)
    now = statistics.median([_median(run) for run in counted])
    if not known:
        rule = "no baseline run has its instructions"
        return _decision(Verdict.NODATA, new=now, rule=rule)
    last = counted[-1]
    alike = [run for run in known if not _unlike(run, last)]
    if not alike:
        rule = f"instructions were not compared: {_unlike(known[-1], last)}"
        return _decision(Verdict.INCOMPARABLE, new=now, rule=rule)
    medians = [_median(run) for run in alike]
    before = statistics.median(medians)
    ratio = now / before
    floor = max(
        THRESHOLD,
        SIGMAS * statistics.stddev(medians) / before,
        *(_spread(run) for run in (*alike, *counted)),
    )
    text = f"takes {percent_change(ratio)} instructions, {amount(before)} -> {amount(now)}"
    if ratio - 1.0 > floor and now > max(medians):
        verdict, rule = Verdict.INSTRUCTIONS, f"{text}: more than {percent(floor, 2)}"
    elif ratio - 1.0 > floor:
        verdict, rule = Verdict.SAME, f"{text}, but a baseline run took {amount(max(medians))}"
    else:
        verdict, rule = Verdict.SAME, f"{text}: not more than {percent(floor, 2)}"
    return _decision(verdict, before, now, ratio, floor=floor, runs=len(alike), rule=rule)


def with_instructions(
    decision: Decision,
    found: Decision | None,
    *,
    decides: bool = False,
    missing: str = "",
) -> Decision:
    """Add what is said of the instructions to a decision on the time.

    A SLOW with unchanged instructions gets a note. Where the instructions decide, it is SAME, with
    the time's sentence as the note; where they cannot, because they are `missing`, that is noted.
    """
    decision = replace(decision, instructions=found)
    if found is None or found.ratio is None or found.floor is None:
        if decides and decision.base is not None:
            why = (found and found.rule) or missing or "they were not counted"
            note = f"the time decides, not the instructions: {why}"
            return replace(decision, warnings=(*decision.warnings, note))
        return decision
    unchanged = abs(found.ratio - 1.0) <= found.floor
    if decision.verdict is not Verdict.SLOW or not unchanged:
        return decision
    if not decides:
        return replace(decision, warnings=(*decision.warnings, UNCHANGED))
    note = f"by its time it is slow: {decision.rule}; {UNCHANGED}"
    warnings = (*decision.warnings, note)
    return replace(decision, verdict=Verdict.SAME, rule=found.rule, warnings=warnings)


def fewest(runs: Sequence[BenchResult]) -> BenchResult:
    """Return the run with the fewest instructions; the last one if none has any."""
    counted = [run for run in runs if _median(run)]
    return min(counted, key=_median, default=runs[-1])


def missing_reason(run: BenchResult) -> str:
    """Say why a run has no instructions; no text if it has them, or is not on the CPU's clock."""
    found = run.instructions
    return "" if found is None or found.per_call else f"they were not counted: {found.reason}"


def _median(run: BenchResult) -> float:
    found = run.instructions
    return (found.median if isinstance(found, Instructions) else None) or 0.0


def _spread(run: BenchResult) -> float:
    found = run.instructions
    spread = found.spread if found is not None else None
    return spread if spread is not None and math.isfinite(spread) else 0.0


def _unlike(base: BenchResult, new: BenchResult) -> str:
    for key in _SAME_ON:
        before, now = base.machine.get(key), new.machine.get(key)
        if before != now:
            name = "CPU" if key == "cpu" else "Python"
            return f"the baseline has {name} {before}, now it is {now}"
    return ""
