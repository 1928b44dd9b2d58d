"""``--gpu-benchmark-compare-fail``: by how much a figure may be above the baseline's.

An expression is a figure, a colon, and a percentage or a number of seconds: ``min:5%`` or
``median:0.001``. The baseline's figure is the median of that of its runs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from gpuprof._common import checks
from gpuprof._common.units import duration, percent
from gpuprof._results import statistics
from gpuprof._results.export import figures
from gpuprof._results.result import BenchResult

OPTION = "--gpu-benchmark-compare-fail"
FIELDS = ("min", "max", "mean", "median", "stddev", "iqr")
EXPECTED = (
    f"{'|'.join(FIELDS)}, a colon, and a percentage or a number of seconds, such as min:5% or "
    "median:0.001"
)
_EXPRESSION = re.compile(
    rf"(?P<field>{'|'.join(FIELDS)}):(?P<number>(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?)(?P<percent>%?)",
    re.ASCII,
)


@dataclass(frozen=True)
class FailExpression:
    """A limit for one figure: relative to the baseline's, or in seconds."""

    text: str
    field: str
    limit: float
    is_relative: bool

    @classmethod
    def parse(cls, text: str) -> FailExpression:
        """Parse an expression; ValueError says what is expected."""
        found = _EXPRESSION.fullmatch(text)
        number = float(found["number"]) if found else math.inf
        if found is None or not math.isfinite(number):
            raise checks.value_error(text, OPTION, EXPECTED)
        is_relative = bool(found["percent"])
        return cls(text, found["field"], number / 100 if is_relative else number, is_relative)

    def failure(
        self, base: Sequence[BenchResult], new: Sequence[BenchResult], name: str
    ) -> str | None:
        """Say by how much all new results are above the baseline; None if one of them is not."""
        old = statistics.median([figures(result)[self.field] for result in base])
        now = min(figures(result)[self.field] for result in new)
        if not self._excess(old, now) > self.limit:
            return None
        excess = self._excess(old, now)
        is_share = self.is_relative and math.isfinite(excess)
        more = percent(excess) if is_share else duration(1e3 * (now - old))
        limit = percent(self.limit) if self.is_relative else duration(1e3 * self.limit)
        return (
            f"REGRESSED: {self.field} is {duration(1e3 * now)}, {more} above that of baseline "
            f"{name!r}, {duration(1e3 * old)}; {self.text} allows {limit}"
        )

    def _excess(self, old: float, now: float) -> float:
        if not self.is_relative:
            return now - old
        # A baseline of nothing, such as the deviation of equal samples, allows nothing above it.
        return now / old - 1 if old > 0 else (math.inf if now > 0 else 0.0)
