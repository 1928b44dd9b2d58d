"""The plain types of captures and graphs, and checks of the arguments that they share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, TypeAlias

from gpuprof._common import checks
from gpuprof._common.records import Plain, in_results
from gpuprof._display.shown import ShownAsCode


class CaptureMode(IntEnum):
    """Which calls break a capture, and on which threads. The values are the driver's.

    ``GLOBAL`` forbids calls that might wait or change memory on every thread of the process,
    ``THREAD_LOCAL`` on the capturing thread, ``RELAXED`` nowhere; a relaxed capture may be ended on
    any thread.
    """

    __module__ = "gpuprof"

    GLOBAL = 0
    THREAD_LOCAL = 1
    RELAXED = 2


class CaptureStatus(IntEnum):
    """Whether a stream is being captured. The values are the driver's."""

    __module__ = "gpuprof"

    NONE = 0
    ACTIVE = 1
    INVALIDATED = 2

    def is_capturing(self) -> bool:
        """Return whether work that is queued on the stream becomes part of a graph."""
        return self is CaptureStatus.ACTIVE

    def is_invalidated(self) -> bool:
        """Return whether the capture is broken and can only be ended."""
        return self is CaptureStatus.INVALIDATED


CaptureModeLike: TypeAlias = "CaptureMode | Literal['global', 'thread_local', 'relaxed']"
TimersLike: TypeAlias = Literal["last", "collect", "strip"]

BACKENDS = ("auto", "driver", "torch")
TIMERS = ("last", "collect", "strip")
COLLECT = TIMERS.index("collect")
_SHOWN = 80  # characters of a name in a text
_MODES = {mode.name.lower(): mode for mode in CaptureMode}


@in_results
@dataclass(frozen=True)
class OpenCapture(Plain, ShownAsCode):
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


@in_results
@dataclass(frozen=True)
class CaptureInfo(Plain, ShownAsCode):
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


@in_results
@dataclass(frozen=True)
class GraphMemory(Plain, ShownAsCode):
    """Device memory that a graph took, in bytes.

    Measured as the drop in the device's free memory. The driver allocates in chunks, so a small
    graph may show none; allocations of other threads and processes at that time are included.

    Attributes
    ----------
    instantiate : int or None
        Taken by the executable graph, found by making a second one; None where that cannot be
        found, as for a graph that allocates memory itself.
    upload : int or None
        Taken by `gpuprof.CapturedGraph.upload`; None where it was not called.
    """

    instantiate: int | None
    upload: int | None
    _MEMBERS = (..., "total")

    @property
    def total(self) -> int | None:
        """The sum of what is known; None if nothing is."""
        known = [size for size in (self.instantiate, self.upload) if size is not None]
        return sum(known) if known else None


def capture_mode(mode: object) -> CaptureMode:
    if isinstance(mode, CaptureMode):
        return mode
    found = _MODES.get(mode.lower()) if isinstance(mode, str) else None
    if found is None:
        wrong = checks.value_error if isinstance(mode, str) else checks.type_error
        raise wrong(mode, "mode", f"a CaptureMode or one of {', '.join(map(repr, _MODES))}")
    return found


def timers_number(timers: object) -> int:
    """Check a ``timers=`` argument and return `_core`'s number for it."""
    return TIMERS.index(checks.choice("timers", timers, TIMERS))


def graph_name(name: object) -> str | None:
    """Check a ``name=`` argument: None, or a non-empty str that can be written as UTF-8."""
    if name is None:
        return None
    found = checks.text("name", name, empty=False)
    try:
        found.encode()
    except UnicodeEncodeError as error:
        message = f"name: cannot be written as UTF-8: {error.reason} at character {error.start}"
        raise ValueError(message) from None
    return found


def shown(name: str) -> str:
    """Return a name as a text shows it: quoted, one line, cut if it is very long."""
    return repr(name if len(name) <= _SHOWN else name[: _SHOWN - 3] + "...")


def objects_to_keep(keep_alive: object) -> tuple[object, ...]:
    """Check a ``keep_alive=`` argument: objects in an iterable that is no array and no text."""
    kind = type(keep_alive)
    is_data = isinstance(keep_alive, (str, bytes, bytearray, memoryview)) or any(
        hasattr(kind, protocol)
        for protocol in ("__cuda_array_interface__", "__dlpack__", "__array_interface__")
    )
    if is_data or not isinstance(keep_alive, Iterable):
        expected = "an iterable of objects (for one object write [x])"
        raise checks.type_error(keep_alive, "keep_alive", expected)
    return tuple(keep_alive)
