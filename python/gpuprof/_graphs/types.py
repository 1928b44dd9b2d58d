"""The plain types of stream captures: modes, status, what is known of a capture."""

from __future__ import annotations

import html
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any, Literal, TypeAlias


class CaptureMode(IntEnum):
    """Which calls break a capture, and on which threads. The values are the driver's.

    ``GLOBAL`` forbids calls that might wait or change memory on every thread of the process,
    ``THREAD_LOCAL`` on the capturing thread, ``RELAXED`` nowhere; a relaxed capture may be ended on
    any thread.
    """

    GLOBAL = 0
    THREAD_LOCAL = 1
    RELAXED = 2


class CaptureStatus(IntEnum):
    """Whether a stream is being captured. The values are the driver's."""

    NONE = 0
    ACTIVE = 1
    INVALIDATED = 2

    def is_capturing(self) -> bool:
        """Return whether what the stream is given becomes part of a graph."""
        return self is CaptureStatus.ACTIVE

    def is_invalidated(self) -> bool:
        """Return whether the capture is broken and only waits for its end."""
        return self is CaptureStatus.INVALIDATED


CaptureModeLike: TypeAlias = "CaptureMode | Literal['global', 'thread_local', 'relaxed']"
TimersLike: TypeAlias = Literal["last", "collect", "strip"]


@dataclass(frozen=True)
class OpenCapture:
    """One open capture of this process that gpuprof began.

    Attributes
    ----------
    id : int
        The driver's number of it.
    stream : int
    mode : CaptureMode
    thread : int
        The thread that began it, as `threading.get_ident` counts.
    num_nodes : int or None
        How many nodes it had when last seen; None if nobody has looked.
    """

    id: int
    stream: int
    mode: CaptureMode
    thread: int
    num_nodes: int | None

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes as plain data."""
        return asdict(self) | {"mode": self.mode.name.lower()}

    def _repr_html_(self) -> str:
        return f"<code>{html.escape(repr(self))}</code>"


@dataclass(frozen=True)
class CaptureInfo:
    """What `capture_info` knows of a stream.

    Attributes
    ----------
    status : CaptureStatus
    id : int or None
        The driver's number of the capture; None unless it is active.
    num_nodes : int or None
        How many nodes it has by now; None unless it is active.
    open_captures : tuple of OpenCapture
        Every open capture of this process that gpuprof began, on whichever stream.
    """

    status: CaptureStatus
    id: int | None
    num_nodes: int | None
    open_captures: tuple[OpenCapture, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes as plain data."""
        return {
            "status": self.status.name.lower(),
            "id": self.id,
            "num_nodes": self.num_nodes,
            "open_captures": [capture.to_dict() for capture in self.open_captures],
        }

    def _repr_html_(self) -> str:
        return f"<code>{html.escape(repr(self))}</code>"
