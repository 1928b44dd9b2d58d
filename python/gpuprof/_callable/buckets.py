"""Buckets: calls of many sizes served by graphs of a few, by padding up to a listed size.

The caller says which dimension of which arguments may be padded. An *axis* is one such size, which
may be that of several arrays: its real size n is padded to a bucket B. In the results, the
dimensions that follow an axis are found by running the function on padded and on real arguments and
comparing shapes: where one is k * B and the other k * n, a padded call's result is cut to k * n.

Only shapes are dealt with here. That padding does not change the values that remain is the caller's
promise: a mean over a padded dimension is another number.
"""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gpuprof._callable.leaves import SHAPE, STRIDES
from gpuprof._callable.pytree import Flat, Leaf
from gpuprof._callable.values import shown_value

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
    """What to pad in one call.

    Attributes
    ----------
    axes : tuple of Axis
        The sizes that are padded.
    pads : tuple of Pad
        The arrays and dimensions that have these sizes. Dimensions count from 0.
    refused : tuple of str
        Why no bucket takes the call: a size is over the largest one, or is 0. There is nothing to
        pad then, and the call is to be treated as one without buckets.
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
            facts[SHAPE] = _resized(facts[SHAPE], dim, size)
            facts[STRIDES] = None
            leaves[number] = leaf._replace(facts=tuple(facts))
        return flat._replace(leaves=tuple(leaves))


class _Rule(NamedTuple):
    """Which dimension may be padded to which sizes; `path` is None for every array that fits."""

    path: str | None
    dim: int
    sizes: tuple[int, ...]


class _Place(NamedTuple):
    """A dimension of an array that a rule is about."""

    leaf: int
    dim: int
    size: int
    text: str


class Buckets:
    """The rules of one callable.

    Parameters
    ----------
    rules : mapping
        ``{dim: sizes}``: the first array argument with such a dimension, and every other whose size
        in it is the same. Or ``{path: {dim: sizes}}`` for arrays by name, with paths as in errors,
        ``"args[0]"`` or ``"kwargs['x']"``, or ``"x"`` for short; there, dimensions with the same
        sizes are one axis and must agree. Dimensions may be negative.

    Raises
    ------
    TypeError, ValueError
        It is neither, or a size is not an int above 0.
    """

    def __init__(self, rules: Any) -> None:
        if not isinstance(rules, Mapping):
            message = f"buckets: {shown_value(rules)}; {_FORMS}"
            raise TypeError(message)
        if not rules:
            message = f"buckets: it is empty; {_FORMS}, or None"
            raise ValueError(message)
        self._rules: list[_Rule] = []
        if all(isinstance(key, str) for key in rules):
            for path, by_dim in rules.items():
                if not isinstance(by_dim, Mapping) or not by_dim:
                    message = (
                        f"buckets[{path!r}]: {shown_value(by_dim)}; expected {{dim: sizes}}, as in "
                        "{0: (8, 16, 32)}"
                    )
                    raise TypeError(message)
                self._rules += _checked(by_dim, _full_path(path), f"buckets[{path!r}]")
        else:
            self._rules += _checked(rules, None, "buckets")

    def plan(self, flat: Flat) -> Padding | None:
        """Say what to pad in a call.

        Parameters
        ----------
        flat : Flat
            Its arguments.

        Returns
        -------
        Padding or None
            None if every size is a listed one, or no array has such a dimension. Else see
            `Padding`: look at its `refused` first.

        Raises
        ------
        ValueError
            A named array is not there or has too few dimensions, sizes that belong together are
            not the same, or two rules are about one dimension.
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

    def _axes(self, flat: Flat) -> Iterable[tuple[Hashable, tuple[int, ...], list[_Place]]]:
        """Return for each axis of the call: what tells it from others, its buckets, its places."""
        found: dict[Hashable, tuple[tuple[int, ...], list[_Place]]] = {}
        for rule in self._rules:
            if rule.path is None:
                places = _places_of_size(flat.leaves, rule.dim)
                if places:
                    found[rule.dim] = rule.sizes, places
                continue
            place = _place_at(flat, rule)
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


def _full_path(path: str) -> str:
    return f"kwargs[{path!r}]" if path.isidentifier() else path


def _resized(shape: Sequence[int], dim: int, size: int) -> Shape:
    return (*shape[:dim], size, *shape[dim + 1 :])


def _place(number: int, leaf: Leaf, dim: int) -> _Place | None:
    """Return a dimension of an array; None if the array has too few."""
    shape = leaf.facts[SHAPE]
    if not -len(shape) <= dim < len(shape):
        return None
    dim %= len(shape)
    return _Place(number, dim, shape[dim], f"{leaf.path}: its size in dimension {dim}")


def _places_of_size(leaves: Sequence[Leaf], dim: int) -> list[_Place]:
    candidates = (_place(number, leaf, dim) for number, leaf in enumerate(leaves))
    places = [place for place in candidates if place is not None]
    return [place for place in places if place.size == places[0].size]


def _place_at(flat: Flat, rule: _Rule) -> _Place | None:
    """Return the dimension that a rule names; None if the array is given as None."""
    for number, leaf in enumerate(flat.leaves):
        if leaf.path == rule.path:
            place = _place(number, leaf, rule.dim)
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


def _check_agreement(places: Sequence[_Place]) -> None:
    for place in places[1:]:
        if place.size != places[0].size:
            message = (
                f"{place.text} is {place.size}, but {places[0].text} is {places[0].size}: "
                "dimensions with the same buckets are padded together; list other sizes for one "
                "that varies by itself"
            )
            raise ValueError(message)
