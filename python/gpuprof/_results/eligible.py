"""Which stored runs can be compared, what changed between them, and what the machine did."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from gpuprof._common.units import percent, percent_change
from gpuprof._results.result import BenchResult
from gpuprof._results.statistics import median

MIN_SAMPLES = 30
MOST_TIMES_AS_MANY_CALLS = 2  # a neighbouring power of 2 may be chosen by chance
_MOST_LOST = 0.95
WORTH_SAYING = 0.05
_SLEEPS = 0.05  # of the calls, in which a thread that only computes may give up the CPU


def difference(base: BenchResult, new: BenchResult) -> str | None:
    """Return why two results are not comparable, or None."""
    facts = [("gpu", "GPU"), ("sms", "number of SMs")]
    if new.mode == "cpu":  # which GPU is beside it does not matter
        facts = [("cpu", "CPU")]
    pairs = [(what, base.machine.get(key), new.machine.get(key)) for key, what in facts]
    pairs += [
        ("clock", base.clock, new.clock),
        ("mode", base.mode, new.mode),
        ("L2 state", base.l2, new.l2),
    ]
    for what, old, now in pairs:
        if old != now:
            return f"the baseline has another {what}: {old or 'none'}, not {now or 'none'}"
    return None


def changes(base: list[BenchResult], new: list[BenchResult]) -> list[str]:
    """Return warnings of what else changed since the last baseline run."""
    old, now = base[-1], new[-1]
    found = []
    for key in ("driver", "torch", "cupy", "numpy", "python", "gpuprof"):
        if key not in old.machine or key not in now.machine:  # of another gpuprof, or made by hand
            continue
        before, after = old.machine[key] or "none", now.machine[key] or "none"
        if old.machine[key] != now.machine[key]:
            found.append(f"{key} changed: {before} in the baseline, now {after}")
    calls = [run.calls_per_sample for run in (*base, *new)]
    if max(calls) > MOST_TIMES_AS_MANY_CALLS * min(calls):
        found.append(
            f"samples have {min(calls):,} to {max(calls):,} calls in these runs: short ones have "
            "more of the loop and the clock in the time of a call"
        )
    if old.gate != now.gate:
        found.append(f"the baseline was measured {old.gate}, the new run {now.gate}")
    reasons = sorted(set(now.throttle_reasons) - set(old.throttle_reasons))
    if reasons:
        found.append(f"the GPU lowered its clocks in the new run: {', '.join(reasons)}")
    if len(base) == 1:
        found.append("one baseline run tells nothing of drift between runs; save 5 or more")
    return found


def usable_runs(runs: Sequence[BenchResult]) -> list[BenchResult]:
    return [run for run in runs if run.count >= MIN_SAMPLES and run.median_ms > 0.0]


def why_unusable(side: str, runs: Sequence[BenchResult]) -> str:
    most = max(run.count for run in runs)
    if most < MIN_SAMPLES:
        return f"the {side} has {most} samples; a verdict needs {MIN_SAMPLES}"
    return f"the {side} has a median that is not above 0: the work is too short for the clock"


def took_longer(run: BenchResult, *, of_loop: bool = False) -> float | None:
    """Return by how much the machine made the run's median longer; None if that is not recorded.

    Waiting for a CPU makes a sample longer by at most the share of time that the thread waited, and
    at most the share that it was on no CPU: a function that sleeps is on none, and waits for none.
    Everything else slows down the reference loop too, which is all there is with `of_loop`.
    """
    noise = run.noise
    if noise.get("loop_ms", 0.0) <= 0.0:
        return None
    lost = 0.0 if of_loop else min(max(waited(noise), _stolen(noise)), _MOST_LOST)
    return math.log(noise["loop_ms"]) - math.log1p(-lost)


def in_words(base: Sequence[BenchResult], new: Sequence[BenchResult]) -> str:
    """Describe what the machine did in the new runs but not in those of the baseline."""
    said = []
    for what, share in (
        ("the thread waited for a CPU", waited),
        ("the host of this virtual machine took the CPU", _stolen),
    ):
        old, now = (median([share(run.noise) for run in runs]) for runs in (base, new))
        if now - old > WORTH_SAYING:
            said.append(f"{what} for {percent(now)} of a sample, before for {percent(old)}")
    old, now = (median([run.noise["loop_ms"] for run in runs]) for runs in (base, new))
    if abs(now / old - 1.0) > WORTH_SAYING or not said:
        said.append(f"a loop that is always the same took {percent_change(now / old)} time")
    switches = median([run.noise.get("switches_per_s", 0.0) for run in new])
    if switches >= 1.0:
        said.append(f"{switches:,.0f} involuntary context switches a second")
    return ", ".join(said)


def gives_up_the_cpu(run: BenchResult) -> bool:
    """Return whether the function sleeps or waits for something else than a CPU, or may do so."""
    calls = run.count * run.calls_per_sample
    return run.noise.get("sleeps_per_s", math.inf) * run.duration_s > _SLEEPS * calls


def waited(noise: Mapping[str, float]) -> float:
    """Return the share of a median sample in which the thread waited for a CPU."""
    return min(noise.get("waited", 0.0), noise.get("off_cpu", 0.0))


def _stolen(noise: Mapping[str, float]) -> float:
    return noise.get("stolen", 0.0)
