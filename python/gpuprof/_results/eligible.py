"""Which stored runs can be compared, and what else changed between them."""

from __future__ import annotations

from collections.abc import Sequence

from gpuprof._results.result import BenchResult

MIN_SAMPLES = 30
MOST_TIMES_AS_MANY_CALLS = 2  # a neighbouring power of 2 may be chosen by chance


def difference(base: BenchResult, new: BenchResult) -> str | None:
    """Return why two results are not comparable, or None."""
    facts = [("gpu", "GPU"), ("sms", "number of SMs")]
    if new.clock == "cpu":  # which GPU is beside it does not matter
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
        before, after = old.machine[key], now.machine[key]
        if before != after:
            found.append(
                f"{key} changed: {before or 'none'} in the baseline, now {after or 'none'}"
            )
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


def usable_runs(side: str, runs: Sequence[BenchResult], warnings: list[str]) -> list[BenchResult]:
    usable = [run for run in runs if run.count >= MIN_SAMPLES and run.median_ms > 0.0]
    if len(usable) < len(runs):
        left_out = f"{len(runs) - len(usable)} of {len(runs)} {side}s"
        warnings.append(f"{left_out} left out: fewer than {MIN_SAMPLES} samples, or not above 0")
    return usable


def why_unusable(side: str, runs: Sequence[BenchResult]) -> str:
    most = max(run.count for run in runs)
    if most < MIN_SAMPLES:
        return f"the {side} has {most} samples; a verdict needs {MIN_SAMPLES}"
    return f"the {side} has a median that is not above 0: the work is too short for the clock"
