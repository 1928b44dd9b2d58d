"""What a CUDA graph depends on of an array, whichever library it is of: its facts.

``_core._array_facts`` tells them in DLPack's terms: (address, device type, device, (type code,
bits, lanes), shape, strides in elements). Arrays that a graph cannot work on are refused here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import gpuprof._core as _core
from gpuprof._common.text import a_type, type_name
from gpuprof._frameworks import loaded

Facts: TypeAlias = _core.ArrayDesc

CUDA, MANAGED, _CPU, _PINNED = 2, 13, 1, 3  # of DLPack's device types
_OPAQUE = 3  # of its codes of types
_CODES = {0: "int", 1: "uint", 2: "float", _OPAQUE: "opaque", 4: "bfloat", 5: "complex"}
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
MOVED = "its memory moved (p.data = ..., .to())"
_MOVE = {
    "argument": "a CUDA graph reads device memory only: move it with {} first",
    "result": "a CUDA graph writes device memory only: return it as it is on the GPU",
}


def array_facts(value: object, path: str, role: str = "argument") -> Facts:
    """Return an array's facts, or raise a TypeError that says why a graph cannot work on it."""
    if isinstance(value, loaded.tensor_type()):
        wrong = _unfit(loaded.torch(), value, role)
        if wrong is None:
            return facts_of(value)
    else:
        facts: Facts | None = _core._array_facts(value)
        if facts is not None and facts.device_type in {CUDA, _PINNED, MANAGED}:
            return facts
        told = a_type(type(value))
        if loaded.is_numpy_array(value):
            how = _MOVE[role].format("cupy.asarray(x) or torch.from_numpy(x).cuda()")
            wrong = f"a NumPy array; {how}"
        elif facts is None:
            # As a constant it would be compared by identity, and its memory never looked at.
            how = "not readable as a dense array in device memory: pass one of torch or CuPy"
            wrong = f"{told}, which is {how}"
        else:
            where = "in host memory" if facts.device_type == _CPU else "on another kind of device"
            wrong = f"{told} {where}; {_MOVE[role].format('its own library')}"
    message = f"{path}: {wrong}"
    raise TypeError(message)


def is_array(value: object) -> bool:
    """Return whether a value is an array by its type, of any library and wherever it is."""
    kind = type(value)
    return hasattr(kind, "__cuda_array_interface__") or hasattr(kind, "__dlpack__")


def facts_of(array: Any) -> Facts:
    """Return the facts of an array that a graph is known to work on."""
    # Torch tells nothing of a tensor that asks for a gradient, or whose type NumPy lacks.
    return _core._array_facts(array) or facts_by_attributes(array)


def _unfit(torch: Any, tensor: Any, role: str) -> str | None:
    """Say why a graph cannot work on a tensor; None if it can."""
    if type(tensor) not in {torch.Tensor, torch.nn.Parameter, torch.nn.Buffer}:
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
    name = str(tensor.dtype).removeprefix("torch.")
    known = {text: code for code, text in (_CODES | _OWN_NAMES).items()}
    code = known.get(name, known.get(name.rstrip("0123456789"), _OPAQUE))
    dtype = (code, 8 * tensor.element_size(), 1)
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    fields = (tensor.data_ptr(), CUDA, tensor.device.index, dtype, shape, strides)
    return _core.ArrayDesc(fields)  # type: ignore[call-arg, arg-type]  # it takes them as one


def facts_or_none(tensor: Any) -> Facts | None:
    """Return the facts of a tensor; None of what has no memory to tell of."""
    try:
        return facts_of(tensor)
    except (RuntimeError, AttributeError, ValueError, TypeError):  # sparse, or not made yet
        return None


def memory_of(tensor: Any) -> Any:
    """Return what keeps the memory of a tensor alive; None if it has none."""
    try:
        return tensor.untyped_storage() if loaded.is_tensor(tensor) else tensor
    except (RuntimeError, ValueError):  # a lazy module's parameter
        return None


def layout_change(now: Facts | None, captured: Facts | None) -> str | None:
    """Say how a tensor's memory or layout is not as it was; None if it is."""
    if now == captured:
        return None
    if now is None or captured is None or now.address != captured.address:
        return MOVED
    if now.shape != captured.shape:
        return f"its shape is {now.shape}, captured {captured.shape}"
    if now.strides != captured.strides:
        return f"its strides are {now.strides}, captured {captured.strides}"
    return f"its dtype is {dtype_name(now)}, captured {dtype_name(captured)}"


def type_text(kind: type) -> str:
    """Write a type of arrays, of torch's tensors and parameters in one way."""
    return "torch.Tensor" if issubclass(kind, loaded.tensor_type()) else type_name(kind)


def dtype_name(facts: Facts) -> str:
    """Write the type of the elements, as in "float32"."""
    code, bits, lanes = facts.dtype
    name = _OWN_NAMES.get(code) or f"{_CODES.get(code, f'type{code}_')}{bits}"
    return name if lanes == 1 else f"{name}x{lanes}"


def device_name(facts: Facts) -> str:
    """Write the device, as in "cuda:0"."""
    if facts.device_type == _PINNED:
        return "pinned host memory"
    return f"cuda:{facts.device}"


def extent(facts: Facts) -> tuple[int, int]:
    """Return where an array begins, and the first address after it."""
    itemsize = facts.dtype[1] // 8
    low, high = reach(facts.shape, [stride * itemsize for stride in facts.strides], itemsize)
    return int(facts.address) + low, int(facts.address) + high


def reach(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> tuple[int, int]:
    """Return the lowest and highest offset of an array's memory from its first element.

    In the unit of `strides` and `itemsize`.
    """
    if 0 in shape:
        return 0, 0
    steps = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
    return sum(step for step in steps if step < 0), itemsize + sum(s for s in steps if s > 0)
