"""Arrays as payloads of ranges: their numbers as NVTX and traces take them."""

from __future__ import annotations

import array
import math
import operator
import struct
from collections.abc import Iterable

from gpuprof._common import checks, text

_MOST_SHOWN = 64
# In the order of NVTX's types from INT8 on, with the codes of the struct module.
_TYPES = {
    "int8": "b",
    "uint8": "B",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "uint64": "Q",
    "float16": "e",
    "float32": "f",
    "float64": "d",
}
# What a code of the struct module is; C's types have the sizes of this machine.
_KINDS = {
    **dict.fromkeys("bhilqn", "int"),
    **dict.fromkeys("?cBHILQN", "uint"),
    **dict.fromkeys("efd", "float"),
}


def payload(value: object) -> int | float | tuple[int, bytes, list[float] | str]:
    """Return the number that `value` is, or of an array what the extension makes a payload of.

    That is the place of its type in NVTX's, the number of elements as 64 bits with their bytes, and
    what traces show. Only host memory is read, so that nothing waits for a GPU.
    """
    number = _number(value)
    if number is not None:
        return number
    if isinstance(value, list | tuple | range):
        value = _array_of(value)
    try:
        view = memoryview(value)  # type: ignore[arg-type]
    except ValueError as error:
        message = (
            f"payload: expected an array of numbers, got {text.a_type(type(value))} whose memory "
            "cannot be read"
        )
        raise TypeError(message) from error
    except TypeError:
        expected = (
            "an int, a float, an array of numbers in host memory, a list of them or None (a GPU "
            "array is copied first: x.cpu().numpy(); other values go into args)"
        )
        raise checks.type_error(value, "payload", expected) from None
    code = view.format.lstrip("@=<")
    name = f"{_KINDS.get(code)}{8 * view.itemsize}"
    if name not in _TYPES:
        message = (
            "payload: expected an array of numbers, got elements of the format "
            f"'{view.format}' of the struct module; convert it first, as x.astype('float64') does"
        )
        raise TypeError(message)
    count = view.nbytes // view.itemsize
    data = view.tobytes()
    shown: list[float] | str = f"{count} x {name}"
    if count <= _MOST_SHOWN:
        shown = list(struct.unpack(f"<{count}{_TYPES[name]}", data))
    return list(_TYPES).index(name), struct.pack("=Q", count) + data, shown


def _number(value: object) -> int | float | None:
    """Return a number, also one of NumPy's scalars. Not of an array: it could wait for the GPU."""
    if isinstance(value, int | float):
        return value
    if not hasattr(value, "__dlpack__"):
        if hasattr(type(value), "__index__"):
            return operator.index(value)  # type: ignore[arg-type]
        if hasattr(type(value), "__float__"):
            return float(value)  # type: ignore[arg-type]
    return None


def _array_of(items: Iterable[object]) -> array.array[int] | array.array[float]:
    """Return integers of 64 bits where all are, else doubles."""
    found: list[float] = []
    for item in items:
        number = _number(item)
        if number is None:
            raise checks.type_error(item, "payload", "a list of int or float")
        found.append(number)
    try:
        return array.array("q", found)
    except (TypeError, OverflowError):
        return array.array("d", map(_double, found))


def _double(number: float) -> float:
    try:
        return float(number)
    except OverflowError:  # an int beyond doubles
        return math.inf if number > 0 else -math.inf
