"""Places that a function reads from, each with what was there: the notes of a walk.

A value that is there is known by its identity, or if it is plain by its type and value; an array
also by the address of its memory.
"""

from __future__ import annotations

import math
import sys
import types
from typing import Any, NamedTuple

_MAX_ITEMS = 20_000
_PLAIN = {bool, int, float, str, type(None)}


class Item(NamedTuple):
    """One place, and what was there.

    Attributes
    ----------
    container : dict, list, tuple or cell
    key : object
        Of the dict, or the index; None for a cell.
    expected : object
        The very object, or for a plain value (bool, int, float, str, None) one of its type that is
        equal.
    address : int or None
        Where its memory was; None for what has none.
    """

    container: Any
    key: Any
    expected: Any
    address: int | None


class Notes:
    """Items, as they are found."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.names: list[str] = []
        self.always: list[Item] = []
        self.keep: list[Any] = []
        self.left_out = 0
        self._places: set[tuple[int, Any]] = set()

    def add(self, container: Any, key: Any, value: Any, name: str, *, always: bool = False) -> None:
        """Note a place with its name in words, once.

        Parameters
        ----------
        always : bool
            Whether each call looks there.
        """
        place = (id(container), key)
        if place in self._places:
            return
        self._places.add(place)
        if len(self.items) >= _MAX_ITEMS:
            self.left_out += 1
            return
        item = Item(container, key, value, address_of(value))
        self.items.append(item)
        self.names.append(name)
        if item.address is not None:
            self.keep.append(_memory_of(value))
        if always:
            self.always.append(item)


def is_plain(value: object) -> bool:
    """Return whether `value` is a bool, a number, a text or None."""
    return type(value) in _PLAIN


def is_array(value: Any) -> bool:
    """Return whether `value` is a tensor of torch's, or has its memory on a GPU."""
    return _is_tensor(value) or hasattr(type(value), "__cuda_array_interface__")


def is_module(value: object) -> bool:
    """Return whether `value` is a module of torch's."""
    kind = getattr(getattr(sys.modules.get("torch"), "nn", None), "Module", None)
    return kind is not None and isinstance(value, kind)


def address_of(value: Any) -> int | None:
    """Return where an array's memory is; None for what is no array, or has no memory of its own."""
    if not is_array(value):
        return None
    try:
        if _is_tensor(value):
            torch: Any = sys.modules["torch"]
            exact = type(value) in (torch.Tensor, torch.nn.Parameter)
            return int(value.data_ptr()) or None if exact else None
        return int(value.__cuda_array_interface__["data"][0]) or None
    except (RuntimeError, AttributeError, TypeError, ValueError):  # without memory, or not yet
        return None


def _memory_of(array: Any) -> Any:
    # A tensor can be given other memory, which would free this one.
    return array.untyped_storage() if _is_tensor(array) else array


def _is_tensor(value: object) -> bool:
    kind = getattr(sys.modules.get("torch"), "Tensor", None)
    return kind is not None and isinstance(value, kind)


_GONE = object()


def change_at(item: Item) -> str | None:
    """Return what has happened at a place, in words; None if nothing has."""
    now = _value_at(item)
    if now is item.expected:
        if item.address is None or address_of(now) == item.address:
            return None
        return "its memory moved (p.data = ..., .to())"
    if now is _GONE:
        return "it is not there any more"
    if not is_plain(now) or not is_plain(item.expected):
        return "replaced by another object"
    if _is_same(now, item.expected):
        return None
    return f"{now!r}, captured with {item.expected!r}"


def _value_at(item: Item) -> Any:
    try:
        if isinstance(item.container, types.CellType):
            return item.container.cell_contents
        return item.container[item.key]
    except (LookupError, ValueError):  # an empty cell
        return _GONE


def _is_same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return (one == other and math.copysign(1, one) == math.copysign(1, other)) or (
            math.isnan(one) and math.isnan(other)
        )
    return bool(one == other)
