"""What is measured: a function with its arguments, what it changes, and the GPU arrays among them.

Torch tensors and CuPy arrays are found inside lists, tuples, named tuples, dicts and dataclasses.
Neither library is imported here: an argument can be theirs only if it is imported already.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import io
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import repeat
from keyword import iskeyword
from operator import length_hint
from typing import Any, TypeAlias

from gpuprof._distributed.lockstep import Alone
from gpuprof._frameworks import loaded
from gpuprof._frameworks.array_facts import reach
from gpuprof._frameworks.loaded import is_tensor

__tracebackhide__ = True  # pytest shows the frames of the test and of its function

MAX_CLONES = 256  # of the arguments; if it takes more, the L2 is flushed instead
_SHOWN = 5
_MAX_COMPARED = 256 << 20  # bytes of an argument that are copied to see whether it changes
_ALIGNMENT = 512  # of what the frameworks allocate
_PLAIN = {int, float, complex, bool, str, bytes, type(None)}
# A function, and what it is called with.
Call: TypeAlias = "tuple[Callable[..., Any], Sequence[Any], Mapping[str, Any]]"


class Work:
    """A function and its arguments, or those that `setup` returns. One thread uses it."""

    def __init__(self, call: Call, setup: Callable[[], Any] | None) -> None:
        self.fn, args, kwargs = call
        self.setup = setup
        self.warnings: list[str] = []  # of the result, each text once
        self.ranks = Alone()  # those that call it as often
        self._use(tuple(args), dict(kwargs))

    def _use(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._variants = [(args, kwargs)]
        self._next = 0
        self._loop = _loop(len(args), tuple(kwargs))

    def warn(self, text: str) -> None:
        """Add a warning to the result; each text once, and an empty one never."""
        if text and text not in self.warnings:
            self.warnings.append(text)

    def call(self) -> Any:
        """Call the function once, with the next clones of its arguments."""
        args, kwargs = self._variants[self._next]
        self._next = (self._next + 1) % len(self._variants)
        return self.fn(*args, **kwargs)

    def call_times(self, count: int, *, value: bool = False) -> Any:
        """Call it `count` times, each with the next clones of its arguments, if there are any.

        With `value` a single call's value is returned; `count` is at most 1 then.
        """
        if len(self._variants) > 1:
            for _ in range(count):
                self.call()
            return None
        args, kwargs = self._variants[0]
        loop = _loop(len(args), tuple(kwargs), "return ") if value else self._loop
        # On the CPU's clock every step of the loop is in the result: repeat() makes no ints.
        return loop(self.fn, repeat(None, count), *args, *kwargs.values())

    def set_up(self, synchronize: Callable[[], object] = lambda: None) -> None:
        """Run `setup`, if there is one; `synchronize` waits for what it gives the GPU."""
        if self.setup is None:
            return
        given = self.setup()
        if is_call(given):
            self._use(tuple(given[0]), dict(given[1]))
        elif given is not None:
            message = (
                f"setup: expected it to return None or (args, kwargs), got {type(given).__name__}"
            )
            raise TypeError(message)
        synchronize()

    def first_call(self) -> None:
        """Set up and call once, which loads and compiles; warn of what makes the calls differ."""
        self.set_up()
        args, kwargs = self._variants[0]
        told = [] if self.setup else [watch(args, "args"), watch(kwargs, "kwargs")]
        begun = _only_begun(self.call())
        if begun:
            self.warn(
                f"the function returns {begun} that nobody ran, so its body is not in the time; "
                "pass a function that runs it to its end"
            )
        if self.setup is not None:
            return
        paths = [path for changed in told for path in changed()]
        self.call()
        # A second call may undo what the first one changed, and a first one leave for the second.
        paths = paths or [path for changed in told for path in changed()]
        if paths:
            shown = ", ".join(paths[:_SHOWN])
            more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
            self.warn(
                f"the function changes {shown}{more} in place, so each call starts from what the "
                "last one left; give setup= to start each from the same"
            )

    @property
    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return self._variants[self._next]

    @property
    def clones(self) -> int:
        """How many variants of the arguments take turns."""
        return len(self._variants)

    def rotate(self, l2_bytes: int) -> str | None:
        """Let clones take turns, so that none is in an L2 cache of that size; or return why not."""
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
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0]


@lru_cache(maxsize=64)
def _loop(positional: int, names: tuple[str, ...], before: str = "") -> Callable[..., Any]:
    """Return a loop of calls of a function; it takes that, what to iterate over, and the arguments.

    These are written out, as `timeit` has them: unpacking them for each call costs 20 to 100 ns.
    `before` is what stands before each call.
    """
    values = [f"v{place}" for place in range(positional + len(names))]
    given = values[:positional]
    for name, value in zip(names, values[positional:], strict=True):
        given.append(f"{name}={value}" if _can_be_written(name) else f"**{{{name!r}: {value}}}")
    head = f"def loop({', '.join(['fn', 'turns', *values])}):"
    source = f"{head}\n for _ in turns: {before}fn({', '.join(given)})"
    made: dict[str, Any] = {"__tracebackhide__": True}
    exec(compile(source, "<a loop of gpuprof's>", "exec"), made)
    return made["loop"]  # type: ignore[no-any-return]


def _can_be_written(name: str) -> bool:
    plain = str.isidentifier(name) and name.isascii()
    return plain and not iskeyword(name) and name != "__debug__"


def _only_begun(value: Any) -> str:
    if inspect.iscoroutine(value):
        return "a coroutine" if inspect.getcoroutinestate(value) == inspect.CORO_CREATED else ""
    if inspect.isgenerator(value):
        return "a generator" if inspect.getgeneratorstate(value) == inspect.GEN_CREATED else ""
    return "an async generator" if inspect.isasyncgen(value) else ""


def is_call(given: Any) -> bool:
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


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (path, array) for each GPU array or tensor in `value`."""
    found = _walk(value, path)
    return ((at, each) for at, each in found if is_tensor(each) or _is_cupy(each))


def _walk(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield (path, object) for `value` and what is in it, but plain values; each container once."""
    seen: set[int] = set()
    rest = [(path, value)]
    while rest:
        at, each = rest.pop()
        yield at, each
        if id(each) not in seen and not is_tensor(each) and not _is_cupy(each):
            seen.add(id(each))
            rest += reversed([*_items(each, at)])


def _items(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        found = ((f"[{key!r}]", item) for key, item in value.items() if type(item) not in _PLAIN)
    elif isinstance(value, (list, tuple)):
        found = ((f"[{i}]", item) for i, item in enumerate(value) if type(item) not in _PLAIN)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [each.name for each in dataclasses.fields(value) if hasattr(value, each.name)]
        found = ((f".{name}", getattr(value, name)) for name in names)
    else:
        return iter(())
    return ((path + end, item) for end, item in found)


def gpu_bytes(value: Any) -> int:
    """Return the bytes of the GPU arrays in `value`, each memory once."""
    sizes: dict[int, int] = {}
    for _, array in leaves(value):
        address, size = _memory(array)
        sizes[address] = max(size, sizes.get(address, 0))
    return sum(sizes.values())


def shared(value: Any, other: Any, name: str) -> str | None:
    """Return the path of a GPU array in `value` whose memory `other` uses too; None without one."""
    theirs = {address for _, array in leaves(other) for address, size in [_memory(array)] if size}
    for path, array in leaves(value, name):
        address, size = _memory(array)
        if size and address in theirs:
            return path
    return None


def _memory(array: Any) -> tuple[int, int]:
    """Return address and size; (0, 0) of what has no memory on a GPU."""
    if not _is_on_gpu(array):
        return 0, 0
    if _is_cupy(array):
        low, high = reach(array.shape, array.strides, array.itemsize)
        return int(array.data.ptr), min(int(array.nbytes), high - low)
    if not _is_strided(array):
        return 0, 0
    try:
        address = int(array.data_ptr())
    except RuntimeError:  # a wrapper around others
        return 0, 0
    _, extent = reach(array.shape, array.stride(), 1)
    return address, min(array.numel(), extent) * array.element_size()


def _is_strided(tensor: Any) -> bool:
    return tensor.layout is loaded.torch().strided and not tensor.is_nested


def clone(value: Any) -> Any:
    """Return `value` with a copy of each GPU array in it, and everything else as it is.

    An array that occurs twice is one array in the copy too. Strides, alignment and `requires_grad`
    stay. Arrays in other kinds of containers are not copied; `shared` finds them.
    """
    made: dict[int, Any] = {}
    for _, each in _walk(value, ""):
        if _is_on_gpu(each):
            made[id(each)] = _clone_array(each)
        elif not _is_copied(each):
            made[id(each)] = each
        elif isinstance(each, dict):
            made |= {id(key): key for key in each}
    return copy.deepcopy(value, made)


def _is_copied(value: Any) -> bool:
    if isinstance(value, tuple):
        return type(value) is tuple or hasattr(value, "_make")
    is_object = dataclasses.is_dataclass(value) and not isinstance(value, type)
    return is_object or isinstance(value, (dict, list))


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
    _, extent = reach(tensor.shape, tensor.stride(), 1)
    offset = tensor.storage_offset()
    before = min(offset, tensor.data_ptr() % _ALIGNMENT // tensor.element_size())
    memory = tensor.as_strided((before + extent,), (1,), offset - before).clone()
    return memory.as_strided(tensor.shape, tensor.stride(), before)


def _clone_cupy(array: Any) -> Any:
    if array.flags.c_contiguous or array.flags.f_contiguous:
        return array.copy(order="K")
    ndarray = loaded.cupy_array_type()
    low, high = reach(array.shape, array.strides, array.itemsize)
    memory = ndarray((high - low,), "u1", memptr=array.data + low).copy()
    return ndarray(array.shape, array.dtype, memptr=memory.data - low, strides=array.strides)


def watch(value: Any, name: str) -> Callable[[], list[str]]:
    """Return a function that lists what in `value` was changed in place since.

    Torch counts the changes to its tensors; other arrays are compared with copies, unless they are
    large, and containers by which objects they hold. An iterator that does not tell how much of it
    is left counts as used. Changes that torch does not count, such as those of a Triton kernel, are
    not seen.
    """
    states = [(path, each, _state(each)) for path, each in _walk(value, name)]
    return lambda: [path for path, each, state in states if _state(each) != state]


def _state(value: Any) -> object:
    """Return what is not the same once an object was changed in place; None if that is not seen."""
    if is_tensor(value):
        is_counted = not getattr(value, "is_inference", bool)()
        return value._version if is_counted else None
    if _is_cupy(value):
        return value.tobytes() if value.nbytes <= _MAX_COMPARED else None
    if isinstance(value, (list, dict, set, deque)):
        if len(value) > _MAX_COMPARED // 16:
            return None
        held = [*value, *(value.values() if isinstance(value, dict) else ())]
        return [*map(id, held)], held  # which keeps them, so that no new object has their ids
    if isinstance(value, Iterator) and not isinstance(value, io.IOBase):
        left = length_hint(value, -1)
        return left if left >= 0 else math.nan  # which is never the same
    try:
        with memoryview(value) as view:
            return None if view.readonly or view.nbytes > _MAX_COMPARED else view.tobytes()
    except (TypeError, ValueError, BufferError):  # as of dates of NumPy's
        return None
