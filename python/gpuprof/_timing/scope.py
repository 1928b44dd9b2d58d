"""Scopes, timers and statistics: the Python side of `gpuprof._core`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import gpuprof._core as _core
from gpuprof._common import checks
from gpuprof._common.labels import labelled
from gpuprof._common.text import clean_text
from gpuprof._frameworks.torch import note_reset, torch_memory
from gpuprof._timing import backends
from gpuprof._timing.decorate import decorate, name_of
from gpuprof._timing.stats import Stats, counted_rows

if TYPE_CHECKING:
    from gpuprof._timing.backends import BackendLike

_IN_CAPTURE = ("auto", "record", "skip")


def make_scope(
    name: str | Callable[..., Any] | None = None,
    *,
    stream: object = None,
    backend: BackendLike = "auto",
    enabled: bool | None = None,
    verify_stream: bool = False,
    in_capture: Literal["auto", "record", "skip"] = "auto",
    memory: bool = False,
    flops: float | None = None,
    nbytes: float | None = None,
    labels: Mapping[str, str | float] | None = None,
    **unknown: object,
) -> Any:
    """Do what `gpuprof.timer` does where its arguments are not the usual ones, decorating too."""
    for option in unknown:
        hint = "; a scope never waits, reading sample.ms does" if "sync" in option.lower() else ""
        message = f"timer() got an unexpected keyword argument {option!r}{hint}"
        raise TypeError(message)
    decorates = callable(name) or isinstance(name, (staticmethod, classmethod))
    text = _clean_name(name_of(name) if decorates else name)
    if labels is not None:
        if text is None:
            message = "labels: a scope without a name is not counted and takes none"
            raise ValueError(message)
        text = labelled(text, labels)
    if enabled is not None and not isinstance(enabled, bool):
        raise checks.type_error(enabled, "enabled", "True, False or None")
    checks.flag("verify_stream", verify_stream)
    checks.flag("memory", memory)
    checks.choice("in_capture", in_capture, _IN_CAPTURE)
    scope = _core.Scope(
        text,
        stream=stream,
        backend=backends.resolve(backend),
        enabled=enabled,
        verify_stream=verify_stream,
        record_in_capture=in_capture == "record",
        memory=memory,
        flops=flops,
        nbytes=nbytes,
    )
    return decorate(scope, name) if decorates else scope


make_scope.__qualname__ = "timer"  # what a TypeError of its call says


def remake_scope(name: str | None, options: Mapping[str, Any]) -> _core.Scope:
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


def stats(wait: bool = True, *, bins: bool = False) -> Stats:
    """Return what the scopes have measured, a row for each path and clock.

    Parameters
    ----------
    wait : bool
        First wait for what was pending at the call. False never waits.
    bins : bool
        Also keep how the times are distributed, so that `Stats.merge` can tell quantiles of
        several processes: some 1 KB for each row.

    Returns
    -------
    Stats
        A mapping from paths to rows; its ``repr`` is a table.
    """
    found = _core.stats_snapshot(bool(wait), bool(bins))
    rows = tuple(counted_rows(found["rows"]))
    return Stats(rows, dropped=int(found["dropped"]), memory=torch_memory())


def flush() -> None:
    """Wait for what is pending now and add it to the statistics."""
    _core.flush()


def reset() -> None:
    """Forget all statistics; samples entered earlier never count after it."""
    _core.reset_stats()
    note_reset()


def set_budget(share: float | None) -> None:
    """Let measuring take at most this share of the time: scopes are then measured 1 visit in k.

    gpuprof knows what a scope costs the host and the GPU, and adapts k to each path and to the
    load, once a second and at once where a path becomes hot. Which visits are measured is random,
    so that nothing aliases with a period of the program. The first 16 visits of a path always are,
    and within a visit that stands for k all are that it can pay. `stats` counts every visit exactly
    and estimates the rest, saying "1 in k".

    It is about named scopes outside of `capture` blocks. Those without a name, with
    ``enabled=True``, ``verify_stream=True`` or ``in_capture="record"``, and `Timer` objects always
    measure.

    Parameters
    ----------
    share : float or None
        Such as 0.01 for 1 %; above 0 and at most 1. None measures every visit again.
        ``GPUPROF_BUDGET=1%`` sets it from outside.

    Raises
    ------
    TypeError, ValueError
        `share` is no number, or out of range.

    Examples
    --------
    >>> import gpuprof
    >>> gpuprof.set_budget(0.01)
    >>> for _ in range(100):
    ...     with gpuprof.timer("within the budget", backend="cpu"):
    ...         pass
    >>> gpuprof.stats()["within the budget"].host.count
    100
    >>> gpuprof.set_budget(None)
    """
    if share is not None:
        share = checks.number("share", share, 0.0, 1.0, above=True)
    _core._set_budget(share)


def enable() -> None:
    """Let scopes measure again, also those made earlier. ``GPUPROF_DISABLE=1`` wins over it."""
    _core.set_enabled(True)


def disable() -> None:
    """Make all scopes that were not made with ``enabled=True`` measure nothing."""
    _core.set_enabled(False)
