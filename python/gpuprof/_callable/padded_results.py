"""Which dimensions of a function's results follow the padded ones of its arguments."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gpuprof._callable.buckets import Axis, Padding, Shape


class Slice(NamedTuple):
    """A dimension of a result that is `times` the size of an axis."""

    dim: int
    rule: Hashable
    times: int


@dataclass(frozen=True)
class ResultSlices:
    """What to cut off the results of a padded call.

    Attributes
    ----------
    slices : tuple of tuple of Slice
        For each result the dimensions that follow an axis.
    rules : frozenset
        The axes that were padded when this was learned: of others nothing is known.
    """

    slices: tuple[tuple[Slice, ...], ...]
    rules: frozenset[Hashable]

    def covers(self, padding: Padding) -> bool:
        """Return whether the axes of a call are among those that are known."""
        return all(axis.rule in self.rules for axis in padding.axes)

    def with_(self, other: ResultSlices) -> ResultSlices:
        """Return what is known by this and by what was learnt later."""
        slices = tuple(
            tuple(dict.fromkeys([*mine, *theirs]))
            for mine, theirs in zip(self.slices, other.slices, strict=True)
        )
        return ResultSlices(slices, self.rules | other.rules)

    def apply(self, padding: Padding) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Return what to cut, for each result: (dimension, real size).

        Raises
        ------
        ValueError
            `padding` has an axis that this does not cover.
        """
        if not self.covers(padding):
            message = "an axis is padded of which the results are not known; learn() them first"
            raise ValueError(message)
        real = {axis.rule: axis.real for axis in padding.axes}
        return tuple(
            tuple((dim, times * real[rule]) for dim, rule, times in each if rule in real)
            for each in self.slices
        )


def learn(
    padding: Padding, paths: Sequence[str], padded: Sequence[Shape], real: Sequence[Shape]
) -> ResultSlices:
    """Compare the shapes of one run with padded arguments with those of one with the real ones.

    Parameters
    ----------
    padding : Padding
        How the arguments were padded.
    paths : sequence of str
        Of each result, for errors.
    padded, real : sequence of tuple of int
        The shape of each result.

    Returns
    -------
    ResultSlices

    Raises
    ------
    ValueError
        A size differs and is not a multiple of an axis, or it cannot be told of which one.
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
    if len(padded) != len(real):
        message = f"{follows}, which does not follow the padded dimension; drop buckets="
        raise ValueError(message)
    found = []
    for dim, (large, small) in enumerate(zip(padded, real, strict=True)):
        if large == small:
            continue
        fitting = [axis for axis in axes if _times(axis, large, small)]
        if not fitting:
            message = f"{follows}, which does not follow the padded dimension; drop buckets="
            raise ValueError(message)
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
