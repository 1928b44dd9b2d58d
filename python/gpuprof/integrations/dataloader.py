"""Waits for torch's ``DataLoader``, and its workers. See docs/integrations/dataloader.md."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any

import gpuprof._core as _core
import gpuprof._startup  # noqa: F401 (a program may import nothing but this module)
from gpuprof._common import checks
from gpuprof._common.imports import need
from gpuprof._run import batches
from gpuprof._trace import path as trace_path
from gpuprof._trace import registry
from gpuprof._trace.writer import TraceWriter


def waits() -> batches.Hold:
    """Make each wait for a batch the scope ``dataloader``, for all loaders of the process.

    It is there once where several ask for it. The end of a pass over the data is one more wait.

    Returns
    -------
    Hold
        The scopes are there until its `close`, or the end of its ``with`` block.
    """
    need("torch.utils.data", "gpuprof.integrations.dataloader", "torch")
    return batches.Hold()


class WorkerScopes:
    """A ``worker_init_fn`` that makes scopes of what a worker does, for its trace.

    ``fetch`` is the making of a batch, with ``collate`` in it, on the host's clock. No driver is
    called in a worker. It can be pickled if `then` can.

    Parameters
    ----------
    trace : str or os.PathLike
        Where each worker writes its trace, with ``%p`` for the number of its process. A forked
        worker of a program whose own trace is open goes on with that, in a file of its own.
    then : callable, optional
        Another ``worker_init_fn``, to be called with the worker's number as well.

    Raises
    ------
    TypeError, ValueError
        `trace` is no path, or has an unknown pattern; `then` cannot be called.
    """

    def __init__(self, trace: str | os.PathLike[str], then: Any = None) -> None:
        self._path = trace_path.absolute(checks.path("trace", trace))
        trace_path.expand(self._path)
        if then is not None:
            checks.function("then", then, "a function of the worker's number")
        self._then = then

    def __call__(self, worker: int) -> None:
        if not _core._is_set("GPUPROF_DISABLE"):
            self._begin(worker)
        if self._then is not None:
            self._then(worker)

    def _begin(self, worker: int) -> None:
        fetchers = import_module("torch.utils.data._utils.fetch")
        for name in {"_MapDatasetFetcher", "_IterableDatasetFetcher"} & {*vars(fetchers)}:
            kind = getattr(fetchers, name)  # in the worker's own process, so it stays so
            kind.fetch = _timed(kind.fetch, "fetch")
        threading.current_thread().name = f"DataLoader worker {worker}"  # in the trace
        if not registry.collecting():
            TraceWriter(self._path, collect=True).start()


def _timed(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    scope = _core.timer(name, backend="cpu")

    @functools.wraps(function)
    def timed(*arguments: Any) -> Any:
        collate = getattr(arguments[0], "collate_fn", None) if name == "fetch" else None
        if collate is not None and not hasattr(collate, "_is_timed"):
            arguments[0].collate_fn = _timed(collate, "collate")
        return batches.call_in(scope, function, *arguments)

    timed._is_timed = True  # type: ignore[attr-defined]
    return timed
