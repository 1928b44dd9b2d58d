"""`benchmark`: how long a call of a function takes, with the interval of its median."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from gpuprof._benchmark.loop import Measurer
from gpuprof._benchmark.options import checked_options
from gpuprof._benchmark.work import Call, Work
from gpuprof._common import checks
from gpuprof._distributed.lockstep import Alone
from gpuprof._results.result import BenchResult

__tracebackhide__ = True  # pytest shows the frames of the test and of its function

_CALL = {"fn", "args", "kwargs"}  # the arguments of `benchmark` that are no options

__all__ = ["BenchResult", "benchmark", "prepare"]


def benchmark(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
    mode: Literal["auto", "graph", "batched", "isolated"] = "auto",
    cold_l2: bool = False,
    setup: Callable[[], Any] | None = None,
    stream: object = None,
    scopes: bool = False,
    launches: bool | None = None,
    energy: bool = False,
    nbytes: int | None = None,
    flops: int | None = None,
    flops_dtype: object = None,
    warmup_s: float = 0.2,
    min_samples: int = 30,
    min_time_s: float = 0.1,
    max_time_s: float = 10.0,
    rel_precision: float = 0.01,
    progress: bool | None = None,
    params: Mapping[str, Any] | None = None,
    ranks: Literal["together", "each"] = "together",
) -> BenchResult:
    """Measure how long a call of `fn` takes on the GPU, or on the CPU where it uses no GPU.

    Parameters
    ----------
    fn : callable
        What is called. Pass the function, not its result.
    args : sequence
        Its positional arguments.
    kwargs : mapping, optional
        Its keyword arguments.
    name : str, optional
        What the result is called; the function's own name if left out.
    mode : {'auto', 'graph', 'batched', 'isolated'}
        ``"graph"`` is the slope of n and m calls captured into two graphs: steady-state time in
        stream order, without the host and without allocation. ``"batched"`` is the slope of n and m
        calls that are queued. ``"isolated"`` is one call a sample, less an empty interval.
        ``"auto"`` takes a graph if it can. What was measured is in the result's `mode`.
    cold_l2 : bool
        Measure with the arguments out of the L2 cache: clones of them take turns over at least
        twice its size, or the calls are isolated and the cache is flushed before each.
    setup : callable, optional
        Called before each sample, untimed; it may return ``(args, kwargs)``. Calls are isolated.
    stream : int or object, optional
        Where `fn` gives its work to, made the framework's current stream meanwhile. None is the
        current one.
    scopes : bool
        Whether the scopes and ranges of `fn` are on while it is measured. They are off without
        this, so that they neither cost time nor add to statistics and traces; those of other
        threads stay on.
    launches : bool, optional
        Whether to count what a call launches: kernels by name, copies, memsets. None counts in
        graph mode, where it costs nothing. True counts in the other modes as well, after the
        samples: two more calls are captured, or run under `kernels` if they cannot be captured.
    energy : bool
        Whether to measure the energy of a call, after the samples, by NVML's counter for the GPU:
        the function runs without a pause for some seconds more. Needs the extra `nvml`, and a mode
        other than ``"isolated"``.
    nbytes : int, optional
        How many bytes a call moves, read and written ones together, for the rate in the result and
        its share of the device's peak.
    flops : int, optional
        How many floating-point operations a call does, likewise.
    flops_dtype : str or torch.dtype, optional
        The data type whose peak the operations are compared with, such as ``"bfloat16"``. None is
        that of the floating-point arrays of torch and CuPy among the arguments, else the device's
        fastest.
    warmup_s : float
        Seconds to run before the first sample counts; up to five times as long while it changes.
    min_samples : int
        How many samples to take at least.
    min_time_s : float
        For how many seconds to take them at least.
    max_time_s : float
        For how many seconds at most.
    rel_precision : float
        Stop when the interval of the median is at most this far to each side, as a fraction.
    progress : bool, optional
        Show the progress on standard error, after two seconds; None shows it on a terminal and in a
        notebook.
    params : mapping, optional
        Kept in the result, for sweeps.
    ranks : {'together', 'each'}
        Where torch.distributed is initialised with several ranks, each of them must make the call:
        rank 0 decides how often `fn` is called, the samples are the slowest rank's, and
        `BenchResult.ranks` has those of each. ``"each"`` measures on this rank alone; `fn` must
        have no collective then.

    Returns
    -------
    BenchResult
        The median, its exact interval, the raw samples, and warnings in words. Times are
        milliseconds.

    Raises
    ------
    TypeError, ValueError
        An argument is not what is listed above; `fn` is no function.
    InvalidStateError
        The stream is being captured. Another rank has not made the call within 300 s, or within
        the timeout of the process group, or has failed; the text names it.
    CudaError
        The driver failed.
    GpuprofError
        With `energy`, NVML or its counter is not there, or the calls are isolated or set up.
    Exception
        Whatever `fn` raises when it is called outside of a capture.

    Notes
    -----
    Torch's, NumPy's and Python's random generators are put back afterwards. The function is called
    many times, and captured into graphs where the mode needs that.

    Examples
    --------
    >>> result = benchmark(sorted, (list(range(1000)),), warmup_s=0.01)
    >>> result.mode, result.median_ms > 0.0
    ('cpu', True)
    """
    given = {name: value for name, value in locals().items() if name not in _CALL}
    with prepare(fn, args, kwargs, **given) as measurer:
        return measurer.measure()


def prepare(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    calls: int | None = None,
    shared: Alone | None = None,
    **options: Any,
) -> Measurer:
    """Get ready to measure `fn`; arguments and errors as `benchmark`.

    `calls` is the number of calls in a sample, where the mode allows it; None chooses it by how
    long a call takes. `shared` are the ranks that measure together; None joins them.
    """
    call, checked = _call(fn, args, kwargs), checked_options(**options)
    return Measurer(Work(call, checked.setup), checked, calls, shared)


_ONLY_BEGUN = {
    "an async function": inspect.iscoroutinefunction,
    "an async generator": inspect.isasyncgenfunction,
    "a generator": inspect.isgeneratorfunction,
}


def _call(fn: Any, args: Any, kwargs: Any) -> Call:
    if not callable(fn):
        message = (
            f"fn: pass a function, got {type(fn).__name__}: benchmark(f, (x,)), not benchmark(f(x))"
        )
        raise TypeError(message)
    for kind, is_it in _ONLY_BEGUN.items():
        if is_it(fn):
            message = (
                f"fn: {fn!r} is {kind}, and a call of it runs nothing of its body; "
                "pass a function that runs it to its end"
            )
            raise TypeError(message)
    if not isinstance(args, (tuple, list)):
        message = (
            f"args: expected a tuple or list of arguments, got {type(args).__name__}: for one "
            "argument write (x,)"
        )
        raise TypeError(message)
    kwargs = {} if kwargs is None else checks.mapping("kwargs", kwargs)
    if args and not _fits(fn, args, kwargs) and _fits(fn, (args,), kwargs):
        message = (
            f"args: these are {len(args)} arguments, which "
            f"{getattr(fn, '__name__', fn)} does not take; "
            f"for one argument that is a {type(args).__name__} write args=(value,)"
        )
        raise TypeError(message)
    return fn, args, kwargs


def _fits(fn: Any, args: Any, kwargs: Any) -> bool:
    try:
        inspect.signature(fn).bind(*args, **kwargs)
    except TypeError:
        return False
    except ValueError:  # a function in C may have no signature
        return True
    return True
