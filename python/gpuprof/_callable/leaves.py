"""The leaves of arguments and results of a graphed callable: arrays, and plain values.

A plain value is a constant. A graph holds what it was when it was captured, so two calls may share
a graph only if their constants are the same in every way that a function can see: 1, True and 1.0
differ, and so do 0.0 and -0.0; nan is the same as nan.
"""

from __future__ import annotations

import enum
import math
import types
from collections.abc import Hashable
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuprof._frameworks import loaded
from gpuprof._frameworks.array_facts import CUDA, MANAGED, Facts, dtype_name, type_text

if TYPE_CHECKING:
    from gpuprof._frameworks.arrays import Arrays

_SCALARS = (bool, int, float, complex, str, bytes)
_PLAIN = frozenset(
    {*_SCALARS, type(None), type(...), type(NotImplemented), range, Fraction, types.ModuleType}
)
_TORCH_PLAIN = ("dtype", "device", "layout", "memory_format", "Size", "qscheme")


class Leaf(NamedTuple):
    """What an array in a structure is like; the array itself is not here."""

    path: str
    facts: Facts
    framework: Arrays
    requires_grad: bool

    @property
    def key(self) -> Hashable:
        """What must be the same of two arrays for one graph to serve both."""
        facts = self.facts
        # A graph can be fed from managed memory as from the device's own.
        where = CUDA if facts.device_type == MANAGED else facts.device_type
        key = (self.framework.types[0], where, facts.device, facts.dtype, facts.shape)
        # What cannot be copied is used where it is.
        return (*key, facts.address, facts.strides) if self.framework.in_place else key

    def __str__(self) -> str:
        name = type_text(self.framework.types[0])
        return f"a {dtype_name(self.facts)} {name} of shape {self.facts.shape}"


def is_plain(value: object) -> bool:
    """Return whether `value` is a constant through and through: no array can be inside."""
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
    if isinstance(value, _SCALARS) or loaded.is_numpy_scalar(value):
        return True
    torch = loaded.torch()
    return any(kind is getattr(torch, name, None) for name in _TORCH_PLAIN)


def value_key(value: Any) -> Hashable:
    """Return what is equal for two plain or hashable values that are the same to a function."""
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
    if loaded.is_numpy_scalar(value):
        # Numbers that are equal may differ in a sign or a unit; nan is not equal to itself.
        return kind, str(value.dtype), None if value != value else value.tobytes()  # noqa: PLR0124
    return kind, value


def _float_key(value: float) -> Hashable:
    return None if math.isnan(value) else (float(value), math.copysign(1.0, value))


def same_value(value: Any, other: Any) -> bool:
    """Return whether two plain or hashable values are the same to a function. C++ calls it too."""
    return value is other or (type(value) is type(other) and value_key(value) == value_key(other))
