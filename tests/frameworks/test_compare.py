"""How arrays of CuPy are compared, and what is said of those that differ."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

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
    module.asnumpy = numpy.asarray
    module.asarray = lambda values, dtype="f4": numpy.array(values, dtype).view(ndarray)
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


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
