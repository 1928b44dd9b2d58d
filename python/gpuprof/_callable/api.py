"""`make_graphed_callable`: a function that replays CUDA graphs instead of running.

A call that a graph fits is answered in C++ (`_core.CallBase`), any other one by `_callable.cache`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, overload

from gpuprof._callable.cache import CapturingCalls
from gpuprof._callable.entry import CapturedCall
from gpuprof._callable.module import class_for
from gpuprof._callable.settings import check_samples, check_settings
from gpuprof._callable.stats import GraphCounts, GraphedCallableStats, arguments_text
from gpuprof._common.checks import not_pickled, type_error
from gpuprof._graphs.pool import CapturePool, check_pool
from gpuprof._graphs.types import shown
from gpuprof.errors import GpuprofError, InvalidStateError

if TYPE_CHECKING:
    from gpuprof._graphs.graph import CapturedGraph
    from gpuprof._graphs.timings import GraphTimings
    from gpuprof._graphs.types import CaptureModeLike, TimersLike

__all__ = ["GraphedCallable", "make_graphed_callable"]


@overload
def make_graphed_callable(
    fn: tuple[Callable[..., Any], ...],
    sample_args: tuple[tuple[Any, ...], ...],
    sample_kwargs: tuple[Mapping[str, Any] | None, ...] | None = None,
    **options: Any,
) -> tuple[GraphedCallable, ...]: ...


@overload
def make_graphed_callable(
    fn: Callable[..., Any],
    sample_args: tuple[Any, ...] | None = None,
    sample_kwargs: Mapping[str, Any] | None = None,
    **options: Any,
) -> GraphedCallable: ...


def make_graphed_callable(  # type: ignore[misc]  # the options are named here alone
    fn: Any,
    sample_args: Any = None,
    sample_kwargs: Any = None,
    *,
    compile: bool = False,
    warmup: int | None = None,
    mode: CaptureModeLike = "thread_local",
    stream: object = None,
    pool: CapturePool | None = None,
    outputs: Literal["clone", "static"] = "clone",
    on_new_shape: Literal["capture", "eager", "raise"] = "capture",
    max_graphs: int = 8,
    buckets: Mapping[Any, Any] | None = None,
    on_capture_error: Literal["raise", "eager"] = "raise",
    writes: Literal["auto"] | Iterable[str] = "auto",
    guards: Callable[[], Hashable] | None = None,
    check: Literal["strict", "sweep"] = "strict",
    verify: Literal["capture", "off"] | int = "capture",
    param_grads: Literal["autograd", "accumulate"] = "autograd",
    timers: TimersLike = "last",
    name: str | None = None,
) -> Any:
    """Make a callable that captures a function as a CUDA graph and replays it when called.

    Called like `fn`, with the arguments of `fn`, it returns what `fn` would: the arguments are
    copied into the graph's own arrays and the results out of them, on the current stream of the
    arrays' library. The graph is captured for the types, shapes, dtypes and devices of the arrays,
    for the values of everything else, and for torch's grad mode, autocast and the like; a call in
    which any of these differ is treated as `on_new_shape` says. Strides count where the function
    writes to arrays in place, or does work that torch does not know. Calls whose results require
    gradients have a backward graph, too.

    Parameters
    ----------
    fn : callable or tuple
        A function, a method, a `torch.nn.Module` (which is not changed, and whose hooks run when it
        is captured), or anything else that can be called. Of a tuple of functions, with tuples of
        their samples, forward passes are captured in order, in one memory: call them in that order.
    sample_args : tuple, optional
        Arguments to capture with at once: any nesting of tuples, lists, dicts, dataclasses and
        objects that ``torch.utils._pytree`` knows, with torch tensors, CuPy or other CUDA arrays,
        and plain values. None captures later: the first
        `warmup` calls run eagerly, the next one captures; so it has to be for whole training steps.
        ``()`` is for a function that takes nothing: its body runs exactly once, under the capture.
    sample_kwargs : mapping of str, optional
        The same by keyword.
    compile : bool
        Whether to capture ``torch.compile(fn)``.
    warmup : int, optional
        How often `fn` runs for real before it is captured; 3 by default, 0 for ``sample_args=()``.
        With samples it runs on copies, and torch's generator and tensors that torch's operators
        wrote to are put back. Python state is not, nor what an optimizer keeps. Once more it runs
        under a capture, and under one that is thrown away where anything was compiled in the
        process or results require gradients.
    mode : CaptureMode or str
        As for `capture`.
    stream : int or object, optional
        The stream to capture on; None is the framework's current one, or one of gpuprof's. Calls
        with Numba's arrays run on it, too, or on the default one: Numba has no current stream.
    pool : CapturePool, optional
        Share its memory with what else is captured with it; all callables of one pool run one after
        the other. By default the graphs of one callable share a pool of their own, other than those
        with a backward pass, which have one each.
    outputs : {'clone', 'static'}
        ``"clone"`` gives new arrays from each call. ``"static"`` gives the graph's own, which the
        next call overwrites: cheaper, and stale once `GraphedCallable.generation` has moved on.
    on_new_shape : {'capture', 'eager', 'raise'}
        What to do with a call that no graph fits: capture another graph, run `fn`, or raise an
        error that lists every difference. Also what is done when parameters were replaced or moved.
    max_graphs : int
        How many graphs to keep; the least recently used is dropped for another one.
    buckets : mapping, optional
        Pad sizes up to listed ones, so that a few graphs serve many: ``{dim: sizes}``, or
        ``{"args[0]": {dim: sizes}}`` for arrays by name. Padded with zeros; results are cut as the
        function's own were in the first padded call.
    on_capture_error : {'raise', 'eager'}
        What to do where `fn` cannot be captured, inside of torch.func's transforms, or without
        CUDA: raise, or run `fn` and warn once.
    writes : 'auto' or iterable of str
        The array arguments that `fn` writes to by kernels that torch does not know (Triton, CuPy,
        Numba), by parameter or path, as in ``("out", "args[1]['x']")``; ``()`` is none. With
        ``"auto"`` all count as written, and are copied back, where there are such kernels.
    guards : callable, optional
        Called without arguments in each call; each value that it returns, which has to be hashable,
        has graphs of its own.
    check : {'strict', 'sweep'}
        How many of the parameters, buffers and other tensors that `fn` reads are looked at in each
        call to find that they were replaced or moved: all, or a few in turn.
    verify : {'capture', 'off'} or int
        When to compare a replay with `fn` itself, run on equal arguments: the first one after a
        capture, or also every n-th call, or never. What differs by more than rounding, which takes
        two more runs to tell, raises `GraphMismatchError`, and later calls run `fn`. The first one
        is not compared for ``sample_args=()`` without a warm-up, nor where kernels that torch does
        not know may write anywhere: then name what they write with `writes`.
    param_grads : {'autograd', 'accumulate'}
        ``"autograd"`` hands copies of the gradients of parameters to autograd. ``"accumulate"``
        adds them to ``.grad`` in the backward graph, which is cheaper; ``.grad`` is then the
        graph's own. Parameters with hooks, or of DistributedDataParallel, are refused.
    timers : {'last', 'collect', 'strip'}
        As for `capture`: what `gpuprof.timer` becomes inside; see `GraphedCallable.timings`.
    name : str, optional
        What it is called in errors, statistics and traces; by default as `fn`.

    Returns
    -------
    GraphedCallable
        Of a module, it is a module with the parameters, state and attributes of `fn`, too. Of a
        tuple of functions, a tuple of them.

    Raises
    ------
    TypeError
        An argument is not what is listed above, an array is on the host, or a result is nothing
        that a replay can make again. The text names it by its path.
    InvalidStateError
        No graph fits and `on_new_shape` is ``"raise"``, the call is inside of a transform of
        torch.func, an optimizer makes its state in the capture, or a backward pass would give wrong
        gradients; the text says why.
    GraphMismatchError
        A replay differs from the function.
    CaptureError
        `fn` cannot be captured; the text says which call broke the capture.
    CudaUnavailableError
        There is no driver or no device.

    Notes
    -----
    What else a graph cannot follow: Python code in `fn` runs at the capture only, and branches are
    taken as they were then. Globals, closures' variables, containers, and the attributes of objects
    other than torch modules are frozen, as is all else that Python reads, such as cuDNN's, cuBLAS'
    and TF32's settings. A value that has to change from call to call is an argument, a
    `DeviceScalar`, or part of what `guards` returns.

    Examples
    --------
    >>> fast = gpuprof.make_graphed_callable(model, (x,))  # doctest: +SKIP
    >>> y = fast(x)  # doctest: +SKIP
    """
    given = dict(locals())
    for sample in ("fn", "sample_args", "sample_kwargs"):
        del given[sample]
    if isinstance(fn, tuple):
        return _together(fn, sample_args, sample_kwargs, given)
    samples = check_samples(sample_args, sample_kwargs)
    settings = check_settings(fn, samples, given)
    return class_for(GraphedCallable, fn)._make(fn, settings, samples)


def _together(
    functions: tuple[Callable[..., Any], ...], args: Any, kwargs: Any, given: dict[str, Any]
) -> tuple[GraphedCallable, ...]:
    count = len(functions)
    kwargs = (None,) * count if kwargs is None else kwargs
    for name, value in (("sample_args", args), ("sample_kwargs", kwargs)):
        if not isinstance(value, tuple) or len(value) != count:
            raise type_error(value, name, f"a tuple of {count}, one for each function")
    if given["buckets"] is not None:
        message = "buckets: not with several functions; give each function a callable of its own"
        raise ValueError(message)
    pool = check_pool(given["pool"]) or CapturePool()
    checked = []
    for fn, own_args, own_kwargs in zip(functions, args, kwargs, strict=True):
        samples = check_samples(own_args, own_kwargs)
        if samples is None:
            raise type_error(None, "sample_args", "the arguments of each function")
        checked.append((fn, check_settings(fn, samples, {**given, "pool": pool}), samples))
    return tuple(class_for(GraphedCallable, each[0])._make(*each) for each in checked)


class GraphedCallable(CapturingCalls):
    """A function that replays CUDA graphs; made by `make_graphed_callable`.

    May be called from any thread, and on any stream; graphs that share memory run one after the
    other.
    """

    __module__ = "gpuprof"

    def __init__(self) -> None:
        message = "a GraphedCallable is made by gpuprof.make_graphed_callable()"
        raise TypeError(message)

    @property
    def eager(self) -> Callable[..., Any]:
        """The function itself."""
        return self._fn

    @property
    def generation(self) -> int:
        """How many replays there were of its graphs and of others that share their memory.

        With ``outputs="static"`` a result is stale once this has moved on.
        """
        pools = {self._settings.pool, *(entry.pool for entry in self._entries)}
        return int(self._launches_gone + sum(pool._launch_order().launches for pool in pools))

    @property
    def graphs(self) -> tuple[CapturedGraph, ...]:
        """The graphs, the most recently used first."""
        return tuple(entry.graph for entry in self._entries)

    @property
    def graph(self) -> CapturedGraph:
        """The graph that was used last. InvalidStateError before the first capture."""
        if not self.graphs:
            message = f"{self.name}: nothing was captured yet; call it first"
            raise InvalidStateError(message)
        return self.graphs[0]

    def launch(self, stream: object = None) -> None:
        """Replay the graph of a function that takes no arrays, without making results.

        Parameters
        ----------
        stream : int or object, optional
            As for `CapturedGraph.launch`.

        Raises
        ------
        InvalidStateError
            Nothing was captured yet, or the function takes arrays: call it with them.
        """
        graph = self.graph
        leaves = self._entries[0].flat.leaves
        if leaves:
            message = (
                f"{self.name}: launch() is for functions that take no arrays, and this one takes "
                f"{', '.join(leaf.path for leaf in leaves)}; call it with them"
            )
            raise InvalidStateError(message)
        graph.launch(stream)

    def timings(self, *, wait: bool = True) -> GraphTimings:
        """Return what the timers inside measured in the last replay of the last used graph.

        Parameters and errors are those of `CapturedGraph.timings`.
        """
        return self.graph.timings(wait=wait)

    def stats(self) -> GraphedCallableStats:
        """Return what the callable did since it was made or reset."""
        graphs = tuple(map(self._stats_of, self._entries))
        sizes = [each.memory_bytes for each in graphs]
        memory = None if None in sizes else sum(size or 0 for size in sizes)
        counts = dict(self._counts)
        counts["replays"] += sum(each.replays for each in graphs)
        counts["hits"] += self._hits
        return GraphedCallableStats(**counts, memory_bytes=memory, graphs=graphs)

    def _stats_of(self, captured: CapturedCall) -> GraphCounts:
        graph = captured.graph
        num_nodes, memory = None, None
        with contextlib.suppress(GpuprofError):  # it is closed, or its context is gone
            num_nodes, memory = (graph.num_nodes if graph.raw_graph else None), graph.memory.total
        return GraphCounts(
            name=graph.name or self.name,
            arguments=arguments_text(captured.flat.leaves),
            replays=captured.replays,
            num_nodes=num_nodes,
            memory_bytes=None if memory is None else memory + captured.nbytes,
            capture_s=captured.seconds,
        )

    __reduce__ = not_pickled(
        "a GraphedCallable cannot be pickled or copied: its graphs are of this process; copy or "
        "save what it was made of (.eager)"
    )

    def __repr__(self) -> str:
        graphs = len(self._entries)
        counted = f"{graphs} graph{'' if graphs == 1 else 's'}, {self.generation:,} replays"
        return f"<gpuprof.GraphedCallable {shown(self.name)}: {counted}>"

    def _repr_html_(self) -> str:
        import html

        return f"<div><code>{html.escape(repr(self))}</code>{self.stats()._repr_html_()}</div>"
