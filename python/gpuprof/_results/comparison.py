"""What a comparison found, as plain data: a row for each function, the first being the base.

It holds no function or event, never waits, and can be pickled, sent elsewhere and shown there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType

from gpuprof._common.records import Document, Record, head, in_results, now
from gpuprof._common.text import shown_text
from gpuprof._common.units import duration, ratio_text
from gpuprof._display.records import Cell, Records
from gpuprof._display.shown import Exported, Shown
from gpuprof._display.table import Table
from gpuprof._results import statistics
from gpuprof._results.decision import Decision, Verdict
from gpuprof._results.export import figures_of, samples_of
from gpuprof._results.paired_verdict import judge_paired
from gpuprof._results.result import LEFT, BenchResult, cells, headline, warnings_of
from gpuprof._results.texts import how


@in_results
@dataclass(frozen=True, repr=False)
class CompareRow(Record):
    """One function of a comparison.

    Attributes
    ----------
    result : BenchResult
        Its samples, one for each round.
    ratio : float
        The median over the rounds of its time over that of the first function, or of its CPU time
        where the warnings say so; NaN where a time is not above 0. 1 for the first.
    interval : tuple of float or None
        The interval of the ratio, by the sign test; None for the first function, and with fewer
        than 6 rounds.
    decision : Decision or None
        The verdict and what it rests on; None for the first function.
    """

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


@dataclass(frozen=True, repr=False, eq=False)
class CompareResult(Shown, Exported, Document, Mapping[str, CompareRow]):
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

    rounds: int
    seed: int | None
    threshold: float
    confidence: float
    warnings: tuple[str, ...]
    rows: tuple[CompareRow, ...]
    created: str = field(default_factory=now)

    _HEAD = head("gpuprof-comparison")
    _MEMBERS = ("format", "version", "created", ...)

    def __post_init__(self) -> None:
        if not self.rows:
            message = "rows: expected one for each function that was compared, got none"
            raise ValueError(message)

    @classmethod
    def of(
        cls,
        results: Sequence[BenchResult],
        *,
        threshold: float = 0.01,
        warnings: Sequence[str] = (),
        seed: int | None = None,
        cpu_ms: Mapping[str, Sequence[float]] = MappingProxyType({}),
    ) -> CompareResult:
        """Compare results with the first of them, which were measured in turns.

        `cpu_ms` has the CPU times of the rounds by name, where these are to be compared in place of
        the samples.
        """
        base, *others = results
        confidence = joint_confidence(len(results) - 1)
        times = {each.name: cpu_ms.get(each.name, each.samples_ms) for each in results}
        rows = [_compared(base, each, threshold, confidence, times) for each in others]
        return cls(
            min(result.count for result in results),
            seed,
            threshold,
            confidence,
            tuple(warnings),
            (CompareRow(base, 1.0), *rows),
        )

    @cached_property
    def _rows(self) -> dict[str, CompareRow]:
        return {row.result.name: row for row in self.rows}

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
        return [row.result for row in self.rows]

    @property
    def base(self) -> str:
        """The name of the function that the others are compared with."""
        return next(iter(self._rows))

    def _records(self, samples: bool = False) -> Records:
        if samples:
            return samples_of(self.results)
        return Records.of([figures_of(row.result) | _judged(row) for row in self.rows])

    def _table(self) -> Table:
        lines = []
        for name, row in self._rows.items():
            shown = cells(row.result)
            times = {key: shown[key] for key in ("median", "95 % interval", "min", "host")}
            rates = {key: shown[key] for key in ("bytes", "flops", "memory")}
            verdict = str(row.verdict or "")
            ratio = {f"ratio to {self.base}": _ratio(row)}
            lines.append({"name": name, **times, **ratio, **rates, "verdict": verdict})
        return Table.of(lines, left=LEFT, notes=self._notes())

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


def _compared(
    base: BenchResult,
    new: BenchResult,
    threshold: float,
    confidence: float,
    times: Mapping[str, Sequence[float]],
) -> CompareRow:
    decision = judge_paired(
        times[base.name],
        times[new.name],
        threshold=threshold,
        confidence=confidence,
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


def _ratio(row: CompareRow) -> str:
    if row.decision is None:
        return ""
    interval = "" if row.interval is None else f" ({ratio_text(*row.interval)})"
    return ratio_text(row.ratio) + interval


def _judged(row: CompareRow) -> dict[str, Cell]:
    low, high = row.interval or (None, None)
    said = {
        name: getattr(row.decision, name, None) for name in ("verdict", "p_value", "floor", "rule")
    }
    return {"ratio": row.ratio, "ratio_low": low, "ratio_high": high, **said}


def joint_confidence(ratios: int) -> float:
    """Return the confidence of each of several intervals that hold together at 95 %."""
    return 1 - (1 - statistics.CONFIDENCE) / ratios
