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

What is made anew is of the same class, without a call of its ``__init__``, which may want something
else than the parts, or have effects.
"""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, ClassVar, NamedTuple, NoReturn, TypeAlias

from gpuprof._callable.leaves import Leaf, is_hashable, is_plain, leaf_key, value_key
from gpuprof._common.text import a_type, shown_value
from gpuprof._frameworks import loaded
from gpuprof._frameworks.array_facts import SHAPE, STRIDES, array_facts, is_array

Pattern: TypeAlias = "tuple[Any, ...]"
Make = Callable[[Sequence[Any]], Any]


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
    if kind == "mapping":
        return _MappingMaker(container, names, _linked_by_class(container, names))(parts)
    if issubclass(container, tuple):
        return _tuple_maker(container)(parts)
    return _make_object(container, names, parts)


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
        parts = _parts_of(value, path, whole=self.whole)
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


# Containers.


class ContainerParts(NamedTuple):
    """A container, taken apart.

    `kind` is "tuple", "list" or "dict" for exactly these types, "mapping" for a subclass of dict
    and "object" for what has attributes. `names` are the keys or the attributes' names, `steps`
    what a path to each of the `parts` ends with, and `make` makes another "mapping" or "object"
    around other parts.
    """

    kind: str
    names: tuple[Any, ...]
    steps: tuple[str, ...]
    parts: tuple[Any, ...]
    make: Make | None = None


def _parts_of(value: Any, path: str, *, whole: bool) -> ContainerParts | None:
    """Take a container apart; None of what is none.

    `whole` says that all that it has must be among its names, as for arguments, where a later one
    must be comparable with it; else TypeError.
    """
    kind = type(value)
    if kind is tuple or kind is list:
        steps = tuple(f"[{index}]" for index in range(len(value)))
        return ContainerParts(kind.__name__, (), steps, tuple(value))
    if isinstance(value, tuple):
        names = _field_names(value)
        if names is None:
            return None
        if getattr(value, "__dict__", None):
            _refuse(value, path, f"attributes besides its fields ({_listed(vars(value))})")
        steps, make = _attributes(names), _tuple_maker(kind)
        return ContainerParts("object", names, steps, tuple(value), make)
    if kind is dict:
        return ContainerParts("dict", tuple(value), _keys(value), tuple(value.values()))
    if isinstance(value, dict):
        return _parts_of_mapping(value, path, whole)
    if is_dataclass(value) and not isinstance(value, type) and not loaded.is_module(value):
        return _parts_of_dataclass(value, path, whole)
    return None


def _field_names(value: tuple[Any, ...]) -> tuple[str, ...] | None:
    """Return the names of the items of a namedtuple or a structseq; None of other tuples."""
    kind: Any = type(value)
    names = getattr(kind, "_fields", None)
    if names is None and getattr(kind, "n_unnamed_fields", None) == 0:
        names = kind.__match_args__
    if not isinstance(names, tuple) or len(names) != len(value):
        return None
    return names if all(isinstance(name, str) for name in names) else None


def _tuple_maker(kind: Any) -> Make:
    # A namedtuple's own __new__ takes the items one by one, and may have been replaced.
    return functools.partial(tuple.__new__, kind) if hasattr(kind, "_fields") else kind


def _parts_of_mapping(value: Any, path: str, whole: bool) -> ContainerParts:
    kind, keys, items = type(value), tuple(value), tuple(value.values())
    attributes = dict(getattr(value, "__dict__", {}))
    # The results of transformers have their items as attributes too.
    linked = tuple(name for name in attributes if name in value and value[name] is attributes[name])
    loose = {name: each for name, each in attributes.items() if name not in linked}
    factory = value.default_factory if isinstance(value, defaultdict) else None
    if whole:
        if factory is not None:
            _refuse(value, path, "a default_factory")
        own = [name for name, each in loose.items() if each is not None]
        if {*linked} != {*_linked_by_class(kind, keys)}:
            own += linked
        if own:
            _refuse(value, path, f"attributes besides its items ({_listed(own)})")
        loose = {}
    make = _MappingMaker(kind, keys, linked, tuple(loose), factory)
    steps = (*_keys(keys), *_attributes(loose))
    return ContainerParts("mapping", keys, steps, (*items, *loose.values()), make)


def _linked_by_class(kind: type, keys: Iterable[Any]) -> tuple[str, ...]:
    """Return the keys that are attributes too wherever there is a mapping of that class."""
    names = {each.name for each in fields(kind)} if is_dataclass(kind) else set()
    return tuple(key for key in keys if key in names)


def _parts_of_dataclass(value: Any, path: str, whole: bool) -> ContainerParts:
    kind = type(value)
    names = [each.name for each in fields(value)]
    absent = [name for name in names if not hasattr(value, name)]
    if absent and whole:
        message = f"{path}.{absent[0]}: the field is not set; set it before the call, as to None"
        raise TypeError(message)
    # A cached property follows from the rest; what else was added to the object does not.
    more = {
        name
        for name in getattr(value, "__dict__", ())
        if name not in names
        and not isinstance(inspect.getattr_static(kind, name, None), functools.cached_property)
    }
    found = (*(name for name in names if name not in absent), *sorted(more))
    parts = tuple(getattr(value, name) for name in found)
    make = functools.partial(_make_object, kind, found)
    return ContainerParts("object", found, _attributes(found), parts, make)


@dataclass(frozen=True)
class _MappingMaker:
    """Makes mappings of a class. `linked` keys are attributes too; `loose` are attributes alone."""

    kind: Any
    keys: tuple[Any, ...]
    linked: tuple[str, ...] = ()
    loose: tuple[str, ...] = ()
    factory: Any = None

    def __call__(self, parts: Sequence[Any]) -> Any:
        new = self.kind.__new__(self.kind)
        # The class's own __setitem__ may do more than to store, or refuse.
        store = OrderedDict.__setitem__ if isinstance(new, OrderedDict) else dict.__setitem__
        count = len(self.keys)
        for key, part in zip(self.keys, parts[:count], strict=True):
            store(new, key, part)
        for name in self.linked:
            object.__setattr__(new, name, dict.__getitem__(new, name))
        for name, part in zip(self.loose, parts[count:], strict=True):
            object.__setattr__(new, name, part)
        if self.factory is not None:
            new.default_factory = self.factory
        return new


def _make_object(kind: Any, names: Sequence[str], parts: Sequence[Any]) -> Any:
    new = kind.__new__(kind)
    for name, part in zip(names, parts, strict=True):
        object.__setattr__(new, name, part)  # frozen dataclasses have another
    return new


def _keys(keys: Iterable[Any]) -> tuple[str, ...]:
    return tuple(f"[{shown_value(key)}]" for key in keys)


def _attributes(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(f".{name}" for name in names)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))


def _refuse(value: object, path: str, what: str) -> NoReturn:
    plain = "dict" if isinstance(value, dict) else "tuple"
    message = (
        f"{path}: {a_type(type(value))} with {what}, which a graph cannot follow: pass {plain}(x)"
    )
    raise TypeError(message)
