"""`do_bench` and `do_bench_cudagraph` as in ``triton.testing``, on `gpuprof.benchmark`."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import gpuprof._core as _core
from gpuprof._benchmark.api import benchmark
from gpuprof._common import checks
from gpuprof._common.quantiles import quantile

__all__ = ["do_bench", "do_bench_cudagraph"]

_MODES: dict[str, Callable[[Sequence[float]], float]] = {
    "min": min,
    "max": max,
    "mean": statistics.fmean,
    "median": statistics.median,
}
_LEAST_S = 1e-9  # of a limit: one sample is taken in any case


def do_bench(
    fn: Callable[[], Any],
    warmup: float = 25,
    rep: float = 100,
    grad_to_none: Iterable[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
) -> Any:
    """Measure how long `fn` takes, in milliseconds: ``triton.testing.do_bench``.

    The L2 cache is flushed before each call, and each call is a sample, as in Triton. An empty
    interval is taken off, which Triton leaves in. Where `fn` uses no GPU the time is the CPU's.

    Parameters
    ----------
    fn : callable
        What is measured, called without arguments.
    warmup : float
        Milliseconds to run before samples count.
    rep : float
        Milliseconds to take samples for.
    grad_to_none : iterable of torch.Tensor, optional
        Tensors whose ``grad`` is set to None before each call.
    quantiles : sequence of float, optional
        Return these quantiles; `return_mode` is ignored then.
    return_mode : {'mean', 'min', 'max', 'median', 'all'}
        What is returned of the samples.

    Returns
    -------
    float or list of float
        A list for ``return_mode="all"`` and for more than one quantile.

    Raises
    ------
    TypeError, ValueError
        An argument is not what is listed above.
    As `gpuprof.benchmark`.
    """
    _check(return_mode, quantiles, rep=rep, warmup=warmup)
    result = benchmark(
        fn,
        mode="isolated",
        cold_l2=True,
        setup=_forget_gradients(grad_to_none),
        warmup_s=warmup / 1e3,
        min_samples=1,
        min_time_s=rep / 1e3,
        max_time_s=max(rep / 1e3, _LEAST_S),
        progress=False,
    )
    return _summary(result.samples_ms, quantiles, return_mode)


def do_bench_cudagraph(
    fn: Callable[[], Any],
    rep: float = 20,
    grad_to_none: Iterable[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
) -> Any:
    """Measure how long `fn` takes in a CUDA graph: ``triton.testing.do_bench_cudagraph``.

    A sample is the difference between graphs of many and of few calls, so launch overhead is not
    in it. Where `fn` uses no GPU the time is the CPU's. Arguments, result and errors are those of
    `do_bench`.
    """
    _check(return_mode, quantiles, rep=rep)
    forget = _forget_gradients(grad_to_none)
    result = benchmark(
        fn if forget is None else lambda: (forget(), fn()),
        mode="graph" if _core.cuda_in_use() else "auto",
        min_samples=1,
        min_time_s=rep / 1e3,
        progress=False,
    )
    return _summary(result.samples_ms, quantiles, return_mode)


def _check(return_mode: object, quantiles: object, **milliseconds: object) -> None:
    checks.choice("return_mode", return_mode, (*_MODES, "all"))
    for name, given in milliseconds.items():
        checks.number(name, given, 0, 1e3 * checks.MOST_S)
    if quantiles is None:
        return
    if isinstance(quantiles, (str, bytes)) or not isinstance(quantiles, Iterable):
        raise checks.type_error(quantiles, "quantiles", "a list of numbers from 0 to 1")
    for each in quantiles:
        checks.number("quantiles", each, 0, 1)


def _forget_gradients(tensors: Iterable[Any] | None) -> Callable[[], None] | None:
    if tensors is None:
        return None
    kept = tuple(tensors)

    def forget() -> None:
        for tensor in kept:
            tensor.grad = None

    return forget


def _summary(
    samples: Sequence[float], quantiles: Sequence[float] | None, return_mode: str
) -> float | list[float]:
    if quantiles is not None:
        found = [quantile(samples, each) for each in quantiles]
        return found[0] if len(found) == 1 else found
    if return_mode == "all":
        return list(samples)
    return _MODES[return_mode](samples)
