"""How often a change is found, and how often there is none, under noise of many makes.

The noise is made up, see support/noise_models.py; the verdicts are gpuprof's, with the automatic
second measurement, which follows the first in the same process. "Minimum" is what comparing the
minimum with that of the latest run says, with a limit of 5 %, as pytest-benchmark does with
`--benchmark-compare-fail=min:5%`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy

from gpuprof._benchmark.loop import MAX_SAMPLES, are_enough, next_check
from gpuprof._results.result import BenchResult
from gpuprof._results.verdict import Verdict, confirm, judge
from support import measure
from support.noise_models import ALIKE, LONG, MODELS, SHIFTED, STEADY_MODES, Model
from support.results import Row

_SEED = 20261122
_FALSE_TARGET = 1.0
_MISSED_TARGET = 20.0
_SLOWER = 1.1
_WORKERS = 2
Take = Callable[[Any], BenchResult]


@dataclass(frozen=True)
class Case:
    """A baseline of so many runs of so many samples, and how often it is tried."""

    runs: int
    samples: int
    trials: int
    ratio: float = _SLOWER


_CASES = (Case(1, 50, 200, 1.2), Case(5, 50, 600), Case(20, 50, 300))


def taken(samples: Any) -> BenchResult:
    """Return the result that has these samples."""
    return BenchResult("made up", "graph", "auto", "cuda", "hot", tuple(samples.tolist()))


def taken_by_loop(samples: Any) -> BenchResult:
    """Return the result of as many of these samples as `benchmark` takes, 100 or more."""
    count = 100
    while count < samples.size and not are_enough(samples[:count].tolist(), 0.01):
        count = next_check(count)
    return taken(samples[:count])


def verdict_of(base: list[BenchResult], first: Any, again: Any, take: Take) -> Verdict:
    """Return the verdict, confirmed by the second measurement if it is SLOW or FAST."""
    run = take(first)
    found = judge(base, [run])
    if found.verdict in {Verdict.SLOW, Verdict.FAST}:
        found = confirm(base, run, take(again))
    return found.verdict


def shares(
    model: Model,
    case: Case,
    ratio: float,
    *,
    trials: int,
    changed: Model | None = None,
    take: Take = taken,
) -> dict[str, float]:
    """Return in how many trials of 100 each verdict, and the minimum, said what.

    `changed` makes the new run where it is not the model of the baseline.
    """
    random = numpy.random.default_rng([_SEED, case.runs, case.samples])
    found: dict[str, float] = dict.fromkeys(["minimum", *map(str, Verdict)], 0)
    for _ in range(trials):
        times = model.fill(random, case.runs + 1, 2 * case.samples)
        new = times[-1] if changed is None else changed.fill(random, 1, 2 * case.samples)[0]
        first, again = ratio * new[: case.samples], ratio * new[case.samples :]
        old = times[:-1, : case.samples]
        found[str(verdict_of([take(each) for each in old], first, again, take))] += 1
        found["minimum"] += first.min() > 1.05 * old[-1].min()
    return {what: 100.0 * count / trials for what, count in found.items()}


def wilson(share: float, trials: int) -> tuple[float, float]:
    """Return the 95 % interval of a share in per cent (E. B. Wilson, JASA 22, 1927)."""
    z, p = 1.96, share / 100.0
    middle = (p + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z * math.sqrt(p * (1 - p) / trials + (z / trials) ** 2 / 4) / (1 + z * z / trials)
    return 100.0 * max(middle - half, 0.0), 100.0 * min(middle + half, 1.0)


def rows_of(place: int, part: int) -> list[Row]:
    """Return the rows of one of the models, with 1/`part` of the trials."""
    model, rows = MODELS[place], []
    for case in _CASES:
        trials = max(case.trials // part, 10)
        runs = f"{case.runs} run{'s' * (case.runs > 1)}"
        # One run cannot know of the states that others are in, nor five of one as long as a run.
        must = None if model is LONG or case.runs == 1 else _FALSE_TARGET
        false = shares(model, case, 1.0, trials=trials)
        slower = shares(model, case, case.ratio, trials=trials // 3)
        rows += [
            Row(f"{model.name}: false SLOW, {runs}", false["SLOW"], "%", target=must),
            Row(
                f"{model.name}: missed, {runs}",
                100.0 - slower["SLOW"],
                "%",
                target=_MISSED_TARGET if model.must_find and case.runs > 1 else None,
            ),
        ]
        if case.runs == _CASES[1].runs:
            faster = shares(model, case, 1.0 / case.ratio, trials=trials // 3)
            rows += [
                Row(f"{model.name}: false FAST", false["FAST"], "%", target=must),
                Row(f"{model.name}: missed FAST", 100.0 - faster["FAST"], "%"),
                Row(f"{model.name}: minimum, false", false["minimum"], "%"),
                Row(f"{model.name}: minimum, missed", 100.0 - slower["minimum"], "%"),
            ]
    return rows


def alike_rows(count: int, part: int) -> list[Row]:
    """Return the rows of AR(1) 0.99 with that many samples a run; 0: as many as are taken."""
    take, samples = (taken, count) if count else (taken_by_loop, MAX_SAMPLES)
    case, said = Case(5, samples, 0), f"{count:,} samples" if count else "as `benchmark` takes them"
    false = shares(ALIKE, case, 1.0, trials=max(150 // part, 10), take=take)
    slower = shares(ALIKE, case, _SLOWER, trials=max(100 // part, 10), take=take)
    target = None if count else _MISSED_TARGET
    return [
        Row(f"AR(1) 0.99, {said}: false SLOW", false["SLOW"], "%", target=_FALSE_TARGET),
        Row(f"AR(1) 0.99, {said}: missed", 100.0 - slower["SLOW"], "%", target=target),
    ]


def shift_rows(part: int) -> list[Row]:
    """Return what is said of modes whose weights change from 10 % to more."""
    rows = []
    for changed in SHIFTED:
        found = shares(STEADY_MODES, Case(5, 50, 0), 1.0, trials=300 // part, changed=changed)
        for verdict in ("SLOW", "AMBIGUOUS", "SAME"):
            name = f"from 10 % to {changed.name}: {verdict}"
            rows.append(Row(name, found[verdict], "%"))
    return rows


def _rows(part: int) -> Iterator[Row]:
    with ProcessPoolExecutor(_WORKERS) as pool:
        jobs = [pool.submit(rows_of, place, part) for place in range(len(MODELS))]
        jobs += [pool.submit(alike_rows, count, part) for count in (200, 500, 1000, 0)]
        jobs.append(pool.submit(shift_rows, part))
        for job in jobs:
            yield from job.result()


def _notes(part: int) -> Iterator[str]:
    for case in _CASES:
        trials = max(case.trials // part, 10)
        said = []
        for name, count, values in (
            ("false", trials, (0.0, 0.5, 1.0)),
            ("missed", trials // 3, (0.0, 5.0, 20.0)),
        ):
            ends = [f"{value:g} % is {_between(wilson(value, count))}" for value in values]
            said.append(f"{name}: {count:,} trials, so {', '.join(ends)}")
        yield (
            f"{case.runs} run{'s' * (case.runs > 1)} of {case.samples} samples, "
            f"{100 * (case.ratio - 1):.0f} % slower; {'; '.join(said)} (95 %, Wilson)"
        )


def _between(ends: tuple[float, float]) -> str:
    return f"{ends[0]:.1f} to {ends[1]:.1f} %"


def main() -> None:
    """Simulate and report."""
    options = measure.arguments(__doc__)
    part = 10 if options.quick else 1
    measure.report("verdict_power", [*_rows(part)], [*_notes(part)], options.json)


if __name__ == "__main__":
    main()
