"""How often a change is found, and how often there is none, under noise of many makes.

The noise is made up, see support/noise_models.py; the verdicts are gpuprof's, each measured again
in up to two further processes as `gpu_benchmark` does. Beside them are what others say of the same
samples, of one new run: the minimum, mean and median against those of the latest run with a limit
of 5 %, as of pytest-benchmark's `--benchmark-compare-fail=min:5%`; asv's rule (`asv continuous`: a
factor of 1.1, Mann-Whitney p below 0.002); Criterion's (a change of the mean beyond 1 % with p
below 0.05); and a Mann-Whitney test alone, p below 0.01, both against the latest run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy

from gpuprof._results.decision import Verdict
from gpuprof._results.result import BenchResult
from gpuprof._results.statistics import mann_whitney
from support import measure
from support.noise_models import HELD_OUT, MODELS, SHIFTED, STEADY_MODES, Model
from support.results import Row
from support.verdict_runs import BASE_RUNS, NEW_RUNS, verdict_of

_SEED = 20261126
_SAMPLES = 50
_TRIALS = 1000
_WORKERS = 2
_LIMIT = 1.05
# In percent: of unchanged code, and of what takes 10 and 20 % longer.
_MOST_FALSE, _MISSED_10, _MISSED_20 = 1.5, 20.0, 5.0
_EVERY = (*MODELS, *HELD_OUT)


def taken(samples: Any) -> BenchResult:
    """Return the result that has these samples."""
    return BenchResult("made up", "graph", "auto", "cuda", "hot", tuple(samples.tolist()))


def _asv(old: Any, new: Any) -> bool:
    slower = numpy.median(new) > 1.1 * numpy.median(old)
    return bool(slower and mann_whitney(old.tolist(), new.tolist()) < 0.002)


def _criterion(old: Any, new: Any) -> bool:
    error = math.hypot(old.std(ddof=1), new.std(ddof=1)) / math.sqrt(old.size)
    p_value = math.erfc(abs(new.mean() - old.mean()) / error / math.sqrt(2.0))
    return bool(new.mean() > 1.01 * old.mean() and p_value < 0.05)


PEERS: dict[str, Callable[[Any, Any], bool]] = {
    "min:5%": lambda old, new: new.min() > _LIMIT * old.min(),
    "mean:5%": lambda old, new: new.mean() > _LIMIT * old.mean(),
    "median:5%": lambda old, new: numpy.median(new) > _LIMIT * numpy.median(old),
    "asv": _asv,
    "Criterion": _criterion,
    "Mann-Whitney": lambda old, new: (
        new.mean() > old.mean() and mann_whitney(old.tolist(), new.tolist()) < 0.01
    ),
}

_RULES = ("SLOW", *PEERS)


def shares(
    model: Model, ratio: float, trials: int, *, changed: Model | None = None
) -> dict[str, float]:
    """Return in how many trials of 100 each verdict, and each of the peers' rules, said what.

    `changed` makes the new runs where it is not the model of the baseline.
    """
    random = numpy.random.default_rng([_SEED, round(1000 * ratio)])
    found: dict[str, float] = dict.fromkeys([*map(str, Verdict), *PEERS], 0)
    for _ in range(trials):
        old = model.fill(random, BASE_RUNS, _SAMPLES)
        new = ratio * (changed or model).fill(random, NEW_RUNS, _SAMPLES)
        found[str(verdict_of([*map(taken, old)], [*map(taken, new)]))] += 1
        for name, says in PEERS.items():
            found[name] += bool(says(old[-1], new[0]))
    return {what: 100.0 * count / trials for what, count in found.items()}


def rows_of(place: int, trials: int) -> tuple[list[Row], dict[str, tuple[float, ...]]]:
    """Return the rows of one of the models, and each rule's false alarms and what it finds."""
    model = _EVERY[place]
    same, ten, twenty = (shares(model, ratio, trials) for ratio in (1.0, 1.1, 1.2))
    faster = shares(model, 1.0 / 1.1, trials)
    rows = [
        Row(f"{model.name}: false SLOW", same["SLOW"], "%", target=_MOST_FALSE),
        Row(f"{model.name}: 10 % missed", 100.0 - ten["SLOW"], "%", target=_MISSED_10),
        Row(f"{model.name}: 20 % missed", 100.0 - twenty["SLOW"], "%", target=_MISSED_20),
        Row(f"{model.name}: 10 % called SAME", ten["SAME"], "%"),
        Row(f"{model.name}: false FAST", same["FAST"], "%"),
        Row(f"{model.name}: 10 % less missed", 100.0 - faster["FAST"], "%"),
    ]
    figures = {rule: (same[rule], 100.0 - ten[rule], 100.0 - twenty[rule]) for rule in _RULES}
    return rows, figures


def _of_rules(found: list[dict[str, tuple[float, ...]]], which: str) -> Iterator[Row]:
    """Yield each rule's false alarms, and in how many of the models it misses changes."""
    for rule in _RULES:
        name = f"{which}, {'gpuprof' if rule == 'SLOW' else rule}"
        false, ten, twenty = zip(*(each[rule] for each in found), strict=True)
        yield Row(f"{name}: false SLOW, mean", sum(false) / len(false), "%")
        yield Row(f"{name}: false SLOW, worst", max(false), "%")
        missed = sum(each > _MISSED_10 for each in ten), sum(each > _MISSED_20 for each in twenty)
        yield Row(f"{name}: models in which more than 20 % of +10 % are missed", missed[0], "")
        yield Row(f"{name}: models in which more than 5 % of +20 % are missed", missed[1], "")


def shift_rows(trials: int) -> list[Row]:
    """Return what is said of modes whose weights change from 10 % to more."""
    rows = []
    for changed in SHIFTED:
        found = shares(STEADY_MODES, 1.0, trials, changed=changed)
        for verdict in ("SLOW", "AMBIGUOUS", "SAME"):
            name = f"from 10 % to {changed.name}: {verdict}"
            rows.append(Row(name, found[verdict], "%"))
    return rows


def _rows(trials: int) -> Iterator[Row]:
    with ProcessPoolExecutor(_WORKERS) as pool:
        jobs = [pool.submit(rows_of, place, trials) for place in range(len(_EVERY))]
        shifted = pool.submit(shift_rows, trials)
        rules = [job.result()[1] for job in jobs]
        yield from _of_rules(rules[: len(MODELS)], f"{len(MODELS)} models")
        yield from _of_rules(rules[len(MODELS) :], f"{len(HELD_OUT)} held out")
        for job in jobs:
            yield from job.result()[0]
        yield from shifted.result()


def main() -> None:
    """Simulate and report."""
    options = measure.arguments(__doc__)
    trials = _TRIALS // 10 if options.quick else _TRIALS
    notes = [
        f"{BASE_RUNS} baseline runs and up to {NEW_RUNS} new ones of {_SAMPLES} samples; "
        f"{trials:,} trials a row"
    ]
    measure.report("verdict_power", [*_rows(trials)], notes, options.json)


if __name__ == "__main__":
    main()
