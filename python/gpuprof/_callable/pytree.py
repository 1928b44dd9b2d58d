"""The structure of a callable's arguments and results: taken apart, and made anew around arrays.

A *pattern* describes a structure as nested tuples::

    ("array", i)                              the i-th array
    ("value", object)                         a constant: plain, or anything else with a hash
    ("tuple", (pattern, ...))                 exactly a tuple; "list": exactly a list
    ("dict", (key, ...), (pattern, ...))      exactly a dict, in the order of its keys
    ("mapping", type, (key, ...), (pattern, ...))       a subclass of dict
    ("object", type, (name, ...), (pattern, ...))       a dataclass, a namedtuple: its attributes
    ("registered", type, apart, (pattern, pattern))     of a class that torch's pytree knows: the
                                                        list of its parts, and its context

That of a call is ("tuple", (pattern of args, pattern of kwargs)). Dicts are the same if they have
the same items in the same order, which a function may see. Each place of an argument has an array
of its own, also where a caller passes one array twice.

In the pattern of a result, any other container than tuples, lists, dicts and registered ones is
("object", make, (pattern, ...)): ``make`` takes a sequence of the parts and returns another. An
array that is in a result twice is one array, with one number.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import gpuprof._core as _core
from gpuprof._callable.leaves import Leaf, is_plain, value_key
from gpuprof._common.containers import ContainerParts, parts_of
from gpuprof._common.text import a_type
from gpuprof._frameworks import loaded
from gpuprof._frameworks.array_facts import array_facts, is_array
from gpuprof._frameworks.arrays import Arrays, arrays_of
from gpuprof._frameworks.torch import pytree_node

Pattern: TypeAlias = "tuple[Any, ...]"

# Makes a structure with new containers around arrays; of arguments, a tuple (args, kwargs).
rebuild = _core._rebuild

_BUILTIN = (tuple, list, dict)
_REGISTER = "register its class with torch.utils._pytree.register_pytree_node"
_WITHOUT_HASH = {
    set: "which has no order: pass a sorted tuple",
    list: "a subclass of list, which may hold more than its items: pass list(x)",
    bytearray: "whose bytes may change: pass bytes(x)",
    Mapping: "which is no dict: pass dict(x)",
    object: (
        "which is neither an array on the GPU, nor a tuple, list, dict or dataclass, nor hashable, "
        "so that two calls cannot be told apart by it: pass its parts, give its class a __hash__, "
        f"or {_REGISTER}"
    ),
}


@dataclass(frozen=True)
class Flat:
    """A structure taken apart: its pattern, arrays with what they are like, constants by path."""

    pattern: Pattern
    leaves: tuple[Leaf, ...]
    arrays: tuple[Any, ...]
    values: tuple[tuple[str, Any], ...]

    @property
    def constants(self) -> list[Any]:
        """The constants without their paths."""
        return [value for _, value in self.values]

    @property
    def libraries(self) -> set[str]:
        return {leaf.framework.name for leaf in self.leaves}

    @property
    def device(self) -> int:
        """That of the first array."""
        found: int = self.leaves[0].facts.device if self.leaves else 0
        return found

    @property
    def key(self) -> Hashable:
        """What two calls have in common if one graph can serve both: all but addresses, strides."""
        own = vars(self)  # `cached_property` of Python 3.11 has one lock for all
        if "_key" not in own:
            own["_key"] = pattern_key(self.pattern), tuple(leaf.key for leaf in self.leaves)
        key: Hashable = own["_key"]
        return key

    @property
    def layout(self) -> Hashable:
        """The strides of the arrays, for graphs that serve one layout alone."""
        return tuple(
            tuple(
                stride if size > 1 else 0
                for size, stride in zip(leaf.facts.shape, leaf.facts.strides, strict=True)
            )
            for leaf in self.leaves
        )

    def without_arrays(self) -> Flat:
        """Return the same for later comparisons; it keeps no array alive."""
        return replace(self, arrays=())


def flatten_arguments(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Flat:
    """Take the arguments of a call apart, with paths as in ``args[0]['x'].y``.

    TypeError if something is neither an array that a graph can work on, nor a container, nor a
    constant that can be told from others, or a container contains itself.
    """
    walk = _Walk("argument")
    return walk.flat(("tuple", (walk.pattern(args, "args"), walk.pattern(kwargs, "kwargs"))))


def flatten_result(result: Any, given: Iterable[Any] = ()) -> Flat:
    """Take a result apart, with paths as in ``result[0].y``.

    A function may return the constants `given` among its arguments as they are. Errors are those of
    `flatten_arguments`.
    """
    walk = _Walk("result", given)
    return walk.flat(walk.pattern(result, "result"))


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


@dataclass(frozen=True)
class _Apart:
    """Takes objects of a registered class apart, and makes others. C++ calls it too."""

    flatten: Callable[[Any], tuple[Iterable[Any], Any]]
    make: Callable[[list[Any], Any], Any]

    def __call__(self, value: Any) -> tuple[list[Any], Any]:
        parts, context = self.flatten(value)
        return [*parts], context


class _Walk:
    """One walk through arguments or a result, in which the arrays are found."""

    def __init__(self, role: Literal["argument", "result"], given: Iterable[Any] = ()) -> None:
        self._role = role
        self._given = {id(value): value for value in given}
        self._leaves: list[Leaf] = []
        self._arrays: list[Any] = []
        self._libraries: dict[type, Arrays] = {}  # of the types that were met
        self._numbers: dict[int, int] = {}  # of a result's arrays, by their ids
        self._values: list[tuple[str, Any]] = []
        self._around: set[int] = set()  # the containers that the current place is inside of
        self._in_context = False  # of a registered class, which may be any constant

    def flat(self, pattern: Pattern) -> Flat:
        return Flat(pattern, tuple(self._leaves), tuple(self._arrays), tuple(self._values))

    def pattern(self, value: Any, path: str) -> Pattern:
        """Return the pattern of what is at a path."""
        kind = type(value)
        if is_array(value):
            number = self._numbers.get(id(value), len(self._leaves))
            if number == len(self._leaves):
                facts = array_facts(value, path, self._role)
                wants = bool(getattr(value, "requires_grad", False))
                if kind not in self._libraries:
                    self._libraries[kind] = arrays_of(kind)
                self._leaves.append(Leaf(path, facts, self._libraries[kind], wants))
                self._arrays.append(value)
                if self._role == "result":
                    self._numbers[id(value)] = number
            return "array", number
        if kind in _BUILTIN or not (is_plain(value) or id(value) in self._given):
            found = self._container(value, path)
            if found is not None:
                return found
            if self._role == "result" and not self._in_context:
                message = (
                    f"{path}: {a_type(kind)}, which is neither an array nor a plain value, so that "
                    "a replay cannot make another: return arrays, and tuples, lists, dicts and "
                    f"dataclasses of them, or {_REGISTER}"
                )
                raise TypeError(message)
            _check_constant(value, path)
        self._values.append((path, value))
        return "value", value

    def _container(self, value: Any, path: str) -> Pattern | None:
        """Return the pattern of a container; None of what is none."""
        if type(value) not in _BUILTIN and loaded.is_module(value):  # even if it is a dataclass
            return None
        node: Any = None if type(value) in _BUILTIN else pytree_node(type(value))
        parts = None
        if node is None or isinstance(value, (tuple, dict)):  # C++ compares these by itself
            # All that an argument has must be among its names.
            parts = parts_of(value, path, whole=self._role == "argument")
        if node is None and parts is None:
            return None
        if id(value) in self._around:
            message = f"{path}: {a_type(type(value))} that contains itself: pass what is inside"
            raise TypeError(message)
        self._around.add(id(value))
        if parts is None:
            apart = _Apart(node.flatten_fn, node.unflatten_fn)
            found: Pattern = self._registered(value, apart, path)
        else:
            found = self._of_parts(value, parts, path)
        self._around.discard(id(value))
        return found

    def _of_parts(self, value: Any, parts: ContainerParts, path: str) -> Pattern:
        for key in parts.names:
            if not is_plain(key) and is_array(key):  # what it holds would not be looked at
                message = (
                    f"{path}: {a_type(type(key))} as a key; arrays are followed as values only"
                )
                raise TypeError(message)
        children = tuple(
            self.pattern(part, path + step)
            for part, step in zip(parts.parts, parts.steps, strict=True)
        )
        if parts.kind == "dict":
            return "dict", parts.names, children
        if parts.kind in {"tuple", "list"}:
            return parts.kind, children
        if self._role == "argument":
            return parts.kind, type(value), parts.names, children
        return "object", parts.make, children

    def _registered(self, value: Any, apart: _Apart, path: str) -> Pattern:
        parts, context = apart(value)
        children = self.pattern(parts, path)
        outside, self._in_context = self._in_context, True
        rest = self.pattern(context, f"{path} (context)")
        self._in_context = outside
        return "registered", type(value), apart, (children, rest)


def _check_constant(value: Any, path: str) -> None:
    """Refuse what cannot be compared from call to call: it has no hash, or holds arrays."""
    if _core._array_facts(value) is not None:
        message = (
            f"{path}: {a_type(type(value))}, which is an array by an attribute of its own alone: "
            "pass the array that it tells of"
        )
        raise TypeError(message)
    parts: tuple[Any, ...] = ()
    if isinstance(value, slice):
        parts = (value.start, value.stop, value.step)
    elif isinstance(value, (tuple, frozenset)):
        parts = tuple(value)
    try:
        hash(parts if isinstance(value, slice) else value)
    except TypeError:
        wrong = next(text for kind, text in _WITHOUT_HASH.items() if isinstance(value, kind))
        message = f"{path}: {a_type(type(value))}, {wrong}"
        raise TypeError(message) from None
    for part in parts:
        if not is_plain(part) and is_array(part):
            message = (
                f"{path}: {a_type(type(value))} with an array in it, which is not followed there: "
                "pass arrays by themselves, or in tuples, lists, dicts and dataclasses"
            )
            raise TypeError(message)
