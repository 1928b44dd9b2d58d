"""What reports of the tests show: names that are markup, long or wide, on all clocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpuprof import CompareResult, Decision, Row, Stats, Summary, Verdict
from tests.support.benchmark_results import bench, wavering

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
COMPARED = CompareResult(
    [bench("base", wavering(1.0)), bench("same", wavering(1.0)), bench(HOSTILE, wavering(1.5))],
    warnings=[HOSTILE],
)


@dataclass
class Series:
    """The runs of one benchmark."""

    name: str

    def facts(self) -> list[str]:
        """Return what was found."""
        return [f"changed at run 3 of {self.name}"]


class History:
    """A history with two series, as wide as plots are."""

    def __init__(self) -> None:
        self.series = (Series("quick"), Series(HOSTILE))

    def to_svg(self, name: str) -> str:
        """Return a plot of a series."""
        place = [each.name for each in self.series].index(name)
        return (
            '<?xml version="1.0"?>\n'
            '<svg xmlns="http://www.w3.org/2000/svg" width="900" height="120" '
            f'viewBox="0 0 900 120"><text x="5" y="50" fill="currentColor">{place}</text></svg>'
        )


EVERYTHING: dict[str, Any] = {
    "stats": {"train": STATS, HOSTILE: CPU_ONLY},
    "results": [*RESULTS, COMPARED],
    "history": History(),
    "title": f"Nightly {HOSTILE}",
}
