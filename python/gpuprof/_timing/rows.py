"""What was measured of one path on one clock, as plain data. Times are milliseconds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeAlias

from gpuprof._common.text import output_text

if TYPE_CHECKING:
    from gpuprof._timing.memory import MemoryUse
    from gpuprof._timing.work import Work

HOST_BOUND_RATIO = 0.9

TIMES = ("total", "mean", "min", "p50", "p90", "p99", "max", "first")

Names: TypeAlias = tuple[str, ...]
Bins: TypeAlias = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """What a series of times adds up to, in milliseconds.

    With a `count` of 0, `total` is 0 and the rest is NaN. `first` is the first sample, which
    usually pays for compilation and lazy loading; the other figures include it.

    `bins`, of ``gpuprof.stats(bins=True)``, is how the samples are distributed: pairs of a bin and
    its count, the lowest first. Bin b begins at ``2 ** (b // 64 - 30) * (1 + b % 64 / 64)``
    milliseconds and ends where the next one begins. None where that was not asked for.
    """

    __module__ = "gpuprof"

    count: int
    total: float
    mean: float
    min: float
    p50: float
    p90: float
    p99: float
    max: float
    first: float
    bins: Bins | None = field(default=None, repr=False)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Summary:
        """Build one from its plain form; None stands for a figure that does not exist."""
        count = int(data["count"])
        if count == 0:
            return EMPTY
        rest: list[Any] = [math.nan if data[name] is None else float(data[name]) for name in TIMES]
        if data.get("bins") is not None:
            rest.append(tuple((int(place), int(number)) for place, number in data["bins"]))
        return cls(count, *rest)

    def to_dict(self) -> dict[str, Any]:
        """Return the plain form, with None for what is not a finite number."""
        values = ((name, getattr(self, name)) for name in TIMES)
        times = {name: value if math.isfinite(value) else None for name, value in values}
        bins = {} if self.bins is None else {"bins": [[*each] for each in self.bins]}
        return {"count": self.count, **times, **bins}

    def __reduce__(self) -> tuple[Any, ...]:
        times = (getattr(self, name) for name in TIMES)
        return _summary, (self.count, *times, *([] if self.bins is None else [self.bins]))


def _summary(count: int, *rest: Any) -> Summary:
    # One object for all that are empty: its NaNs are equal to nothing but themselves.
    return Summary(count, *rest) if count else EMPTY


_COUNTS = ("dropped", "pending", "failed", "skipped")
_NO_TIMES: list[Any] = [math.nan] * 7
EMPTY = Summary(0, 0.0, *_NO_TIMES)


@dataclass(frozen=True, slots=True)
class Row:
    """The samples of one path on one clock.

    `names` are the scopes of the path, outermost first; `path` is for people and joins them by
    ``/``. A ``/`` in a name is part of it. Without `names` they are what `path` has between its
    slashes.

    On clocks that are not the GPU's, `gpu` is empty: its count is 0. `dropped` samples found no
    room to wait for their result, `pending` ones have none yet, `failed` ones were left by an
    exception or lost to the driver, and `skipped` ones ran inside a capture; none of these is in
    the summaries.

    `work` is what samples were told of their work, with `flops=` and `nbytes=`, and `memory` what
    the allocators did in scopes with `memory=True`; None where there is none.
    """

    __module__ = "gpuprof"

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
        return self.host.p50 >= HOST_BOUND_RATIO * self.gpu.p50  # False beside a NaN

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Row:
        """Build one from its plain form."""
        gpu, host = (
            EMPTY if data[which] is None else Summary.from_dict(data[which])
            for which in ("gpu", "host")
        )
        counts = {which: int(data[which]) for which in _COUNTS}
        names = tuple(map(str, data.get("names", ())))
        work, memory = _details(data.get("work"), data.get("memory"))
        path, clock = str(data["path"]), str(data["clock"])
        return cls(path, clock, gpu, host, **counts, names=names, work=work, memory=memory)

    def to_dict(self) -> dict[str, Any]:
        """Return the plain form; None for a summary without samples."""
        return {
            "path": output_text(self.path),
            "names": list(map(output_text, self.names)),
            "clock": output_text(self.clock),
            "dropped": self.dropped,
            "pending": self.pending,
            "failed": self.failed,
            "skipped": self.skipped,
            "host_bound": self.host_bound,
            "gpu": self.gpu.to_dict() if self.gpu.count else None,
            "host": self.host.to_dict() if self.host.count else None,
            "work": self.work.to_dict() if self.work else None,
            "memory": self.memory.to_dict() if self.memory else None,
        }


def _details(work: Any, memory: Any) -> tuple[Work | None, MemoryUse | None]:
    """Build both from their plain forms. They are imported where there are any."""
    if work is not None:
        from gpuprof._timing.work import Work

        work = Work.from_dict(work)
    if memory is not None:
        from gpuprof._timing.memory import MemoryUse

        memory = MemoryUse.from_dict(memory)
    return work, memory


def _restore(self: Row, state: list[Any]) -> None:
    """Fill a row from a pickle, which an older gpuprof may have made without the last fields."""
    for index, each in enumerate(fields(Row)):
        value = state[index] if index < len(state) else each.default
        object.__setattr__(self, each.name, value)


# A dataclass with slots makes its own, also over one in its body on Python 3.10.
Row.__setstate__ = _restore  # type: ignore[attr-defined]
