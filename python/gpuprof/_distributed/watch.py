"""`watch`: scopes around the collectives of torch.distributed, so that waiting is measured.

A call that waits is a scope. A call with ``async_op=True`` does not wait, its ``Work.wait()`` does:
so that is one, under the name of the call. DistributedDataParallel's all-reduces begin in C++ and
are waited for at the end of the backward pass, in a callback that it leaves to autograd. Autograd
runs callbacks in the order in which they were left: one that is left before, by a hook on the
results of the forward pass, begins the scope, and leaves another one, which ends it.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import gpuprof._core as _core
from gpuprof._distributed.rows import COLLECTIVE
from gpuprof._frameworks import loaded
from gpuprof.errors import InvalidStateError

if TYPE_CHECKING:
    from typing_extensions import Self

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
UNNAMED_WAIT = "wait"
DDP_WAIT = "ddp"
MOST_OUTPUTS = 1_000  # that are looked through for a tensor in the result of a model


class _Local(threading.local):
    def __init__(self) -> None:
        self.inside = 0  # of collectives of this thread


_local = _Local()


@contextmanager
def unwatched() -> Iterator[None]:
    """Measure no collective of this thread in the block."""
    _local.inside += 1
    try:
        yield
    finally:
        _local.inside -= 1


def watch() -> CollectiveWatch:
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
    >>> with gpuprof.distributed.watch():  # doctest: +SKIP
    ...     torch.distributed.barrier()
    """
    module = loaded.torch_part("distributed")
    if not getattr(module, "is_available", bool)():
        message = (
            "gpuprof.distributed.watch: torch.distributed is not imported, or not in this build of "
            "torch; import it, and call torch.distributed.init_process_group() as usual"
        )
        raise InvalidStateError(message)
    return CollectiveWatch(module)


class CollectiveWatch:
    """The collectives while they are measured, as `watch` returns it."""

    _open: CollectiveWatch | None = None
    _lock = threading.Lock()

    def __init__(self, module: Any) -> None:
        self._undo: list[Callable[[], None]] = []
        self._names: WeakKeyDictionary[Any, tuple[str, bool]] = WeakKeyDictionary()
        self._backward = _BackwardPaths()
        with self._lock:
            if CollectiveWatch._open is not None:
                message = (
                    "gpuprof.distributed.watch: the collectives are being watched already; close "
                    "the other watch first"
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
        """Whether the collectives are what they were."""
        return CollectiveWatch._open is not self

    def close(self) -> None:
        """Put the functions back. Idempotent."""
        while self._undo:
            self._undo.pop()()
        with self._lock:
            if CollectiveWatch._open is self:
                CollectiveWatch._open = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<gpuprof.distributed.CollectiveWatch, {'closed' if self.closed else 'open'}>"

    def __reduce__(self) -> Any:
        message = "a CollectiveWatch holds functions of torch and cannot be pickled or copied"
        raise TypeError(message)

    def _attach(self, module: Any) -> None:
        inner = module.distributed_c10d
        is_compiling = loaded.torch().compiler.is_compiling
        for name in COLLECTIVES:
            function = getattr(module, name, None)
            if function is None:
                continue
            wrapper = _wrapped(name, function, self._names, is_compiling)
            for place in (module, inner):
                if getattr(place, name, None) is function:
                    self._replace(place, name, wrapper)
        self._replace(module.Work, "wait", _wrapped_wait(module.Work.wait, self._names))
        autograd = loaded.torch().autograd
        self._replace(autograd, "backward", self._backward.around(autograd.backward, is_compiling))
        parallel = loaded.torch_part("nn.parallel.distributed").DistributedDataParallel
        forward = _wrapped_forward(parallel.forward, self._backward, is_compiling)
        self._replace(parallel, "forward", forward)

    def _replace(self, place: Any, name: str, function: Callable[..., Any]) -> None:
        before = getattr(place, name)
        setattr(place, name, function)

        def put_back() -> None:
            if getattr(place, name, None) is function:  # else somebody has wrapped it once more
                setattr(place, name, before)

        self._undo.append(put_back)


@functools.lru_cache(maxsize=256)
def _scope(name: str, on_cpu: bool) -> Any:
    return _core.timer(f"{COLLECTIVE}{name}", backend="cpu" if on_cpu else "auto")


def _wrapped(
    name: str,
    function: Callable[..., Any],
    names: WeakKeyDictionary[Any, tuple[str, bool]],
    is_compiling: Callable[[], bool],
) -> Callable[..., Any]:
    @functools.wraps(function)
    def collective(*args: Any, **kwargs: Any) -> Any:
        if is_compiling() or _local.inside:
            return function(*args, **kwargs)
        on_cpu = _is_on_cpu((*args, *kwargs.values()))
        if kwargs.get("async_op") or name in ("isend", "irecv", "batch_isend_irecv"):
            work = function(*args, **kwargs)
            for each in work if isinstance(work, list) else [work]:
                if each is not None:
                    names[each] = name, on_cpu
            return work
        with _scope(name, on_cpu), unwatched():
            return function(*args, **kwargs)

    return collective


def _wrapped_wait(
    function: Callable[..., Any], names: WeakKeyDictionary[Any, tuple[str, bool]]
) -> Callable[..., Any]:
    @functools.wraps(function)
    def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
        if _local.inside:
            return function(work, *args, **kwargs)
        with _scope(*names.get(work, (UNNAMED_WAIT, False))), unwatched():
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


class _BackwardPaths:
    """The paths of scopes in which backward passes run now, by the threads that called them.

    Autograd runs the callbacks of a pass on CUDA on a thread of its own, which has no scopes open.
    """

    def __init__(self) -> None:
        self._running: list[tuple[int, tuple[str, ...]]] = []

    def around(
        self, function: Callable[..., Any], is_compiling: Callable[[], bool]
    ) -> Callable[..., Any]:
        """Return autograd's backward with the path noted while it runs."""

        @functools.wraps(function)
        def backward(*args: Any, **kwargs: Any) -> Any:
            if is_compiling():
                return function(*args, **kwargs)
            with _core.timer(None, backend="cpu") as sample:  # unnamed: only its path is used
                names = sample.names
            entry = threading.get_ident(), names
            self._running.append(entry)
            try:
                return function(*args, **kwargs)
            finally:
                self._running.remove(entry)

        return backward

    def prefix(self) -> str:
        """Return what to write before a scope's name on this thread: the caller's path, or ''."""
        own = threading.get_ident()
        running = list(self._running)
        if not running or any(thread == own for thread, _ in running):
            return ""
        return "".join(f"{name}/" for name in running[-1][1])


def _wrapped_forward(
    function: Callable[..., Any], paths: _BackwardPaths, is_compiling: Callable[[], bool]
) -> Callable[..., Any]:
    @functools.wraps(function)
    def forward(model: Any, *args: Any, **kwargs: Any) -> Any:
        result = function(model, *args, **kwargs)
        if is_compiling() or not model.require_backward_grad_sync:
            return result
        if loaded.torch().is_grad_enabled():
            tensor = _first_with_gradient(result)
            if tensor is not None:
                tensor.register_hook(_DdpWait(paths))
        return result

    return forward


def _first_with_gradient(result: Any) -> Any:
    """Return a tensor of a model's result through which the backward pass comes, or None."""
    left = [result]
    for _ in range(MOST_OUTPUTS):
        if not left:
            return None
        value = left.pop()
        if loaded.is_tensor(value):
            if value.requires_grad:
                return value
        elif isinstance(value, dict):
            left += reversed([*value.values()])
        elif isinstance(value, (list, tuple)):
            left += reversed(value)
        elif hasattr(value, "__dataclass_fields__"):
            left += [getattr(value, name, None) for name in value.__dataclass_fields__]
    return None


class _DdpWait:
    """The hook on a result of DistributedDataParallel, and the callbacks that it leaves."""

    def __init__(self, paths: _BackwardPaths) -> None:
        self._paths = paths

    def __call__(self, gradient: Any) -> None:
        if CollectiveWatch._open is None:
            return
        self._on_cpu = gradient.device.type == "cpu"
        self._leave(self._begin)

    @staticmethod
    def _leave(callback: Callable[[], None]) -> None:
        loaded.torch().autograd.Variable._execution_engine.queue_callback(callback)

    def _begin(self) -> None:
        self._opened = _scope(DDP_WAIT, self._on_cpu)
        prefix = self._paths.prefix()
        if prefix:
            backend = "cpu" if self._on_cpu else "auto"
            self._opened = _core.timer(f"{prefix}{COLLECTIVE}{DDP_WAIT}", backend=backend)
        self._leave(self._end)
        self._opened.__enter__()

    def _end(self) -> None:
        self._opened.__exit__(None, None, None)
