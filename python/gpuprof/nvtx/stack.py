"""Ranges that one call pushes and another pops, and names of threads, for tools."""

from __future__ import annotations

import threading
import warnings
from collections import defaultdict
from typing import Any

import gpuprof._core as _core
from gpuprof._common import checks


class _Pushed(threading.local):
    """What this thread has pushed and not popped, by domain."""

    def __init__(self) -> None:
        self.of: defaultdict[str | None, list[_core.Annotation]] = defaultdict(list)


_pushed = _Pushed()
_warnings: list[str] = []  # what was said, once in a process


def push(
    name: str,
    *,
    color: str | int | None = None,
    category: str | None = None,
    payload: Any = None,
    domain: str | None = None,
    args: dict[str, Any] | None = None,
) -> int:
    """Open a range on this thread; `pop` closes it.

    Where a ``with`` block or a decorator can be used, `gpuprof.annotate` is better: it closes the
    range also where an exception leaves the block. Both may be mixed.

    Parameters
    ----------
    name : str
        What tools show, as for `gpuprof.annotate`, like the rest.
    color : str or int, optional
        For NVTX.
    category : str, optional
        A group of ranges.
    payload : int, float or array, optional
        One number beside the name, or several.
    domain : str, optional
        The NVTX domain; None is ``'gpuprof'``, ``''`` the one of ranges that name none.
    args : dict, optional
        More values for traces.

    Returns
    -------
    int
        How many ranges this thread had pushed in the domain before: 0 for the outermost.

    Raises
    ------
    TypeError, ValueError
        An argument is not what `gpuprof.annotate` takes.
    """
    checks.text("name", name)
    if color is None and category is None and payload is None and domain is None and args is None:
        annotation = _core.annotate(name)  # one object for each name
    else:
        annotation = _core.annotate(
            name, color=color, category=category, payload=payload, domain=domain, args=args
        )
    annotation.__enter__()
    ranges = _pushed.of[domain]
    ranges.append(annotation)
    return len(ranges) - 1


def pop(domain: str | None = None) -> int:
    """Close the range that this thread pushed last in a domain.

    Parameters
    ----------
    domain : str, optional
        As for `push`.

    Returns
    -------
    int
        What the `push` of that range returned; -1, with one warning per process, where this thread
        has pushed none.
    """
    ranges = _pushed.of[domain]
    if ranges:
        ranges.pop().__exit__(None, None, None)
        return len(ranges)
    if not _warnings:
        message = (
            f"gpuprof: pop() was called on a thread that has no pushed range in the domain "
            f"{'gpuprof' if domain is None else domain!r}; call push() first, on the same thread"
        )
        _warnings.append(message)
        warnings.warn(message, RuntimeWarning, stacklevel=2)
    return -1


def name_thread(name: str, tid: int | None = None) -> None:
    """Give a thread a name in tools. Does nothing while NVTX is off.

    Parameters
    ----------
    name : str
        What the thread is called.
    tid : int, optional
        The kernel's number of the thread (`threading.get_native_id`); None is the calling thread.

    Raises
    ------
    TypeError, ValueError
        `name` is not a non-empty str, or `tid` no number of a thread.
    """
    checks.text("name", name, empty=False)
    number = threading.get_native_id() if tid is None else tid
    checks.whole("tid", number, 0, (1 << 32) - 1)
    _core.nvtx_name_thread(number, name)
