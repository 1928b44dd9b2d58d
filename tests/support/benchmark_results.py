"""Results of benchmarks that nobody measured."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Any

import pytest

from gpuprof import Verdict
from gpuprof._results.baselines import Baselines, Run
from gpuprof._results.result import BenchResult
from gpuprof.results import Decision


def bench(name: str, samples: Sequence[float], **changes: Any) -> BenchResult:
    values = {
        "mode": "graph",
        "requested_mode": "auto",
        "clock": "cuda",
        "l2": "hot",
        "duration_s": 0.5,
    }
    return BenchResult(name=name, samples_ms=tuple(samples), **{**values, **changes})


def wavering(ms: float, rounds: int = 40) -> list[float]:
    """Samples that drift by a tenth over the rounds, as all functions of a round do."""
    return [ms * (1 + place / (10 * rounds)) * (1 + (place % 3) * 1e-4) for place in range(rounds)]


def decided_beside_time(memory: str, launches: str, **changes: Any) -> Decision:
    """A decision with the rules of what grew beside the time, which is the same."""
    same, grown = Verdict.SAME, Verdict.MEMORY
    return Decision(
        *(same, 1.0, 1.0, 1.0, (0.99, 1.01), 0.01, 0.5, 5, "no change"),
        memory=Decision(grown, 1 << 20, 3 << 20, floor=0.05, runs=5, rule=memory, kind="memory"),
        launches=Decision(
            Verdict.LAUNCHES, 3, 4, runs=5, rule=launches, kind="launches", changes="+1 sgemm"
        ),
        instructions=Decision(
            same, 1e6, 1e6, 1.0, floor=0.01, runs=5, rule="as many", kind="instructions"
        ),
        **changes,
    )


def saved(name: str, created: str, *results: BenchResult) -> None:
    """Append a run to a baseline in the working folder, as --gpu-benchmark-save does."""
    by_name = {result.name: result for result in results}
    run = Run(created, dict(results[0].machine), by_name)
    Baselines(".gpuprof").append(name, run)


def command(*arguments: object) -> int:
    """Run ``gpuprof`` in this process, and return its exit code."""
    (script,) = entry_points(group="console_scripts", name="gpuprof")
    try:
        return int(script.load()([*map(str, arguments)]))
    except SystemExit as error:
        return int(error.code or 0)


def answer(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Run ``gpuprof`` in this process, and return its exit code, and both outputs."""
    code = command(*arguments)
    said = capsys.readouterr()
    return code, said.out, said.err
