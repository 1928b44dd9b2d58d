"""The structure of what a graphed callable returns, and how it is made anew around other arrays.

Patterns are as in `_callable.pytree`, but that of any container besides tuples, lists and dicts
is ("object", make, (pattern, ...)): ``make`` takes a sequence of the parts and returns another. An
array that is in a result twice is one array, with one number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gpuprof._callable.containers import Opened, made, opened
from gpuprof._callable.leaves import array_facts
from gpuprof._callable.pytree import Leaf, Pattern, Walk
from gpuprof._callable.values import a_type, is_plain


def flatten_result(result: Any, given: Iterable[Any] = ()) -> tuple[Pattern, list[Leaf]]:
    """Take a result apart.

    Parameters
    ----------
    result : object
    given : iterable of object
        The constants among the arguments: a function may return them as they are.

    Returns
    -------
    pattern : tuple
    leaves : list of Leaf
        With paths as in ``result[0].y``.

    Raises
    ------
    TypeError
        Something is neither an array on the GPU, nor a container, nor a plain value, or a container
        contains itself. The text begins with its path.
    """
    walk = _ResultWalk(given)
    return walk.pattern(result, "result"), walk.leaves


class _ResultWalk(Walk):
    """One walk through a result."""

    def __init__(self, given: Iterable[Any]) -> None:
        super().__init__()
        self._given = {id(value): value for value in given}
        self._numbers: dict[int, int] = {}  # of arrays, by their id

    def pattern(self, value: Any, path: str) -> Pattern:
        if is_plain(value) or id(value) in self._given:
            return "value", value
        if id(value) in self._numbers:
            return "array", self._numbers[id(value)]
        facts = array_facts(value, path, "result")
        if facts is not None:
            self._numbers[id(value)] = len(self.leaves)
            self.leaves.append(Leaf(path, value, facts))
            return "array", len(self.leaves) - 1
        parts = opened(value, path, whole=False)
        if parts is None:
            message = (
                f"{path}: {a_type(type(value))}, which is neither an array nor a plain value, so "
                "that a replay cannot make another: return arrays, and tuples, lists, dicts and "
                "dataclasses of them"
            )
            raise TypeError(message)
        return self.container(value, parts, path)

    def other(self, _: Any, of: Opened, /) -> Pattern:
        return "object", of.make


def rebuild(pattern: Pattern, arrays: Sequence[Any]) -> Any:
    """Make a new structure around new arrays.

    Parameters
    ----------
    pattern : tuple
        Of a result, or of arguments: then a tuple (args, kwargs).
    arrays : sequence
        The arrays by their numbers.

    Returns
    -------
    object
        Containers are new. Constants are those of the pattern.
    """
    kind = pattern[0]
    if kind == "array":
        return arrays[pattern[1]]
    if kind == "value":
        return pattern[1]
    parts = [rebuild(child, arrays) for child in pattern[-1]]
    if kind == "list":
        return parts
    if kind == "tuple":
        return tuple(parts)
    if kind == "dict":
        return dict(zip(pattern[1], parts, strict=True))
    if len(pattern) == 3:
        return pattern[1](parts)
    return made(pattern[1], pattern[2], parts, mapping=kind == "mapping")
