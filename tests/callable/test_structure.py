"""The arguments of a graphed callable: what they may hold, and what is refused."""

from __future__ import annotations

import collections
import dataclasses
import functools
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support.stand_in_arrays import Array
from tests.support.structures import Batch, Color, Pair, flat, same

pytestmark = pytest.mark.usefixtures("arrays")


# What is found


def test_each_array_is_found_with_its_path() -> None:
    found = flat(
        Array(1),
        [Array(2), (Array(3),)],
        {"x": Array(4), 5: Array(5)},
        Batch(Pair(Array(6), None)),
        collections.OrderedDict(a=Array(7)),
        mask=Array(8),
    )
    by_path = {
        leaf.path: array.shape[0] for leaf, array in zip(found.leaves, found.arrays, strict=True)
    }
    assert by_path == {
        "args[0]": 1,
        "args[1][0]": 2,
        "args[1][1][0]": 3,
        "args[2]['x']": 4,
        "args[2][5]": 5,
        "args[3].x.left": 6,
        "args[4]['a']": 7,
        "kwargs['mask']": 8,
    }
    assert [leaf.facts for leaf in found.leaves] == [array.facts for array in found.arrays]


def test_everything_else_is_a_constant_with_its_path() -> None:
    function = functools.partial(print)
    found = flat(None, [True, 2], {"mode": "fast"}, Color.RED, function, Batch(Ellipsis), float)
    assert dict(found.values) == {
        "args[0]": None,
        "args[1][0]": True,
        "args[1][1]": 2,
        "args[2]['mode']": "fast",
        "args[3]": Color.RED,
        "args[4]": function,
        "args[5].x": Ellipsis,
        "args[5].scale": 1.0,
        "args[6]": float,
    }
    assert not found.leaves


def test_patterns_are_nested_tuples_in_exact_terms() -> None:
    one, two = Array(1), Array(2)
    found = flat([one, 3], Pair(two, None), k={"b": one, "a": two})
    assert found.pattern == (
        "tuple",
        (
            (
                "tuple",
                (
                    ("list", (("array", 0), ("value", 3))),
                    ("object", Pair, ("left", "right"), (("array", 1), ("value", None))),
                ),
            ),
            ("dict", ("k",), (("dict", ("b", "a"), (("array", 2), ("array", 3))),)),
        ),
    )


def test_no_arguments_are_two_empty_containers() -> None:
    assert flat().pattern == ("tuple", (("tuple", ()), ("dict", (), ())))


def test_an_array_that_is_given_twice_is_two() -> None:
    array = Array(2)
    assert [leaf.path for leaf in flat(array, array).leaves] == ["args[0]", "args[1]"]


def test_what_was_added_to_a_dataclass_is_part_of_it() -> None:
    batch = Batch(Array(1))
    batch.more = Array(2)  # type: ignore[attr-defined]
    assert [leaf.path for leaf in flat(batch).leaves] == ["args[0].x", "args[0].more"]
    assert not same(flat(batch), flat(Batch(Array(1))))


def test_a_cached_property_is_no_part_of_a_dataclass() -> None:
    @dataclasses.dataclass
    class Lazy:
        x: Any

        @functools.cached_property
        def twice(self) -> list[Any]:
            return [self.x, self.x]

    fresh, used = Lazy(Array(1)), Lazy(Array(1))
    assert used.twice
    assert same(flat(fresh), flat(used))


def test_a_field_without_a_value_is_refused_by_name() -> None:
    @dataclasses.dataclass
    class Half:
        x: Any
        y: Any = dataclasses.field(init=False)

    with pytest.raises(TypeError, match=r"args\[0\]\.y: the field is not set; set it"):
        flat(Half(Array(1)))


def test_without_arrays_only_what_they_were_like_is_kept() -> None:
    found = flat(Array(2, 3), k=1)
    kept = found.without_arrays()
    assert kept.arrays == ()
    assert same(kept, found)
    assert not same(kept, flat(Array(2, 4), k=1))


# What is refused


class MyList(list):  # type: ignore[type-arg]
    pass


class Queue(collections.deque[Any]):
    pass


class Sealed(tuple):
    __slots__ = ()


class Annotated(Pair):
    pass


def annotated() -> Annotated:
    pair = Annotated(1, 2)
    pair.note = 3  # type: ignore[attr-defined]
    return pair


class Attributes(dict):  # type: ignore[type-arg]
    def __init__(self, **items: Any) -> None:
        super().__init__(items)
        self.__dict__ = self


class Unreadable:
    __cuda_array_interface__: dict[str, Any] = {}  # noqa: RUF012


class Proxy:
    """An object that is an array, whose class does not say so."""

    def __init__(self) -> None:
        self.facts = Array(2).facts


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: {1, 2}, "a set, which has no order: pass a sorted tuple"),
        (lambda: bytearray(b"x"), r"a bytearray, whose bytes may change: pass bytes\(x\)"),
        (lambda: collections.UserDict(a=1), r"UserDict, which is no dict: pass dict\(x\)"),
        (lambda: MyList([1]), r"MyList, a subclass of list.*pass list\(x\)"),
        (lambda: Queue([1]), "Queue, which is neither an array on the GPU, nor"),
        (lambda: collections.defaultdict(list), r"defaultdict with a default_factory.*dict\(x\)"),
        (lambda: Attributes(a=1), r"Attributes with attributes besides its items \('a'\)"),
        (annotated, r"Annotated with attributes besides its fields \('note'\).*pass tuple\(x\)"),
        (lambda: np.ones(2), r"a NumPy array; a CUDA graph reads device memory only: move it"),
        (lambda: Array(2, kind=1), "Array in host memory; a CUDA graph reads device memory only"),
        (lambda: Array(2, kind=7), "Array on another kind of device"),
        (Unreadable, "Unreadable, which is not readable as a dense array in device memory"),
        (lambda: frozenset({Array(1)}), "a frozenset with an array in it"),
        (lambda: Sealed((Array(1),)), "Sealed with an array in it"),
        (lambda: slice(Array(1)), "a slice with an array in it"),
        (lambda: slice([]), "a slice, which is neither"),
        (Proxy, "Proxy, which is an array by an attribute of its own alone: pass the array"),
        (lambda: {Array(1): 2}, "Array as a key; arrays are followed as values only"),
        (lambda: Sealed(([],)), "Sealed, which is neither"),
    ],
)
def test_what_cannot_be_followed_is_refused_with_its_path(
    make: Callable[[], Any], text: str
) -> None:
    with pytest.raises(TypeError, match=rf"^args\[0\]: .*{text}"):
        flat(make())
    with pytest.raises(TypeError, match=rf"^kwargs\['x'\]\[0\]\.left: .*{text}"):
        flat(x=[Pair(make(), 1)])


def test_a_container_that_contains_itself_is_refused() -> None:
    loop: list[Any] = [1]
    loop.append({"again": loop})
    with pytest.raises(TypeError, match=r"^args\[0\]\[1\]\['again'\]: a list that contains itself"):
        flat(loop)


def test_one_container_in_two_places_is_no_loop() -> None:
    shared = [Array(1)]
    assert len(flat(shared, {"a": shared}).leaves) == 2


# Tensors, by a stand-in for torch


class Tensor:
    __dlpack__ = None

    def __init__(self, device: str = "cuda") -> None:
        self.device = types.SimpleNamespace(type=device, index=0)
        self.layout, self.dtype = "strided", "torch.bfloat16"
        self.is_nested = self.is_quantized = False
        self.shape = (2, 3)

    def stride(self) -> tuple[int, ...]:
        return (3, 1)

    def element_size(self) -> int:
        return 2

    def data_ptr(self) -> int:
        return 4096


class Parameter(Tensor):
    pass


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> None:
    nn = types.SimpleNamespace(Parameter=Parameter, Buffer=Tensor)
    torch: Any = types.ModuleType("torch")
    torch.Tensor, torch.nn, torch.strided, torch.empty_like = Tensor, nn, "strided", None
    torch.uint8 = torch.int16 = torch.int32 = None
    monkeypatch.setitem(sys.modules, "torch", torch)


def test_tensors_and_parameters_are_one_family(torch: None) -> None:
    found = flat(Tensor())
    assert same(found, flat(Parameter()))
    assert same(found.without_arrays(), flat(Parameter()).without_arrays())


def test_a_tensor_that_tells_no_facts_is_asked_for_its_attributes(torch: None) -> None:
    (leaf,) = flat(Tensor()).leaves
    assert leaf.facts == (4096, 2, 0, (4, 16, 1), (2, 3), (3, 1))


def test_a_tensor_of_another_device_is_refused(torch: None) -> None:
    with pytest.raises(TypeError, match=r"^kwargs\['x'\]: a tensor on .*; a CUDA graph reads"):
        flat(x=Tensor("xpu"))
