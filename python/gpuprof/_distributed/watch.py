"""Scopes around the collectives of torch.distributed, so that waiting is measured.

A call that waits is a scope. A call with ``async_op=True`` does not wait, its ``Work.wait()`` does:
so that is one, under the name of the call. The file `ddp` has what DistributedDataParallel does.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from typing import Any

from gpuprof._common import checks
from gpuprof._distributed.ddp import DdpWait, first_with_gradient
from gpuprof._distributed.watch_state import WatchState, scope
from gpuprof._frameworks import loaded, torch_hooks
from gpuprof.errors import InvalidStateError

COLLECTIVES = (
    "all_gather",
    "all_gather_coalesced",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_gather_single",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "batch_isend_irecv",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "gather_object",
    "irecv",
    "isend",
    "monitored_barrier",
    "recv",
    "recv_object_list",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
    "send",
    "send_object_list",
)
RETURN_WORK = frozenset(("batch_isend_irecv", "irecv", "isend"))


class _Local(threading.local):
    inside = 0  # of collectives of this thread


_local = _Local()


@contextmanager
def unwatched() -> Iterator[None]:
    """Measure no collective of this thread in the block."""
    _local.inside += 1
    try:
        yield
    finally:
        _local.inside -= 1


def time_collectives() -> CollectiveWatch:
    """Measure the collectives of torch.distributed as scopes, from now on.

    ``torch.distributed.all_reduce`` and the others become scopes named ``collective/all_reduce``
    inside the scopes around them; of a call with ``async_op=True`` it is the ``wait()`` of what
    it returned. Waiting for the all-reduces of `DistributedDataParallel` at the end of a backward
    pass is ``collective/ddp``. On CUDA the time is the GPU's: how long the current stream waits.
    For tensors on the CPU it is the host's. Scopes have what they wait as ``waiting`` in
    `gather_stats`.

    Returns
    -------
    CollectiveWatch
        Its `~CollectiveWatch.close`, or the end of its ``with`` block, puts the functions back.

    Raises
    ------
    InvalidStateError
        Torch.distributed is not imported, or the collectives are being watched already.

    Notes
    -----
    Call it before models are run, and before other modules import functions by
    ``from torch.distributed import ...``: what they have imported stays as it was. Functional
    collectives and those of compiled regions, of FSDP and of DTensor are not seen.

    Examples
    --------
    >>> import gpuprof.distributed, torch.distributed  # doctest: +SKIP
    >>> with gpuprof.distributed.time_collectives():  # doctest: +SKIP
    ...     torch.distributed.barrier()
    """
    module = loaded.torch_part("distributed")
    if not getattr(module, "is_available", bool)():
        message = (
            "gpuprof.distributed.time_collectives: torch.distributed is not imported, or not in "
            "this build of torch; import it, and call torch.distributed.init_process_group() as "
            "usual"
        )
        raise InvalidStateError(message)
    return CollectiveWatch(module)


class CollectiveWatch(AbstractContextManager["CollectiveWatch"]):
    """The collectives while they are measured, as `time_collectives` returns it."""

    _open: CollectiveWatch | None = None
    _lock = threading.Lock()

    def __init__(self, module: Any, *, gives_way: bool = False) -> None:
        self._gives_way = gives_way  # to another one, as that of `gpuprof run` to the program's
        other = CollectiveWatch._open
        if other is not None and other._gives_way:
            other.close()
        self._undo = ExitStack()
        self._state = WatchState(self.close)
        with self._lock:
            if CollectiveWatch._open is not None:
                message = (
                    "gpuprof.distributed.time_collectives: the collectives are being watched "
                    "already; close the other watch first"
                )
                raise InvalidStateError(message)
            CollectiveWatch._open = self
        try:
            self._attach(module)
        except BaseException:
            self.close()
            raise

    @property
    def closed(self) -> bool:
        """Whether the collectives are measured no more."""
        return not self._state.is_open

    def close(self) -> None:
        """Put the functions back. Idempotent."""
        self._state.is_open = False
        self._undo.close()
        with self._lock:
            if CollectiveWatch._open is self:
                CollectiveWatch._open = None

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<gpuprof.distributed.CollectiveWatch, {'closed' if self.closed else 'open'}>"

    __reduce__ = checks.not_pickled(
        "a CollectiveWatch holds functions of torch and cannot be pickled or copied"
    )

    def _attach(self, module: Any) -> None:
        state = self._state

        def replace(owner: Any, name: str, function: Callable[..., Any]) -> None:
            self._undo.callback(torch_hooks.replace(owner, name, function))

        for name in COLLECTIVES:
            function = getattr(module, name, None)
            if function is None:
                continue
            wrapper = _collective(name, function, state)
            for place in (module, module.distributed_c10d):
                if getattr(place, name, None) is function:
                    replace(place, name, wrapper)
        replace(module.Work, "wait", _wait(module.Work.wait, state))
        parallel = loaded.torch_part("nn.parallel.distributed")
        if parallel is not None:
            autograd, ddp = loaded.torch().autograd, parallel.DistributedDataParallel
            replace(autograd, "backward", _backward(autograd.backward, state))
            replace(ddp, "forward", _forward(ddp.forward, state))


def _collective(name: str, function: Callable[..., Any], state: WatchState) -> Callable[..., Any]:
    place = _place_of_async(function)

    @functools.wraps(function)
    def collective(*args: Any, **kwargs: Any) -> Any:
        if not state.measures() or _local.inside:
            return function(*args, **kwargs)
        on_cpu = _is_on_cpu((*args, *kwargs.values()))
        is_async = kwargs.get("async_op") or args[place : place + 1] == (True,)
        if not is_async and name not in RETURN_WORK:
            with scope(name, on_cpu), unwatched():
                return function(*args, **kwargs)
        work = function(*args, **kwargs)
        for each in work if isinstance(work, list) else [work]:
            with suppress(TypeError):  # what is no Work of torch's
                state.works[each] = name, on_cpu
        return work

    return collective


def _place_of_async(function: Callable[..., Any]) -> int:
    """Return where ``async_op`` stands among the positional arguments; far away if nowhere."""
    with suppress(TypeError, ValueError):
        names = [*inspect.signature(function).parameters]
        if "async_op" in names:
            return names.index("async_op")
    return 1 << 20


def _wait(function: Callable[..., Any], state: WatchState) -> Callable[..., Any]:
    @functools.wraps(function)
    def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
        if not state.measures() or _local.inside:
            return function(work, *args, **kwargs)
        with scope(*state.works.get(work, ("wait", False))), unwatched():
            return function(work, *args, **kwargs)

    return wait


def _is_on_cpu(values: tuple[Any, ...]) -> bool:
    """Whether the first tensor among the values, or in a list of them, is on the CPU."""
    for value in values:
        first: Any = value[0] if isinstance(value, (list, tuple)) and value else value
        first = getattr(first, "tensor", first)  # that of a P2POp
        if loaded.is_tensor(first):
            return bool(first.device.type == "cpu")
    return False


def _backward(function: Callable[..., Any], state: WatchState) -> Callable[..., Any]:
    @functools.wraps(function)
    def backward(*args: Any, **kwargs: Any) -> Any:
        with state.paths.noted() if state.measures() else nullcontext():
            return function(*args, **kwargs)

    return backward


def _forward(function: Callable[..., Any], state: WatchState) -> Callable[..., Any]:
    @functools.wraps(function)
    def forward(model: Any, *args: Any, **kwargs: Any) -> Any:
        result = function(model, *args, **kwargs)
        if state.measures() and model.require_backward_grad_sync:
            with state.passive():
                tensor = first_with_gradient(result)
                if tensor is not None:
                    tensor.register_hook(DdpWait(state))
        return result

    return forward
