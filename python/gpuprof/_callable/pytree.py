"""The structure of a callable's arguments and results: taken apart, and made anew around arrays.

A *pattern* describes a structure as nested tuples::

    ("array", i)                              the i-th array
    ("value", object)                         a constant: plain, or anything else with a hash
    ("tuple", (pattern, ...))                 exactly a tuple; "list": exactly a list
    ("dict", (key, ...), (pattern, ...))      exactly a dict, in the order of its keys
    ("mapping", type, (key, ...), (pattern, ...))       a subclass of dict
    ("object", type, (name, ...), (pattern, ...))       a dataclass, a namedtuple: its attributes

That of a call is ("tuple", (pattern of args, pattern of kwargs)). Dicts are the same if they have
the same items in the same order, which a function may see. Each place of an argument has an array
of its own, also where a caller passes one array twice.

In the pattern of a result, any container besides tuples, lists and dicts is ("object", make,
(pattern, ...)): ``make`` takes a sequence of the parts and returns another. An array that is in a
result twice is one array, with one number.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeAlias

from gpuprof._callable.leaves import Leaf, is_hashable, is_plain, leaf_key, value_key
from gpuprof._common.containers import another, parts_of
from gpuprof._common.text import a_type
from gpuprof._frameworks import loaded
from gpuprof._frameworks.array_facts import SHAPE, STRIDES, array_facts, is_array

Pattern: TypeAlias = "tuple[Any, ...]"

_BUILTIN = (tuple, list, dict)


class Flat(NamedTuple):
    """The arguments of one call: their pattern, its arrays, and (path, value) of its constants."""

    pattern: Pattern
    leaves: tuple[Leaf, ...]
    values: tuple[tuple[str, Any], ...]

    @property
    def constants(self) -> list[Any]:
        """The constants without their paths."""
        return [value for _, value in self.values]

    def without_arrays(self) -> Flat:
        """Return the same with the types of the arrays in their place, which keeps none alive."""
        leaves = tuple(leaf._replace(array=type(leaf.array)) for leaf in self.leaves)
        return self._replace(leaves=leaves)


def flatten_arguments(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Flat:
    """Take the arguments of a call apart, with paths as in ``args[0]['x'].y``.

    TypeError if something is neither an array that a graph can work on, nor a container, nor a
    constant that can be told from others, or a container contains itself.
    """
    walk = _ArgumentWalk()
    patterns = (walk.pattern(tuple(args), "args"), walk.pattern(dict(kwargs), "kwargs"))
    return Flat(("tuple", patterns), tuple(walk.leaves), tuple(walk.values))


def flatten_result(result: Any, given: Iterable[Any] = ()) -> tuple[Pattern, list[Leaf]]:
    """Take a result apart, with paths as in ``result[0].y``.

    A function may return the constants `given` among its arguments as they are. Errors are those of
    `flatten_arguments`.
    """
    walk = _ResultWalk(given)
    return walk.pattern(result, "result"), walk.leaves


def rebuild(pattern: Pattern, arrays: Sequence[Any]) -> Any:
    """Make a structure with new containers around `arrays`; of arguments, a tuple (args, kwargs).

    Constants are those of the pattern.
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
    container, names = pattern[1:3]
    return another(container, names, parts)


def key_of(flat: Flat) -> Hashable:
    """Return what two calls have in common if one graph can serve both.

    Equal where the structure is, the library, shape, type and device of each array, and each
    constant with its type. Addresses and strides do not count.
    """
    leaves = tuple(leaf_key(leaf.array, leaf.facts) for leaf in flat.leaves)
    return pattern_key(flat.pattern), leaves


def layout_of(flat: Flat, padded: Flat) -> Hashable:
    """Return how the arrays of a call lie in memory, for graphs that serve one layout alone.

    That is the strides of each, and of an array that is padded the order of its dimensions.
    """
    return tuple(
        tuple(sorted(range(len(facts[STRIDES])), key=lambda axis: -abs(facts[STRIDES][axis])))
        if leaf.facts[STRIDES] is None
        else tuple(
            stride if size > 1 else 0
            for size, stride in zip(facts[SHAPE], facts[STRIDES], strict=True)
        )
        for leaf, facts in zip(padded.leaves, (each.facts for each in flat.leaves), strict=True)
    )


def pattern_key(pattern: Pattern) -> Hashable:
    """Return what two structures have in common if they differ in their arrays alone."""
    kind = pattern[0]
    if kind == "array":
        return pattern
    if kind == "value":
        return kind, value_key(pattern[1])
    children = map(pattern_key, pattern[-1])
    if kind == "object" and isinstance(pattern[1], functools.partial):
        return kind, pattern[1].func, pattern[1].args, *children  # no two partials are equal
    if kind in {"dict", "mapping"}:
        items = tuple(zip(map(value_key, pattern[-2]), children, strict=True))
        return *pattern[:-2], items
    return *pattern[:-1], *children


class _Walk(ABC):
    """One walk through a structure, in which the arrays are found."""

    whole: ClassVar[bool]  # whether all that a container has must be among its names

    def __init__(self) -> None:
        self.leaves: list[Leaf] = []
        self._around: set[int] = set()  # the containers that the current place is inside of

    @abstractmethod
    def pattern(self, value: Any, path: str) -> Pattern:
        """Return the pattern of what is at a path."""

    def container(self, value: Any, path: str) -> Pattern | None:
        """Return the pattern of a container; None of what is none."""
        if type(value) not in _BUILTIN and loaded.is_module(value):  # even if it is a dataclass
            return None
        parts = parts_of(value, path, whole=self.whole)
        if parts is None:
            return None
        if id(value) in self._around:
            message = f"{path}: {a_type(type(value))} that contains itself: pass what is inside"
            raise TypeError(message)
        self._around.add(id(value))
        if parts.kind in {"dict", "mapping"}:
            _check_keys(parts.names, path)
        children = tuple(
            self.pattern(part, path + step)
            for part, step in zip(parts.parts, parts.steps, strict=True)
        )
        self._around.discard(id(value))
        if parts.kind == "dict":
            return "dict", parts.names, children
        if parts.kind in {"tuple", "list"}:
            return parts.kind, children
        if self.whole:
            return parts.kind, type(value), parts.names, children
        return "object", parts.make, children


class _ArgumentWalk(_Walk):
    whole = True

    def __init__(self) -> None:
        super().__init__()
        self.values: list[tuple[str, Any]] = []

    def pattern(self, value: Any, path: str) -> Pattern:
        if not is_plain(value):
            facts = array_facts(value, path)
            if facts is not None:
                self.leaves.append(Leaf(path, value, facts))
                return "array", len(self.leaves) - 1
            found = self.container(value, path)
            if found is not None:
                return found
            _check_constant(value, path)
        self.values.append((path, value))
        return "value", value


class _ResultWalk(_Walk):
    whole = False

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
        found = self.container(value, path)
        if found is None:
            message = (
                f"{path}: {a_type(type(value))}, which is neither an array nor a plain value, so "
                "that a replay cannot make another: return arrays, and tuples, lists, dicts and "
                "dataclasses of them"
            )
            raise TypeError(message)
        return found


def _check_keys(keys: tuple[Any, ...], path: str) -> None:
    """Refuse arrays as keys: what such a key holds would not be looked at."""
    for key in keys:
        if not is_plain(key) and is_array(key):
            message = f"{path}: {a_type(type(key))} as a key; arrays are followed as values only"
            raise TypeError(message)


def _check_constant(value: Any, path: str) -> None:
    """Refuse what cannot be compared from call to call: it has no hash, or holds arrays."""
    parts: tuple[Any, ...] = ()
    if isinstance(value, slice):
        parts = (value.start, value.stop, value.step)
    elif isinstance(value, (tuple, frozenset)):
        parts = tuple(value)
    if not is_hashable(parts if isinstance(value, slice) else value):
        message = f"{path}: {a_type(type(value))}, {_instead(value)}"
        raise TypeError(message)
    for part in parts:
        if not is_plain(part) and is_array(part):
            message = (
                f"{path}: {a_type(type(value))} with an array in it, which is not followed there: "
                "pass arrays by themselves, or in tuples, lists, dicts and dataclasses"
            )
            raise TypeError(message)


def _instead(value: object) -> str:
    """Say what is wrong with something that has no hash, and what to pass in its place."""
    if isinstance(value, set):
        return "which has no order: pass a sorted tuple"
    if isinstance(value, list):
        return "a subclass of list, which may hold more than its items: pass list(x)"
    if isinstance(value, bytearray):
        return "whose bytes may change: pass bytes(x)"
    if isinstance(value, Mapping):
        return "which is no dict: pass dict(x)"
    return (
        "which is neither an array on the GPU, nor a tuple, list, dict or dataclass, nor hashable, "
        "so that two calls cannot be told apart by it: pass its parts, or give its class a __hash__"
    )
