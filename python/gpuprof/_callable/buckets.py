"""Buckets: calls of many sizes served by graphs of a few, by padding up to a listed size.

An *axis* is one such size, which may be that of several arrays: its real size n is padded to a
bucket B. Where a size of a result is k * B for padded arguments and k * n for real ones, a padded
call keeps the first k * n. What the function writes to padded arguments is cut and copied back.

Padding is zeros, and the caller must ensure that it does not change what is kept: a mean over a
padded dimension is another number, and the second copy in x.repeat(2) begins at B and not at n.
A function that has to know what is real asks for a mask.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuprof._callable.mismatch import other_parts
from gpuprof._callable.pytree import Flat, flatten_arguments, flatten_result, rebuild
from gpuprof._common import checks
from gpuprof._frameworks.array_facts import type_text
from gpuprof._frameworks.arrays import all_true
from gpuprof._frameworks.compare import Difference

if TYPE_CHECKING:
    from gpuprof._frameworks.streams import CallStream

Shape = tuple[int, ...]
_FORMS = "{dim: sizes} or {path: {dim: sizes}}, as in {0: (8, 16, 32)}"


class Pad(NamedTuple):
    """A dimension of an array, which is that of a leaf by its number, to be padded to a bucket.

    Dimensions that have one size have one `axis`, of any name. The bucket is 0 where none will do.
    """

    axis: Hashable
    leaf: int
    dim: int
    real: int
    bucket: int


class Padding(NamedTuple):
    """What to pad in one call. Dimensions count from 0."""

    pads: tuple[Pad, ...]

    def arrays(self, flat: Flat, on: CallStream) -> list[Any]:
        """Return the arrays of a call, of which those to pad are new ones that end in zeros."""
        arrays = list(flat.arrays)
        for pad in self.pads:
            library = flat.leaves[pad.leaf].framework.at(on)
            arrays[pad.leaf] = library.padded(arrays[pad.leaf], pad.dim, pad.bucket)
        return arrays

    def give_back(
        self, flat: Flat, arrays: Sequence[Any], written: Collection[str], on: CallStream
    ) -> None:
        """Enqueue the copies of what was written to padded arrays into those of the call.

        `arrays` are those that `arrays` returned, `written` the paths that the function writes to.
        """
        for number in sorted({pad.leaf for pad in self.pads}):
            leaf, real = flat.leaves[number], arrays[number]
            if leaf.path in written:
                library = leaf.framework.at(on)
                for dim, size in enumerate(leaf.facts.shape):
                    real = library.slice(real, dim, size)
                library.fill(flat.arrays[number], real)


class _Rule(NamedTuple):
    """Which dimension may be padded to which sizes; `path` is None for every array that fits."""

    axis: Hashable  # rules with the same one are about one size
    path: str | None
    dim: int
    sizes: tuple[int, ...]


class Buckets:
    """The rules of one callable; TypeError or ValueError where ``buckets=`` has another form.

    None is no rules: nothing is padded.

    They are ``{dim: sizes}``: the first array argument with such a dimension, and every other whose
    size in it is the same. Or ``{path: {dim: sizes}}`` for arrays by name, with paths as in errors,
    ``"args[0]"`` or ``"kwargs['x']"``, or ``"x"`` for short; there, dimensions with the same sizes
    are one axis and must agree. Dimensions may be negative.

    With ``"mask": name`` besides, the function gets a keyword argument of that name: an array of
    bool of the first rule's axis, True where an element is real and False where it is padding.
    """

    def __init__(self, rules: Any) -> None:
        self.mask: str | None = None
        self._mask_path: str | None = None
        self._rules: list[_Rule] = []
        if rules is None:
            return
        if not isinstance(rules, Mapping):
            raise checks.type_error(rules, "buckets", _FORMS)
        if isinstance(rules.get("mask"), str):
            rules = dict(rules)
            self.mask = rules.pop("mask")
            if not self.mask.isidentifier():
                raise checks.value_error(self.mask, "buckets['mask']", "a keyword argument's name")
        if not rules:
            raise checks.value_error(rules, "buckets", f"{_FORMS}, or None")
        named = all(isinstance(key, str) for key in rules)
        by_path: Iterable[tuple[Any, Any]] = rules.items() if named else [(None, rules)]
        for path, by_dim in by_path:
            where = f"buckets[{path!r}]" if named else "buckets"
            if not isinstance(by_dim, Mapping) or not by_dim:
                raise checks.type_error(by_dim, where, "{dim: sizes}, as in {0: (8, 16, 32)}")
            full = f"kwargs[{path!r}]" if named and path.isidentifier() else path
            self._rules += _checked(by_dim, full, where)
        if self.mask is not None:
            self._mask_path = f"kwargs[{self.mask!r}]"
            self._rules.append(self._rules[0]._replace(path=self._mask_path, dim=0))

    def plan(self, flat: Flat) -> Padding | None:
        """Say what to pad in a call; None if no array has such a size, or every size is listed.

        None as well if a size is over the largest one, or is 0. ValueError if a named array is not
        there or has too few dimensions, sizes that belong together are not the same, or two rules
        are about one dimension.
        """
        pads = [pad for places in self._axes(flat, self._rules).values() for pad in places]
        padded = tuple(pad for pad in pads if pad.bucket != pad.real)
        return Padding(padded) if padded and all(pad.bucket for pad in pads) else None

    def with_mask(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the keywords of a call with its mask: all True, of the real size, to be padded.

        TypeError if the call has that keyword, or arrays of neither torch nor CuPy; ValueError if
        it has no array that the mask is about.
        """
        if self.mask is None:
            return kwargs
        rule = self._rules[0]
        if self.mask in kwargs:
            message = f"{self._mask_path}: buckets= makes this argument; leave it out of the call"
            raise TypeError(message)
        flat = flatten_arguments(args, kwargs)
        places = self._axes(flat, self._rules[:-1]).get(rule.axis)
        if places is None:
            message = (
                f"{rule.path or 'the arguments'}: no array with dimension {rule.dim}, which "
                f"{self._mask_path} is a mask of"
            )
            raise ValueError(message)
        array = flat.arrays[places[0].leaf]
        mask = all_true(array, places[0].real)
        if mask is None:
            path = flat.leaves[places[0].leaf].path
            message = (
                f"{path}: {type_text(type(array))}; buckets= makes masks of torch and CuPy only"
            )
            raise TypeError(message)
        return {**kwargs, self.mask: mask}

    def _axes(self, flat: Flat, rules: Sequence[_Rule]) -> dict[Hashable, list[Pad]]:
        """Return for each axis of the call the dimensions that have its size."""
        found: dict[Hashable, list[Pad]] = {}
        claimed: set[tuple[int, int]] = set()
        for pad in (pad for rule in rules for pad in _pads(flat, rule, self._mask_path)):
            found.setdefault(pad.axis, []).append(pad)
            first = found[pad.axis][0]
            if pad.real != first.real:
                message = (
                    f"{_size_of(flat, pad)} is {pad.real}, but {_size_of(flat, first)} is "
                    f"{first.real}: dimensions with the same buckets are padded together; list "
                    "other sizes for one that varies by itself"
                )
                raise ValueError(message)
            if (pad.leaf, pad.dim) in claimed:
                about = _size_of(flat, pad)
                message = f"buckets: two of its rules are about {about}; leave one out"
                raise ValueError(message)
            claimed.add((pad.leaf, pad.dim))
        return found


def _size_of(flat: Flat, pad: Pad) -> str:
    return f"{flat.leaves[pad.leaf].path}: its size in dimension {pad.dim}"


def _checked(by_dim: Mapping[Any, Any], path: str | None, where: str) -> list[_Rule]:
    rules = []
    expected = "ints above 0, as in (8, 16, 32)"
    for dim, sizes in by_dim.items():
        if not isinstance(dim, int) or isinstance(dim, bool):
            raise checks.type_error(dim, where, "a number of a dimension")
        at = f"{where}[{dim}]"
        if isinstance(sizes, (str, bytes, Mapping)) or not isinstance(sizes, Iterable):
            raise checks.type_error(sizes, at, expected)
        found = tuple(sorted({checks.whole(at, size) for size in sizes}))
        if not found:
            raise checks.value_error(sizes, at, expected)
        rules.append(_Rule(dim if path is None else found, path, dim, found))
    return rules


def _pads(flat: Flat, rule: _Rule, mask_path: str | None) -> list[Pad]:
    """Return what a rule is about; nothing if it names an array that is given as None."""
    found = []
    for number, leaf in enumerate(flat.leaves):
        if leaf.path != rule.path and (rule.path is not None or leaf.path == mask_path):
            continue
        shape = tuple(leaf.facts.shape)
        if -len(shape) <= rule.dim < len(shape):
            dim = rule.dim % len(shape)
            bucket = min((size for size in rule.sizes if size >= shape[dim] > 0), default=0)
            found.append(Pad(rule.axis, number, dim, shape[dim], bucket))
        elif rule.path is not None:
            message = f"{leaf.path}: shape {shape}, and buckets= names dimension {rule.dim}"
            raise ValueError(message)
    if rule.path is None:
        return [pad for pad in found if pad.real == found[0].real]
    if not found and (rule.path, None) not in flat.values:
        known = ", ".join(leaf.path for leaf in flat.leaves) or "nowhere"
        message = f"buckets: the call has no array at {rule.path}; it has arrays at {known}"
        raise ValueError(message)
    return found


# The dimensions of a result that follow an axis: its rule, and which multiple of its size they are.
Followers = dict[int, tuple[Hashable, int]]


class ResultSlices(NamedTuple):
    """What to cut off the results of a padded call: the dimensions of each that follow an axis."""

    slices: tuple[Followers, ...]
    # The axes that were padded when this was learned, with the least real size that it holds for.
    rules: dict[Hashable, int]

    def covers(self, padding: Padding) -> bool:
        """Return whether the axes of a call are known, for sizes as small as its own."""
        return all(pad.real >= self.rules.get(pad.axis, pad.bucket) for pad in padding.pads)

    def with_(self, other: ResultSlices) -> ResultSlices:
        """Return what is known by this and by what was learned later; ValueError if they differ."""
        known = self.slices or ({},) * len(other.slices)
        pairs = [*zip(known, other.slices, strict=True)]
        if any(mine[dim] != theirs[dim] for mine, theirs in pairs for dim in mine.keys() & theirs):
            message = "buckets: a dimension of a result follows several axes; drop buckets="
            raise ValueError(message)
        slices = tuple(mine | theirs for mine, theirs in pairs)
        return ResultSlices(slices, self.rules | other.rules)

    def apply(self, padding: Padding) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Return what to cut of each result, as (dimension, real size), if `covers` is true."""
        real = {pad.axis: pad.real for pad in padding.pads}
        return tuple(
            tuple((dim, times * real[rule]) for dim, (rule, times) in each.items() if rule in real)
            for each in self.slices
        )

    def cut(self, result: Any, padding: Padding, constants: Sequence[Any]) -> Any:
        """Return the result of a padded call cut to the real sizes.

        `constants` are those that the graph was captured with.
        """
        flat = flatten_result(result, constants)
        arrays = []
        for leaf, array, cuts in zip(flat.leaves, flat.arrays, self.apply(padding), strict=True):
            for dim, size in cuts:
                array = leaf.framework.slice(array, dim, size)  # noqa: PLW2901
            arrays.append(array)
        return rebuild(flat.pattern, arrays)


NOTHING_LEARNED = ResultSlices((), {})


def learned(padding: Padding, padded: Flat, result: Any, constants: Sequence[Any]) -> ResultSlices:
    """Compare the result of a padded call, without its arrays, with that for real arguments.

    `constants` are those of the real call. ValueError if a size differs and is not a multiple of an
    axis, or may be one of several, or if anything else depends on the padding.
    """
    flat = flatten_result(result, constants)
    for path, real, other in other_parts(flat, padded):
        problem = Difference(path, None, real, other)
        message = (
            f"buckets: padding changes what the function returns ({problem}); return arrays alone, "
            "or drop buckets="
        )
        raise ValueError(message)
    slices = []
    stayed = [0]
    for before, leaf in zip(padded.leaves, flat.leaves, strict=True):
        large, small = tuple(before.facts.shape), tuple(leaf.facts.shape)
        slices.append(_followers(padding, leaf.path, large, small))
        stayed += [size for size, other in zip(small, large, strict=True) if size == other]
    # A size that stayed may be a limit, as in x[:4]: smaller real sizes have to be looked at again.
    least = {pad.axis: max(size for size in stayed if size <= pad.real) for pad in padding.pads}
    return ResultSlices(tuple(slices), least)


def _followers(padding: Padding, path: str, padded: Shape, real: Shape) -> Followers:
    follows = f"the result at {path} has shape {real}, and {padded} when the arguments are padded"
    unrelated = f"{follows}, which does not follow the padded dimension; drop buckets="
    if len(padded) != len(real):
        raise ValueError(unrelated)
    found: Followers = {}
    for dim, (large, small) in enumerate(zip(padded, real, strict=True)):
        if large == small:
            continue
        fitting = {pad.axis: k for pad in padding.pads if (k := _times(pad, large, small))}
        if not fitting:
            raise ValueError(unrelated)
        if len(fitting) > 1:
            message = (
                f"{follows}: its dimension {dim} may follow more than one of the padded ones; make "
                "the first call with sizes that differ from each other"
            )
            raise ValueError(message)
        (found[dim],) = fitting.items()
    return found


def _times(pad: Pad, padded: int, real: int) -> int:
    """Return k where `padded` is k times the bucket and `real` k times the real size, else 0."""
    times = padded // pad.bucket
    return times if (padded, real) == (times * pad.bucket, times * pad.real) else 0
