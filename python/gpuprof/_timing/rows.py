"""What was measured of one path on one clock, as plain data. Times are milliseconds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from gpuprof._common.records import Record, in_results

if TYPE_CHECKING:
    from gpuprof._timing.memory import MemoryUse
    from gpuprof._timing.work import Work

HOST_BOUND_RATIO = 0.9

TIMES = ("total_ms", "mean_ms", "min_ms", "p50_ms", "p90_ms", "p99_ms", "max_ms", "first_ms")

Names: TypeAlias = tuple[str, ...]
Bins: TypeAlias = tuple[tuple[int, int], ...]


@in_results
@dataclass(frozen=True, slots=True)
class Summary(Record):
    """What a series of times adds up to, in milliseconds.

    With a `count` of 0, `total_ms` is 0 and the rest is NaN. `first_ms` is the first sample, which
    usually pays for compilation and lazy loading; the other figures include it.

    `bins`, of ``gpuprof.stats(bins=True)``, is how the samples are distributed: pairs of a bin and
    its count, the lowest first. Bin b begins at ``2 ** (b // 64 - 30) * (1 + b % 64 / 64)``
    milliseconds and ends where the next one begins. None where that was not asked for.

    Where `gpuprof.set_budget` let visits of the scope pass unmeasured, `count` has them and
    `left_out` says how many they are. All other figures are then estimates from those that were
    measured, each of which counts as often as visits stand behind it: the total is within
    `total_margin_ms` of the true one in 95 of 100 cases, NaN where too few were measured to tell.
    `min_ms`, `max_ms` and `first_ms` are of the measured ones, as is a row's `memory`.
    """

    count: int
    total_ms: float
    mean_ms: float
    min_ms: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float
    first_ms: float
    bins: Bins | None = field(default=None, repr=False)
    left_out: int = field(default=0, repr=False)
    total_margin_ms: float = field(default=0.0, repr=False)

    _MEMBERS = ("count", *TIMES)  # and the bins, and what was left out, where there are any
    _NEWER = frozenset({"bins", "left_out", "total_margin_ms"})

    @property
    def measured(self) -> int:
        """How many of `count` were measured."""
        return self.count - self.left_out

    @property
    def one_in(self) -> float:
        """How many visits there were for each one that was measured."""
        return self.count / self.measured if self.measured else math.nan

    @classmethod
    def _read(cls, where: str, data: object) -> Summary:
        if data is None or (isinstance(data, Mapping) and data.get("count") == 0):
            return EMPTY
        return super(Summary, cls)._read(where, data)

    def to_dict(self) -> dict[str, Any]:
        """Return the plain form, with None for what is not a finite number."""
        found = super(Summary, self).to_dict()
        if self.bins is not None:
            found["bins"] = [[*each] for each in self.bins]
        if self.left_out:
            found["left_out"] = self.left_out
            margin = self.total_margin_ms
            found["total_margin_ms"] = margin if math.isfinite(margin) else None
        return found

    def _member(self) -> Any:
        return self.to_dict() if self.count else None

    def __reduce__(self) -> tuple[Any, ...]:
        # One object for all that are empty: its NaNs are equal to nothing but themselves.
        return super(Summary, self).__reduce__() if self.count else (Summary.from_dict, (None,))


COUNTS = ("dropped", "pending", "failed", "skipped")
_NO_TIMES: list[Any] = [math.nan] * 7
EMPTY = Summary(0, 0.0, *_NO_TIMES)


@in_results
@dataclass(frozen=True, slots=True)
class Row(Record):
    """The samples of one path on one clock.

    `names` are the scopes of the path, outermost first; `path` is for people and joins them by
    ``/``. A ``/`` in a name is part of it. Without `names` they are what `path` has between its
    slashes.

    On clocks that are not the GPU's, `gpu` is empty: its count is 0. `dropped` samples found no
    room to wait for their result, `pending` ones have none yet, `failed` ones were left by an
    exception or lost to the driver, and `skipped` ones ran inside a capture, or were left out by a
    budget where none has a time yet; none of these is in the summaries.

    `work` is what samples were told of their work, with `flops=` and `nbytes=`, and `memory` what
    the allocators did in scopes with `memory=True`; None where there is none.
    """

    path: str
    clock: str
    gpu: Summary
    host: Summary
    dropped: int = 0
    pending: int = 0
    failed: int = 0
    skipped: int = 0
    names: Names = ()
    work: Work | None = None
    memory: MemoryUse | None = None

    def __post_init__(self) -> None:
        for which in ("gpu", "host"):
            if getattr(self, which) is None:
                object.__setattr__(self, which, EMPTY)
        if not self.names:
            object.__setattr__(self, "names", tuple(self.path.split("/")))

    @property
    def name(self) -> str:
        """The last of the names."""
        return self.names[-1]

    @property
    def depth(self) -> int:
        """How many names stand before the last."""
        return len(self.names) - 1

    @property
    def parent(self) -> str | None:
        """The names before the last, joined by ``/``; None at the root."""
        return "/".join(self.names[:-1]) or None

    @property
    def time(self) -> Summary:
        """GPU time where this clock has it, else host time."""
        return self.gpu if self.on_gpu else self.host

    @property
    def on_gpu(self) -> bool:
        """Whether the clock is the GPU's."""
        return self.clock == "cuda"

    @property
    def host_bound(self) -> bool:
        """Whether the host's p50 is at least 90 % of the GPU's.

        The host then needs about as long to queue the work as the GPU to do it, so that a faster
        kernel may not make the program faster.
        """
        return self.host.p50_ms >= HOST_BOUND_RATIO * self.gpu.p50_ms  # False beside a NaN

    _MEMBERS = ("path", "names", "clock", *COUNTS, "host_bound", ...)
    _NEWER = frozenset({"names", "work", "memory"})

    @classmethod
    def _names(cls) -> dict[str, Any]:
        # Imported where there are any: the first scope of a program imports this module.
        from gpuprof._timing.memory import MemoryUse
        from gpuprof._timing.work import Work

        return {"MemoryUse": MemoryUse, "Work": Work}
