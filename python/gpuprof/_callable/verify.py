"""Compares what a replayed graph computed with what the function itself computes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import gpuprof._core as _core
from gpuprof._callable.entry import draws
from gpuprof._callable.leaves import Leaf
from gpuprof._callable.pytree import Flat, Pattern, flatten_result, pattern_key, rebuild
from gpuprof._common.text import shown_value
from gpuprof._frameworks.arrays import arrays_of, copied, put_back
from gpuprof._frameworks.compare import Difference, differences
from gpuprof._frameworks.torch import fresh_autocast_cache, kept_random_state
from gpuprof.errors import GraphMismatchError

if TYPE_CHECKING:
    from gpuprof._callable.buckets import Padding
    from gpuprof._callable.entry import CapturedCall
    from gpuprof._frameworks.streams import CallStream

_MAX_PROBLEMS = 8
_HINTS = (
    "Python state has changed since the capture: numbers, flags, containers and names are frozen "
    'in the graph (docs/callable.md, "What is frozen"). Pass it as an argument, or name it with '
    "guards=.",
    "A kernel that torch does not know (Triton, CuPy, Numba, an extension) writes to an array: "
    "name that argument with writes=.",
    "The function reads memory that nobody has written, such as that of torch.empty().",
    "The function does not compute the same twice, for instance with random numbers that are not "
    'torch\'s: then verify="off" is right.',
)


def mismatch(name: str, found: Sequence[Difference]) -> GraphMismatchError:
    """Return the error for a replay that differs, of a callable that goes on without its graphs."""
    problems = tuple(map(str, found))
    lines = [f"  {problem}" for problem in problems[:_MAX_PROBLEMS]]
    if len(problems) > _MAX_PROBLEMS:
        lines.append(f"  and {len(problems) - _MAX_PROBLEMS} more")
    text = "\n".join(
        [
            f"{name}: a replay of the graph differs from the function, given the same inputs; "
            "from now on calls run the function",
            *lines,
            "Usual causes:",
            *(f"- {hint}" for hint in _HINTS),
        ]
    )
    error = GraphMismatchError(text)
    error.problems = problems
    if found:
        first = found[0]
        error.path, error.index = first.path, first.index
        error.expected, error.found = first.expected, first.found
    return error


def compared(
    function: Callable[..., Any],
    captured: CapturedCall,
    flat: Flat,
    replay: Callable[[tuple[Any, ...], dict[str, Any]], Any],
    on: CallStream,
    *,
    undo: bool,
) -> tuple[Any, list[Difference]]:
    """Replay a call, run the function on equal arguments from an equal state, and compare.

    Return the replay's result and the differences. What the function writes to arguments and to
    state is what stays; with `undo`, state and random generators are put back, too. Nothing is
    compared if the replay did not take place.
    """
    twins = twins_of(flat.leaves, on)
    state = captured.externals_written
    device = captured.device
    with kept_random_state(device) if undo else contextlib.nullcontext():
        before = copied(state)
        gradients = [(parameter, parameter.grad) for parameter, _ in captured.gradients]
        with kept_random_state(device):
            result = replay(*rebuild(flat.pattern, [leaf.array for leaf in flat.leaves]))
        if result is _core._no_fit or result is _core._is_stale:
            return result, []
        after = copied(state)
        put_back(state, before)
        _set_gradients(gradients)
        args, kwargs = rebuild(flat.pattern, twins)
        with fresh_autocast_cache():
            expected = function(*args, **kwargs)
        _set_gradients(gradients if undo else captured.gradients)
        found = _result_pairs(expected, result, flat.constants, captured.flat.constants)
        found += [
            (leaf.path, twin, leaf.array)
            for leaf, twin in zip(flat.leaves, twins, strict=True)
            if leaf.path in captured.writes
        ]
        names = map(captured.guards.name_of, state)
        found += zip(names, state, after, strict=True)
        problems = differences(found, on=on, computed_in=captured.dtypes)
        if problems:
            for leaf, twin in zip(flat.leaves, twins, strict=True):
                if leaf.path in captured.writes:
                    arrays_of(leaf.array, on).fill(leaf.array, twin)
        if undo:
            put_back(state, before)
    return result, problems


def _set_gradients(gradients: Iterable[tuple[Any, Any]]) -> None:
    for parameter, gradient in gradients:
        parameter.grad = gradient


def twins_of(leaves: Sequence[Leaf], on: CallStream) -> list[Any]:
    """Return copies of the arrays of a call, each laid out as it; of one used in place, itself."""
    twins = []
    for leaf in leaves:
        arrays = arrays_of(leaf.array, on)
        twin = arrays.laid_out_like(leaf.array, arrays.static_like(leaf.array))
        arrays.fill(twin, leaf.array)
        if getattr(leaf.array, "requires_grad", False):
            twin.requires_grad_()
        twins.append(twin)
    return twins


def check_padding(
    captured: CapturedCall,
    padding: Padding,
    flat: Flat,
    on: CallStream,
    *,
    expected: Any,
    replay: Callable[[tuple[Any, ...], dict[str, Any]], Any],
) -> None:
    """Replay a padded call that the function has answered; ValueError if its results differ.

    Not where it writes besides its results, which would be done twice, or draws random numbers.
    """
    if captured.writes or captured.written or draws(captured.graph):
        return
    found = replay(*rebuild(flat.pattern, padding.arrays(flat, on)))
    if found is _core._no_fit or found is _core._is_stale:
        return
    captured.checks += 1
    assert captured.slices is not None
    cut = captured.slices.cut(found, padding, captured.flat.constants)
    pairs = _result_pairs(expected, cut, flat.constants, captured.flat.constants)
    for problem in differences(pairs, on=on, computed_in=captured.dtypes):
        message = (
            f"buckets: padding changes what the function returns ({problem}): its rows are not "
            'independent, or do not come first. Drop buckets=, or name a "mask"'
        )
        captured.slices = None
        raise ValueError(message)


def _result_pairs(
    expected: Any, found: Any, given: Sequence[Any], captured: Sequence[Any]
) -> list[tuple[str, Any, Any]]:
    """Pair the arrays of two results; where their structure or their values differ, those."""
    wanted_pattern, wanted = flatten_result(expected, given)
    found_pattern, replayed = flatten_result(found, captured)
    if pattern_key(wanted_pattern) != pattern_key(found_pattern):
        return list(_other_parts(wanted_pattern, found_pattern, "result"))
    return [
        (leaf.path, leaf.array, other.array) for leaf, other in zip(wanted, replayed, strict=True)
    ]


def _other_parts(expected: Pattern, found: Pattern, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield what is not the same in two structures, by path."""
    kind = expected[0]
    if pattern_key(expected) == pattern_key(found):
        return
    if kind == found[0] == "value":
        yield path, expected[1], found[1]
        return
    if kind == found[0] and kind in {"tuple", "list", "dict"}:
        mine, theirs = (
            dict(zip(each[1] if kind == "dict" else range(len(each[1])), each[-1], strict=True))
            for each in (expected, found)
        )
        if mine.keys() == theirs.keys():
            for name, child in mine.items():
                yield from _other_parts(child, theirs[name], f"{path}[{name!r}]")
            return
    told = _parts(expected), _parts(found)
    yield path, told[0], told[1] if told[0] != told[1] else f"{told[1]} with other parts"


def _parts(pattern: Pattern) -> str:
    if pattern[0] == "value":
        return shown_value(pattern[1])
    return "an array" if pattern[0] == "array" else f"a {pattern[0]} of {len(pattern[-1])}"
