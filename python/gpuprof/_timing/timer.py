"""`Timer`: an event pair that is set and read by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gpuprof._core as _core
from gpuprof._common.checks import not_pickled
from gpuprof._display.shown import ShownAsCode
from gpuprof._timing import backends

if TYPE_CHECKING:
    from typing_extensions import Self

    from gpuprof._timing.backends import BackendLike


class Timer(ShownAsCode):
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

    __module__ = "gpuprof"

    def __init__(self, backend: BackendLike = "auto", stream: object = None) -> None:
        try:
            clock = backends.resolve(backend)
        except ValueError:
            message = (
                f"unknown backend {backend!r}; did you mean gpuprof.timer({backend!r})? "
                f"Timer's first argument is a backend: {backends.NAMES}"
            )
            raise ValueError(message) from None
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

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        try:
            self.record_end()
        except Exception:
            if error is None:  # the body's exception always wins
                raise

    def __repr__(self) -> str:
        return repr(self._timer)

    __reduce__ = not_pickled(
        "a Timer holds CUDA events and cannot be pickled or copied; make a new one"
    )
