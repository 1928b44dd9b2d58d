"""Padded calls of a graphed callable: arguments made larger, results cut.

What belongs to which size is decided in `_callable.buckets` and `_callable.padded_results`, which
know shapes only; here the arrays are dealt with, on the stream of the call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gpuprof._callable.arrays import arrays_of, changed, copies_of
from gpuprof._callable.leaves import DEVICE, SHAPE
from gpuprof._callable.padded_results import ResultSlices, learn
from gpuprof._callable.results import flatten_result, rebuild
from gpuprof._callable.state import fresh_autocast_cache, kept_buffers, kept_random_state

if TYPE_CHECKING:
    from gpuprof._callable.buckets import Padding
    from gpuprof._callable.entry import CapturedCall
    from gpuprof._callable.placement import CallStream
    from gpuprof._callable.pytree import Flat


def padded_arguments(
    flat: Flat, padding: Padding, on: CallStream
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return (args, kwargs) of a call with what has to be padded made larger, by zeros."""
    arrays = [leaf.array for leaf in flat.leaves]
    for number, dim, size in padding.pads:
        arrays[number] = arrays_of(arrays[number], on).padded(arrays[number], dim, size)
    args, kwargs = rebuild(flat.pattern, arrays)
    return args, kwargs


def learn_slices(
    function: Callable[..., Any],
    flat: Flat,
    padding: Padding,
    captured: CapturedCall,
    on: CallStream,
) -> ResultSlices:
    """Run a function on copies of the real arguments to see what its results have to be cut to.

    Raises
    ------
    ValueError
        Its results do not follow the padded sizes, or it writes to its arguments.
    """
    copies = copies_of(flat.leaves, on)
    args, kwargs = rebuild(flat.pattern, copies)
    constants = [value for _, value in flat.values]
    with (
        kept_random_state(flat.leaves[0].facts[DEVICE]),
        kept_buffers(captured.watched.modules),
        fresh_autocast_cache(),
    ):
        real = flatten_result(function(*args, **kwargs), constants)[1]
    written = changed(flat.leaves, copies, on)
    if written:
        message = (
            f"buckets: the function writes to {', '.join(written)}, and what it writes to a "
            "padded copy would be lost; drop buckets=, or return the new values"
        )
        raise ValueError(message)
    return learn(
        padding,
        [path for path, _ in captured.result_shapes],
        [shape for _, shape in captured.result_shapes],
        [tuple(leaf.facts[SHAPE]) for leaf in real],
    )


def cut(
    result: Any, sizes: Sequence[Sequence[tuple[int, int]]], constants: Sequence[Any] = ()
) -> Any:
    """Return a result with each array cut to (dimension, size); `constants` are the arguments'."""
    pattern, leaves = flatten_result(result, constants)
    arrays = []
    for leaf, cuts in zip(leaves, sizes, strict=True):
        array = leaf.array
        for dim, size in cuts:
            array = arrays_of(array).slice(array, dim, size)
        arrays.append(array)
    return rebuild(pattern, arrays)
