"""Whether a call launches more on the GPU than it did: a comparison of counts, free of noise.

Which kernel a library takes depends on the GPU and on the library's version, so only counts with
the same of both are compared. The driver's version is not among them: it chooses no kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from gpuprof._common.launches import Launches
from gpuprof._results.decision import Decision, Verdict
from gpuprof._results.result import BenchResult

NO_LAUNCHES = "launches were not compared: no baseline run has them; save new runs"
# What chooses kernels, by the name in `Launches.versions`, and its name for people.
CHOOSERS = {
    "gpu": "GPU",
    "cc": "compute capability",
    "torch": "torch",
    "cupy": "CuPy",
    "triton": "Triton",
    "cublas": "cuBLAS",
    "cudnn": "cuDNN",
}
_decision = partial(Decision, kind="launches")


def judge_launches(base: Sequence[BenchResult], new: Sequence[BenchResult]) -> Decision | None:
    """Decide whether the new runs launch more than the baseline's, or other work.

    A run that launches as much as any comparable run of the baseline, by name, is the same. Else it
    is compared with the last of them. Fewer launches are never more, whatever they are. None is
    where neither side was counted.
    """
    counted = [run.launches for run in new if run.launches is not None]
    known = [run.launches for run in base if run.launches is not None]
    if not counted:
        if not known:
            return None
        return _decision(Verdict.NODATA, rule="the launches of the new run were not counted")
    now = counted[-1]
    if not known:
        rule = "no baseline run has its launches"
        return _decision(Verdict.NODATA, new=now.total, rule=rule)
    varies = now.varies or next(filter(None, (each.diff(now) for each in counted)), "")
    if varies:
        rule = f"calls differ in what they launch, so their launches were not compared: {varies}"
        return _decision(Verdict.NODATA, new=now.total, rule=rule)
    alike = [each for each in known if not _unlike(each, now)]
    if not alike:
        rule = f"launches were not compared: {_unlike(known[-1], now)}"
        return _decision(Verdict.INCOMPARABLE, new=now.total, rule=rule)
    steady = [each for each in alike if not each.varies]
    if not steady:
        rule = "launches were not compared: in the baseline, calls differ in what they launch: "
        return _decision(Verdict.NODATA, new=now.total, rule=rule + alike[-1].varies)
    last = steady[-1]
    changes = "" if any(each.same(now) for each in steady) else last.diff(now)
    if not changes:
        verdict, rule = Verdict.SAME, f"launches {now}, as before"
    elif now.total < last.total:
        verdict, rule = Verdict.SAME, f"launches less: {changes}"
    else:
        how = "more" if now.total > last.total else "other work"
        verdict, rule = Verdict.LAUNCHES, f"launches {how}: {changes}"
    return _decision(verdict, last.total, now.total, runs=len(steady), rule=rule, changes=changes)


def launch_notes(decision: Decision) -> list[str]:
    """Return what to say of launches that are no reason to fail: fewer, or not compared."""
    found = decision.launches
    if found is None or found.grew or decision.verdict is Verdict.INCOMPARABLE:
        return []
    if found.verdict is Verdict.SAME:
        return [found.rule] if found.changes else []
    return [NO_LAUNCHES if found.rule.startswith("no baseline run") else found.rule]


def _unlike(base: Launches, new: Launches) -> str:
    """Say what makes two counts incomparable; no text if nothing does. What is unknown does not."""
    for key, name in CHOOSERS.items():
        before, now = base.versions.get(key), new.versions.get(key)
        if before and now and before != now:
            return f"the baseline has {name} {before}, now it is {now}"
    if base.source != new.source:
        return f"the baseline was counted from {base.source}, now from {new.source}"
    return ""
