"""Results of benchmarks that nobody measured."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from gpuprof import BenchResult, Verdict
from gpuprof._results.git_store import opened
from gpuprof._results.result_files import Run
from gpuprof.results import Decision

# Options of `benchmark` with which a few samples are enough.
QUICK: dict[str, Any] = {
    "warmup_s": 0.0,
    "min_time_s": 0.0,
    "min_samples": 8,
    "max_time_s": 5.0,
    "rel_precision": 1.0,
}


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
        **changes,
    )


def csv_lines(text: str | None) -> list[dict[str, str]]:
    """Return the lines of CSV, each by the columns."""
    assert text is not None
    return list(csv.DictReader(io.StringIO(text, newline=""), strict=True))


def stored(name: str, folder: Path = Path(".gpuprof")) -> dict[str, list[Run]]:
    """Return a baseline's runs by machine."""
    return opened(folder).runs(name)


def saved(
    name: str,
    created: str,
    *results: BenchResult,
    commit: str | None = None,
    folder: str | Path = Path(".gpuprof"),
) -> None:
    """Append a run to a baseline in a folder, by default the plugin's, or in a git ref."""
    by_name = {result.name: result for result in results}
    run = Run(created, dict(results[0].machine), by_name, commit)
    opened(folder).append(name, run)


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
