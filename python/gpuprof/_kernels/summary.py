"""From records to figures: idle times of streams, sums by scope and by kernel.

Why a stream was idle is the rule of `gpuprof._trace_tools.idle`.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from gpuprof._kernels.attribution import Attribution
from gpuprof._kernels.collector import KERNEL, KINDS, MEMSET, Collected, Column
from gpuprof._kernels.rows import KernelRecord, KernelRow, KernelTotal
from gpuprof._trace_tools import idle as rule

_NS = 1e-6  # milliseconds
Path = tuple[str, ...]
# By number; 0 is for work that followed without a gap, or that is the first of its stream.
CAUSES = ("", *rule.CAUSES)
HOST_BOUND = CAUSES.index("host_bound")
# The fields of a `KernelRow` that are added up, idle times by cause after `gpu_ms`.
_SUMS = (
    *("kernels", "copies", "memsets", "gpu_ms", *(f"{cause}_ms" for cause in CAUSES[1:])),
    *("communication_ms", "exposed_ms"),
)


def idle(found: Collected, launch: Column) -> tuple[Column, Column, Column]:
    """Return for each record how long its stream was idle before it, and the cause's number.

    The third says how much of it was host-bound where the cause is that of the rest.
    `launch` has the index of each record's launch, or -1.
    """
    work, launches = found.work, found.launches

    def given(record: int) -> rule.Work:
        call, at = launch[record], None
        if call >= 0:
            name = found.names[launches.name[call]]
            at = rule.launched_at(name, launches.begin_ns[call], launches.end_ns[call])
        return work.begin_ns[record], work.end_ns[record], work.correlation[record], at

    length, late = array("q", [0]) * len(work), array("q", [0]) * len(work)
    causes = array("B", [0]) * len(work)
    for records in found.streams().values():
        for gap in rule.gaps(map(given, records)):
            record = records[gap.place]
            late[record] = length[record]  # a gap of two causes comes as two, host-bound first
            length[record] += int(gap.ns)
            causes[record] = CAUSES.index(gap.cause)
    return length, causes, late


def communication(found: Collected) -> tuple[Column, Column]:
    """Return for each record how long it communicates, and how long nothing else runs meanwhile.

    Both are nanoseconds, and 0 for what is no kernel of NCCL. Where several such kernels run at
    once on one device, the time counts for the one that began first. A collective costs only what
    no other work of its GPU hides; waits for it are events between streams and no calls.
    """
    work = found.work
    is_nccl = ["nccl" in name.lower() for name in found.names]
    took, exposed = array("q", [0]) * len(work), array("q", [0]) * len(work)
    changes: dict[int, list[int]] = {}  # by device, each as a time, a record and whether it ends
    if any(is_nccl):
        times = zip(work.device, work.begin_ns, work.end_ns, strict=True)
        for record, (device, begin, end) in enumerate(times):
            number = record << 1
            changes.setdefault(device, []).extend((begin << 32 | number, end << 32 | number | 1))
    for of_device in changes.values():
        collectives: dict[int, None] = {}  # that run, in the order of their begins
        others = before = 0
        for change in sorted(of_device):
            at, record = change >> 32, (change & 0xFFFFFFFF) >> 1
            for first in islice(collectives, 1):
                took[first] += at - before
                exposed[first] += 0 if others else at - before
            before = at
            if work.kind[record] != KERNEL or not is_nccl[work.name[record]]:
                others += -1 if change & 1 else 1
            elif change & 1:
                del collectives[record]
            else:
                collectives[record] = None
    return took, exposed


class Evaluated:
    """All records with their scopes and what was idle before them."""

    def __init__(self, found: Collected, attribution: Attribution) -> None:
        self.found, self.attribution = found, attribution
        self.gaps, self.causes, self.late = idle(found, attribution.launch)
        self.callers: Sequence[str] = ()  # of launches, and last of work without one

    def rows(self, entries: Mapping[Path, int]) -> list[KernelRow]:
        """Return a row for each scope and those around it, in the order of their paths.

        `entries` says how often each scope was entered.
        """
        sums = self._sums()
        whole = sum(ns for _, ns in self.found.totals.values())
        inclusive: dict[Path, list[int]] = {}
        for path, own in sums.items():
            for depth in range(min(1, len(path)), len(path) + 1):
                total = inclusive.setdefault(path[:depth], [0] * len(own))
                total[:] = [a + b for a, b in zip(total, own, strict=True)]
        order = {path: place for place, path in enumerate(inclusive)}

        def place(path: Path) -> tuple[bool, list[int]]:
            # As a tree, those side by side by when their first work began.
            return not path, [order[path[:depth]] for depth in range(1, len(path) + 1)]

        rows = []
        for path in sorted(inclusive, key=place):
            own = inclusive[path]
            sums_ms: list[Any] = [*own[:3], *(ns * _NS for ns in own[3:])]
            rows.append(
                KernelRow(
                    path,
                    sum(own[:3]),
                    **dict(zip(_SUMS, sums_ms, strict=True)),
                    self_ms=sums[path][3] * _NS if path in sums else 0.0,
                    share=own[3] / whole if whole else 0.0,
                    entries=entries.get(path, 0),
                    module=self.attribution.modules.get(path, ""),
                )
            )
        return rows

    def _sums(self) -> dict[Path, list[int]]:
        """Return the `_SUMS` of each path, in nanoseconds."""
        work, paths = self.found.work, self.attribution.paths
        sums: dict[int, list[int]] = defaultdict(lambda: [0] * len(_SUMS))
        for kind, begin, end, path, gap, cause, late, took, exposed in zip(
            work.kind,
            work.begin_ns,
            work.end_ns,
            self.attribution.path,
            self.gaps,
            self.causes,
            self.late,
            *communication(self.found),
            strict=True,
        ):
            own = sums[path]
            own[0 if kind == KERNEL else 2 if kind == MEMSET else 1] += 1
            own[3] += end - begin
            if cause:
                own[3 + cause] += gap - late
                own[3 + HOST_BOUND] += late
            own[8] += took
            own[9] += exposed
        return {paths[number]: own for number, own in sums.items()}

    def caller(self, number: int) -> str:
        return self.callers[self.attribution.launch[number]] if self.callers else ""

    def totals(self, scope: Path | None, *, by_caller: bool = False) -> list[KernelTotal]:
        """Return the work of a scope and below by name, or by caller; None is all work."""
        found, work = self.found, self.found.work
        of: tuple[Sequence[int], Sequence[int]] = (work.kind, work.name)
        kinds, names = [*KINDS], [*found.names]
        if by_caller:
            texts: dict[str, int] = {}
            lines = [texts.setdefault(self.caller(each), len(texts)) for each in range(len(work))]
            of, kinds, names = ([0] * len(work), lines), ["caller"], [*texts]
        inside = bytearray(
            scope is None or (path[: len(scope)] == scope and (bool(scope) or not path))
            for path in self.attribution.paths
        )
        sums: dict[tuple[int, int], tuple[int, ...]] = {}
        times = zip(work.begin_ns, work.end_ns, work.nbytes, self.attribution.path, strict=True)
        for key, (begin, end, nbytes, path) in zip(zip(*of, strict=True), times, strict=True):
            if inside[path]:
                took = end - begin
                count, ns, low, high, size = sums.get(key, (0, 0, took, took, 0))
                sums[key] = (count + 1, ns + took, min(low, took), max(high, took), size + nbytes)
        if scope is None and not by_caller:
            for key, (count, ns) in found.not_kept().items():
                kept, kept_ns, *rest = sums.get(key, (0, 0, 0, 0, 0))
                sums[key] = (kept + count, kept_ns + ns, *rest)
        whole = sum(total[1] for total in sums.values())
        totals = [
            KernelTotal(
                names[name],
                kinds[kind],
                count,
                total_ms=ns * _NS,
                min_ms=low * _NS,
                max_ms=high * _NS,
                share=ns / whole if whole else 0.0,
                nbytes=size,
            )
            for (kind, name), (count, ns, low, high, size) in sums.items()
        ]
        return sorted(totals, key=lambda each: (-each.total_ms, each.name))

    def notes(self, max_records: int, lost_spans: int) -> list[str]:
        """Return what is missing or uncertain, as sentences."""
        found, by = self.found, self.attribution
        notes = list(found.notes)
        if found.dropped:
            notes.append(
                f"{found.dropped:,} pieces of work past max_records={max_records:,} are counted by "
                "name alone: see by_kernel()"
            )
        # Those of a module alone are in no scope, either.
        outside = [".".join(path) == by.modules.get(path, "") for path in by.paths]
        unscoped = sum(outside[path] for path in by.path)
        if unscoped:
            notes.append(f"{unscoped:,} of {len(by.path):,} were launched in no scope")
        if by.without_launch:
            notes.append(f"{by.without_launch:,} have no known launch, so no scope")
        if by.in_graph:
            notes.append(
                f"{by.in_graph:,} ran in replays of graphs, {by.labelled:,} of them under scopes "
                "of the capture"
            )
        if lost_spans:
            notes.append(
                f"{lost_spans:,} entries of scopes were lost, so their work is in the scopes around"
            )
        return notes

    def record(self, number: int) -> KernelRecord:
        found, work, by = self.found, self.found.work, self.attribution
        launch, launches = by.launch[number], self.found.launches
        has_call = launch >= 0
        origin = by.origins[by.origin[number]]
        is_late = 2 * self.late[number] > self.gaps[number]
        return KernelRecord(
            name=found.names[work.name[number]],
            kind=KINDS[work.kind[number]],
            scope=by.paths[by.path[number]],
            begin_ns=work.begin_ns[number],
            end_ns=work.end_ns[number],
            device=work.device[number],
            stream=work.stream[number],
            launch=found.names[launches.name[launch]] if has_call else "",
            launched_ns=launches.begin_ns[launch] if has_call else 0,
            launch_end_ns=launches.end_ns[launch] if has_call else 0,
            thread_id=launches.thread_id[launch] if has_call else 0,
            correlation=work.correlation[number],
            graph_id=work.graph_id[number],
            node_id=work.node_id[number],
            nbytes=work.nbytes[number],
            idle_ns=self.gaps[number],
            idle_cause=CAUSES[HOST_BOUND if is_late else self.causes[number]],
            caller=self.caller(number),
            module=origin.module,
            line=origin.line,
        )


def scope_names(scope: object, rows: Sequence[KernelRow]) -> Path | None:
    """Return the names of a scope, given by its path or names, None for all; or a KeyError."""
    if scope is None:
        return None
    for row in rows:
        if scope in (row.path, row.names):
            return row.names
    known = ", ".join(repr(row.path) for row in rows[:8]) or "none"
    message = f"scope: {scope!r} launched nothing; there are {known}"
    raise KeyError(message)
