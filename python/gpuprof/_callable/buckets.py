"""Buckets: calls of many sizes served by graphs of a few, by padding up to a listed size.

The caller says which dimension of which arguments may be padded. An *axis* is one such size, which
may be that of several arrays: its real size n is padded to a bucket B. In the results, the
dimensions that follow an axis are found by running the function on padded and on real arguments and
comparing shapes: where one is k * B and the other k * n, a padded call's result is cut to k * n.

Only shapes are dealt with here. The caller must ensure that padding does not change the values that
remain: a mean over a padded dimension is another number.
"""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuprof._callable.arrays import arrays_of, changed, copies_of
from gpuprof._callable.leaves import DEVICE, SHAPE, STRIDES, Leaf, shown_value
from gpuprof._callable.pytree import Flat, flatten_result, rebuild
from gpuprof._frameworks.torch import fresh_autocast_cache, kept_buffers, kept_random_state

if TYPE_CHECKING:
    from gpuprof._frameworks.streams import CallStream

Shape = tuple[int, ...]
_FORMS = "expected {dim: sizes} or {path: {dim: sizes}}, as in {0: (8, 16, 32)}"


class Axis(NamedTuple):
    """One size that is padded: `rule` tells it from others, `real` is n and `bucket` is B."""

    rule: Hashable
    real: int
    bucket: int


class Pad(NamedTuple):
    """One array that is padded: its number among the leaves, the dimension, and the new size."""

    leaf: int
    dim: int
    size: int


@dataclass(frozen=True)
class Padding:
    """What to pad in one call: sizes, and the arrays that have them. Dimensions count from 0.

    `refused` says why no bucket takes the call: a size is over the largest one, or is 0. There is
    nothing to pad then, and the call is to be treated as one without buckets.
    """

    axes: tuple[Axis, ...]
    pads: tuple[Pad, ...]
    refused: tuple[str, ...] = ()

    def of(self, flat: Flat) -> Flat:
        """Return what the padded arguments will be, for their key; their strides are None."""
        leaves = list(flat.leaves)
        for number, dim, size in self.pads:
            leaf = leaves[number]
            facts = list(leaf.facts)
            facts[SHAPE] = (*facts[SHAPE][:dim], size, *facts[SHAPE][dim + 1 :])
            facts[STRIDES] = None
            leaves[number] = leaf._replace(facts=tuple(facts))
        return flat._replace(leaves=tuple(leaves))

    def arguments(self, flat: Flat, on: CallStream) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return (args, kwargs) of a call with what has to be padded made larger, by zeros."""
        arrays = [leaf.array for leaf in flat.leaves]
        for number, dim, size in self.pads:
            arrays[number] = arrays_of(arrays[number], on).padded(arrays[number], dim, size)
        args, kwargs = rebuild(flat.pattern, arrays)
        return args, kwargs


class _Rule(NamedTuple):
    """Which dimension may be padded to which sizes; `path` is None for every array that fits."""

    path: str | None
    dim: int
    sizes: tuple[int, ...]


class _Dimension(NamedTuple):
    """A dimension of an array that a rule is about."""

    leaf: int
    dim: int
    size: int
    text: str


class Buckets:
    """The rules of one callable; TypeError or ValueError where ``buckets=`` has another form.

    They are ``{dim: sizes}``: the first array argument with such a dimension, and every other whose
    size in it is the same. Or ``{path: {dim: sizes}}`` for arrays by name, with paths as in errors,
    ``"args[0]"`` or ``"kwargs['x']"``, or ``"x"`` for short; there, dimensions with the same sizes
    are one axis and must agree. Dimensions may be negative.
    """

    def __init__(self, rules: Any) -> None:
        if not isinstance(rules, Mapping):
            message = f"buckets: {shown_value(rules)}; {_FORMS}"
            raise TypeError(message)
        if not rules:
            message = f"buckets: it is empty; {_FORMS}, or None"
            raise ValueError(message)
        self._rules: list[_Rule] = []
        named = all(isinstance(key, str) for key in rules)
        by_path: Iterable[tuple[Any, Any]] = rules.items() if named else [(None, rules)]
        for path, by_dim in by_path:
            where = f"buckets[{path!r}]" if named else "buckets"
            if not isinstance(by_dim, Mapping) or not by_dim:
                message = (
                    f"{where}: {shown_value(by_dim)}; expected {{dim: sizes}}, as in "
                    "{0: (8, 16, 32)}"
                )
                raise TypeError(message)
            full = f"kwargs[{path!r}]" if named and path.isidentifier() else path
            self._rules += _checked(by_dim, full, where)

    def plan(self, flat: Flat) -> Padding | None:
        """Say what to pad in a call; None if every size is a listed one, or no array has such.

        Look at the `refused` of the result first. ValueError if a named array is not there or has
        too few dimensions, sizes that belong together are not the same, or two rules are about one
        dimension.
        """
        axes: list[Axis] = []
        pads: list[Pad] = []
        refused: list[str] = []
        claimed: set[tuple[int, int]] = set()
        for rule, sizes, places in self._axes(flat):
            for place in places:
                if (place.leaf, place.dim) in claimed:
                    message = f"buckets: two of its rules are about {place.text}; leave one out"
                    raise ValueError(message)
                claimed.add((place.leaf, place.dim))
            first = places[0]
            at = bisect_left(sizes, first.size)
            if at == len(sizes):
                refused.append(
                    f"{first.text} is {first.size}, and the largest of its buckets {sizes[-1]}"
                )
            elif first.size == 0:
                refused.append(f"{first.text} is 0, and an empty array is not padded")
            elif sizes[at] != first.size:
                axes.append(Axis(rule, first.size, sizes[at]))
                pads += [Pad(place.leaf, place.dim, sizes[at]) for place in places]
        if refused:
            return Padding((), (), tuple(refused))
        return Padding(tuple(axes), tuple(pads)) if axes else None

    def _axes(self, flat: Flat) -> Iterable[tuple[Hashable, tuple[int, ...], list[_Dimension]]]:
        """Return for each axis of the call: what tells it from others, its buckets, its places."""
        found: dict[Hashable, tuple[tuple[int, ...], list[_Dimension]]] = {}
        for rule in self._rules:
            if rule.path is None:
                places = _dimensions_of_size(flat.leaves, rule.dim)
                if places:
                    found[rule.dim] = rule.sizes, places
                continue
            place = _dimension_at(flat, rule)
            if place is not None:
                _, together = found.setdefault(rule.sizes, (rule.sizes, []))
                together.append(place)
        for _, places in found.values():
            _check_agreement(places)
        return [(rule, sizes, places) for rule, (sizes, places) in found.items()]


def _checked(by_dim: Mapping[Any, Any], path: str | None, where: str) -> list[_Rule]:
    rules = []
    for dim, sizes in by_dim.items():
        if not isinstance(dim, int) or isinstance(dim, bool):
            message = f"{where}: {shown_value(dim)} is no dimension; {_FORMS}"
            raise TypeError(message)
        rules.append(_Rule(path, dim, _checked_sizes(sizes, f"{where}[{dim}]")))
    return rules


def _checked_sizes(sizes: Any, where: str) -> tuple[int, ...]:
    expected = "expected ints above 0, as in (8, 16, 32)"
    if isinstance(sizes, (str, bytes, Mapping)) or not isinstance(sizes, Iterable):
        message = f"{where}: {shown_value(sizes)}; {expected}"
        raise TypeError(message)
    found = set()
    for size in sizes:
        if isinstance(size, bool) or not hasattr(size, "__index__"):
            message = f"{where}: {shown_value(size)}; {expected}"
            raise TypeError(message)
        if size < 1:
            message = f"{where}: {size}; {expected}"
            raise ValueError(message)
        found.add(operator.index(size))
    if not found:
        message = f"{where}: no sizes; {expected}"
        raise ValueError(message)
    return tuple(sorted(found))


def _dimension(number: int, leaf: Leaf, dim: int) -> _Dimension | None:
    """Return a dimension of an array; None if the array has too few."""
    shape = leaf.facts[SHAPE]
    if not -len(shape) <= dim < len(shape):
        return None
    dim %= len(shape)
    return _Dimension(number, dim, shape[dim], f"{leaf.path}: its size in dimension {dim}")


def _dimensions_of_size(leaves: Sequence[Leaf], dim: int) -> list[_Dimension]:
    candidates = (_dimension(number, leaf, dim) for number, leaf in enumerate(leaves))
    places = [place for place in candidates if place is not None]
    return [place for place in places if place.size == places[0].size]


def _dimension_at(flat: Flat, rule: _Rule) -> _Dimension | None:
    """Return the dimension that a rule names; None if the array is given as None."""
    for number, leaf in enumerate(flat.leaves):
        if leaf.path == rule.path:
            place = _dimension(number, leaf, rule.dim)
            if place is None:
                shape = tuple(leaf.facts[SHAPE])
                message = f"{leaf.path}: shape {shape}, and buckets= names dimension {rule.dim}"
                raise ValueError(message)
            return place
    if (rule.path, None) in flat.values:
        return None
    known = ", ".join(leaf.path for leaf in flat.leaves) or "nowhere"
    message = f"buckets: the call has no array at {rule.path}; it has arrays at {known}"
    raise ValueError(message)


def _check_agreement(places: Sequence[_Dimension]) -> None:
    for place in places[1:]:
        if place.size != places[0].size:
            message = (
                f"{place.text} is {place.size}, but {places[0].text} is {places[0].size}: "
                "dimensions with the same buckets are padded together; list other sizes for one "
                "that varies by itself"
            )
            raise ValueError(message)


# Results.


class Slice(NamedTuple):
    """A dimension of a result that is `times` the size of an axis."""

    dim: int
    rule: Hashable
    times: int


@dataclass(frozen=True)
class ResultSlices:
    """What to cut off the results of a padded call: the dimensions of each that follow an axis.

    `rules` are the axes that were padded when this was learned: of others nothing is known.
    """

    slices: tuple[tuple[Slice, ...], ...]
    rules: frozenset[Hashable]

    def covers(self, padding: Padding) -> bool:
        """Return whether the axes of a call are among those that are known."""
        return all(axis.rule in self.rules for axis in padding.axes)

    def with_(self, other: ResultSlices) -> ResultSlices:
        """Return what is known by this and by what was learned later."""
        slices = tuple(
            tuple(dict.fromkeys([*mine, *theirs]))
            for mine, theirs in zip(self.slices, other.slices, strict=True)
        )
        return ResultSlices(slices, self.rules | other.rules)

    def apply(self, padding: Padding) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Return what to cut, for each result: (dimension, real size)."""
        if not self.covers(padding):
            message = "an axis is padded of which the results are not known; learn() them first"
            raise ValueError(message)
        real = {axis.rule: axis.real for axis in padding.axes}
        return tuple(
            tuple((dim, times * real[rule]) for dim, rule, times in each if rule in real)
            for each in self.slices
        )

    def cut(self, result: Any, padding: Padding, constants: Sequence[Any]) -> Any:
        """Return the result of a padded call cut to the real sizes; `constants` are its own."""
        pattern, leaves = flatten_result(result, constants)
        arrays = []
        for leaf, cuts in zip(leaves, self.apply(padding), strict=True):
            array = leaf.array
            for dim, size in cuts:
                array = arrays_of(array).slice(array, dim, size)
            arrays.append(array)
        return rebuild(pattern, arrays)


def learn_slices(
    function: Callable[..., Any],
    flat: Flat,
    padding: Padding,
    padded_shapes: Sequence[tuple[str, Shape]],
    *,
    modules: Iterable[Any],
    on: CallStream,
) -> ResultSlices:
    """Run a function on copies of the real arguments to see what its results have to be cut to.

    `padded_shapes` are the paths and shapes of its results for padded ones, `modules` those that it
    has. ValueError if its results do not follow the padded sizes, or it writes to its arguments.
    """
    copies = copies_of(flat.leaves, on)
    args, kwargs = rebuild(flat.pattern, copies)
    device = flat.leaves[0].facts[DEVICE]
    with kept_random_state(device), kept_buffers(modules), fresh_autocast_cache():
        real = flatten_result(function(*args, **kwargs), flat.constants)[1]
    written = changed(flat.leaves, copies, on)
    if written:
        message = (
            f"buckets: the function writes to {', '.join(written)}, and what it writes to a "
            "padded copy would be lost; drop buckets=, or return the new values"
        )
        raise ValueError(message)
    return learn(
        padding,
        [path for path, _ in padded_shapes],
        [shape for _, shape in padded_shapes],
        [tuple(leaf.facts[SHAPE]) for leaf in real],
    )


def learn(
    padding: Padding, paths: Sequence[str], padded: Sequence[Shape], real: Sequence[Shape]
) -> ResultSlices:
    """Compare the shapes of the results of a run with padded arguments and one with real ones.

    ValueError if a size differs and is not a multiple of an axis, or may be one of several.
    """
    if len(padded) != len(real):
        message = (
            f"the function returns {len(padded)} arrays for padded arguments and {len(real)} for "
            "the real ones, so that padding changes what it does; drop buckets="
        )
        raise ValueError(message)
    slices = tuple(
        _slices_of(padding.axes, path, tuple(large), tuple(small))
        for path, large, small in zip(paths, padded, real, strict=True)
    )
    return ResultSlices(slices, frozenset(axis.rule for axis in padding.axes))


def _slices_of(axes: Sequence[Axis], path: str, padded: Shape, real: Shape) -> tuple[Slice, ...]:
    follows = f"the result at {path} has shape {real}, and {padded} when the arguments are padded"
    unrelated = f"{follows}, which does not follow the padded dimension; drop buckets="
    if len(padded) != len(real):
        raise ValueError(unrelated)
    found = []
    for dim, (large, small) in enumerate(zip(padded, real, strict=True)):
        if large == small:
            continue
        fitting = [axis for axis in axes if _times(axis, large, small)]
        if not fitting:
            raise ValueError(unrelated)
        if len(fitting) > 1:
            message = (
                f"{follows}: its dimension {dim} may follow more than one of the padded ones; make "
                "the first call with sizes that differ from each other"
            )
            raise ValueError(message)
        found.append(Slice(dim, fitting[0].rule, _times(fitting[0], large, small)))
    return tuple(found)


def _times(axis: Axis, padded: int, real: int) -> int:
    """Return k where `padded` is k times the bucket and `real` k times the real size, else 0."""
    times = padded // axis.bucket
    return times if (padded, real) == (times * axis.bucket, times * axis.real) else 0
