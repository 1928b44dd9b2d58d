"""Decode loops: a CUDA graph for each of a few batch sizes, all captured before the first token."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import gpuprof._startup  # noqa: F401 (a program may import nothing but this module)
from gpuprof._callable.api import GraphedCallable, make_graphed_callable
from gpuprof._callable.stats import GraphedStats
from gpuprof._common.checks import level_outside, whole


def _checked_sizes(sizes: Any) -> tuple[int, ...]:
    if not isinstance(sizes, Iterable):
        message = f"batch_sizes: expected several, as (1, 2, 4, 8), got {sizes!r}"
        raise TypeError(message)
    return tuple(sorted({whole("each of batch_sizes", size) for size in sizes}))


class DecodeGraphs:
    """A decode step behind a CUDA graph for each batch size.

    Called like `step`. The batch is the first dimension of the first argument, and of every other
    array that has the same size there. Other batches are padded with zeros to the next size, and
    the results are cut. A batch larger than all sizes runs `step`, with one warning.

    Parameters
    ----------
    step : callable
        Takes and returns arrays on a GPU. Caches that it keeps are written to in place.
    sample_args : tuple
        Arguments of the largest batch. `step` runs with them, several times for each size, for
        real: give it what may be written to the caches, such as zeros for a slot that is nobody's.
    batch_sizes : iterable of int
        Each one is a graph. They share memory, and the largest is captured first.
    **options
        Those of `gpuprof.make_graphed_callable`, but for ``buckets``, ``max_graphs`` and
        ``on_new_shape``, which follow from `batch_sizes`. ``verify`` is ``"off"`` unless it is
        given: a comparison copies all that `step` writes to, which means the caches.

    Raises
    ------
    ValueError
        `batch_sizes` is empty or has what is no integer of at least 1, or `sample_args` are not
        of the largest one.
    TypeError
        `batch_sizes` is one number, or an option follows from them.
    TypeError, CaptureError, CudaUnavailableError
        As for `gpuprof.make_graphed_callable`.
    """

    def __init__(
        self,
        step: Callable[..., Any],
        sample_args: tuple[Any, ...],
        batch_sizes: Iterable[int] = (1, 2, 4, 8, 16, 32),
        **options: Any,
    ) -> None:
        if given := sorted({"buckets", "max_graphs", "on_new_shape"} & {*options}):
            message = f"{given[0]}: DecodeGraphs sets it by batch_sizes; leave it out"
            raise TypeError(message)
        self.batch_sizes = _checked_sizes(batch_sizes)
        rows = [getattr(arg, "shape", ())[:1] for arg in sample_args]
        if not self.batch_sizes or rows[:1] != [self.batch_sizes[-1:]]:
            message = (
                f"sample_args: expected a tuple that begins with an array of the largest of the "
                f"batch sizes {self.batch_sizes}, got the first dimensions {rows}"
            )
            raise ValueError(message)
        sizes, warmup = self.batch_sizes, options.setdefault("warmup", 1) or 3
        # A padded call may need its own graph: strides count where a step has Triton's kernels.
        known: dict[str, Any] = {"buckets": {0: sizes}, "max_graphs": 2 * len(sizes)}
        known |= {"verify": "off", **options}
        self.callable: GraphedCallable = make_graphed_callable(step, **known)
        self._has_warned = False
        below = dict(zip(sizes, (0, *sizes), strict=False))
        for size in reversed(sizes):
            for batch in sorted({size, below[size] + 1}, reverse=True):
                pairs = zip(sample_args, rows, strict=True)
                cut = [arg[:batch] if row == rows[0] else arg for arg, row in pairs]
                for _ in range(warmup + 3):  # warm-ups, a capture, a look at the results
                    self.callable(*cut)

    def __call__(self, *args: Any) -> Any:
        """Return what `step` returns for a batch."""
        batch, largest = args[0].shape[0], self.batch_sizes[-1]
        if 0 < batch <= largest:
            return self.callable(*args)
        if batch and not self._has_warned:
            self._has_warned = True
            message = f"gpuprof: a batch of {batch} is larger than {largest}, and has no graph"
            warnings.warn(message, RuntimeWarning, stacklevel=level_outside())
        return self.callable.eager(*args)

    def stats(self) -> GraphedStats:
        """Return what the graphs did, one row for each batch size."""
        return self.callable.stats()
