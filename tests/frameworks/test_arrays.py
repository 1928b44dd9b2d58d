"""What is done with arrays of CuPy, Numba and others, on stand-ins: made, filled, compared."""

from __future__ import annotations

import itertools
import sys
import types
from typing import Any

import pytest

from gpuprof._frameworks.arrays import arrays_of, is_dense
from gpuprof._frameworks.compare import Difference, differences

numpy: Any = pytest.importorskip("numpy", reason="Python build without NumPy")


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A CuPy whose arrays are NumPy's."""

    class ndarray(numpy.ndarray):  # type: ignore[misc, name-defined]
        __cuda_array_interface__: Any = None

    module: Any = types.ModuleType("cupy")
    module.ndarray = ndarray
    module.cuda = types.SimpleNamespace()  # so that its import is over
    module.ascontiguousarray = numpy.ascontiguousarray
    module.empty_like = numpy.empty_like
    module.empty = lambda shape, dtype: numpy.empty(shape, dtype).view(ndarray)
    module.asnumpy = numpy.asarray
    module.asarray = lambda values, dtype="f4": numpy.array(values, dtype).view(ndarray)
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


class DeviceArray:
    """An array with those methods of Numba's that copy, and what was asked of them."""

    def __init__(self, values: Any) -> None:
        self.values = values
        self.shape, self.strides, self.dtype = values.shape, values.strides, values.dtype
        self.size, self.flags = values.size, values.flags
        self.calls: list[tuple[str, Any]] = []

    def copy_to_device(self, other: DeviceArray, stream: Any) -> None:
        self.calls.append(("copy_to_device", stream))
        assert any(self.flags[c] and other.flags[c] for c in ("C_CONTIGUOUS", "F_CONTIGUOUS"))
        self.values[...] = other.values

    def setitem(self, key: tuple[slice, ...], value: Any, stream: Any) -> None:
        self.calls.append(("setitem", stream))
        assert len(key) == len(self.shape)
        self.values[key] = getattr(value, "values", value)

    def copy_to_host(self, stream: Any) -> Any:
        self.calls.append(("copy_to_host", stream))
        return self.values.copy()

    def __getitem__(self, key: Any) -> DeviceArray:
        return DeviceArray(self.values[key])


class Stream:
    def __init__(self, handle: int) -> None:
        self.handle = handle
        self.waits = 0

    def __bool__(self) -> bool:
        return self.handle != 0

    def synchronize(self) -> None:
        self.waits += 1


@pytest.fixture
def numba(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A Numba whose arrays are `DeviceArray`s; `on` is the stream of a call."""
    cuda: Any = types.ModuleType("numba.cuda")
    cuda.stream = Stream(7)
    cuda.external_stream = lambda handle: cuda.stream if handle == 7 else None
    cuda.device_array = lambda shape, dtype: DeviceArray(numpy.full(shape, 9, dtype))
    cuda.device_array_like = lambda array: DeviceArray(numpy.empty_like(array.values))
    arrays: Any = types.ModuleType("numba.cuda.cudadrv.devicearray")
    arrays.DeviceNDArray = DeviceArray
    monkeypatch.setitem(sys.modules, "numba.cuda", cuda)
    monkeypatch.setitem(sys.modules, "numba.cuda.cudadrv.devicearray", arrays)
    cuda.on = types.SimpleNamespace(handle=lambda: cuda.stream.handle)
    return cuda


class Foreign:
    """An array of a library that nobody knows."""

    def __init__(self, address: int = 4096, shape: tuple[int, ...] = (2, 3)) -> None:
        self.interface = {"data": (address, False), "shape": shape, "typestr": "<f4"}

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.interface


def test_an_array_is_handled_by_its_own_library(cupy: Any, numba: Any) -> None:
    assert arrays_of(type(cupy.asarray([1]))).name == "cupy"
    assert arrays_of(type(DeviceArray(numpy.ones(1)))).name == "numba"
    assert arrays_of(type(Foreign())).name == "address"
    assert numba is sys.modules["numba.cuda"]


def test_a_type_that_calls_may_bring_is_told(cupy: Any) -> None:
    assert arrays_of(type(cupy.asarray([1]))).types == (cupy.ndarray,)
    assert arrays_of(type(Foreign())).types == (Foreign,)


@pytest.mark.parametrize("value", [1.5, numpy.ones(3), None], ids=["number", "numpy", "None"])
def test_what_is_no_array_on_a_gpu_is_refused_by_its_type(value: object) -> None:
    with pytest.raises(TypeError, match=type(value).__name__):
        arrays_of(type(value))


@pytest.mark.parametrize(
    ("shape", "strides", "dense"),
    [
        ((2, 3), (3, 1), True),
        ((2, 3), (1, 2), True),
        ((2, 1, 3), (3, 99, 1), True),
        ((), (), True),
        ((2, 0), (7, 7), True),
        ((2, 3), (4, 1), False),
        ((2, 3), (0, 1), False),
        ((3,), (-1,), False),
        ((3,), (2,), False),
    ],
)
def test_dense_is_what_fills_its_memory_once(
    shape: tuple[int, ...], strides: tuple[int, ...], dense: bool
) -> None:
    assert is_dense(shape, strides) is dense


def test_a_padded_array_keeps_the_order_of_its_dimensions(cupy: Any) -> None:
    for order in itertools.permutations(range(3)):
        array = cupy.empty([(2, 3, 4)[axis] for axis in order], "f4")
        array = array.transpose(numpy.argsort(order))
        made = arrays_of(type(array)).padded(array, 1, 5)
        assert (array.shape, made.shape) == ((2, 3, 4), (2, 5, 4))
        assert numpy.argsort(made.strides).tolist() == numpy.argsort(array.strides).tolist()


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x,
        lambda x: x.T,
        lambda x: x[:, ::2],
        lambda x: x[::-1],
        lambda x: x[0, 0],
        lambda x: x[:0],
    ],
    ids=["plain", "transposed", "strided", "reversed", "a number", "empty"],
)
def test_a_static_array_of_cupys_is_dense_and_is_filled(cupy: Any, view: Any) -> None:
    array = view(cupy.asarray([[1, 2, 3, 4], [5, 6, 7, 8]])).view(cupy.ndarray)
    arrays = arrays_of(type(cupy.asarray([1])))
    static = arrays.static_like(array)
    assert is_dense(static.shape, [stride // 4 for stride in static.strides])
    arrays.fill(static, array)
    assert (static == array).all()
    make, of = arrays.empty_like, static
    assert make(of).strides == static.strides
    assert not numpy.shares_memory(make(of), static)
    staged = arrays.stage(static, array)
    assert staged.strides == static.strides
    assert (staged == array).all()


def test_a_dense_array_of_cupys_is_itself_and_another_is_packed(cupy: Any) -> None:
    array = cupy.asarray([[1, 2, 3], [4, 5, 6]])
    arrays = arrays_of(type(array))
    assert arrays.dense(array.T).base is array
    packed = arrays.dense(array[:, ::2])
    assert (packed == array[:, ::2]).all()
    assert is_dense(packed.shape, [stride // 4 for stride in packed.strides])


def test_a_nan_has_the_bytes_of_a_nan_and_minus_zero_not_those_of_zero(cupy: Any) -> None:
    nan, zero = cupy.asarray([numpy.nan, 0.0]), cupy.asarray([numpy.nan, -0.0])
    arrays = arrays_of(type(nan))
    assert arrays.same_bytes(nan, nan.copy())
    assert not arrays.same_bytes(nan, zero)
    table = cupy.asarray([[1, 2], [3, 4]])
    assert arrays.same_bytes(table, cupy.asarray([[1, 3], [2, 4]]).T)


def test_an_array_of_cupys_is_padded_with_zeros_and_cut(cupy: Any) -> None:
    array = cupy.asarray([[1, 2], [3, 4]]).T
    arrays = arrays_of(type(cupy.asarray([1])))
    padded = arrays.padded(array, 1, 3)
    assert padded.tolist() == [[1, 3, 0], [2, 4, 0]]
    assert padded.strides[0] < padded.strides[1]
    cut = arrays.slice(padded, 1, 2)
    assert cut.tolist() == array.tolist()
    assert numpy.shares_memory(cut, padded)
    assert arrays.nbytes(padded) == 24


def test_contiguous_arrays_of_numbas_are_copied_on_the_stream_of_the_call(numba: Any) -> None:
    array = DeviceArray(numpy.arange(6.0).reshape(2, 3))
    arrays = arrays_of(type(array), numba.on)
    static = arrays.static_like(array)
    arrays.fill(static, array)
    assert static.calls == [("copy_to_device", numba.stream)]
    assert (static.values == array.values).all()
    make, of = arrays.empty_like, static
    assert make(of).strides == static.strides


def test_other_layouts_of_numbas_are_written_by_a_kernel(numba: Any) -> None:
    array = DeviceArray(numpy.arange(24.0).reshape(2, 3, 4)[:, ::2])
    arrays = arrays_of(type(array), numba.on)
    staged = arrays.dense(array)
    assert staged.calls == [("setitem", numba.stream)]
    assert (staged.values == array.values).all()
    assert arrays.dense(staged) is staged
    empty = DeviceArray(numpy.ones((2, 4))[:0, ::2])
    static = DeviceArray(numpy.ones((4, 0)).T[:, ::2])
    static.flags = dict.fromkeys(("C_CONTIGUOUS", "F_CONTIGUOUS"), False)
    arrays.fill(static, empty)
    assert static.calls == []


def test_numbas_arrays_are_compared_once_their_stream_is_done(numba: Any) -> None:
    array = DeviceArray(numpy.array([numpy.nan, 1]))
    arrays = arrays_of(type(array), numba.on)
    assert arrays.same_bytes(array, DeviceArray(numpy.array([numpy.nan, 1])))
    assert not arrays.same_bytes(array, DeviceArray(numpy.array([numpy.nan, 2])))
    assert numba.stream.waits == 4


def test_on_the_default_stream_numba_is_given_none(numba: Any) -> None:
    numba.stream.handle = 0
    array = DeviceArray(numpy.ones(2))
    for on in (None, numba.on):
        static = arrays_of(type(array), on).stage(array, array)
        assert static.calls == [("copy_to_device", 0)]
        assert arrays_of(type(array), on).same_bytes(static, array)
    assert numba.stream.waits == 0


@pytest.mark.parametrize("size", [2, 4])
def test_an_array_of_numbas_is_padded_with_zeros_and_cut(numba: Any, size: int) -> None:
    array = DeviceArray(numpy.ones((2, 3)))
    arrays = arrays_of(type(array), numba.on)
    padded = arrays.padded(array, 0, size)
    assert padded.values.tolist() == [[1, 1, 1]] * 2 + [[0, 0, 0]] * (size - 2)
    assert {stream for _, stream in padded.calls} == {numba.stream}
    assert arrays.slice(padded, 1, 2).values.tolist() == padded.values[:, :2].tolist()
    assert arrays.nbytes(padded) == size * 3 * 8


def test_an_unknown_array_is_used_where_it_is() -> None:
    array = Foreign()
    arrays = arrays_of(type(array))
    assert arrays.in_place
    assert arrays.static_like(array) is array
    assert arrays.dense(array) is array
    arrays.fill(array, array)
    make, of = arrays.empty_like, array
    assert make(of) is array
    assert arrays.nbytes(array) == 24


@pytest.mark.parametrize("what", ["stage", "same_bytes", "slice", "padded"])
def test_an_unknown_array_is_neither_copied_nor_compared_nor_cut_nor_padded(what: str) -> None:
    arguments = (Foreign(), 0, 1) if what in {"slice", "padded"} else (Foreign(), Foreign())
    with pytest.raises(TypeError, match=r"Foreign is used where it is.*torch\.as_tensor"):
        getattr(arrays_of(type(Foreign())), what)(*arguments)


# How they are compared, and what is said of those that differ


def the_difference(expected: Any, found: Any, **options: Any) -> Difference:
    (only,) = differences([("result", expected, found)], **options)
    return only


def test_arrays_of_cupy_are_compared(cupy: Any) -> None:
    expected = cupy.asarray([[1, 2], [3, 4]])
    assert not differences([("a", expected, expected.copy())])
    found = expected.copy()
    found[1, 0] = 7
    told = the_difference(expected, found)
    assert told == Difference("result", (1, 0), 3.0, 7.0, 1, 4, 4.0)
    assert not differences([("a", expected, expected * numpy.float32(1.000001))])


@pytest.mark.parametrize("dtype", ["i8", "u2", "?", "c8", "f8"])
def test_arrays_of_cupy_are_compared_by_their_dtype(cupy: Any, dtype: str) -> None:
    expected = cupy.asarray([0, 1, 1], dtype)
    found = cupy.asarray([0, 1, 0], dtype)
    told = the_difference(expected, found)
    assert (told.index, told.expected, told.found, told.count) == ((2,), 1, 0, 1)
    assert type(told.expected) is type(expected[0].item())


def test_records_differ_by_their_bytes(cupy: Any) -> None:
    expected = cupy.asarray([(1, 2.0)], [("a", "i4"), ("b", "f4")])
    found = expected.copy()
    found["b"] = 3
    told = the_difference(expected, found)
    assert (told.index, told.max_error) == ((0,), None)
    assert "3." in str(told)


def test_an_array_of_another_shape_or_dtype_or_none_is_described(cupy: Any) -> None:
    expected = cupy.asarray([1, 2])
    for found, said in (
        (cupy.asarray([1, 2, 3]), "of shape (3,)"),
        (cupy.asarray([1, 2], "f8"), "float64"),
        (None, "None"),
        (3, "3"),
    ):
        told = the_difference(expected, found)
        assert told.index is None
        assert said in str(told).partition("replayed")[0]
        assert "float32" in str(told).partition("replayed")[2]


def test_a_difference_in_words() -> None:
    told = Difference("result['logits']", (0, 3), 1.0, 1.25, 12, 4096, 0.25)
    assert str(told) == (
        "result['logits']: 12 of 4,096 elements differ, first at (0, 3): "
        "1.25 replayed, 1 by the function (largest error 0.25)"
    )
    assert str(Difference("loss", (), 1.0, 1.25)) == "loss: 1.25 replayed, 1 by the function"
