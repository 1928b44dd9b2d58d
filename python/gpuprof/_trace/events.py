"""Events for every trace that is open, besides those of scopes and annotations."""

from __future__ import annotations

import gpuprof._core as _core
from gpuprof._common import checks
from gpuprof._trace.checks import checked_span, series


class Counter:
    """A number, or several, over time: a track of its own in every trace that is open.

    Parameters
    ----------
    name : str
        What the track is called.
    """

    __module__ = "gpuprof"

    def __init__(self, name: str) -> None:
        self._name = checks.text("name", name, empty=False)

    @property
    def name(self) -> str:
        """What the track is called."""
        return self._name

    def set(self, value: float | None = None, /, **series_of: float) -> None:
        """Set the value from now on, or one for each keyword."""
        if (value is None) != bool(series_of):
            message = "expected one number, or keywords: set(3), set(alloc=1, reserved=2)"
            raise TypeError(message)
        values = series(series_of if value is None else value)
        if values and _core._trace_records():
            now = _core._host_now()
            _core._trace_event("counter", 0, self._name, None, now, now, 0, values)

    def __repr__(self) -> str:
        return f"gpuprof.counter({self._name!r})"


def counter(name: str) -> Counter:
    """Return the counter of a name: a number, or several, over time, in every open trace.

    Parameters
    ----------
    name : str
        What its track is called.

    Returns
    -------
    Counter

    Raises
    ------
    TypeError, ValueError
        `name` is not a text, or is empty.

    Examples
    --------
    >>> queue = counter("queue")
    >>> queue.set(3)
    >>> queue.set(running=8, waiting=2)
    """
    return Counter(name)


def trace_span(
    name: str, duration_ms: float, *, cat: str | None = None, tid: int | None = None
) -> None:
    """Write a slice as `gpuprof.trace_span` does, which calls it for arguments of unusual types."""
    event = checked_span(name, duration_ms, None, cat, tid)
    if _core._trace_records():
        _core._trace_event("slice", 0, *event, None)


def name_stream(stream: object, name: str, device: int | None = None) -> None:
    """Give a CUDA stream a name in traces and, where NVTX is on, in tools.

    Parameters
    ----------
    stream : int or object
        As for `gpuprof.timer`.
    name : str
        What its tracks are called.
    device : int, optional
        The stream's device; None is the current one.

    Raises
    ------
    TypeError, ValueError
        `stream` is no stream, or `name` not a text.
    InvalidStateError
        The stream is being captured.
    """
    ordinal = max(_core.cuda_device(), 0) if device is None else device
    handle = _core.stream_handle(stream)
    text = checks.text("name", name, empty=False)
    _core._name_stream(ordinal, handle, text)
