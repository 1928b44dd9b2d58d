"""`gpuprof.trace`: a trace of a block, of windows of steps, or of the last seconds."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, overload

from gpuprof._trace.writer import TraceWriter

if TYPE_CHECKING:
    from gpuprof._trace.flight_recorder import FlightRecorder
    from gpuprof._trace.window import TraceWindows


@overload
def trace(
    path: str | os.PathLike[str],
    *,
    args: Mapping[str, object] | None = None,
    buffer_mib: int | None = None,
) -> TraceWriter: ...
@overload
def trace(
    path: str | os.PathLike[str],
    *,
    schedule: tuple[int, int, int, int],
    args: Mapping[str, object] | None = None,
    buffer_mib: int | None = None,
) -> TraceWindows: ...
@overload
def trace(
    path: str | os.PathLike[str],
    *,
    keep_last: str | float,
    keep_bytes: int | None = None,
    dump_on: int | Iterable[int] | None = None,
    when: Mapping[str, float] | None = None,
    max_dumps: int | None = None,
    args: Mapping[str, object] | None = None,
    buffer_mib: int | None = None,
) -> FlightRecorder: ...
@overload
def trace(
    path: str | os.PathLike[str],
    *,
    keep_last: None = None,
    keep_bytes: int,
    dump_on: int | Iterable[int] | None = None,
    when: Mapping[str, float] | None = None,
    max_dumps: int | None = None,
    args: Mapping[str, object] | None = None,
    buffer_mib: int | None = None,
) -> FlightRecorder: ...
def trace(
    path: str | os.PathLike[str],
    *,
    schedule: tuple[int, int, int, int] | None = None,
    keep_last: str | float | None = None,
    keep_bytes: int | None = None,
    dump_on: int | Iterable[int] | None = None,
    when: Mapping[str, float] | None = None,
    max_dumps: int | None = None,
    args: Mapping[str, object] | None = None,
    buffer_mib: int | None = None,
) -> TraceWriter | TraceWindows:
    """Write a trace of all that gpuprof sees, until the block is left.

    Timer scopes and annotations appear on the track of their thread, and timer scopes also on a
    track for each stream, at the time when the GPU ran them. Traces may overlap.

    With `schedule` it writes a file for each of some windows of steps. With `keep_last` or
    `keep_bytes` it keeps the newest events in memory, and writes them when something happens.

    Parameters
    ----------
    path : str or os.PathLike
        Where to write, as for `TraceWriter`; of several files ``%n`` is the number, which without
        it is put before the suffix.
    schedule : tuple of int, optional
        (wait, warm, active, repeat), as for `TraceWindows`.
    keep_last : str or float, optional
        How far a `FlightRecorder` reaches back: "30s", "500ms", "2min", or a number of seconds.
    keep_bytes : int, optional
        How many bytes its events may take; None is 64 MiB.
    dump_on : int or iterable of int, optional
        Signals that have it write them.
    when : Mapping[str, float], optional
        Limits in milliseconds, by the path or the name of a scope, that have it write them.
    max_dumps : int, optional
        How many files it writes at most; None is 10.
    args : Mapping, optional
        Plain data to keep in the file, as for `TraceWriter`.
    buffer_mib : int, optional
        How many MiB of events may wait to be written, as for `TraceWriter`.

    Returns
    -------
    TraceWriter, TraceWindows or FlightRecorder
        A context manager, also for ``async with``, that begins and closes it; its
        `~TraceWriter.start` does so too. Used again, it writes another file. A `TraceWriter` is a
        decorator as well: each call of the function is such a use, so the second call writes
        ``step.2.json``.

    Raises
    ------
    TypeError, ValueError, TraceError
        As for these three; a TypeError where arguments of two of them are given.

    Examples
    --------
    >>> import gpuprof, os, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with gpuprof.trace(os.path.join(folder.name, "step.json.gz")) as writer:
    ...     with gpuprof.timer("step"):
    ...         pass
    >>> writer.stats()["events"]
    1
    >>> folder.cleanup()
    """
    of_recorder = {"dump_on": dump_on, "when": when, "max_dumps": max_dumps}
    is_recorder = keep_last is not None or keep_bytes is not None
    if schedule is not None and is_recorder:
        message = "schedule: expected it alone, got keep_last= or keep_bytes= too; use two traces"
        raise TypeError(message)
    if not is_recorder:
        for name, value in of_recorder.items():
            if value is not None:
                message = f"{name}: expected keep_last= or keep_bytes= with it, got neither"
                raise TypeError(message)
    if schedule is not None:
        from gpuprof._trace.window import TraceWindows

        return TraceWindows(path, schedule, args=args, buffer_mib=buffer_mib)
    if not is_recorder:
        return TraceWriter(path, collect=True, args=args, buffer_mib=buffer_mib)

    from gpuprof._trace.flight_recorder import FlightRecorder

    return FlightRecorder(
        path,
        keep_last=keep_last,
        keep_bytes=keep_bytes,
        dump_on=dump_on,
        when=when,
        max_dumps=max_dumps,
        args=args,
        buffer_mib=buffer_mib,
    )
