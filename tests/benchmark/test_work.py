"""What a benchmark does with a function's arguments, and with the random generators."""

from __future__ import annotations

import collections
import dataclasses
import sys
import types
from array import array as plain_array
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuprof._benchmark import loop
from gpuprof._benchmark import work as bench_work
from gpuprof._benchmark.work import Work, clone, gpu_bytes, leaves, shared
from gpuprof._frameworks.loaded import is_tensor
from gpuprof._frameworks.torch import random_state_kept


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A CuPy whose arrays are NumPy's: `data` is a pointer, and one can be built from it."""
    numpy = pytest.importorskip("numpy", reason="Python build without NumPy")

    class Pointer:
        def __init__(self, memory: Any, offset: int) -> None:
            self.memory, self.offset = memory, offset
            self.ptr = memory.ctypes.data + offset

        def __add__(self, more: int) -> Pointer:
            return Pointer(self.memory, self.offset + more)

        def __sub__(self, less: int) -> Pointer:
            return Pointer(self.memory, self.offset - less)

    class Array(numpy.ndarray):  # type: ignore[misc, name-defined]
        def __new__(cls, shape: Any, dtype: str, memptr: Any, strides: Any = None) -> Any:
            of = {"buffer": memptr.memory, "offset": memptr.offset, "strides": strides}
            return numpy.ndarray.__new__(cls, shape, dtype, **of)

        @property
        def data(self) -> Pointer:
            root = self
            while isinstance(root.base, numpy.ndarray):
                root = root.base
            return Pointer(root, self.ctypes.data - root.ctypes.data)

    module: Any = types.ModuleType("cupy")
    module.ndarray, module.cuda = Array, None
    module.ascontiguousarray = numpy.ascontiguousarray
    module.arange = lambda count: numpy.arange(count, dtype="f4").view(Array)
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


def work(*args: Any, **kwargs: Any) -> Work:
    return Work((lambda *_args, **_kwargs: None, args, kwargs), None)


def test_clones_take_turns_whatever_the_portions_are(cupy: Any) -> None:
    rotating = work(cupy.arange(1000))
    assert rotating.rotate(8000) is None
    assert rotating.clones == 5
    seen: list[int] = []
    rotating.fn = lambda array: seen.append(array.data.ptr)
    for portion in (2, 1, 4, 3):
        rotating.call_times(portion)
    assert len(set(seen)) == 5
    assert seen[5:] == seen[:5]


def test_a_clone_has_the_same_values_and_strides_and_memory_of_its_own(cupy: Any) -> None:
    whole = cupy.arange(60).reshape(6, 10)
    for array in (whole, whole.T, whole[:, :3], whole[::2, ::3], whole[::-1], whole[4:1:-2, 1:]):
        copy = clone(array)
        assert (copy == array).all()
        assert copy.strides == array.strides
        copy[...] = -1.0
        assert (whole == cupy.arange(60).reshape(6, 10)).all()


def test_an_array_that_is_there_twice_is_one_in_the_clone(cupy: Any) -> None:
    array = cupy.arange(4)
    first, (second,) = clone((array, [array]))
    assert first is second
    assert first is not array
    assert gpu_bytes((array, {"again": array})) == 16


@dataclasses.dataclass(frozen=True)
class Frozen:
    array: Any
    number: int = 3


Pair = collections.namedtuple("Pair", "left right")  # noqa: PYI024


def test_arrays_are_cloned_inside_of_containers(cupy: Any) -> None:
    array = cupy.arange(4)
    defaults: Any = collections.defaultdict(list, key=array)
    for value in ([array], (array,), {"k": array}, defaults, Pair(1, array), Frozen(array)):
        copy = clone(value)
        assert type(copy) is type(value)
        assert shared((value,), (value,), "args") is not None
        assert shared((value,), (copy,), "args") is None
        assert [path for path, _ in leaves(copy)] == [p for p, _ in leaves(value)]
    assert clone(Frozen(array, 5)).number == 5
    assert clone(defaults).default_factory is list


def test_a_container_that_cannot_be_copied_stops_the_rotation_and_is_told(cupy: Any) -> None:
    inside = work(1, collections.UserDict(key=cupy.arange(1000)))
    reason = inside.rotate(8000)
    assert reason is not None
    assert "args[1]['key']" in reason
    assert inside.clones == 1


def test_a_clone_that_fails_stops_the_rotation_and_is_told(
    cupy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_value: object) -> None:
        raise MemoryError("out of memory\nand more")

    monkeypatch.setattr(bench_work, "clone", full)
    reason = work(cupy.arange(1000)).rotate(8000)
    assert reason is not None
    assert reason.endswith("out of memory")


def test_containers_inside_themselves_end(cupy: Any) -> None:
    array = cupy.arange(4)
    looped: list[Any] = [array]
    looped.append(looped)
    assert [path for path, _ in leaves(looped, "args[0]")] == ["args[0][0]"]
    copy = clone(looped)
    assert copy[1] is copy
    assert copy[0] is not array


def test_an_array_that_is_changed_in_place_is_told_by_its_place(cupy: Any) -> None:
    changing = work([cupy.arange(4)], same=cupy.arange(4))

    def change(values: list[Any], same: Any) -> None:
        values[0] += same

    changing.fn = change
    changing.first_call()
    assert len(changing.warnings) == 1
    assert "changes args[0][0] in place" in changing.warnings[0]


def add_three(values: Any) -> None:
    values[0] += 3


CHANGES: dict[str, tuple[Callable[[], Any], Any]] = {
    "a list that is sorted once": (lambda: [3, 1, 2], lambda values: values.sort()),
    "a list that every second call restores": (lambda: [3, 1], lambda values: values.reverse()),
    "a dict": (lambda: {"a": 1}, lambda values: values.update(a=object())),
    "a set": (lambda: {1, 2, 3}, lambda values: values.discard(2)),
    "a deque": (lambda: collections.deque([1, 2]), lambda values: values.rotate()),
    "a bytearray": (lambda: bytearray(b"abc"), add_three),
    "an array": (lambda: plain_array("d", [1.0, 2.0]), add_three),
    "a list's iterator": (lambda: iter([1, 2, 3]), next),
    "a generator": (lambda: (each for each in [1, 2]), list),
    "a map": (lambda: map(str, [1, 2]), list),
}


@pytest.mark.parametrize("what", CHANGES)
def test_an_argument_that_is_changed_in_place_is_told(what: str) -> None:
    made, change = CHANGES[what]
    changing = work({"here": [1, made()]}, b=1)
    changing.fn = lambda args, b: change(args["here"][b])
    changing.first_call()
    assert len(changing.warnings) == 1
    assert "changes args[0]['here'][1] in place" in changing.warnings[0]


def test_an_array_of_numpys_that_is_changed_in_place_is_told() -> None:
    numpy = pytest.importorskip("numpy", reason="Python build without NumPy")
    for given in (numpy.arange(6.0)[::2], numpy.array([object()] * 2), numpy.zeros(2, "f2")):
        changing = work(given)
        changing.fn = lambda values: values.__setitem__(0, 7.0)
        changing.first_call()
        assert "changes args[0] in place" in changing.warnings[0]


def test_arguments_that_are_only_read_are_not_told(tmp_path: Path) -> None:
    given = [[1, [2.5]], {"k": {1}}, bytearray(9), plain_array("i", [1]), range(4), b"text", []]
    with (tmp_path / "file").open("w") as file:
        reading = work(*given, file, unused=iter([1, 2]), looped=looped())
        reading.fn = lambda *args, **_: [[*each] for each in args[:-1]]
        reading.first_call()
    assert reading.warnings == []


def looped() -> list[Any]:
    values: list[Any] = []
    values.append(values)
    return values


def test_arguments_may_be_nested_deeper_than_python_calls_go() -> None:
    deep: Any = ()
    for _ in range(5_000):
        deep = (deep, 1)
    nested = work(deep)
    nested.first_call()
    assert nested.warnings == []


async def pauses() -> None:
    pass


def counts() -> Iterator[int]:
    yield 1


async def streams() -> AsyncIterator[int]:
    yield 1


def begun() -> Iterator[int]:
    numbers = counts()
    next(numbers)
    return numbers


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize(
    ("made", "told"),
    [
        (pauses, "a coroutine"),
        (counts, "a generator"),
        (streams, "an async generator"),
        (begun, ""),
        (int, ""),
    ],
)
def test_a_body_that_nobody_ran_is_told(made: Callable[[], Any], told: str) -> None:
    returning = Work((made, (), {}), None)
    returning.first_call()
    begins = [f"the function returns {told} that nobody ran"] if told else []
    assert [text[: len(begins[0])] for text in returning.warnings] == begins


@pytest.mark.parametrize("given", [5, ("text", {}), ((1,), [2]), ((1,),), ([], {}, 3)])
def test_a_set_up_must_give_arguments_as_a_tuple_and_a_mapping(given: Any) -> None:
    with pytest.raises(TypeError, match=r"return None or \(args, kwargs\)"):
        Work((print, (), {}), lambda: given).set_up()


def test_a_module_that_is_still_being_imported_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("torch", "cupy"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    with random_state_kept():
        assert gpu_bytes(([1], {"k": 2})) == 0
        assert loop.device_allocations() == ()


class Torch(types.ModuleType):
    """A torch with a generator for the CPU and one for the GPU, and no statistics."""

    def __init__(self) -> None:
        super().__init__("torch")
        self.state = 0
        self.cuda: Any = types.SimpleNamespace(
            state=None,
            is_initialized=lambda: self.cuda.state is not None,
            current_device=lambda: 0,
            get_rng_state=lambda _device: self.cuda.state,
            set_rng_state=lambda state, _device: setattr(self.cuda, "state", state),
            initial_seed=lambda: 42,
            manual_seed=lambda seed: setattr(self.cuda, "state", (seed, 0)),
            memory_stats=self.refuse,
        )

    def get_rng_state(self) -> int:
        return self.state

    def set_rng_state(self, state: int) -> None:
        self.state = state

    def refuse(self) -> None:
        raise RuntimeError("CUDAPluggableAllocator does not yet support getDeviceStats")


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Torch:
    module = Torch()
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


@pytest.mark.parametrize("before", [(42, 8), None])
def test_torchs_generators_are_put_back_also_where_the_gpu_is_new(
    torch: Torch, before: Any
) -> None:
    torch.cuda.state = before
    with random_state_kept():
        torch.state, torch.cuda.state = 9, (42, 16)
    assert torch.state == 0
    assert torch.cuda.state == (before or (42, 0))


def test_generators_are_put_back_after_an_error(torch: Torch) -> None:
    with pytest.raises(KeyboardInterrupt), random_state_kept():
        torch.state = 9
        raise KeyboardInterrupt
    assert torch.state == 0


def test_an_allocator_that_keeps_no_books_is_no_error(torch: Torch) -> None:
    torch.cuda.state = (42, 0)
    assert loop.device_allocations() == ()


def test_clones_of_tensors_keep_strides_alignment_and_requires_grad(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    monkeypatch.setattr(bench_work, "_is_on_gpu", is_tensor)
    whole = torch.arange(60.0).reshape(6, 10)
    views = [whole, whole.t(), whole[:, :3], whole.view(-1)[1:], torch.ones(1).expand(500, 500)]
    for tensor in [*views, torch.nn.Parameter(whole), torch.empty(0, 3), torch.tensor(2.0)]:
        copy = clone(tensor)
        assert torch.equal(copy, tensor)
        assert copy.stride() == tensor.stride()
        assert copy.requires_grad == tensor.requires_grad
        assert copy.storage_offset() == tensor.storage_offset() % 128
        assert shared([tensor], [copy], "args") is None
    assert gpu_bytes(views[4]) == 4
    sparse = torch.eye(3).to_sparse()
    assert gpu_bytes(sparse) == 0
    assert clone(sparse).layout == sparse.layout
