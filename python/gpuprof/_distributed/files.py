"""The files of the ranks: what each says of its own, and the merge of those that can be read here.

The file of a rank that never closed it is what it has written so far, repaired. One that is not on
this host, or is another file of the same name, is left out and named. Nothing raises: a program
must not fail because its trace was not merged.
"""

from __future__ import annotations

import json
import socket
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gpuprof._common.records import Document
from gpuprof._common.units import duration
from gpuprof._trace.writer import TraceWriter
from gpuprof._trace_tools import tools
from gpuprof.errors import TraceError

CHECKED_BYTES = 64 << 10


@dataclass(frozen=True)
class FileState(Document):
    """What a rank says of its file; `size` and `check` tell it from another of the same name."""

    path: str = ""
    host: str = ""
    is_closed: bool = False
    size: int = -1
    check: int = 0
    error: str | None = None

    @classmethod
    def of(cls, writer: TraceWriter, *, is_closed: bool) -> FileState:
        size, check = _mark(Path(writer.path)) if is_closed else (-1, 0)
        return cls(writer.path, socket.gethostname(), is_closed, size, check, writer.error)

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()  # the path as it is, also where it is no text

    @classmethod
    def from_bytes(cls, raw: bytes) -> FileState:
        """Read what a rank said; where that is damaged, nothing is known of its file."""
        try:
            return cls.from_json(raw)
        except ValueError:
            return cls(error="what it said of its file is damaged")

    @classmethod
    def is_closed_in(cls, raw: bytes) -> bool:
        """Whether a rank says that it has closed its file, or nothing that can be read."""
        state = cls.from_bytes(raw)
        return state.is_closed or state.error is not None


def _mark(path: Path) -> tuple[int, int]:
    try:
        with path.open("rb") as file:
            return path.stat().st_size, zlib.crc32(file.read(CHECKED_BYTES))
    except OSError:
        return -1, 0


@dataclass(frozen=True)
class RankMerge:
    """What rank 0 has merged, and what it could not.

    `path` is None where nothing could be merged. `missing` has why a rank is not in it, `cut` how
    the file of a rank ends that never closed it. `clock_error_ms` is by how much the times of a
    rank may be off against rank 0's; None where its clock was not measured, and the wall clock
    counts.
    """

    path: str | None
    events: int = 0
    ranks: tuple[int, ...] = ()
    missing: dict[int, str] = field(default_factory=dict)
    cut: dict[int, str] = field(default_factory=dict)
    clock_error_ms: dict[int, float | None] = field(default_factory=dict)

    @property
    def problems(self) -> bool:
        """Whether a rank is missing or cut off, or its clock was not measured."""
        unmeasured = any(error is None for error in self.clock_error_ms.values())
        return self.path is None or bool(self.missing or self.cut) or unmeasured

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)

    def __str__(self) -> str:
        done = f"{self.path}: {self.events:,} events of {len(self.ranks):,} ranks"
        text = [done if self.path else "no trace was merged"]
        errors = [error for error in self.clock_error_ms.values() if error is not None]
        if len(errors) > 1:
            text.append(f"clocks measured to within {duration(max(errors))}")
        text += [f"rank {rank} is missing: {why}" for rank, why in sorted(self.missing.items())]
        text += [f"rank {rank} is cut off: {why}" for rank, why in sorted(self.cut.items())]
        text += [
            f"the clock of rank {rank} was not measured, so its wall clock counts"
            for rank, error in sorted(self.clock_error_ms.items())
            if error is None
        ]
        return "; ".join(text)


def merge_files(states: Mapping[int, FileState], members: Sequence[int], output: str) -> RankMerge:
    missing = {rank: "it said nothing of its file" for rank in members if rank not in states}
    cut: dict[int, str] = {}
    usable: dict[int, Path] = {}
    left_out: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for rank, state in sorted(states.items()):
            found, why = _file_of(state, Path(folder, f"rank{rank}.json"))
            if found is None:
                missing[rank] = why
                continue
            usable[rank] = found
            if why:
                cut[rank] = why
        try:
            done = tools.merge([*usable.values()], output, left_out=left_out)
        except (TraceError, OSError, ValueError) as error:
            unread = {rank: left_out.get(str(path), str(error)) for rank, path in usable.items()}
            return RankMerge(None, missing={**missing, **unread})
    for rank, path in list(usable.items()):
        if str(path) in left_out:
            del usable[rank]
            cut.pop(rank, None)
            missing[rank] = left_out[str(path)]
    errors = (source["clock_error_ms"] for source in done.inputs)
    clocks_by_rank = dict(zip(usable, errors, strict=True))
    return RankMerge(done.output, done.events, tuple(usable), missing, cut, clocks_by_rank)


def _file_of(state: FileState, target: Path) -> tuple[Path | None, str]:
    """Return the file of a rank, repaired into `target` if cut, and how; or None and why."""
    path, part = Path(state.path), Path(f"{state.path}.part")
    if state.is_closed and state.size >= 0 and _mark(path) == (state.size, state.check):
        return path, ""
    if state.error is not None:
        return None, state.error
    if state.is_closed:
        return None, f"its file is not here, but on {state.host}: {path}"
    if not part.exists():
        return None, f"it never closed its file, and there is no {part} on this host"
    try:
        done = tools.repair(part, target)
    except (TraceError, OSError) as error:
        return None, f"it never closed its file, and {part} cannot be repaired: {error}"
    return target, f"it never closed its file; {done.events:,} events were in {part}"
