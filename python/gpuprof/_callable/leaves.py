"""The leaves of arguments and results of a graphed callable: arrays, and plain values.

Of an array a graph depends on its facts, which ``_core._array_facts`` tells in DLPack's terms:
(address, device type, device, (type code, bits, lanes), shape, strides in elements).

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
from typing import Any, NamedTuple, TypeAlias

import gpuprof._core as _core
from gpuprof._frameworks import loaded

Facts: TypeAlias = "tuple[Any, ...]"

ADDRESS, DEVICE_TYPE, DEVICE, DTYPE, SHAPE, STRIDES = range(6)

_CPU, _CUDA, _PINNED, _MANAGED = 1, 2, 3, 13  # of DLPack's device types
_CODES = {0: "int", 1: "uint", 2: "float", 3: "opaque", 4: "bfloat", 5: "complex"}
_OWN_NAMES = {
    6: "bool",
    7: "float8_e3m4",
    8: "float8_e4m3",
    9: "float8_e4m3b11fnuz",
    10: "float8_e4m3fn",
    11: "float8_e4m3fnuz",
    12: "float8_e5m2",
    13: "float8_e5m2fnuz",
    14: "float8_e8m0fnu",
    15: "float6_e2m3fn",
    16: "float6_e3m2fn",
    17: "float4_e2m1fn",
}
_PROTOCOLS = ("__cuda_array_interface__", "__dlpack__")
_MOVE = {
    "argument": "a CUDA graph reads device memory only: move it with {} first",
    "result": "a CUDA graph writes device memory only: return it as it is on the GPU",
}
_SHOWN = 60  # characters of a value in a text

_SCALARS = (bool, int, float, complex, str, bytes)
_PLAIN = frozenset(
    {*_SCALARS, type(None), type(...), type(NotImplemented), range, Fraction, types.ModuleType}
)
_TORCH_PLAIN = ("dtype", "device", "layout", "memory_format", "Size", "qscheme")


class Leaf(NamedTuple):
    """An array in a structure; in its place may be its type, which keeps no memory alive."""

    path: str
    array: Any
    facts: Facts


# Arrays.


def array_facts(value: object, path: str, role: str = "argument") -> Facts | None:
    """Return the facts of an array that a graph can work on; None of what is no array.

    TypeError if it is an array that a graph cannot work on: in host memory, sparse, quantized, or
    of a tensor subclass. `path` and `role`, "argument" or "result", are for its text.
    """
    if loaded.is_tensor(value):
        return _tensor_facts(value, path, role)
    if loaded.is_numpy_array(value):
        how = _MOVE[role].format("cupy.asarray(x) or torch.from_numpy(x).cuda()")
        message = f"{path}: a NumPy array; {how}"
        raise TypeError(message)
    facts: Facts | None = _core._array_facts(value)
    if facts is None:
        # As a constant it would be compared by identity, and its memory never looked at.
        if not any(hasattr(type(value), protocol) for protocol in _PROTOCOLS):
            return None
        why = "which is not readable as a dense array in device memory: pass one of torch or CuPy"
        message = f"{path}: {a_type(type(value))}, {why}"
        raise TypeError(message)
    if facts[DEVICE_TYPE] in {_CUDA, _PINNED, _MANAGED}:
        return facts
    where = "in host memory" if facts[DEVICE_TYPE] == _CPU else "on another kind of device"
    message = f"{path}: {a_type(type(value))} {where}; {_MOVE[role].format('its own library')}"
    raise TypeError(message)


def is_array(value: object) -> bool:
    """Return whether `value` is an array of any library that gpuprof knows, wherever it is."""
    return (
        loaded.is_tensor(value)
        or loaded.is_numpy_array(value)
        or any(hasattr(type(value), protocol) for protocol in _PROTOCOLS)
        or _core._array_facts(value) is not None
    )


def _tensor_facts(tensor: Any, path: str, role: str) -> Facts:
    wrong = _unfit(loaded.torch(), tensor, role)
    if wrong is not None:
        message = f"{path}: {wrong}"
        raise TypeError(message)
    # Older torch tells nothing of a tensor that asks for a gradient, or whose type NumPy lacks.
    return _core._array_facts(tensor) or facts_by_attributes(tensor)


def _unfit(torch: Any, tensor: Any, role: str) -> str | None:
    """Say why a graph cannot work on a tensor; None if it can."""
    buffer = getattr(torch.nn, "Buffer", torch.Tensor)
    if type(tensor) not in {torch.Tensor, torch.nn.Parameter, buffer}:
        return (
            f"{a_type(type(tensor))}, a tensor subclass, whose own operators a CUDA graph cannot "
            "repeat: pass plain tensors, such as those it is made of"
        )
    if tensor.is_nested:
        return (
            "a nested tensor, whose shapes are not fixed: pass a padded one (.to_padded_tensor())"
        )
    if tensor.layout is not torch.strided:
        return (
            f"a tensor of layout {tensor.layout}, whose size depends on its values: pass a dense "
            "one (.to_dense())"
        )
    if tensor.is_quantized:
        return "a quantized tensor: pass what it holds (.int_repr(), or .dequantize())"
    where = tensor.device.type
    if where == "meta":
        return "a meta tensor, which holds no values: pass one on the GPU"
    if where != "cuda":
        told = "a CPU tensor" if where == "cpu" else f"a tensor on {tensor.device}"
        return f"{told}; {_MOVE[role].format('.cuda()')}"
    return None


def facts_by_attributes(tensor: Any) -> Facts:
    """Return the facts of a tensor by its attributes, in DLPack's terms."""
    name, bits = str(tensor.dtype).removeprefix("torch."), 8 * tensor.element_size()
    own = {text: code for code, text in _OWN_NAMES.items()}
    base = {text: code for code, text in _CODES.items()}
    code = own[name] if name in own else base[name.rstrip("0123456789")]
    dtype = (code, bits, 1)
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    return (tensor.data_ptr(), _CUDA, tensor.device.index, dtype, shape, strides)


def family(array: object) -> object:
    """Return what two arrays, or their types, share that one capture can serve.

    That is "torch", or the type.
    """
    kind = array if isinstance(array, type) else type(array)
    return "torch" if issubclass(kind, loaded.tensor_type()) else kind


def is_used_in_place(array: object) -> bool:
    """Return whether an array, or the type in its place, is of no library that makes arrays."""
    return family(array) not in {"torch", loaded.cupy_array_type(), loaded.numba_array_type()}


def family_name(array: object) -> str:
    """Write the `family` of an array, or of the type in its place."""
    found = family(array)
    return type_name(found) if isinstance(found, type) else "torch.Tensor"


def dtype_name(facts: Facts) -> str:
    """Write the type of the elements, as in "float32"."""
    code, bits, lanes = facts[DTYPE]
    name = _OWN_NAMES.get(code) or f"{_CODES.get(code, f'type{code}_')}{bits}"
    return name if lanes == 1 else f"{name}x{lanes}"


def device_name(facts: Facts) -> str:
    """Write the device, as in "cuda:0"."""
    if facts[DEVICE_TYPE] == _PINNED:
        return "pinned host memory"
    return f"cuda:{facts[DEVICE]}"


def extent(facts: Facts) -> tuple[int, int]:
    """Return where an array begins, and the first address after it."""
    shape, address = facts[SHAPE], int(facts[ADDRESS])
    if 0 in shape:
        return address, address
    steps = [(size - 1) * stride for size, stride in zip(shape, facts[STRIDES], strict=True)]
    first, last = (sum(pick(0, step) for step in steps) for pick in (min, max))
    itemsize = facts[DTYPE][1] // 8
    return address + first * itemsize, address + (last + 1) * itemsize


def leaf_key(array: object, facts: Facts) -> tuple[object, ...]:
    """Return what must be the same of two arrays for one graph to serve both.

    Managed memory counts as the device's own: a graph can be fed from either.
    """
    where = _CUDA if facts[DEVICE_TYPE] == _MANAGED else facts[DEVICE_TYPE]
    key = (family(array), where, facts[DEVICE], tuple(facts[DTYPE]), tuple(facts[SHAPE]))
    # What cannot be copied is used where it is.
    return (*key, facts[ADDRESS], facts[STRIDES]) if is_used_in_place(array) else key


# Plain values.


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
    if isinstance(value, _SCALARS) or loaded.is_numpy_scalar(value):
        return True
    torch = loaded.torch()
    return any(kind is getattr(torch, name, None) for name in _TORCH_PLAIN)


def is_hashable(value: object) -> bool:
    """Return whether `value` can be told from another by hash and ==."""
    try:
        hash(value)
    except TypeError:
        return False
    return True


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


# Texts.


def described(array: object, facts: Facts) -> str:
    """Write an array in few words, as in "a float32 torch.Tensor of shape (4, 8)"."""
    return f"a {dtype_name(facts)} {family_name(array)} of shape {tuple(facts[SHAPE])}"


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
