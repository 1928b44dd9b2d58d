"""The arrays among a function's arguments: how many bytes, whether changed, and copies of them.

Torch tensors and CuPy arrays are known, inside lists, tuples, named tuples, dicts and dataclasses
too. Neither library is imported here; an argument can be theirs only if it is imported already.
"""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

_MAX_COMPARED = 256 << 20  # bytes of CuPy arrays that are copied to see whether they change
_ALIGNMENT = 512  # of what the frameworks allocate
_PLAIN = {int, float, complex, bool, str, bytes, type(None)}


def _is_tensor(value: object) -> bool:
    torch = sys.modules.get("torch")
    kind = getattr(torch, "Tensor", None)
    return kind is not None and isinstance(value, kind)


def _is_cupy(value: object) -> bool:
    cupy = sys.modules.get("cupy")
    kind = getattr(cupy, "ndarray", None)
    return kind is not None and isinstance(value, kind)


def _is_on_gpu(value: Any) -> bool:
    return _is_cupy(value) or (_is_tensor(value) and bool(value.is_cuda))


def _fields(value: Any) -> list[str]:
    return [each.name for each in dataclasses.fields(value) if hasattr(value, each.name)]


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each array in `value` with where it is, as one would write it.

    A container that is there twice, or inside itself, is looked into once.
    """
    if {"torch", "cupy"} & sys.modules.keys():
        yield from _leaves(value, path, set())


def _leaves(value: Any, path: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    if _is_tensor(value) or _is_cupy(value):
        yield path, value
        return
    if id(value) in seen:
        return
    items: Iterable[tuple[object, str, str]]
    if isinstance(value, Mapping):
        items = ((item, f"{path}[", f"{key!r}]") for key, item in value.items())
    elif isinstance(value, (list, tuple)):
        items = (
            (item, f"{path}[", f"{index}]")
            for index, item in enumerate(value)
            if type(item) not in _PLAIN
        )
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        items = ((getattr(value, name), f"{path}.", name) for name in _fields(value))
    else:
        return
    seen.add(id(value))
    for item, begin, end in items:
        yield from _leaves(item, begin + end, seen)


def gpu_bytes(value: Any) -> int:
    """Return the bytes of the GPU arrays in `value`, each memory once."""
    sizes: dict[int, int] = {}
    for _, array in leaves(value):
        address, size = _memory(array)
        sizes[address] = max(size, sizes.get(address, 0))
    return sum(sizes.values())


def shared(value: Any, other: Any, name: str) -> str | None:
    """Return where a GPU array is in `value` whose memory is in `other` too; None if none is."""
    theirs = {address for address, size in map(_memory, _arrays(other)) if size}
    for path, array in leaves(value, name):
        address, size = _memory(array)
        if size and address in theirs:
            return path
    return None


def _arrays(value: Any) -> Iterator[Any]:
    return (array for _, array in leaves(value))


def _memory(array: Any) -> tuple[int, int]:
    """Return the address and the bytes that a GPU array reaches; no bytes of what has no such."""
    if not _is_on_gpu(array):
        return 0, 0
    if _is_cupy(array):
        low, high = _reach(array.shape, array.strides, array.itemsize)
        return int(array.data.ptr), min(int(array.nbytes), high - low)
    if not _is_strided(array):
        return 0, 0
    try:
        address = int(array.data_ptr())
    except RuntimeError:  # a wrapper around others
        return 0, 0
    _, extent = _reach(array.shape, array.stride(), 1)
    return address, min(array.numel(), extent) * array.element_size()


def _is_strided(tensor: Any) -> bool:
    return tensor.layout is sys.modules["torch"].strided and not tensor.is_nested


def _reach(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> tuple[int, int]:
    """Return from where to where an array reaches, counted from its first element."""
    if 0 in shape:
        return 0, 0
    steps = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
    return sum(step for step in steps if step < 0), itemsize + sum(s for s in steps if s > 0)


def clone(value: Any) -> Any:
    """Return `value` with a copy of each GPU array in it, and everything else as it is.

    An array that is there twice is one array in the copy too. Strides and `requires_grad` stay,
    and so does how the memory is aligned. What is inside of other containers is not copied:
    `shared` tells.
    """
    return _clone(value, {})


def _clone(value: Any, made: dict[int, Any]) -> Any:
    result: Any
    if id(value) in made:
        return made[id(value)]
    if type(value) in _PLAIN:
        return value
    if _is_on_gpu(value):
        made[id(value)] = _clone_array(value)
        return made[id(value)]
    if isinstance(value, dict):
        result = made[id(value)] = copy.copy(value)
        for key, item in value.items():
            result[key] = _clone(item, made)
        return result
    if isinstance(value, list):
        result = made[id(value)] = copy.copy(value)
        result[:] = [_clone(item, made) for item in value]
        return result
    if isinstance(value, tuple):
        items = [_clone(item, made) for item in value]
        if hasattr(value, "_make"):  # a named tuple
            return value._make(items)
        return tuple(items) if type(value) is tuple else value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        result = made[id(value)] = copy.copy(value)
        for name in _fields(value):
            object.__setattr__(result, name, _clone(getattr(value, name), made))
        return result
    return value


def _clone_array(array: Any) -> Any:
    if _is_cupy(array):
        return _clone_cupy(array)
    result = _clone_tensor(array.detach())
    return result.requires_grad_() if array.requires_grad else result


def _clone_tensor(tensor: Any) -> Any:
    torch = sys.modules["torch"]
    plain = type(tensor) is torch.Tensor and _is_strided(tensor)
    if not plain or tensor.is_conj() or tensor.is_neg() or tensor.is_quantized:
        return tensor.clone()
    # A copy of the memory that it reaches: clone() would pack what has gaps, and write out what is
    # expanded.
    _, extent = _reach(tensor.shape, tensor.stride(), 1)
    offset = tensor.storage_offset()
    before = min(offset, tensor.data_ptr() % _ALIGNMENT // tensor.element_size())
    memory = tensor.as_strided((before + extent,), (1,), offset - before).clone()
    return memory.as_strided(tensor.shape, tensor.stride(), before)


def _clone_cupy(array: Any) -> Any:
    if array.flags.c_contiguous or array.flags.f_contiguous:
        return array.copy(order="K")
    ndarray: Any = sys.modules["cupy"].ndarray
    low, high = _reach(array.shape, array.strides, array.itemsize)
    memory = ndarray((high - low,), "u1", memptr=array.data + low).copy()
    return ndarray(array.shape, array.dtype, memptr=memory.data - low, strides=array.strides)


def watch(value: Any, name: str) -> Callable[[], list[str]]:
    """Note the arrays in `value` as they are; the result tells which have changed since.

    Torch counts the changes of its tensors itself. CuPy's arrays are compared with copies, unless
    they are large. What torch does not count (a kernel of somebody else's) stays unseen.
    """
    versions = []
    copies = []
    left = _MAX_COMPARED
    for path, array in leaves(value, name):
        if _is_tensor(array):
            if not getattr(array, "is_inference", bool)():  # such a tensor has no counter
                versions.append((path, array, array._version))
        elif array.nbytes <= left:
            left -= array.nbytes
            copies.append((path, array, array.copy()))

    def changed() -> list[str]:
        found = [path for path, array, version in versions if array._version != version]
        return found + [path for path, array, before in copies if not _same_bytes(array, before)]

    return changed


def _same_bytes(one: Any, other: Any) -> bool:
    cupy = sys.modules["cupy"]
    raw = [cupy.ascontiguousarray(array).reshape(-1).view("u1") for array in (one, other)]
    return bool((raw[0] == raw[1]).all())
