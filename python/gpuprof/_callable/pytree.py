"""The structure of the arguments of a graphed callable: which arrays are where, and what else is.

A *pattern* describes it as nested tuples::

    ("array", i)                              the i-th array
    ("value", object)                         a constant: plain, or anything else with a hash
    ("tuple", (pattern, ...))                 exactly a tuple; "list": exactly a list
    ("dict", (key, ...), (pattern, ...))      exactly a dict, in the order of its keys
    ("mapping", type, (key, ...), (pattern, ...))       a subclass of dict
    ("object", type, (name, ...), (pattern, ...))       a dataclass, a namedtuple: its attributes

That of a call is ("tuple", (pattern of args, pattern of kwargs)). Dicts are the same if they have
the same items in the same order, which a function may see. Each place of an argument has an array
of its own, also where a caller passes one array twice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple, TypeAlias

from gpuprof._callable.containers import Opened, opened
from gpuprof._callable.leaves import Facts, array_facts, is_array, leaf_key
from gpuprof._callable.values import a_type, is_hashable, is_plain, value_key

Pattern: TypeAlias = "tuple[Any, ...]"


class Leaf(NamedTuple):
    """An array in a structure: where it is, the array, and what ``_core._array_facts`` tells of it.

    In the place of the array may be its type, which keeps no memory alive.
    """

    path: str
    array: Any
    facts: Facts


class Flat(NamedTuple):
    """The arguments of one call: their pattern, its arrays, and (path, value) of its constants."""

    pattern: Pattern
    leaves: tuple[Leaf, ...]
    values: tuple[tuple[str, Any], ...]

    def without_arrays(self) -> Flat:
        """Return the same with the types of the arrays in their place, which keeps none alive."""
        leaves = tuple(leaf._replace(array=type(leaf.array)) for leaf in self.leaves)
        return self._replace(leaves=leaves)


def flatten_arguments(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Flat:
    """Take the arguments of a call apart.

    Parameters
    ----------
    args : tuple
    kwargs : mapping of str

    Returns
    -------
    Flat
        With paths as in ``args[0]['x'].y`` and ``kwargs['mask']``.

    Raises
    ------
    TypeError
        Something is neither an array that a graph can work on, nor a container, nor a constant that
        can be told from others, or a container contains itself. The text begins with its path.
    """
    walk = _ArgumentWalk()
    patterns = (walk.pattern(tuple(args), "args"), walk.pattern(dict(kwargs), "kwargs"))
    return Flat(("tuple", patterns), tuple(walk.leaves), tuple(walk.values))


class Walk(ABC):
    """One walk through a structure, in which the arrays are found.

    Attributes
    ----------
    leaves : list of Leaf
    """

    def __init__(self) -> None:
        self.leaves: list[Leaf] = []
        self._around: set[int] = set()  # the containers that the current place is inside of

    @abstractmethod
    def pattern(self, value: Any, path: str) -> Pattern:
        """Return the pattern of what is at a path."""

    def container(self, value: Any, of: Opened, path: str) -> Pattern:
        """Return the pattern of a container, whose class comes out as `other` says."""
        check_cycle(value, self._around, path)
        self._around.add(id(value))
        if of.kind in {"dict", "mapping"}:
            check_keys(of.names, path)
        children = tuple(
            self.pattern(part, path + step) for part, step in zip(of.parts, of.steps, strict=True)
        )
        self._around.discard(id(value))
        if of.kind == "dict":
            return "dict", of.names, children
        if of.kind in {"tuple", "list"}:
            return of.kind, children
        return *self.other(value, of), children

    @abstractmethod
    def other(self, value: Any, of: Opened, /) -> Pattern:
        """Return how the pattern of a container begins that is no tuple, list or dict."""


class _ArgumentWalk(Walk):
    """One walk through the arguments of a call."""

    def __init__(self) -> None:
        super().__init__()
        self.values: list[tuple[str, Any]] = []

    def pattern(self, value: Any, path: str) -> Pattern:
        if not is_plain(value):
            facts = array_facts(value, path)
            if facts is not None:
                self.leaves.append(Leaf(path, value, facts))
                return "array", len(self.leaves) - 1
            parts = opened(value, path, whole=True)
            if parts is not None:
                return self.container(value, parts, path)
            check_constant(value, path)
        self.values.append((path, value))
        return "value", value

    def other(self, value: Any, of: Opened, /) -> Pattern:
        return of.kind, type(value), of.names


def check_cycle(value: object, around: set[int], path: str) -> None:
    """Refuse a container that is inside of itself.

    Raises
    ------
    TypeError
        Its id is among those around it.
    """
    if id(value) in around:
        message = f"{path}: {a_type(type(value))} that contains itself: pass what is inside"
        raise TypeError(message)


def check_keys(keys: tuple[Any, ...], path: str) -> None:
    """Refuse arrays as keys: what such a key holds would not be looked at.

    Raises
    ------
    TypeError
        A key is an array.
    """
    for key in keys:
        if not is_plain(key) and is_array(key):
            message = f"{path}: {a_type(type(key))} as a key; arrays are followed as values only"
            raise TypeError(message)


def check_constant(value: Any, path: str) -> None:
    """Refuse what cannot be compared from call to call.

    Raises
    ------
    TypeError
        It has no hash, or arrays inside of it that are not followed.
    """
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


def key_of(flat: Flat) -> Hashable:
    """Return what two calls have in common if one graph can serve both.

    Equal where the structure is, the library, shape, type and device of each array, and each
    constant with its type. Addresses and strides do not count.
    """
    leaves = tuple(leaf_key(leaf.array, leaf.facts) for leaf in flat.leaves)
    return _pattern_key(flat.pattern), leaves


def _pattern_key(pattern: Pattern) -> Hashable:
    kind = pattern[0]
    if kind == "array":
        return pattern
    if kind == "value":
        return kind, value_key(pattern[1])
    children = map(_pattern_key, pattern[-1])
    if kind in {"dict", "mapping"}:
        items = tuple(zip(map(value_key, pattern[-2]), children, strict=True))
        return *pattern[:-2], items
    return *pattern[:-1], *children
