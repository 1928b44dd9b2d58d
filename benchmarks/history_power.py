"""How often a history is said to have changed though it has not, and what it finds.

The series are made up: 20 runs without a change under noise of several makes, 40 where it says so,
and with changes of 10 % where runs differ by 2 %. A row of noise is the share of series with any
change or drift; the others are shares of series that were not described as they were made: each
change within one run of its place, and no other. Speed is a history of 10,000 stored runs, each of
one benchmark with 50 samples, in a folder, where each commit has its own file, and in a git ref.
"""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from time import perf_counter

import gpuprof
from gpuprof._results.change_point import changes
from gpuprof._results.result import BenchResult
from gpuprof._results.result_files import Run
from support import measure
from support.results import Row

_SEED = 20261127
_TRIALS = 4000
_WORKERS = 2
_RUNS = 10_000
_MOST_S = 3.0
Noise = Callable[[random.Random, int], "list[float]"]


def _independent(
    draw: Callable[[random.Random], float], chance: random.Random, count: int
) -> list[float]:
    return [draw(chance) for _ in range(count)]


def _dependent(share: float, chance: random.Random, count: int) -> list[float]:
    """Return noise of which each value keeps a share of the one before."""
    found = [chance.gauss(0.0, 0.02)]
    while len(found) < count:
        new = chance.gauss(0.0, 0.02 * math.sqrt(1.0 - share * share))
        found.append(share * found[-1] + new)
    return found


def _normal(chance: random.Random) -> float:
    return chance.gauss(0.0, 0.02)


def _laplace(chance: random.Random) -> float:
    return chance.expovariate(50.0) * chance.choice((-1.0, 1.0))


def _heavy(chance: random.Random) -> float:
    return 0.01 * chance.gauss(0.0, 1.0) / math.sqrt(chance.gammavariate(1.0, 1.0))


def _two_speeds(chance: random.Random) -> float:
    return chance.gauss(0.0, 0.005) + 0.1 * (chance.random() < 0.3)


NOISES: dict[str, tuple[Noise, float]] = {  # and the most of 100 that may be wrong
    "normal noise": (partial(_independent, _normal), 1.0),
    "Laplace noise": (partial(_independent, _laplace), 1.0),
    "heavy tails": (partial(_independent, _heavy), 1.0),
    "two speeds": (partial(_independent, _two_speeds), 1.0),
    "autocorrelation 0.3": (partial(_dependent, 0.3), 2.0),
    "autocorrelation 0.5": (partial(_dependent, 0.5), 2.0),
    "autocorrelation 0.7": (partial(_dependent, 0.7), 100.0),
}
# Where the level changes, and by how much.
STEPS: dict[str, tuple[int, Sequence[tuple[int, float]]]] = {
    "a step in the middle of 20": (20, [(10, 0.1)]),
    "a step in the middle of 12": (12, [(6, 0.1)]),
    "a step 3 runs before the end of 20": (20, [(17, 0.1)]),
    "up and back again, 6 of 20": (20, [(7, 0.1), (13, -0.1)]),
    "up and back again, 10 of 40": (40, [(15, 0.1), (25, -0.1)]),
    "up, and up again, of 40": (40, [(13, 0.1), (26, 0.1)]),
}


def false_share(noise: str, count: int, trials: int) -> float:
    """Return how many series of 100 are said to have changed, of which none has."""
    chance = random.Random(f"{_SEED} {noise} {count}")
    draw = NOISES[noise][0]
    return 100.0 * sum(bool(changes(draw(chance, count))) for _ in range(trials)) / trials


def missed_share(case: str, trials: int) -> float:
    """Return how many series of 100 are not described as they were made."""
    chance = random.Random(f"{_SEED} {case}")
    count, steps = STEPS[case]
    levels = [sum(by for at, by in steps if place >= at) for place in range(count)]
    missed = 0
    for _ in range(trials):
        found = changes([level + _normal(chance) for level in levels])[::-1]
        missed += len(found) != len(steps) or any(
            abs(one.index - at) > 1 or one.kind != "step"
            for one, (at, _) in zip(found, steps, strict=True)
        )
    return 100.0 * missed / trials


def drift_share(by: float, count: int, trials: int) -> float:
    """Return how many drifts of 100 are not called one drift."""
    chance = random.Random(f"{_SEED} {by} {count}")
    missed = 0
    for _ in range(trials):
        found = changes([by * place / (count - 1) + _normal(chance) for place in range(count)])
        missed += [each.kind for each in found] != ["drift"]
    return 100.0 * missed / trials


def _runs() -> Iterator[Run]:
    chance = random.Random(_SEED)
    for number in range(_RUNS):
        days, hour = divmod(number, 24)
        months, day = divmod(days, 28)
        created = (
            f"{2000 + months // 12}-{1 + months % 12:02d}-{1 + day:02d}T{hour:02d}:00:00+00:00"
        )
        samples = tuple(1.0 + 0.02 * chance.random() for _ in range(50))
        machine = {"gpu": "NVIDIA H200", "sms": 132, "driver": "580.1"}
        result = BenchResult(
            "test_step", "graph", "auto", "cuda", "hot", samples, machine=machine, created=created
        )
        yield Run(created, machine, {"test_step": result}, f"{number:040x}")


def speed_rows() -> Iterator[Row]:
    """Yield how long a history of many runs takes, in milliseconds."""
    with tempfile.TemporaryDirectory() as name:
        folder, lines = Path(name) / "kept", []
        for run in _runs():
            path = folder / "baselines" / str(run.commit) / "NVIDIA-H200.jsonl"
            path.parent.mkdir(parents=True)
            lines.append(json.dumps(run.to_dict()) + "\n")
            path.write_text(lines[-1], encoding="ascii")
        yield Row("10,000 runs in a folder", _best(str(folder)), "ms", target=1e3 * _MOST_S)
        here = Path.cwd()
        os.chdir(name)
        _git("init", "-q")
        blob = _git("hash-object", "-w", "--stdin", text="".join(lines))
        inner = _git("mktree", text=f"100644 blob {blob}\tNVIDIA-H200.jsonl\n")
        tree = _git("mktree", text=f"040000 tree {inner}\tmain\n")
        identity = ("-c", "user.name=n", "-c", "user.email=a@b.invalid")
        commit = _git(*identity, "commit-tree", tree, "-m", "runs")
        _git("update-ref", "refs/gpuprof/runs", commit)
        yield Row("10,000 runs in a git ref", _best("git:refs/gpuprof"), "ms", target=1e3 * _MOST_S)
        os.chdir(here)


def _git(*arguments: str, text: str = "") -> str:
    done = subprocess.run(
        ["git", *arguments], input=text, text=True, capture_output=True, check=True
    )
    return done.stdout.strip()


def _best(storage: str) -> float:
    times = []
    for _ in range(3):
        start = perf_counter()
        gpuprof.history(storage)
        times.append(perf_counter() - start)
    return 1e3 * min(times)


def _rows(trials: int) -> Iterator[Row]:
    yield from speed_rows()
    with ProcessPoolExecutor(_WORKERS) as pool:
        false = {
            (noise, count): pool.submit(false_share, noise, count, trials)
            for noise in NOISES
            for count in (20, 40)
        }
        missed = {case: pool.submit(missed_share, case, trials // 5) for case in STEPS}
        drifts = {
            (by, count): pool.submit(drift_share, by, count, trials // 5)
            for by, count in ((0.1, 40), (0.2, 20), (0.2, 40))
        }
        for (noise, count), job in false.items():
            most = NOISES[noise][1]
            target = None if most > 50.0 else most
            yield Row(
                f"{noise}, {count} runs: said to have changed", job.result(), "%", target=target
            )
        for case, job in missed.items():
            yield Row(f"{case}: missed", job.result(), "%")
        for (by, count), job in drifts.items():
            yield Row(f"a drift of {by:.0%} over {count} runs: missed", job.result(), "%")


def main() -> None:
    """Simulate, measure and report."""
    options = measure.arguments(__doc__)
    trials = _TRIALS // 10 if options.quick else _TRIALS
    notes = [
        f"{trials:,} series a row of noise, a fifth of that in others; steps of 10 % where runs "
        "differ by 2 %"
    ]
    measure.report("history_power", [*_rows(trials)], notes, options.json)


if __name__ == "__main__":
    main()
