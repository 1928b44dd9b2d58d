"""One scope on all ranks, and what each rank spent in collectives. Times are milliseconds."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from gpuprof._common.records import Plain

if TYPE_CHECKING:
    from gpuprof._distributed.wire import Measured
    from gpuprof._timing.rows import Names

COLLECTIVE = "collective/"  # begins the name of a scope around a collective


@dataclass(frozen=True, slots=True)
class RankTimes:
    """One scope on one rank, in milliseconds.

    `waiting_ms` is what one call of the scope spends in collectives inside it, on the scope's own
    clock, and `own_ms` the rest of its mean. `communication_ms` is how long one call has kernels
    of NCCL on the GPU, and `exposed_ms` how long that GPU does nothing else meanwhile; both are NaN
    where no `kernels` tell.
    """

    rank: int
    count: int
    total_ms: float
    mean_ms: float
    p50_ms: float
    min_ms: float
    max_ms: float
    waiting_ms: float
    communication_ms: float
    exposed_ms: float

    @property
    def own_ms(self) -> float:
        """The mean of one call less its waiting in collectives."""
        return self.mean_ms - self.waiting_ms


@dataclass(repr=False, eq=False)
class RankRow(Plain, Mapping[int, RankTimes]):
    """One scope on one clock, on all ranks that measured it: a mapping from ranks to times.

    `names` are the scopes of the path, outermost first, and `path` joins them by ``/``. The
    figures of the row are over ranks, each rank with the mean of one call.
    """

    names: Names
    clock: str
    _by_rank: dict[int, RankTimes] = field(default_factory=dict)

    _MEMBERS = (
        *("path", "names", "clock", "mean_ms", "p50_ms", "min_ms", "max_ms", "waiting_ms"),
        *("communication_ms", "exposed_ms", "slowest_rank", "imbalance", "by_rank"),
    )

    @property
    def path(self) -> str:
        """The names of the path, joined by ``/``."""
        return "/".join(self.names)

    def add(self, rank: int, row: Measured, waiting_ms: float) -> None:
        """Add a rank's row, and all it waited."""
        count, total, mean, p50, least, most = row.times
        waiting = min(waiting_ms / count, mean)
        on_gpu = row.communication_ms, row.exposed_ms
        self._by_rank[rank] = RankTimes(
            rank, int(count), total, mean, p50, least, most, waiting, *on_gpu
        )

    def _each(self, figure: str) -> list[float]:
        return [getattr(times, figure) for times in self._by_rank.values()]

    def _mean_of_known(self, figure: str) -> float:
        known = [value for value in self._each(figure) if not math.isnan(value)]
        return statistics.fmean(known) if known else math.nan

    @property
    def total_ms(self) -> float:
        """The total of all ranks."""
        return sum(self._each("total_ms"))

    def __getitem__(self, rank: int) -> RankTimes:
        return self._by_rank[rank]

    def __iter__(self) -> Iterator[int]:
        return iter(self._by_rank)

    def __len__(self) -> int:
        return len(self._by_rank)

    @property
    def name(self) -> str:
        """The last of the names."""
        return self.names[-1]

    @property
    def is_collective(self) -> bool:
        """Whether it is a collective, as `time_collectives` measures them."""
        return COLLECTIVE in self.name

    @property
    def mean_ms(self) -> float:
        """The mean over ranks."""
        return statistics.fmean(self._each("mean_ms"))

    @property
    def p50_ms(self) -> float:
        """The median over ranks, of each rank's median."""
        return statistics.median(self._each("p50_ms"))

    @property
    def min_ms(self) -> float:
        """The mean of the rank with the lowest."""
        return min(self._each("mean_ms"))

    @property
    def max_ms(self) -> float:
        """The mean of the rank with the highest."""
        return max(self._each("mean_ms"))

    @property
    def waiting_ms(self) -> float:
        """What one call spends in collectives inside it, the mean over ranks."""
        return statistics.fmean(self._each("waiting_ms"))

    @property
    def communication_ms(self) -> float:
        """How long one call has kernels of NCCL on the GPU, the mean over ranks that know it."""
        return self._mean_of_known("communication_ms")

    @property
    def exposed_ms(self) -> float:
        """How long of that the same GPU does nothing else, the mean over the same ranks."""
        return self._mean_of_known("exposed_ms")

    @property
    def slowest_rank(self) -> int:
        """The rank that the others wait for.

        It has the most time without its waiting in collectives; of a collective itself, the least
        time in it.
        """
        if self.is_collective:
            return min(self.values(), key=lambda times: times.mean_ms).rank
        return max(self.values(), key=lambda times: times.own_ms).rank

    @property
    def imbalance(self) -> float:
        """The slowest rank's time over the mean of all, both without waiting in collectives.

        1.0 is balanced. NaN for a collective.
        """
        if self.is_collective:
            return math.nan
        own = self._each("own_ms")
        mean = statistics.fmean(own)
        return max(own) / mean if mean > 0.0 else 1.0

    @property
    def by_rank(self) -> dict[str, list[float]]:
        """The figures of each rank, as lists in one order."""
        return {each.name: self._each(each.name) for each in fields(RankTimes)}

    def __repr__(self) -> str:
        return (
            f"<RankRow {self.path!r} ({self.clock}): {len(self)} ranks, mean {self.mean_ms:.4g} ms,"
            f" slowest rank {self.slowest_rank}>"
        )


def waiting_around(rows: Sequence[Measured]) -> Mapping[tuple[str, bool], float]:
    """Return what one rank spent in collectives inside each path, on the GPU's clock or the host's.

    By the text of the path, for what DistributedDataParallel runs on another thread is known by
    that only, and by whether the clock is the GPU's. In milliseconds.
    """
    found: dict[tuple[str, bool], float] = defaultdict(float)
    for row in rows:
        if COLLECTIVE not in row.names[-1]:
            continue
        text = "/".join(row.names)
        around = text[: text.rindex(COLLECTIVE)].rstrip("/")
        while around:
            found[around, True] += row.gpu_ms if row.clock == "cuda" else row.host_ms
            found[around, False] += row.host_ms
            around = around.rpartition("/")[0]
    return found
