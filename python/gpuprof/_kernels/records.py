"""What was collected, as columns: work of the GPU, and the host's calls that launched it.

Times are nanoseconds of the host's monotonic clock. A million records take 70 MB, and to evaluate
them takes as much again and more.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

Column: TypeAlias = "array[int]"

KERNEL, _COPY, _PEER_COPY, MEMSET = range(4)
KINDS = ("kernel", "memcpy", "memcpy", "memset")

_WORK = {  # kernels, copies and memsets, on the GPU
    "kind": "B",
    "name": "I",
    "begin_ns": "q",
    "end_ns": "q",
    "device": "I",
    "stream": "I",
    "correlation": "I",
    "graph_id": "I",
    "node_id": "Q",
    "nbytes": "Q",
}
# Calls of the CUDA runtime or driver, on the host.
_LAUNCHES = {"name": "I", "begin_ns": "q", "end_ns": "q", "thread_id": "I", "correlation": "I"}


class Columns:
    """Records of one kind, a column for each field, all of one length."""

    def __init__(self, codes: Mapping[str, str]) -> None:
        self._codes = codes
        for name, code in codes.items():
            setattr(self, name, array(code))

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Column: ...

    def __len__(self) -> int:
        return len(self.begin_ns)

    def extend(self, columns: Mapping[str, bytes]) -> None:
        """Add records whose columns are the bytes of arrays of the same types."""
        for name in self._codes:
            getattr(self, name).frombytes(columns[name])

    def sort(self) -> None:
        """Put the records in the order in which they began."""
        begins = self.begin_ns
        if all(map(int.__le__, begins, begins[1:])):
            return
        order = sorted(range(len(begins)), key=begins.__getitem__)
        for name, code in self._codes.items():
            column = getattr(self, name)
            column[:] = array(code, map(column.__getitem__, order))


@dataclass
class Collected:
    """All that was collected, in the order of time."""

    names: Sequence[str]
    work: Columns = field(default_factory=partial(Columns, _WORK))
    launches: Columns = field(default_factory=partial(Columns, _LAUNCHES))
    # How often and how many ns, by (kind, index of the name), also of what has no room in `work`.
    totals: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    dropped: int = 0
    until_ns: int = 0  # nobody knows when the GPU worked after that
    clock_error_ns: int = 0
    notes: list[str] = field(default_factory=list)

    def sort(self) -> None:
        self.work.sort()
        self.launches.sort()

    def streams(self) -> dict[tuple[int, int], list[int]]:
        """Return the records of each stream, by its device and its number."""
        found: dict[tuple[int, int], list[int]] = {}
        for record, key in enumerate(zip(self.work.device, self.work.stream, strict=True)):
            found.setdefault(key, []).append(record)
        return found

    def not_kept(self) -> dict[tuple[int, int], tuple[int, int]]:
        """Return the totals of the work that is not among the records."""
        left = dict(self.totals)
        work = self.work
        for kind, name, begin, end in zip(
            work.kind, work.name, work.begin_ns, work.end_ns, strict=True
        ):
            count, ns = left[kind, name]
            left[kind, name] = count - 1, ns - (end - begin)
        return {key: total for key, total in left.items() if total[0] > 0}
