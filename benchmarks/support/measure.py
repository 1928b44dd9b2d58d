"""Contenders measured alternately, and the table of the results.

All contenders of a group run in one process, one after the other, round after round, each round
starting with another one, so that a drift of the machine falls on all of them. The best round is
the headline: on an otherwise idle machine everything that disturbs a run makes it slower.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from support import environment
from support.results import Result, Row


@dataclass(frozen=True)
class Contender:
    """One way to do something: `run(count)` does it `count` times and returns nanoseconds."""

    name: str
    run: Callable[[int], int]
    count: int


class Rounds:
    """Nanoseconds per repetition, by contender and round; the same rounds belong together."""

    def __init__(self, *, disturbed: bool = False) -> None:
        self._disturbed = disturbed  # what disturbs is what is measured: the headline is the mean
        self._values: dict[str, list[float]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def measure(self, contenders: Sequence[Contender], rounds: int) -> None:
        """Run the contenders alternately, after one short run each to warm up."""
        for contender in contenders:
            contender.run(max(contender.count // 10, 1))
            self._values[contender.name] = []
        for index in range(rounds):
            shift = index % len(contenders)
            for contender in [*contenders[shift:], *contenders[:shift]]:
                per_turn = contender.run(contender.count) / contender.count
                self._values[contender.name].append(per_turn)

    def add(self, name: str, value: float) -> None:
        """Add the nanoseconds of one more round of a contender that another program measured."""
        self._values.setdefault(name, []).append(value)

    def add_sum(self, name: str, terms: Sequence[str]) -> None:
        """Add a contender that is the sum of others, round by round."""
        columns = [self._values[term] for term in terms]
        self._values[name] = [sum(values) for values in zip(*columns, strict=True)]

    def rest(self, name: str, *, of: str, without: Sequence[str]) -> Row:
        """Return what is left of a contender without its parts: best less bests; 0 for less."""
        columns = [self._values[term] for term in without]
        parts = [sum(values) for values in zip(*columns, strict=True)]
        left = [whole - part for whole, part in zip(self._values[of], parts, strict=True)]
        best = min(self._values[of]) - sum(min(column) for column in columns)
        return Row(name, max(best, 0.0), "ns", max(statistics.median(left), 0.0))

    def row(
        self,
        name: str,
        *,
        to: str | None = None,
        target: float | None = None,
        shown: str | None = None,
    ) -> Row:
        """Return a contender's row, compared with `to` if that was measured too.

        One that is compared with several is `shown` under another name in each further row.
        """
        values = self._values[name]
        name = shown or name
        best, median = min(values), statistics.median(values)
        if self._disturbed:
            best = statistics.mean(values)
        if to is None or to not in self._values:
            return Row(name, best, "ns", median)
        others = self._values[to]
        ratios = [value / other for value, other in zip(values, others, strict=True)]
        ratio = best / (statistics.mean(others) if self._disturbed else min(others))
        return Row(name, best, "ns", median, to, ratio, statistics.median(ratios), target)

    def excess(self, name: str, *, over: str, target: float | None = None) -> Row:
        """Return the microseconds that a contender takes more than another; 0 for less."""
        values, others = self._values[name], self._values[over]
        rounds = [value - other for value, other in zip(values, others, strict=True)]
        best, median = min(values) - min(others), statistics.median(rounds)
        shown = f"{name}, beyond {over}"
        return Row(shown, max(best, 0.0) / 1e3, "us", max(median, 0.0) / 1e3, target=target)


def arguments(description: str | None) -> argparse.Namespace:
    """Parse the options that all scripts share."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there")
    parser.add_argument("--quick", action="store_true", help="fewer rounds; for a first look")
    return parser.parse_args()


def report(script: str, rows: Sequence[Row], notes: Sequence[str], path: Path | None) -> None:
    """Print the table, and write the result if a path is given."""
    result = Result(
        script=script,
        date=datetime.now(timezone.utc).date().isoformat(),
        machine=environment.machine(),
        versions=environment.versions(),
        rows=rows,
        notes=notes,
    )
    print(", ".join(name for name in result.machine.values() if name is not None))
    print(", ".join(f"{name} {version}" for name, version in result.versions.items()))
    print(_table(rows))
    for note in notes:
        print(f"note: {note}")
    if path is not None:
        result.write(path)
        print(f"written: {path}")


_NEXT_UNIT = {"ns": "µs", "µs": "ms", "ms": "s"}


def format_value(value: float, unit: str) -> str:
    """Return a figure with about three digits, in the unit that suits it; more without a unit."""
    if not unit:
        return f"{value:.6g}"
    unit = {"us": "µs"}.get(unit, unit)
    while unit in _NEXT_UNIT and value >= 1000:
        value, unit = value / 1000, _NEXT_UNIT[unit]
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f} {unit}"


def format_ratio(ratio: float) -> str:
    """Return a ratio to a peer: `1.32x`, or `4.6x less` below three quarters."""
    if not 0.0 < ratio < 0.75:
        return f"{ratio:.2f}x"
    times = 1.0 / ratio
    return f"{times:.{1 if times < 9.95 else 0}f}x less"


def format_target(row: Row) -> str:
    """Return a row's target as its figure is written, or nothing."""
    if row.target is None:
        return ""
    if row.ratio is None:
        return f"at most {format_value(row.target, row.unit)}"
    return f"{format_ratio(row.target)}" if row.target < 0.75 else f"{row.target:.3g}x"


def _table(rows: Sequence[Row]) -> str:
    lines = [("", "best", "median", "ratio", "(median)", "of", "target", "")]
    for row in rows:
        verdict = {None: "", True: "target met", False: "target NOT met"}[row.met]
        lines.append(
            (
                row.name,
                format_value(row.value, row.unit),
                "" if row.median is None else format_value(row.median, row.unit),
                "" if row.ratio is None else format_ratio(row.ratio),
                "" if row.ratio_median is None else f"({format_ratio(row.ratio_median)})",
                row.ratio_to or "",
                format_target(row),
                verdict,
            )
        )
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
