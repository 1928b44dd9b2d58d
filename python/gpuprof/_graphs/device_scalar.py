"""Numbers in device memory that a host call changes between replays of a graph."""

from __future__ import annotations

import math
import operator
from typing import Any, SupportsFloat, SupportsIndex

import gpuprof._core as _core
from gpuprof._common.checks import not_pickled, type_error, value_error
from gpuprof._common.text import type_name

# Other names of each dtype: short ones, of which NumPy reads 'f16' as 16 bytes and the rest not at
# all, and those of NumPy that are not a dtype's, on the 64-bit systems that there are drivers for.
# Behind the bar are NumPy's codes, before which it takes a byte order.
_NAMES_OF = {
    "bool": "bool_ | ? b1",
    "int8": "byte | b i1",
    "int16": "i16 short | h i2",
    "int32": "i32 intc | i i4",
    "int64": "i64 int int_ intp long longlong | l q p",
    "uint8": "ubyte | B u1",
    "uint16": "u16 ushort | H u2",
    "uint32": "u32 uintc | I u4",
    "uint64": "u64 uint uintp ulong ulonglong | L Q P",
    "float16": "f16 half | e f2",
    "bfloat16": "bf16 |",
    "float32": "f32 single | f f4",
    "float64": "f64 float double | d f8",
}


def _by_alias(part: int) -> dict[str, str]:
    listed = ((name, names.split("|")[part]) for name, names in _NAMES_OF.items())
    return {alias: name for name, aliases in listed for alias in aliases.split()}


_ALIASES, _NUMPY_CODES = _by_alias(0), _by_alias(1)
_BYTE_ORDERS = frozenset("<>=|")
_SINGLE_BYTES = frozenset({"bool", "int8", "uint8"})
_OWN_ORDER = "the machine's byte order"
_EXACT = 2**53  # up to here every integer is a float
_MOST_SHOWN = 60
_AMBIGUOUS = {"i8": ("int8", "int64"), "u8": ("uint8", "uint64")}


def dtype_name(dtype: object) -> str:
    """Return the name of a ``dtype=`` argument; whether there is such a type is not checked."""
    if isinstance(dtype, str):
        return _from_text(dtype)
    if isinstance(dtype, type):
        return _from_text(dtype.__name__)
    name: object = getattr(dtype, "name", None)
    if isinstance(name, str):
        if getattr(dtype, "isnative", True) is False:
            raise value_error(str(dtype), "dtype", _OWN_ORDER)
        return name
    text = str(dtype)
    if text.startswith("torch."):
        return text.removeprefix("torch.")
    raise type_error(dtype, "dtype", "a name like 'float32' or a NumPy dtype")


def _from_text(text: str) -> str:
    order, code = (text[0], text[1:]) if text[:1] in _BYTE_ORDERS else ("", text)
    if code in _AMBIGUOUS:
        short, long = _AMBIGUOUS[code]
        message = (
            f"dtype: {text!r} could mean {short!r}, and NumPy reads it as 64 bits; "
            f"write {short!r} or {long!r}"
        )
        raise ValueError(message)
    name = _NUMPY_CODES.get(code)
    if name is None:
        return _ALIASES.get(text, text)
    # Every machine with a driver has the little end first.
    if order == ">" and name not in _SINGLE_BYTES:
        raise value_error(text, "dtype", _OWN_ORDER)
    return name


def plain_number(value: object, dtype: str, least: int, greatest: int) -> int | float:
    """Return any number as an int from ``-least`` to `greatest`, or where both are 0 as a float."""
    kind = type_name(type(value))
    # NumPy's complex numbers have a __float__ too, which drops a part of them.
    has_float = hasattr(type(value), "__float__") and "complex" not in kind
    if not has_float and not hasattr(type(value), "__index__"):
        message = f"value: expected a number for {dtype}, got {kind}"
        raise TypeError(message)
    try:
        number = _converted(value, is_integral=greatest != 0, has_float=has_float)
    except Exception as error:
        if getattr(value, "ndim", 0):
            message = (
                f"value: expected a single number for {dtype}, got {kind} with dimensions; pass "
                "its item()"
            )
            raise TypeError(message) from None
        if not isinstance(error, OverflowError) or not isinstance(value, int):
            raise
        message = f"value: {_shown(value)} is too large to be converted to {dtype}"
        raise ValueError(message) from None
    if greatest == 0:
        return number
    problem = ""
    if isinstance(number, float) and not math.isinf(number):
        if not number.is_integer():
            problem = f"is no integer, and {dtype} holds the integers {-least} to {greatest}"
        elif abs(number) > _EXACT and not isinstance(value, float):
            problem = "is known as a float only, which may have lost digits; pass an int"
        else:
            number = int(number)
    if not problem and not -least <= number <= greatest:
        problem = f"does not fit in {dtype}, which holds {-least} to {greatest}"
    if problem:
        message = f"value: {_shown(value)} {problem}"
        raise ValueError(message)
    return number


def _converted(value: Any, *, is_integral: bool, has_float: bool) -> int | float:
    if is_integral and hasattr(type(value), "__index__"):
        try:
            return operator.index(value)
        except TypeError:
            if not has_float:
                raise
    return float(value)


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except Exception:  # an int of more digits than Python writes, or whatever the object's raises
        text = ""
    return text if 0 < len(text) <= _MOST_SHOWN else f"this {type(value).__name__}"


class DeviceScalar(_core._DeviceScalar):
    """One number in device memory, changed by calls that carry the value themselves.

    A kernel in a CUDA graph sees its scalar arguments as they were at the capture. Give it an
    array made from a `DeviceScalar` instead, and `update` between the replays. `update` does not
    wait, needs no host buffer that has to outlive it, and what is queued on its stream
    afterwards sees the new value. So does a launch on another stream, if the graph keeps the scalar
    (``keep_alive=``, or in its pool), or if the scalar was last updated on the stream of the
    capture when that ended; other work on other streams has to be ordered by you.

    Parameters
    ----------
    value : number
        The first value, written in the order of `stream`.
    dtype : str, numpy.dtype or type
        ``'bool'``, ``'int8'`` to ``'int64'``, ``'uint8'`` to ``'uint64'``, ``'float16'``,
        ``'bfloat16'``, ``'float32'`` or ``'float64'``; short forms like ``'f32'``, ``'bf16'`` and
        ``'u16'``; NumPy's names and codes, such as ``'half'`` and ``'<f4'``; NumPy's and torch's
        types. ``'i8'`` and ``'u8'`` are refused, because NumPy reads them as 64 bits.
    stream : int or object, optional
        The stream of the first write, and of each `update` that names no other: a CUDA stream
        handle, or an object with ``__cuda_stream__``, ``.cuda_stream`` or ``.ptr``, which is kept
        alive. None is the framework's current stream at each call, kept alive until the next one.

    Raises
    ------
    CudaUnavailableError
        There is no usable driver and device.
    InvalidStateError
        The stream is being captured.
    CudaError
        The driver refused the memory or the write.
    TypeError, ValueError
        The value does not fit in the dtype, or an argument is not what is listed above.

    Notes
    -----
    The number is an operand without a copy: ``torch.as_tensor(scalar, device="cuda")``,
    ``torch.from_dlpack(scalar)``, ``cupy.asarray(scalar)``, ``numba.cuda.as_cuda_array(scalar)``.
    The memory lives until the scalar is closed or collected and arrays made through DLPack are
    gone; a graph that reads it needs it as long as it is replayed (``keep_alive=``). It is used
    for nothing else before the GPU has done what was queued by then.

    Integers must fit. Floating-point numbers are rounded to nearest, ties to even, and become
    infinite beyond the range, as in NumPy. Values of 8 bytes are written by
    ``cuStreamWriteValue64``; where a device has none, two 4-byte writes follow each other in the
    stream, so that only work on other streams could see one half.

    Any number of threads may use one scalar. `get`, arrays made through DLPack and launches on
    another stream look at the stream of the last update, which must still exist then.

    Examples
    --------
    >>> scale = gpuprof.DeviceScalar(1.0, "float32")  # doctest: +SKIP
    >>> scale.update(0.5)  # doctest: +SKIP
    >>> scale.get()  # doctest: +SKIP
    0.5
    """

    __module__ = "gpuprof"

    __slots__ = ()

    def __init__(
        self,
        value: SupportsFloat | SupportsIndex,
        dtype: object = "float32",
        stream: object = None,
    ) -> None:
        super().__init__(value, dtype_name(dtype), stream)

    __reduce__ = not_pickled(
        "a DeviceScalar is memory of this process's GPU and cannot be pickled or copied; "
        "pass get() and make a new one"
    )
