"""Plain values: the constants among the arguments and results of a graphed callable.

A graph holds what a constant was when it was captured, so two calls may share a graph only if their
constants are the same in every way that a function can see: 1, True and 1.0 differ, and so do 0.0
and -0.0; nan is the same as nan.

Torch and NumPy are never imported from here.
"""

from __future__ import annotations

import enum
import math
import sys
import types
from collections.abc import Hashable
from fractions import Fraction
from typing import Any

_SHOWN = 60  # characters of a value in a text

_SCALARS = (bool, int, float, complex, str, bytes)
_PLAIN = frozenset(
    {
        *_SCALARS,
        type(None),
        type(...),
        type(NotImplemented),
        range,
        Fraction,
        types.ModuleType,
    }
)
_TORCH_PLAIN = ("dtype", "device", "layout", "memory_format", "Size", "qscheme")


def is_plain(value: object) -> bool:
    """Return whether `value` is a constant through and through: no array can be inside.

    True for numbers, text, None, enums, types, functions without a closure, slices and frozen sets
    of plain values, NumPy's scalars, and torch's dtypes, devices, sizes and the like.
    """
    kind = type(value)
    if kind in _PLAIN or isinstance(value, (type, enum.Enum)):
        return True
    if isinstance(value, slice):
        return all(map(is_plain, (value.start, value.stop, value.step)))
    if kind is frozenset:
        return all(map(is_plain, value))  # type: ignore[call-overload]
    if isinstance(value, types.FunctionType):
        return not value.__closure__
    if isinstance(value, types.BuiltinFunctionType):
        return value.__self__ is None or isinstance(value.__self__, types.ModuleType)
    if isinstance(value, _SCALARS):
        return True
    return kind in _types_of("torch", _TORCH_PLAIN) or _is_numpy_scalar(value)


def _types_of(module: str, names: tuple[str, ...]) -> tuple[Any, ...]:
    """Return those types of a module that it has, if it is imported."""
    loaded = sys.modules.get(module)
    return tuple(getattr(loaded, name, None) for name in names) if loaded is not None else ()


def _is_numpy_scalar(value: object) -> bool:
    generic = getattr(sys.modules.get("numpy"), "generic", None)
    return isinstance(generic, type) and isinstance(value, generic)


def is_hashable(value: object) -> bool:
    """Return whether `value` can be told from another by hash and ==."""
    try:
        hash(value)
    except TypeError:
        return False
    return True


def value_key(value: Any) -> Hashable:
    """Return what is equal for two values if and only if they are the same to a function.

    The value is plain or hashable.
    """
    kind = type(value)
    if isinstance(value, float):
        return kind, _float_key(value)
    if isinstance(value, complex):
        return kind, _float_key(value.real), _float_key(value.imag)
    if isinstance(value, slice):
        return kind, *map(value_key, (value.start, value.stop, value.step))
    if isinstance(value, tuple) and not isinstance(value, enum.Enum):
        return kind, *map(value_key, value)
    if isinstance(value, frozenset):
        return kind, frozenset(map(value_key, value))
    if _is_numpy_scalar(value):
        # Numbers that are equal may differ in a sign or a unit; nan is not equal to itself.
        return kind, str(value.dtype), None if value != value else value.tobytes()  # noqa: PLR0124
    return kind, value


def _float_key(value: float) -> Hashable:
    return None if math.isnan(value) else (float(value), math.copysign(1.0, value))


def same_value(value: Any, other: Any) -> bool:
    """Return whether two plain or hashable values are the same to a function."""
    return value is other or (type(value) is type(other) and value_key(value) == value_key(other))


def shown_value(value: object) -> str:
    """Write a value for the text of an error: on one line, and cut if it is long."""
    if isinstance(value, type):
        return type_name(value)
    try:
        text = " ".join(repr(value).split())
    except Exception:  # whatever the object's own code raises; the text is about something else
        text = f"a {type_name(type(value))}"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def type_name(kind: type) -> str:
    """Write a type as its users do, without the modules that are implied."""
    module = kind.__module__
    if module in {"builtins", "__main__", None}:
        return kind.__qualname__
    return f"{module}.{kind.__qualname__}"


def a_type(kind: type) -> str:
    """Write a type with its article, as in "an int"."""
    name = type_name(kind)
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
