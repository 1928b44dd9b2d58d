"""How the elements of an array lie in memory, of whichever library. Strides are in elements."""

from __future__ import annotations

from collections.abc import Sequence


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether the elements fill their memory, each place once; strides are in elements."""
    if 0 in shape:
        return True
    expected = 1
    dims = ((stride, size) for stride, size in zip(strides, shape, strict=True) if size != 1)
    for stride, size in sorted(dims):
        if stride != expected:
            return False
        expected *= size
    return True


def grown(
    shape: Sequence[int], strides: Sequence[int], dim: int, size: int
) -> tuple[list[int], list[int]]:
    """Return how to make a longer array whose dimensions lie in memory in the order of another's.

    Returns
    -------
    tuple
        The shape in the order of the memory, and the permutation that leads back.
    """
    wanted = list(shape)
    wanted[dim] = size
    order = sorted(range(len(wanted)), key=lambda axis: -abs(strides[axis]))
    back = sorted(range(len(order)), key=order.__getitem__)
    return [wanted[axis] for axis in order], back
