"""A scope around each wait for the next batch of a torch DataLoader.

The iterators of `DataLoader` have no hook, so a function wraps their ``__next__``. It is
there once in the process, however many ask for it, and goes with the last of them.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable
from typing import Any

import gpuprof._core as _core
from gpuprof._frameworks import loaded, torch_hooks
from gpuprof._frameworks.torch_compile import keep_from_compiler

Before = Callable[[Any], None]

NAME = "dataloader"


class _Local(threading.local):
    is_loading = False


_local = _Local()
# No lock: it would be in an unknown state in a forked worker, and each step here is one operation.
_holds: list[Hold] = []
_undo = contextlib.ExitStack()  # puts the iterators' own function back


def is_loading() -> bool:
    """Whether this thread waits for a batch, so that what it runs is a part of that."""
    return _local.is_loading


def call_in(scope: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a scope; a StopIteration is the end of the data, and no failure."""
    with scope:
        try:
            return function(*arguments)
        except StopIteration as error:
            end = error
    try:
        raise end
    finally:
        del end  # else a cycle keeps the iterator, and its workers are not told of its end


class Hold(contextlib.AbstractContextManager["Hold"]):
    """The wish for these scopes, until `close` or the end of a ``with`` block.

    `before` is called with the frame of the wait before each of them. Torch's DataLoader must be
    imported; an AttributeError says that it is another one than those that are known.
    """

    def __init__(self, before: Before | None = None) -> None:
        self.before = before
        if not _holds:
            _undo.close()  # of one that an interrupt has kept from being noted
            _undo.callback(_wrap_next())
        _holds.append(self)

    def close(self) -> None:
        """Give it up. Idempotent."""
        if self in _holds:
            _holds.remove(self)
        if not _holds:
            _undo.close()

    def __exit__(self, *_exception: object) -> None:
        self.close()


def _wrap_next() -> torch_hooks.Undo:
    batches = loaded.torch_part("utils.data.dataloader")._BaseDataLoaderIter
    original = batches.__next__
    scope = _core.timer(NAME, backend="cpu")

    @functools.wraps(original)
    def wait_for_batch(batches: Any) -> Any:
        if not _holds or _local.is_loading:
            return original(batches)
        for hold in tuple(_holds):
            if hold.before is not None:
                hold.before(sys._getframe())
        _local.is_loading = True
        try:
            return call_in(scope, original, batches)
        finally:
            _local.is_loading = False

    keep_from_compiler(wait_for_batch, call_in)
    return torch_hooks.replace(batches, "__next__", wait_for_batch)
