"""What a comparison found, as plain data: a row for each function, the first being the base.

It holds no function or event, never waits, and can be pickled, sent elsewhere and shown there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

from gpuprof._common.checks import damaged, shortened
from gpuprof._common.text import shown_text
from gpuprof._common.units import duration, ratio_text
from gpuprof._display.records import Cell, Records
from gpuprof._display.table import Table
from gpuprof._results import statistics
from gpuprof._results.decision import Decision, Verdict
from gpuprof._results.export import Exports, records_of
from gpuprof._results.result import LEFT, BenchResult, cells, headline, how, warnings_of

FORMAT = "gpuprof-comparison"
VERSION = 1


@dataclass(frozen=True)
class CompareRow:
    """One function of a comparison.

    Attributes
    ----------
    result : BenchResult
        Its samples, one for each round.
    ratio : float
        The median over the rounds of its time over that of the first function; NaN where a time is
        not above 0. 1 for the first.
    interval : tuple of float or None
        The interval of the ratio, by the sign test; None for the first function, and with fewer
        than 6 rounds.
    decision : Decision or None
        The verdict and what it rests on; None for the first function.
    """

    __module__ = "gpuprof"

    result: BenchResult
    ratio: float
    interval: tuple[float, float] | None = None
    decision: Decision | None = None

    @property
    def verdict(self) -> Verdict | None:
        """The verdict against the first function."""
        return None if self.decision is None else self.decision.verdict

    def __repr__(self) -> str:
        said = "" if self.decision is None else f"; {_ratio(self)} {self.decision}"
        return shown_text(headline(self.result)) + said

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CompareRow:
        """Build one from what `to_dict` returned; ValueError says what is wrong."""
        ratio, interval, decision = data["ratio"], data["interval"], data["decision"]
        return cls(
            BenchResult.from_dict(data["result"]),
            math.nan if ratio is None else float(ratio),
            None if interval is None else (float(interval[0]), float(interval[1])),
            None if decision is None else Decision.from_dict(decision),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain data."""
        return {
            "result": self.result.to_dict(),
            "ratio": self.ratio if math.isfinite(self.ratio) else None,
            "interval": None if self.interval is None else [*self.interval],
            "decision": None if self.decision is None else self.decision.to_dict(),
        }


class CompareResult(Exports, Mapping[str, CompareRow]):
    """What `compare` found: for each name its row, in the order given.

    The first function is what the others are compared with.

    Attributes
    ----------
    rounds : int
        How often each function was measured.
    threshold : float
        The smallest change to report, as a fraction.
    confidence : float
        Of each ratio's interval. With several ratios it is so high that all of them together hold
        at 95 %.
    warnings : tuple of str
        What holds for the comparison as a whole; the results have their own.
    seed : int or None
        What the order of the rounds was drawn from; None if it is not known.
    created : str
        When, as ISO 8601 text in UTC.
    """

    __module__ = "gpuprof"

    def __init__(
        self,
        results: Sequence[BenchResult],
        *,
        threshold: float = 0.01,
        warnings: Sequence[str] = (),
        seed: int | None = None,
        created: str | None = None,
    ) -> None:
        self.threshold = threshold
        self.warnings = tuple(warnings)
        self.seed = seed
        self.created = created or datetime.now(timezone.utc).isoformat(timespec="seconds")
        self.rounds = min(result.count for result in results)
        self.confidence = joint_confidence(len(results) - 1)
        base, *others = results
        self._rows = {base.name: CompareRow(base, 1.0)}
        for result in others:
            self._rows[result.name] = self._compared(base, result)

    def _compared(self, base: BenchResult, new: BenchResult) -> CompareRow:
        from gpuprof._results.verdict import judge_paired

        decision = judge_paired(
            base.samples_ms,
            new.samples_ms,
            threshold=self.threshold,
            confidence=self.confidence,
            tick=max(base.tick_ms, new.tick_ms),
        )
        for what in ("clock", "mode", "l2"):
            one, other = getattr(base, what), getattr(new, what)
            if one != other:
                rule = f"{what} is {one!r} for {base.name!r} and {other!r} for {new.name!r}"
                decision = replace(decision, verdict=Verdict.INCOMPARABLE, rule=rule)
                break  # what follows from it need not be said
        ratio = decision.ratio
        if ratio is None:
            ratio = new.median_ms / base.median_ms if base.median_ms > 0 else math.nan
        return CompareRow(new, ratio, decision.interval, decision)

    def __getitem__(self, name: str) -> CompareRow:
        if name not in self._rows:
            message = f"no function {name!r}; there are {', '.join(map(repr, self._rows))}"
            raise KeyError(message)
        return self._rows[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def results(self) -> list[BenchResult]:
        """The results alone."""
        return [row.result for row in self._rows.values()]

    @property
    def base(self) -> str:
        """The name of the function that the others are compared with."""
        return next(iter(self._rows))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as dicts, lists, text, finite numbers and None."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "created": self.created,
            "rounds": self.rounds,
            "seed": self.seed,
            "threshold": self.threshold,
            "confidence": self.confidence,
            "warnings": [*self.warnings],
            "rows": [row.to_dict() for row in self._rows.values()],
        }

    @classmethod
    def from_dict(cls, data: Any) -> CompareResult:
        """Build one from what `to_dict` returned, with the verdicts that it holds.

        Raises
        ------
        ValueError
            If `data` is something else, or of a version that this one cannot read.
        """
        found = (data.get("format"), data.get("version")) if isinstance(data, Mapping) else data
        if found != (FORMAT, VERSION):
            message = (
                f"data has format and version {shortened(found)}; expected {FORMAT!r} and "
                f"{VERSION}: pass what CompareResult.to_dict() of a matching gpuprof returned"
            )
            raise ValueError(message)
        if not data.get("rows"):
            message = "data has no rows; expected one for each function that was compared"
            raise ValueError(message)
        self = cls.__new__(cls)
        with damaged("the comparison"):
            rows = [CompareRow.from_dict(row) for row in data["rows"]]
            self.threshold, self.seed = data["threshold"], data["seed"]
            self.warnings, self.created = tuple(data["warnings"]), str(data["created"])
            self.rounds, self.confidence = data["rounds"], data["confidence"]
        self._rows = {row.result.name: row for row in rows}
        return self

    def _records(self, samples: bool = False) -> Records:
        return records_of(self.results, samples, [_judged(row) for row in self._rows.values()])

    def to_markdown(self) -> str:
        """Return a Markdown table, a line for each function."""
        return "\n".join(self._table().markdown()) + "\n"

    def plot(self, ax: Any = None) -> Any:
        """Draw the median of each function as a bar, with its interval.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            The axes to draw into; None makes a figure.

        Returns
        -------
        matplotlib.figure.Figure
            Not known to pyplot: save it with ``savefig``, or show it as a notebook cell's value.

        Raises
        ------
        ModuleNotFoundError
            Without matplotlib.
        """
        from gpuprof._display import plot as display_plot

        base, *others = self._rows.values()
        return display_plot.bars(
            [
                base.result.name,
                *(f"{row.result.name} (x {ratio_text(row.ratio)})" for row in others),
            ],
            [result.median_ms for result in self.results],
            [result.interval_ms for result in self.results],
            [display_plot.colour_of(result.clock) for result in self.results],
            ax,
            title="gpuprof: comparison",
            x_label="time of a call ({unit}): median, whiskers for its 95 % interval",
        )

    def _table(self) -> Table:
        lines = []
        for name, row in self._rows.items():
            shown = cells(row.result)
            lines.append(
                {
                    "name": name,
                    **{key: shown[key] for key in ("median", "95 % interval", "min", "host")},
                    f"ratio to {self.base}": _ratio(row),
                    "bytes": shown["bytes"],
                    "flops": shown["flops"],
                    "memory": shown["memory"],
                    "verdict": str(row.verdict or ""),
                }
            )
        cells_of_lines = [[*line.values()] for line in lines]
        return Table([*lines[0]], cells_of_lines, LEFT, notes=self._notes()).without_empty()

    def _notes(self) -> list[str]:
        first = self.results[0]
        taken = duration(1e3 * sum(result.duration_s for result in self.results))
        notes = [f"{how(first)}; {self.rounds:,} rounds in turns, {taken} in all"]
        if len(self._rows) > 2:
            notes.append(
                f"the intervals of the ratios hold at {100 * statistics.CONFIDENCE:.0f} % together"
            )
        for name, row in self._rows.items():
            if row.decision:
                notes += [f"{name}: {text}" for text in (row.decision.rule, *row.decision.warnings)]
        return notes + warnings_of(self.results, self.warnings)

    def __repr__(self) -> str:
        return "\n".join(self._table().plain())

    def _repr_html_(self) -> str:
        return self._table().html()


def _ratio(row: CompareRow) -> str:
    if row.decision is None:
        return ""
    interval = "" if row.interval is None else f" ({ratio_text(*row.interval)})"
    return ratio_text(row.ratio) + interval


def _judged(row: CompareRow) -> dict[str, Cell]:
    """Return what a comparison adds to the record of a result."""
    low, high = row.interval or (None, None)
    decision = row.decision
    return {
        "ratio": row.ratio,
        "ratio_low": low,
        "ratio_high": high,
        "verdict": None if decision is None else decision.verdict.value,
        "p_value": None if decision is None else decision.p_value,
        "floor": None if decision is None else decision.floor,
        "rule": None if decision is None else decision.rule,
    }


def joint_confidence(ratios: int) -> float:
    """Return the confidence of each of several intervals that hold together at 95 %."""
    return 1 - (1 - statistics.CONFIDENCE) / ratios
