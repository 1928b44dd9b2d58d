"""Traces: what the program did, when, as a file that Perfetto opens."""

from __future__ import annotations

import atexit
import math
import os
import sys
import threading
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from gpuprof import _core, _trace_path

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

_MAX_TID = 2**32 - 1

# The traces that are open, also those inherited from a parent that was forked.
_open: dict[int, TraceWriter] = {}
_lock = threading.Lock()


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=3)


class TraceWriter:
    """A trace file that is being written: Chrome trace JSON, as Perfetto and Chrome read it.

    While it is open it is ``PATH.part``, which can be loaded at any moment; `close` makes it
    ``PATH``. It takes the events that its methods are given, and with ``collect=True`` all that
    gpuprof sees: timer scopes, annotations, marks, counters. Failures to write are one warning,
    and end the trace, not the program; `error` says why.

    Parameters
    ----------
    path : str or os.PathLike
        Where to write; compressed if it ends in ``.gz``. ``%p`` is replaced by the process, ``%h``
        by the host's name, ``%r`` by the rank, ``%q{VAR}`` by an environment variable. A path that
        another open trace has gets the process's number before its suffix, and so does the file of
        a forked child.
    collect : bool
        Whether to take what scopes and annotations of the whole process do.
    args : Mapping, optional
        Plain data to keep in the file, of the run as a whole; a few hundred bytes.

    Raises
    ------
    TypeError, ValueError
        `path` is no path, or has an unknown pattern.

    Notes
    -----
    Times are nanoseconds of ``time.monotonic_ns()``. All methods may be called from any thread.
    A writer that is never closed is closed when the interpreter exits.

    Examples
    --------
    >>> import gpuprof, os, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "run.json")
    >>> with gpuprof.TraceWriter(path) as writer:
    ...     writer.push("load", "io", dur_ms=1.5)
    >>> os.listdir(folder.name)
    ['run.json']
    >>> folder.cleanup()
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        collect: bool = False,
        args: Mapping[str, object] | None = None,
    ) -> None:
        self._pattern = _checked_path(path)
        self._collect = bool(collect)
        self._args = dict(args or {})
        self._closed = False
        self._number = 0
        self._last_state: dict[str, Any] | None = None
        self._start(_trace_path.expand(self._pattern))

    def _start(self, path: str) -> None:
        self._process = os.getpid()
        self._path = path
        try:
            descriptor, self._path = _trace_path.claim(path)
        except OSError as error:
            self._fail(f"gpuprof: cannot write the trace {path}: {error.strerror or error}")
            return
        self._number = _core._trace_open(
            descriptor,
            where=f"{self._path}.part",
            collects=self._collect,
            process=_process_name(),
            rank=_trace_path.rank(),
            world_size=_trace_path.world_size(),
            args=self._args,
        )
        _remember(self)
        if self._collect:
            _core._trace_wanted(True)
            _name_threads()

    def _fail(self, message: str) -> None:
        self._number = 0
        self._last_state = {**_core._trace_state(0), "error": message.removeprefix("gpuprof: ")}
        _warn(f"{message}; the program goes on without it")

    def _current(self) -> int:
        """Return the number of the open trace; in a forked child that of a file of its own."""
        if self._process != os.getpid() and not self._closed:
            _reopen(self)
        if self._closed:
            from gpuprof.errors import InvalidStateError

            message = f"the trace {self._path} is closed; make a new TraceWriter"
            raise InvalidStateError(message)
        return self._number

    @property
    def path(self) -> str:
        """Where the trace is, or will be once it is closed."""
        return self._path

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    @property
    def error(self) -> str | None:
        """Why nothing is written any more, or None."""
        error: str | None = self.stats()["error"]
        return error

    def stats(self) -> dict[str, Any]:
        """Return how the writing goes.

        Returns
        -------
        dict
            ``open``, ``error``, ``events``, ``dropped`` (found no room), ``unplaced`` (GPU spans
            that could not be put on the host's clock), ``bytes``, ``gpu_error_ns`` (how far a GPU
            slice may be off), ``writer_cpu_ns`` (what the writer thread has cost).
        """
        if self._last_state is not None:
            return dict(self._last_state)
        return dict(_core._trace_state(self._number if self._process == os.getpid() else 0))

    def push(self, name: str, cat: str, dur_ms: float, tid: int | None = None) -> None:
        """Write a slice that ends now.

        Parameters
        ----------
        name, cat : str
            What to show, and its category.
        dur_ms : float
            How long it took, in milliseconds.
        tid : int, optional
            The track: a thread's native id, or any number that is not one's. None and 0 are the
            calling thread.
        """
        duration = round(_checked_number("dur_ms", dur_ms) * 1e6)
        end = _core._host_now()
        self._slice(name, cat, end - duration, end, tid=tid)

    def complete(
        self,
        name: str,
        begin_ns: int,
        dur_ns: int,
        *,
        cat: str | None = None,
        tid: int | None = None,
        args: Mapping[str, object] | None = None,
    ) -> None:
        """Write a slice with given times.

        Parameters
        ----------
        name : str
            What to show.
        begin_ns, dur_ns : int
            When it began, by ``time.monotonic_ns()``, and how long it took.
        cat : str, optional
            Its category.
        tid : int, optional
            As for `push`.
        args : Mapping, optional
            Plain data to show with it.
        """
        begin = _checked_time("begin_ns", begin_ns)
        duration = _checked_time("dur_ns", dur_ns)
        self._slice(name, cat, begin, begin + duration, tid=tid, args=args)

    def _slice(
        self,
        name: str,
        cat: str | None,
        begin: int,
        end: int,
        *,
        tid: int | None,
        args: Mapping[str, object] | None = None,
    ) -> None:
        _core._trace_slice(
            self._current(),
            _checked_text("name", name),
            _checked_category(cat),
            begin,
            end,
            _checked_tid(tid),
            _checked_args(args),
        )

    def instant(
        self,
        name: str,
        *,
        cat: str | None = None,
        tid: int | None = None,
        at_ns: int | None = None,
        args: Mapping[str, object] | None = None,
    ) -> None:
        """Write a moment; parameters as for `complete`, and `at_ns` None is now."""
        _core._trace_instant(
            self._current(),
            _checked_text("name", name),
            _checked_category(cat),
            _moment(at_ns),
            _checked_tid(tid),
            _checked_args(args),
        )

    def counter(
        self, name: str, values: float | Mapping[str, float], *, at_ns: int | None = None
    ) -> None:
        """Write the value of a counter, or of its several series, from now or `at_ns` on."""
        _core._trace_counter(
            self._current(), _checked_text("name", name), _moment(at_ns), _series(values)
        )

    def flow(
        self,
        phase: Literal["start", "step", "end"],
        id: int,
        name: str = "flow",
        *,
        cat: str | None = None,
        tid: int | None = None,
        at_ns: int | None = None,
    ) -> None:
        """Write one end of an arrow between slices.

        Parameters
        ----------
        phase : {'start', 'step', 'end'}
            An arrow goes from its start over its steps to its end, each inside a slice.
        id : int
            What joins them, from 0 to 2**40 - 1.
        name, cat, tid, at_ns
            As for `instant`; name and category must be the same at all ends.
        """
        if phase not in {"start", "step", "end"}:
            message = f"phase: expected 'start', 'step' or 'end', got {phase!r}"
            raise ValueError(message)
        if isinstance(id, bool) or not isinstance(id, int) or not 0 <= id < 2**40:
            message = f"id: expected an int from 0 to 2**40 - 1, got {id!r}"
            raise ValueError(message)
        _core._trace_flow(
            self._current(),
            phase,
            id,
            _checked_text("name", name),
            _checked_category(cat),
            _moment(at_ns),
            _checked_tid(tid),
        )

    def flush(self) -> None:
        """Wait until all that was given so far is in ``PATH.part``."""
        _core._trace_flush(self._current())

    def close(self) -> None:
        """Write what is left and make `path`; idempotent, never raises for the file's sake.

        A collecting trace first waits for the GPU time of the scopes that were left, so that they
        are in it.
        """
        if self._closed:
            return
        try:
            if self._collect and self._process == os.getpid():
                _name_threads()
                _flush_scopes()
        finally:
            self._closed = True
            self._finish()

    def _finish(self) -> None:
        _forget(self)
        if self._process != os.getpid() or self._number == 0:
            return  # a forked child that wrote nothing, or a trace that could not begin
        self._last_state = state = dict(_core._trace_close(self._number))
        if self._collect and not any(other._collect for other in list(_open.values())):
            _core._trace_wanted(False)
        if state["dropped"]:
            _warn(f"gpuprof: the trace {self._path} lacks {state['dropped']} events, no room")
        if state["error"] is not None:
            return  # the warning came with the failure
        try:
            _trace_path.complete(f"{self._path}.part", self._path)
        except OSError as error:
            state["error"] = f"{self._path}: {error.strerror or error}"
            _warn(
                f"gpuprof: cannot write the trace {state['error']}; "
                f"what there is stays in {self._path}.part"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{self.stats()['events']} events"
        return f"<gpuprof.TraceWriter {self._path!r}, {state}>"

    def _repr_html_(self) -> str:
        from html import escape

        return f"<code>{escape(repr(self))}</code>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        message = "a TraceWriter holds an open file and cannot be pickled or copied; make a new one"
        raise TypeError(message)


def trace(path: str | os.PathLike[str], *, args: Mapping[str, object] | None = None) -> TraceWriter:
    """Write a trace of all that gpuprof sees, until the block is left.

    Timer scopes and annotations appear on the track of their thread, and timer scopes also on a
    track for each stream, at the time when the GPU ran them. Traces may overlap.

    Parameters
    ----------
    path, args
        As for `TraceWriter`.

    Returns
    -------
    TraceWriter
        Open already; a context manager that closes it.

    Raises
    ------
    TypeError, ValueError
        As for `TraceWriter`.

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
    return TraceWriter(path, collect=True, args=args)


class Counter:
    """A number, or several, over time: a track of its own in every trace that is open.

    Parameters
    ----------
    name : str
        What the track is called.
    """

    def __init__(self, name: str) -> None:
        self._name = _checked_text("name", name)

    @property
    def name(self) -> str:
        """What the track is called."""
        return self._name

    def set(self, value: float | None = None, /, **series: float) -> None:
        """Set the value from now on, or one for each keyword."""
        if (value is None) != bool(series):
            message = (
                "expected one number, or keywords: set(3), set(alloc=1, reserved=2)"
            )
            raise TypeError(message)
        values = _series(series if value is None else value)
        if _core._trace_records():
            _core._trace_counter(0, self._name, _core._host_now(), values)

    def __repr__(self) -> str:
        return f"gpuprof.counter({self._name!r})"


def counter(name: str) -> Counter:
    """Return the counter of a name; see `Counter`."""
    return Counter(name)


def record_span(name: str, cat: str, dur_ms: float, tid: int | None) -> None:
    """Write a slice that ends now to every collecting trace."""
    end = _core._host_now()
    _core._trace_slice(
        0,
        _checked_text("name", name),
        _checked_category(cat),
        end - round(_checked_number("dur_ms", dur_ms) * 1e6),
        end,
        _checked_tid(tid),
        None,
    )


def name_stream(stream: object, name: str, device: int | None = None) -> None:
    """Give a CUDA stream a name in traces.

    Parameters
    ----------
    stream : int or object
        As for `gpuprof.timer`.
    name : str
        What its tracks are called.
    device : int, optional
        The stream's device; None is the current one.
    """
    ordinal = max(_core.cuda_device(), 0) if device is None else device
    _core._trace_name_stream(ordinal, _core.stream_handle(stream), _checked_text("name", name))


def open_as_wanted() -> None:
    """Open the trace of GPUPROF_TRACE_OUT, and in a forked child those of its parent."""
    for writer in list(_open.values()):
        if writer._process != os.getpid():
            _reopen(writer)
    _open_from_environment()


_environment_opened = False


def _open_from_environment() -> None:
    global _environment_opened  # noqa: PLW0603
    path = os.environ.get("GPUPROF_TRACE_OUT", "")
    if _environment_opened or not path:
        return
    _environment_opened = True
    try:
        TraceWriter(path, collect=True)
    except ValueError as error:
        _warn(f"gpuprof: GPUPROF_TRACE_OUT was ignored: {error}")


def _reopen(writer: TraceWriter) -> None:
    """Give a writer that a forked child has from its parent a file of the child's own."""
    path = _trace_path.expand(writer._pattern)
    if path == writer._path or "%p" not in writer._pattern:
        path = _trace_path.with_process(path)
    _forget(writer)
    writer._last_state = None
    writer._start(path)


def _remember(writer: TraceWriter) -> None:
    with _lock:
        if not _open:
            atexit.unregister(_close_all)
            atexit.register(_close_all)
        _open[writer._number] = writer
    util = sys.modules.get("multiprocessing.util")
    if util is not None and writer._process != _main_process:
        # A child of multiprocessing leaves without the exit handlers.
        util.Finalize(None, _close_all, exitpriority=-100)


_main_process = os.getpid()


def _forget(writer: TraceWriter) -> None:
    with _lock:
        for number, other in list(_open.items()):
            if other is writer:
                del _open[number]


def _close_all() -> None:
    for writer in list(_open.values()):
        if writer._process == os.getpid():
            writer.close()


def _flush_scopes() -> None:
    from gpuprof.errors import GpuprofError

    try:
        _core.flush()
    except GpuprofError:  # a driver that is gone: the host's part of the trace is still good
        return


def _name_threads() -> None:
    for thread in threading.enumerate():
        if thread.native_id is not None:
            _core._trace_name_thread(thread.native_id, thread.name)


def name_this_thread() -> None:
    """Give the calling thread's track the name that `threading` has for it."""
    own = threading.get_native_id()
    for thread in threading.enumerate():
        if thread.native_id == own:
            _core._trace_name_thread(own, thread.name)


def _process_name() -> str:
    script = sys.argv[0] if sys.argv and sys.argv[0] not in {"", "-c", "-m"} else ""
    return os.path.basename(script) or "python"  # noqa: PTH119


def _checked_path(path: object) -> str:
    try:
        text = os.fspath(path)  # type: ignore[call-overload]
    except TypeError:
        message = f"path: expected a str or os.PathLike, got {type(path).__name__}"
        raise TypeError(message) from None
    if not isinstance(text, str):
        message = f"path: expected a str, got {type(text).__name__}; decode it with os.fsdecode"
        raise TypeError(message)
    return text


def _checked_text(what: str, text: object) -> str:
    if not isinstance(text, str):
        message = f"{what}: expected a str, got {type(text).__name__}"
        raise TypeError(message)
    if not text:
        message = f"{what}: expected a non-empty str, got ''"
        raise ValueError(message)
    return text


def _checked_category(cat: object) -> str | None:
    return None if cat is None or cat == "" else _checked_text("cat", cat)


def _checked_number(what: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        message = f"{what}: expected a number, got {value!r}"
        raise TypeError(message)
    if not 0 <= value < 1e15:  # also not NaN
        message = f"{what}: expected a number from 0 to 1e15, got {value!r}"
        raise ValueError(message)
    return float(value)


def _checked_time(what: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        message = f"{what}: expected nanoseconds as an int, got {value!r}"
        raise TypeError(message)
    if not 0 <= value < 2**62:
        message = f"{what}: expected nanoseconds from 0 to 2**62 - 1, got {value!r}"
        raise ValueError(message)
    return value


def _moment(at_ns: int | None) -> int:
    return _core._host_now() if at_ns is None else _checked_time("at_ns", at_ns)


def _checked_tid(tid: object) -> int:
    if tid is None:
        return 0
    if isinstance(tid, bool) or not isinstance(tid, int):
        message = f"tid: expected an int or None, got {tid!r}"
        raise TypeError(message)
    if not 0 <= tid <= _MAX_TID:
        message = (
            f"tid: expected 0 to 2**32 - 1, got {tid}; the kernel's number of a thread is "
            "threading.get_native_id(), not get_ident()"
        )
        raise ValueError(message)
    return tid


def _checked_args(args: object) -> dict[str, object] | None:
    if args is None or isinstance(args, dict):
        return args
    if isinstance(args, Mapping):
        return dict(args)
    message = f"args: expected a mapping or None, got {type(args).__name__}"
    raise TypeError(message)


def _series(values: object) -> dict[str, object]:
    if isinstance(values, Mapping):
        if not values:
            message = "values: expected at least one series, got an empty mapping"
            raise ValueError(message)
        return {str(name): number for name, number in values.items() if _is_finite(number)}
    return {"value": values} if _is_finite(values) else {}


def _is_finite(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        message = f"values: expected numbers, got {value!r}"
        raise TypeError(message)
    return math.isfinite(value)
