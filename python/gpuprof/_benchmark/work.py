"""What is measured: a function with its arguments, and the GPU arrays among them.

Torch tensors and CuPy arrays are found inside lists, tuples, named tuples, dicts and dataclasses.
Neither library is imported here: an argument can be theirs only if it is imported already.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any

from gpuprof._frameworks import loaded
from gpuprof._frameworks.loaded import is_tensor

__tracebackhide__ = True  # pytest shows the frames of the test and of its function

MAX_CLONES = 256  # of the arguments; if it takes more, the L2 is flushed instead
_SHOWN = 5
_MAX_COMPARED = 256 << 20  # bytes of CuPy arrays that are copied to see whether they change
_ALIGNMENT = 512  # of what the frameworks allocate
_PLAIN = {int, float, complex, bool, str, bytes, type(None)}


class Work:
    """A function and its arguments. One thread uses it.

    `setup` is called before each measured call, and may return ``(args, kwargs)`` for that call.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        setup: Callable[[], Any] | None,
    ) -> None:
        self.fn = fn
        self.setup = setup
        self.warnings: list[str] = []  # of the result, each text once
        self._variants = [(tuple(args), dict(kwargs))]
        self._next = 0

    def warn(self, text: str) -> None:
        """Note a warning, unless it is noted already."""
        if text not in self.warnings:
            self.warnings.append(text)

    def call(self) -> Any:
        """Call the function once, with the next clones of its arguments; return its value."""
        args, kwargs = self._variants[self._next]
        self._next = (self._next + 1) % len(self._variants)
        return self.fn(*args, **kwargs)

    def call_times(self, count: int) -> None:
        """Call it `count` times, each with the next clones of its arguments, if there are any."""
        if len(self._variants) > 1:
            for _ in range(count):
                self.call()
            return
        fn, (args, kwargs) = self.fn, self._variants[0]
        # On the CPU's clock every step in here is in the result: repeat() makes no ints.
        for _ in repeat(None, count):
            fn(*args, **kwargs)

    def set_up(self) -> None:
        """Run `setup`, if there is one, and use the arguments that it returns."""
        if self.setup is None:
            return
        given = self.setup()
        if given is None:
            return
        if not _is_call(given):
            message = (
                f"setup: expected it to return None or (args, kwargs), got {type(given).__name__}"
            )
            raise TypeError(message)
        self._variants = [(tuple(given[0]), dict(given[1]))]
        self._next = 0

    def first_call(self) -> None:
        """Set up and call once, which loads and compiles; warn of arguments changed in place."""
        self.set_up()
        self.call()
        if self.setup is not None:
            return
        args, kwargs = self._variants[0]
        changes = [watch(args, "args"), watch(kwargs, "kwargs")]
        self.call()
        paths = [path for changed in changes for path in changed()]
        if paths:
            shown = ", ".join(paths[:_SHOWN])
            more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
            self.warn(
                f"the function changes {shown}{more} in place, so each call starts from what the "
                "last one left; give setup= to start each from the same"
            )

    @property
    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The positional and the keyword arguments of the next call."""
        return self._variants[self._next]

    @property
    def clones(self) -> int:
        """How many variants of the arguments take turns."""
        return len(self._variants)

    def rotate(self, l2_bytes: int) -> str | None:
        """Let clones of the arguments take turns, so that none is in an L2 cache of that size.

        Returns why that is not possible; None if it is done.
        """
        original = self._variants[0]
        size = gpu_bytes(original)
        if size == 0:
            return "no GPU array of torch's or CuPy's is among the arguments"
        count = max(2, math.ceil(2 * l2_bytes / size) + 1)
        if count > MAX_CLONES:
            return (
                f"the arguments have {size:,} bytes, so that twice the L2 cache of {l2_bytes:,} "
                f"would take {count:,} clones of them"
            )
        try:
            clones = [clone(original) for _ in range(count - 1)]
        except Exception as error:  # of the framework's: no memory left, no such copy
            return f"a copy of them cannot be made: {first_line(error)}"
        for value, its_clone, name in zip(original, clones[0], ("args", "kwargs"), strict=True):
            path = shared(value, its_clone, name)
            if path is not None:
                return f"what holds {path} is not a container that can be copied"
        self._variants = [original, *clones]
        self._next = 0
        return None


def first_line(error: Exception) -> str:
    """Return the first line of what an error says."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0]


def _is_call(given: Any) -> bool:
    return (
        isinstance(given, tuple)
        and len(given) == 2
        and isinstance(given[0], (tuple, list))
        and isinstance(given[1], Mapping)
    )


def _is_cupy(value: object) -> bool:
    return isinstance(value, loaded.cupy_array_type())


def _is_on_gpu(value: Any) -> bool:
    return _is_cupy(value) or (is_tensor(value) and bool(value.is_cuda))


def _fields(value: Any) -> list[str]:
    return [each.name for each in dataclasses.fields(value) if hasattr(value, each.name)]


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (path, array) for each array in `value`; each container is visited once."""
    if loaded.tensor_type() or loaded.cupy_array_type():
        yield from _leaves(value, path, set())


def _leaves(value: Any, path: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    if is_tensor(value) or _is_cupy(value):
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
    """Return the path of a GPU array in `value` whose memory `other` uses too; None without one."""
    theirs = {address for address, size in map(_memory, _arrays(other)) if size}
    for path, array in leaves(value, name):
        address, size = _memory(array)
        if size and address in theirs:
            return path
    return None


def _arrays(value: Any) -> Iterator[Any]:
    return (array for _, array in leaves(value))


def _memory(array: Any) -> tuple[int, int]:
    """Return the address and size of the memory of a GPU array; (0, 0) where it has none."""
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
    return tensor.layout is loaded.torch().strided and not tensor.is_nested


def _reach(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> tuple[int, int]:
    """Return the lowest and highest offset of an array's memory from its first element."""
    if 0 in shape:
        return 0, 0
    steps = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
    return sum(step for step in steps if step < 0), itemsize + sum(s for s in steps if s > 0)


def clone(value: Any) -> Any:
    """Return `value` with a copy of each GPU array in it, and everything else as it is.

    An array that occurs twice is one array in the copy too. Strides, alignment and `requires_grad`
    stay. Arrays in other kinds of containers are not copied; `shared` finds them.
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
    torch = loaded.torch()
    plain = type(tensor) is torch.Tensor and _is_strided(tensor)
    if not plain or tensor.is_conj() or tensor.is_neg() or tensor.is_quantized:
        return tensor.clone()
    # Copy the memory below it: clone() would pack strided tensors and materialise expanded ones.
    _, extent = _reach(tensor.shape, tensor.stride(), 1)
    offset = tensor.storage_offset()
    before = min(offset, tensor.data_ptr() % _ALIGNMENT // tensor.element_size())
    memory = tensor.as_strided((before + extent,), (1,), offset - before).clone()
    return memory.as_strided(tensor.shape, tensor.stride(), before)


def _clone_cupy(array: Any) -> Any:
    if array.flags.c_contiguous or array.flags.f_contiguous:
        return array.copy(order="K")
    ndarray = loaded.cupy_array_type()
    low, high = _reach(array.shape, array.strides, array.itemsize)
    memory = ndarray((high - low,), "u1", memptr=array.data + low).copy()
    return ndarray(array.shape, array.dtype, memptr=memory.data - low, strides=array.strides)


def watch(value: Any, name: str) -> Callable[[], list[str]]:
    """Return a function that lists the arrays in `value` that have changed since.

    Torch counts the changes to its tensors; CuPy's arrays are compared with copies, unless they are
    large. Changes that torch does not count, such as those of a Triton kernel, are not seen.
    """
    versions = []
    copies = []
    left = _MAX_COMPARED
    for path, array in leaves(value, name):
        if is_tensor(array):
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
    cupy = loaded.cupy()
    raw = [cupy.ascontiguousarray(array).reshape(-1).view("u1") for array in (one, other)]
    return bool((raw[0] == raw[1]).all())
