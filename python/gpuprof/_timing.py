"""Scopes, timers and statistics: the Python side of `gpuprof._core`."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from gpuprof import _backends, _core, _stats, _torch_compile
from gpuprof._decorate import decorate, name_of
from gpuprof._text import clean_text

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from gpuprof._backends import BackendLike

_IN_CAPTURE = ("auto", "record", "skip")

_torch_compile.prepare()
if os.environ.get("GPUPROF_TRACE_OUT") and not _core._is_set("GPUPROF_DISABLE"):
    from gpuprof import _trace_open

    _core._trace_wanted(True)  # opened by the first event
    _trace_open.close_at_exit()


def make_scope(
    name: str | Callable[..., Any] | None = None,
    *,
    stream: object = None,
    backend: BackendLike = "auto",
    enabled: bool | None = None,
    verify_stream: bool = False,
    in_capture: Literal["auto", "record", "skip"] = "auto",
    **unknown: object,
) -> Any:
    """Do what `gpuprof.timer` does where its arguments are not the usual ones.

    Parameters, returns and raises as `gpuprof.timer`; a function as `name` is decorated.
    """
    for option in unknown:
        hint = "; a scope never waits, reading sample.ms does" if "sync" in option.lower() else ""
        message = f"timer() got an unexpected keyword argument {option!r}{hint}"
        raise TypeError(message)
    if callable(name) or isinstance(name, (staticmethod, classmethod)):
        scope = _core.timer(
            name_of(name),
            stream=stream,
            backend=backend,
            enabled=enabled,
            verify_stream=verify_stream,
            in_capture=in_capture,
        )
        return decorate(scope, name)
    text = _clean_name(name)
    _check_options(enabled, verify_stream, in_capture)
    return _core.Scope(
        text,
        stream=stream,
        backend=_backends.resolve(backend),
        enabled=enabled,
        verify_stream=verify_stream,
        record_in_capture=in_capture == "record",
    )


make_scope.__qualname__ = "timer"  # what a TypeError of its call says


def remake_scope(name: str | None, options: Mapping[str, Any]) -> _core.Scope:
    """Make a scope again from what its pickle holds."""
    scope: _core.Scope = _core.timer(name, **options)
    return scope


def _clean_name(name: object) -> str | None:
    if name is None:
        return None
    if not isinstance(name, str):
        message = (
            f"name: expected a str, None, or a function to decorate, got {type(name).__name__}; "
            "write gpuprof.timer('name')"
        )
        raise TypeError(message)
    if not name:
        message = "name: expected a non-empty str, got ''; leave it out for an unnamed scope"
        raise ValueError(message)
    return clean_text(name)


def _check_options(enabled: object, verify_stream: object, in_capture: object) -> None:
    if enabled is not None and not isinstance(enabled, bool):
        message = f"enabled: expected True, False or None, got {enabled!r}"
        raise TypeError(message)
    if not isinstance(verify_stream, bool):
        message = f"verify_stream: expected True or False, got {verify_stream!r}"
        raise TypeError(message)
    if in_capture not in _IN_CAPTURE:
        message = f"in_capture: expected one of {_IN_CAPTURE}, got {in_capture!r}"
        raise ValueError(message)


class Timer:
    """An event pair that you set and read yourself, reusable in a hot loop.

    Parameters
    ----------
    backend : {'auto', 'cuda', 'cpu', 'metal'} or SyncBackend
        The clock, as for `gpuprof.timer`; `'auto'` is decided at construction.
    stream : int or object, optional
        The stream of `record_start`; None is the framework's current one at each start.

    Raises
    ------
    CudaUnavailableError
        ``backend='cuda'`` without a usable driver and device.

    Notes
    -----
    A timer may move between threads, but two threads may not use it at once. One event pair is
    taken at the first start and kept until `close`.

    Examples
    --------
    >>> t = Timer("cpu")
    >>> t.record_start()
    >>> t.record_end()
    >>> t.elapsed_ms() >= 0.0
    True
    """

    def __init__(self, backend: BackendLike = "auto", stream: object = None) -> None:
        try:
            clock = _backends.resolve(backend)
        except ValueError as error:
            if isinstance(backend, str):
                message = (
                    f"unknown backend {backend!r}; did you mean gpuprof.timer({backend!r})? "
                    f"Timer's first argument is a backend: {_backends.NAMES}"
                )
                raise ValueError(message) from None
            raise error
        self._timer = _core.Timer(clock, stream)

    def record_start(self, stream: object = None) -> None:
        """Set the start mark and forget the end mark.

        Parameters
        ----------
        stream : int or object, optional
            None is the timer's own stream, and if it has none the framework's current one.

        Raises
        ------
        InvalidStateError
            The timer is closed.
        CudaError
            The driver refused the record.
        """
        self._timer.record_start(stream)

    def record_end(self, stream: object = None) -> None:
        """Set the end mark.

        Parameters
        ----------
        stream : int or object, optional
            None is the start's stream. Another stream of the same device times from the one to the
            other, and should wait for the work of the start's stream: without that the end may come
            first on the GPU, and the time is negative.

        Raises
        ------
        InvalidStateError
            There is no start, or the timer is closed.
        ValueError
            A stream of another device or context than the start's.
        CudaError
            The driver refused the record.
        """
        self._timer.record_end(stream)

    def elapsed_ms(self) -> float:
        """Return the milliseconds between the marks, waiting for the GPU.

        Returns
        -------
        float
            0.0 while a mark is missing; `ready` tells that apart from a measured zero.

        Raises
        ------
        CudaError
            The driver failed.
        NotReplayedError
            The marks are in a graph that has not run yet.
        """
        return self._timer.elapsed_ms()

    @property
    def ready(self) -> bool:
        """Whether `elapsed_ms` would return a measurement at once."""
        return self._timer.ready

    @property
    def streams(self) -> tuple[int, ...]:
        """The handles of the streams of the start and of the end, as far as they are set.

        Two that differ show a span from one stream to another. Empty on other clocks than CUDA's.
        """
        return self._timer.streams

    @property
    def clock(self) -> str:
        """What measures: ``'cuda'``, ``'cpu'``, ``'metal'`` or a backend's name."""
        return self._timer.clock

    def close(self) -> None:
        """Give the events back; idempotent, never raises."""
        self._timer.close()

    def __enter__(self) -> Self:
        self.record_start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.record_end()
        except Exception:
            if error is None:  # the body's exception always wins
                raise

    def __repr__(self) -> str:
        return repr(self._timer)

    def _repr_html_(self) -> str:
        from html import escape

        return f"<code>{escape(repr(self))}</code>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        message = "a Timer holds CUDA events and cannot be pickled or copied; make a new one"
        raise TypeError(message)


def stats(wait: bool = True) -> _stats.Stats:
    """Return what the scopes have measured, a row for each path and clock.

    Parameters
    ----------
    wait : bool
        First wait for what was pending at the call. False never waits.

    Returns
    -------
    Stats
        A mapping from paths to rows; its ``repr`` is a table.
    """
    return _stats.Stats.from_snapshot(_core.stats_snapshot(bool(wait)))


def flush() -> None:
    """Wait for what is pending now and add it to the statistics."""
    _core.flush()


def reset() -> None:
    """Forget all statistics; samples entered earlier never count after it."""
    _core.reset_stats()
    _stats.note_reset()


def enable() -> None:
    """Let scopes measure again, also those made earlier. ``GPUPROF_DISABLE=1`` wins over it."""
    _core.set_enabled(True)


def disable() -> None:
    """Make all scopes that were not made with ``enabled=True`` measure nothing."""
    _core.set_enabled(False)


@dataclass(frozen=True)
class Calibration:
    """What an empty interval reads on a device.

    Attributes
    ----------
    device : int
        The device's index.
    tick_ns : float
        The step of the GPU's event clock: the greatest common divisor of all readings.
    idle_ns : float
        Median of an event pair with nothing between, on an idle stream.
    queued_ns : float or None
        The same recorded while the stream is held back; None where the device cannot.
    pairs : int
        How many pairs were read for each figure.
    method : str
        How it was measured, in words.
    """

    device: int
    tick_ns: float
    idle_ns: float
    queued_ns: float | None
    pairs: int
    method: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)

    def _repr_html_(self) -> str:
        from html import escape

        return f"<code>{escape(repr(self))}</code>"


def calibrate(device: int | None = None) -> Calibration:
    """Measure the tick of the GPU's clock and what an empty interval reads.

    Parameters
    ----------
    device : int, optional
        The device's index; None is the current one, else device 0.

    Returns
    -------
    Calibration
        In nanoseconds.

    Raises
    ------
    CudaUnavailableError
        There is no usable driver or device.
    CudaError
        The driver failed.
    """
    if device is not None and (isinstance(device, bool) or not isinstance(device, int)):
        message = f"device: expected an int or None, got {device!r}"
        raise TypeError(message)
    if device is not None and device < 0:
        message = f"device: expected an index from 0, got {device}"
        raise ValueError(message)
    found = _core.calibrate(max(_core.cuda_device(), 0) if device is None else device)
    queued = None if math.isnan(found["queued_ns"]) else found["queued_ns"]
    gate = "no gate on this device" if queued is None else "behind a closed cuStreamWaitValue32"
    return Calibration(
        device=found["device"],
        tick_ns=found["tick_ns"],
        idle_ns=found["idle_ns"],
        queued_ns=queued,
        pairs=found["pairs"],
        method=(
            f"{found['pairs']} event pairs with nothing between on a non-blocking stream of their "
            f"own, one by one (idle) and all at once (queued, {gate}); medians; the tick is the "
            "greatest common divisor of all readings"
        ),
    )
