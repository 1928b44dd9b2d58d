"""The figures that follow from the samples of a result."""

from __future__ import annotations

import math
from functools import cached_property

from gpuprof._common.quantiles import quantile
from gpuprof._results import statistics


class SampleFigures:
    """The base of `BenchResult`: what its samples say, by name."""

    samples_ms: tuple[float, ...]
    tick_ms: float

    @property
    def count(self) -> int:
        """How many samples there are."""
        return len(self.samples_ms)

    @cached_property
    def _sorted(self) -> list[float]:
        return sorted(self.samples_ms)

    @cached_property
    def median_ms(self) -> float:
        """The median: the figure to quote."""
        return statistics.median(self._sorted)

    @property
    def min_ms(self) -> float:
        """The smallest sample. It hides what happens only sometimes; quote the median."""
        return self._sorted[0]

    @property
    def max_ms(self) -> float:
        """The largest sample."""
        return self._sorted[-1]

    @cached_property
    def mean_ms(self) -> float:
        """The mean."""
        return math.fsum(self.samples_ms) / self.count

    @cached_property
    def stddev_ms(self) -> float:
        """The standard deviation; 0 of a single sample."""
        return statistics.stddev(self.samples_ms)

    @property
    def q1_ms(self) -> float:
        """The first quartile."""
        return quantile(self._sorted, 0.25)

    @property
    def q3_ms(self) -> float:
        """The third quartile."""
        return quantile(self._sorted, 0.75)

    @property
    def iqr_ms(self) -> float:
        """The distance between the quartiles."""
        return self.q3_ms - self.q1_ms

    @cached_property
    def mad_ms(self) -> float:
        """The median absolute deviation from the median, not scaled."""
        return statistics.mad(self._sorted)

    @property
    def p10_ms(self) -> float:
        """The 10th percentile."""
        return quantile(self._sorted, 0.1)

    @property
    def p90_ms(self) -> float:
        """The 90th percentile."""
        return quantile(self._sorted, 0.9)

    @cached_property
    def interval_ms(self) -> tuple[float, float]:
        """The 95 % interval of the median, by order statistics: exact for independent samples.

        It is as wide as that of `independent_samples`, and reaches at least a tick to both sides of
        the median. With fewer than 6 it is from the smallest to the largest. It says how well this
        run knows its median; another run of the same code may differ by more.
        """
        return statistics.median_interval(
            self._sorted, tick=self.tick_ms, independent=self.independent_samples
        )

    @cached_property
    def independent_samples(self) -> float:
        """How many independent samples would say as much about the median as these.

        It is fewer than `count` where samples that follow each other are alike.
        """
        return statistics.independent_count(self.samples_ms)

    @property
    def rel_precision(self) -> float:
        """Half the interval over the median; infinite if the median is not above 0."""
        low, high = self.interval_ms
        return (high - low) / 2 / self.median_ms if self.median_ms > 0 else math.inf
