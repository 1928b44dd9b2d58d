"""What reports of the tests show: names that are markup, long or wide, on all clocks."""

from __future__ import annotations

from typing import Any

from gpuprof import CompareResult, History, Stats, Verdict
from gpuprof.results import (
    Decision,
    HistoryChange,
    HistoryPoint,
    HistorySeries,
    Launches,
    Row,
    Summary,
)
from tests.support.benchmark_results import bench, decided_beside_time, wavering

HOSTILE = "</script><img src=x onerror=\"document.title='owned'\">&amp;\u202e\n'\"<b>"
SHOWN = HOSTILE.replace("\u202e", r"\u202e").replace("\n", r"\x0a")  # as people see it
LONG = "a_name_without_a_place_to_break_" * 8


def row(path: str, ms: float, clock: str = "cuda", **more: Any) -> Row:
    times = Summary(10, 10 * ms, ms, ms / 2, ms, 2 * ms, 3 * ms, 4 * ms, 5 * ms)
    host = Summary(10, ms, ms / 10, ms / 20, ms / 10, ms, ms, ms, ms)
    return Row(path, clock, times if clock == "cuda" else None, host, **more)


STATS = Stats(
    [
        row("step", 4.0),
        row("step/fwd", 1.0, dropped=3),
        row("step/bwd", 2.5),
        row("step/x", 0.25, names=("step", HOSTILE)),
        row("eval", 9.0),
        row(LONG, 0.5),
        Row("later", "cuda", None, None, pending=1),
        row("load", 3.0, "cpu"),
    ],
    dropped=3,
)
CPU_ONLY = Stats([row("load", 1.0, "cpu")])
SLOWER = Decision(Verdict.SLOW, 1.0, 2.0, 2.0, (1.9, 2.1), 0.01, 0.001, 5, f"slower {HOSTILE}")
RESULTS = [
    bench("quick", wavering(0.5)),
    (bench(HOSTILE, wavering(2.0), warnings=(f"warning {HOSTILE}",)), SLOWER),
    bench(LONG, wavering(30.0), params={HOSTILE: HOSTILE}, machine={"gpu": HOSTILE}),
]
COMPARED = CompareResult.of(
    [bench("base", wavering(1.0)), bench("same", wavering(1.0)), bench(HOSTILE, wavering(1.5))],
    warnings=[HOSTILE],
)


LAUNCHED = Launches({f"void {HOSTILE}<float>": 2, "sgemm": 1}, copies=1)
GROWN = decided_beside_time(f"peak grew {HOSTILE}", f"launches more: {HOSTILE}")
FEWER = Decision(
    Verdict.SAME,
    rule="no change",
    launches=Decision(
        Verdict.SAME,
        5,
        4,
        runs=5,
        rule="launches less: -1 sgemm",
        kind="launches",
        changes="-1 sgemm",
    ),
)
BESIDE_TIME = [
    (bench("few", wavering(1.0), launches=Launches({"sgemm": 30})), FEWER),
    (
        bench(
            "grown",
            wavering(1.0),
            launches=LAUNCHED,
            memory={"peak_bytes": 3 << 20, "change_bytes": 0},
        ),
        GROWN,
    ),
]


# As ``gpuprof compare --format json`` prints it.
TWO_SIDES: dict[str, Any] = {
    "format": "gpuprof-run-comparison",
    "version": 1,
    "unit": "ms",
    "base": {"what": "baseline 'main'", "runs": 5, "created": "2026-11-22"},
    "new": {"what": f"branch {HOSTILE}", "runs": 1, "created": None},
    "only_in_base": ["gone"],
    "only_in_new": [],
    "notes": ["a note"],
    "rows": [
        {"name": HOSTILE, "machine": "NVIDIA-H200", **SLOWER.to_dict()},
        {"name": "grown", "machine": "NVIDIA-H200", **GROWN.to_dict()},
    ],
}


def runs(name: str, times_ms: list[float], *changes: HistoryChange) -> HistorySeries:
    """Return a series of daily runs, whose machine and commits are markup."""
    points = [
        HistoryPoint(f"2026-11-{day:02d}T08:00:00+00:00", ms, 0.9 * ms, 1.1 * ms, HOSTILE, HOSTILE)
        for day, ms in enumerate(times_ms, 1)
    ]
    return HistorySeries(name, name, "main", "NVIDIA-H200", tuple(points), changes, (HOSTILE,))


HISTORY = History(
    [
        runs("quick", [1.0] * 6),
        runs(HOSTILE, [1.0, 1.0, 1.0, 2.0, 2.0, 2.0], HistoryChange(3, 0.001, 2.0)),
        runs(LONG, [3.0]),
    ]
)

EVERYTHING: dict[str, Any] = {
    "stats": {"train": STATS, HOSTILE: CPU_ONLY},
    "results": [*RESULTS, COMPARED],
    "history": HISTORY,
    "title": f"Nightly {HOSTILE}",
}
