"""Probes: the explicit form of a timer, for engines that switch it by a flag."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gpuprof._core as _core
from gpuprof._common import checks
from gpuprof._timing import timer as timing_timer

if TYPE_CHECKING:
    from gpuprof._timing.backends import BackendLike


def start_probe_timer_if(
    enabled: bool, stream: object = None, backend: BackendLike = "auto"
) -> timing_timer.Timer | None:
    """Start a timer if `enabled`.

    Parameters
    ----------
    enabled : bool
        False gives None, which `finish_probe_timer` takes too.
    stream : int or object, optional
        As for `gpuprof.timer`.
    backend : {'auto', 'cuda', 'cpu', 'metal'} or SyncBackend
        As for `gpuprof.timer`.

    Returns
    -------
    Timer or None
        None also under ``GPUPROF_DISABLE=1`` and after `gpuprof.disable`.

    Raises
    ------
    CudaUnavailableError
        ``backend='cuda'`` without a usable driver and device.
    CudaError
        The driver refused the record.
    """
    if not enabled or not _core.is_enabled():
        return None
    timer = timing_timer.Timer(backend, stream)
    timer.record_start()
    return timer


def finish_probe_timer(timer: timing_timer.Timer | None, stream: object = None) -> float | None:
    """Stop a probe, wait for it and close it.

    Parameters
    ----------
    timer : Timer or None
        What `start_probe_timer_if` returned.
    stream : int or object, optional
        As for `Timer.record_end`: None is the start's stream.

    Returns
    -------
    float or None
        Microseconds; None for None.

    Raises
    ------
    TypeError
        `timer` is neither a Timer nor None.
    CudaError
        The driver failed.
    """
    if timer is None:
        return None
    given: object = timer
    if not isinstance(given, timing_timer.Timer):
        expected = "what start_probe_timer_if returned, a Timer or None"
        raise checks.type_error(given, "timer", expected)
    try:
        timer.record_end(stream)
        return timer.elapsed_ms() * 1000.0
    finally:
        timer.close()


def finish_probe_timer_traced(
    timer: timing_timer.Timer | None, name: str, cat: str, tid: int | None, stream: object = None
) -> float | None:
    """Stop a probe as `finish_probe_timer` does, and write what it read to the open traces.

    Parameters
    ----------
    timer : Timer or None
        What `start_probe_timer_if` returned.
    name : str
        The slice's name; it ends now and is as long as the probe read.
    cat : str
        Its category.
    tid : int or None
        The slice's track: a thread's native id or any number below 2**28; None and 0 are the
        calling thread.
    stream : int or object, optional
        As for `finish_probe_timer`.

    Returns
    -------
    float or None
        Microseconds; None for None.

    Raises
    ------
    TypeError, ValueError
        An argument is not what is listed above.
    CudaError
        The driver failed.
    """
    microseconds = finish_probe_timer(timer, stream)
    if microseconds is not None and _core._trace_records():
        _core.trace_span(name, microseconds / 1000.0, cat=cat, tid=tid)
    return microseconds
