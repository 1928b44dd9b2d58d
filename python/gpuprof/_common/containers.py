"""Containers of Python taken apart, and others made around other parts.

What is made anew is of the same class, without a call of its ``__init__``, which may want something
else than the parts, or have effects.
"""

from __future__ import annotations

import functools
import inspect
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, NamedTuple, NoReturn

from gpuprof._common.text import a_type, shown_value

Make = Callable[[Sequence[Any]], Any]


class ContainerParts(NamedTuple):
    kind: str  # "tuple", "list" or "dict"; "mapping", a subclass of dict; "object", the rest
    names: tuple[Any, ...]  # the keys, or the attributes' names
    steps: tuple[str, ...]  # what a path to each of the parts ends with
    parts: tuple[Any, ...]
    make: Make | None = None  # makes another "mapping" or "object" around other parts


def parts_of(value: Any, path: str, *, whole: bool) -> ContainerParts | None:
    """Take a container apart; None of what is none.

    With `whole`, as for arguments, it is a TypeError if something of it is not among its names.
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
    if is_dataclass(value) and not isinstance(value, type):
        return _parts_of_dataclass(value, path, whole)
    return None


def another(kind: type, names: tuple[Any, ...], parts: Sequence[Any]) -> Any:
    """Return a container of a class around other parts; `names` are those of one taken `whole`."""
    if issubclass(kind, dict):
        return _MappingMaker(kind, names, _linked_by_class(kind, names))(parts)
    if issubclass(kind, tuple):
        return _tuple_maker(kind)(parts)
    return _make_object(kind, names, parts)


def made_by(make: Any) -> tuple[type, tuple[Any, ...], tuple[str, ...]]:
    """Return the class of what a `Make` makes, and the names and steps of its parts."""
    if isinstance(make, _MappingMaker):
        steps = (*_keys(make.keys), *_attributes(make.loose))
        return make.kind, (*make.keys, *make.loose), steps
    kind, *given = make.args if isinstance(make, functools.partial) else (make,)
    names = given[0] if given else getattr(kind, "_fields", None) or kind.__match_args__
    return kind, names, _attributes(names)


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
