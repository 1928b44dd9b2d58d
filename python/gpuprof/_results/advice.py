"""What to type next, after a verdict."""

from __future__ import annotations

import shlex

from gpuprof._results.decision import Decision, Verdict
from gpuprof._results.levels import ENOUGH_RUNS

_TELLING_RUNS = 2 * ENOUGH_RUNS  # of more runs the spread is known


def advice(decision: Decision, test: str, baseline: str, commit: str | None = None) -> str:
    """Return a sentence with a command that may settle a verdict; no text where it is settled.

    `test` is the pytest node that was measured, and `commit` that of the baseline's last run.
    """
    verdict, node = decision.verdict, shlex.quote(test)
    save = f"`pytest {node} --gpu-benchmark-save={baseline}`"
    if verdict in {Verdict.NODATA, Verdict.INCOMPARABLE}:
        return f"{save}, five times, makes a baseline for it"
    if verdict is Verdict.FAST:
        return f"{save}, five times, lets the baseline follow"
    if verdict is Verdict.AMBIGUOUS and decision.runs < _TELLING_RUNS:
        return f"{save}, some times more, tells the baseline's noise from a change"
    if verdict not in {Verdict.SLOW, Verdict.AMBIGUOUS}:
        return ""
    measure = f"pytest {test} --gpu-benchmark-json={{out}}"
    old, new = (shlex.quote(each) for each in (f"cd OLD && {measure}", measure))
    made = f"`git worktree add OLD {commit[:12]}`, then " if commit else ""
    return f"{made}`gpuprof ab {old} {new}` runs both versions in turns"
