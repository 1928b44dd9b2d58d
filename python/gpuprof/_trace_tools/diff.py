"""What got slower between two traces: `gpuprof.trace_diff` and ``gpuprof trace diff``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from gpuprof._common import checks
from gpuprof._trace_tools.diff_scan import KINDS, Contents, DiffScan, Figures
from gpuprof._trace_tools.files import shown
from gpuprof._trace_tools.idle import CAUSES
from gpuprof._trace_tools.results import DiffRow, IdleRow, TraceDiff
from gpuprof._trace_tools.tools import DEFAULT_TOP, cut_of, read
from gpuprof.errors import TraceError

By = Literal["scope", "kernel"]
GROUPINGS: Mapping[str, tuple[str, ...]] = {
    "scope": ("gpu", "launched", "host"),
    "kernel": ("kernel",),
}
MOST_NAMED = 10  # scopes in an error


def trace_diff(
    a: str | os.PathLike[str],
    b: str | os.PathLike[str],
    *,
    by: By | None = None,
    per: str | None = None,
    top: int = DEFAULT_TOP,
) -> TraceDiff:
    """Compare two traces: what takes longer in `b` than in `a`, by scope and by kernel.

    Reads traces of gpuprof and of ``torch.profiler``, compressed or not, each once and in pieces.

    Parameters
    ----------
    a : str or os.PathLike
        The file before. One that is cut off is compared as far as it goes.
    b : str or os.PathLike
        The file after.
    by : {'scope', 'kernel'}, optional
        Only these rows. None: both.
    per : str, optional
        The path of a scope that both traces have, such as ``"step"``: totals and counts are divided
        by the number of its calls, for traces of different length. None divides nothing.
    top : int
        How many rows of each kind, those with the largest changes.

    Returns
    -------
    TraceDiff

    Raises
    ------
    TraceError
        A file is no trace, or has neither scopes nor GPU work.
    ValueError
        An argument has none of the values listed above, or a trace has no scope `per`.
    TypeError
        An argument is of a wrong type.
    """
    if by is not None:
        checks.choice("by", by, GROUPINGS)
    checks.whole("top", top)
    (name_a, before, cut_a), (name_b, after, cut_b) = _read("A", Path(a)), _read("B", Path(b))
    calls = None if per is None else (_calls(before, per, name_a), _calls(after, per, name_b))
    kinds = KINDS if by is None else GROUPINGS[by]
    rows, hidden = _rows(before, after, kinds, calls or (1, 1), top)
    return TraceDiff(
        path_a=name_a,
        path_b=name_b,
        per=per,
        per_calls=calls,
        rows=rows,
        hidden=hidden,
        idle=_idle(before, after, calls or (1, 1)),
        notes=_notes(before, after, per),
        cut=[*cut_a, *cut_b],
    )


def _read(which: str, file: Path) -> tuple[str, Contents, list[str]]:
    """Return the name to show, what is in the file, and how it is cut off, if it is."""
    scan = DiffScan(which)
    damage = read(file, scan.read)
    found, name = scan.contents(), shown(file)
    if not any(found.rows.values()):
        message = (
            f"{name} has neither scopes nor GPU work, so there is nothing to compare; expected a "
            "trace of gpuprof, or of torch.profiler with CUDA activity or record_function"
        )
        raise TraceError(message)
    cut = cut_of(scan.end, damage)
    return name, found, [f"{which}: {cut}"] if cut else []


def _calls(found: Contents, per: str, name: str) -> int:
    for kind in ("host", "gpu"):
        if per in found.rows[kind]:
            return found.rows[kind][per].count
    scopes = list(dict.fromkeys([*found.rows["host"], *found.rows["gpu"]]))[:MOST_NAMED]
    expected = f"a scope of {name}, such as {', '.join(map(repr, scopes)) or '(it has none)'}"
    raise checks.value_error(per, "per", expected)


def _rows(
    before: Contents, after: Contents, kinds: tuple[str, ...], calls: tuple[int, int], top: int
) -> tuple[list[DiffRow], dict[str, int]]:
    """Return the rows that are shown, and how many of each kind are not."""
    rows, hidden = [], {}
    for kind in kinds:
        a, b = before.rows[kind], after.rows[kind]
        names = dict.fromkeys([*a, *b])
        found = [_row(kind, name, a.get(name), b.get(name), calls) for name in names]
        rows += sorted(found, key=lambda row: (-abs(row.change_ms), row.name))[:top]
        if len(found) > top:
            hidden[kind] = len(found) - top
    return rows, hidden


def _row(
    kind: str, name: str, a: Figures | None, b: Figures | None, calls: tuple[int, int]
) -> DiffRow:
    state = "both" if a and b else "new" if b else "gone"
    calls_a, total_a = (a or Figures()).per(calls[0])
    calls_b, total_b = (b or Figures()).per(calls[1])
    return DiffRow(kind, name or "(unnamed)", state, calls_a, calls_b, total_a, total_b)


def _idle(before: Contents, after: Contents, calls: tuple[int, int]) -> list[IdleRow]:
    if not (before.work and after.work):
        return []
    rows = [IdleRow("busy", 0, 0, before.busy / 1e6 / calls[0], after.busy / 1e6 / calls[1])]
    for cause in CAUSES:
        a, b = before.idle[cause], after.idle[cause]
        if a.count or b.count:
            (gaps_a, total_a), (gaps_b, total_b) = a.per(calls[0]), b.per(calls[1])
            rows.append(IdleRow(cause, gaps_a, gaps_b, total_a, total_b))
    return rows


def _notes(before: Contents, after: Contents, per: str | None) -> list[str]:
    notes = []
    for found in (before, after):
        if not found.work:
            notes.append(
                f"{found.which} has no kernels, so there is no idle time; gpuprof.kernels(), or "
                "torch.profiler with CUDA activity, writes them"
            )
        elif not found.launched:
            notes.append(f"{found.which} does not say when its kernels were launched")
        notes += [f"{found.which}: {note}" for note in found.notes]
    if before.rank != after.rank and None not in (before.rank, after.rank):
        notes.append(f"A is of rank {before.rank}, B of rank {after.rank}")
    if before.ranks != after.ranks:
        notes.append(
            f"A holds the traces of {before.ranks} processes, B of {after.ranks}: totals are of "
            "all of them together"
        )
    if before.devices != after.devices and before.work and after.work:
        notes.append(
            f"A has work on {before.devices} devices, B on {after.devices}: busy and idle time are "
            "of all of them together"
        )
    if per is None:
        notes += _unequal_calls(before, after)
    return notes


def _unequal_calls(before: Contents, after: Contents) -> list[str]:
    """Say that the traces are of different length, by the outermost scope that is called most."""
    for kind in ("host", "gpu"):
        a, b = before.rows[kind], after.rows[kind]
        outermost = [name for name in a if name in b and "/" not in name]
        if not outermost:
            continue
        name = max(outermost, key=lambda name: a[name].count)
        if a[name].count != b[name].count:
            calls = f"{a[name].count:,} times in A and {b[name].count:,} times in B"
            return [f"{name!r} ran {calls}: per={name!r} (--per) compares per call of it"]
        break
    return []
