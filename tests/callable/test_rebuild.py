"""Arguments and results of graphed callables, made anew around other arrays."""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import time
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuprof._callable.leaves import same_value
from gpuprof._callable.pytree import flatten_arguments, flatten_result, rebuild
from tests.support import stand_in_arrays
from tests.support.stand_in_arrays import Array
from tests.support.structures import (
    CONSTANTS,
    STRUCTURES,
    Batch,
    Color,
    Frozen,
    Handle,
    Output,
    Pair,
    Slotted,
    alike,
    flat,
    same,
)

PAIRS = st.one_of(
    st.tuples(STRUCTURES, STRUCTURES), STRUCTURES.map(lambda value: (value, copy.deepcopy(value)))
)


@pytest.fixture(autouse=True)
def arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in_arrays.install(monkeypatch)


@given(PAIRS)
def test_keys_are_equal_if_and_only_if_the_structures_are(pair: tuple[Any, Any]) -> None:
    one, other = pair
    assert same(flat(one), flat(other)) == alike(one, other)


@given(STRUCTURES)
def test_arguments_are_made_anew_around_other_arrays(value: Any) -> None:
    found = flat(value, again=value)
    others = [Array(*leaf.array.shape, dtype=leaf.facts[3]) for leaf in found.leaves]
    args, kwargs = rebuild(found.pattern, others)
    assert alike((args, kwargs), ((value,), {"again": value}))
    again = flatten_arguments(args, kwargs)
    assert same(again, found)
    assert [leaf.array for leaf in again.leaves] == others


def test_arguments_made_anew_keep_their_order_and_attributes() -> None:
    one, two = Array(1), Array(2)
    found = flat({"b": one, "a": two}, Output(one, two), Output(None, two))
    (mapping, output, half), _ = rebuild(found.pattern, [leaf.array for leaf in found.leaves])
    assert [*mapping.items()] == [("b", one), ("a", two)]
    assert (output.logits, output["hidden"]) == (one, two)
    assert (half.logits, half.hidden, [*half]) == (None, two, ["hidden"])


@given(CONSTANTS, CONSTANTS)
def test_constants_are_the_same_if_they_look_it(one: Any, other: Any) -> None:
    assert same_value(one, other) == alike(one, other)


@given(STRUCTURES)
def test_a_result_is_made_anew(value: Any) -> None:
    pattern, leaves = flatten_result(value)
    assert alike(rebuild(pattern, [leaf.array for leaf in leaves]), value)
    others = [Array(*leaf.array.shape, dtype=leaf.facts[3]) for leaf in leaves]
    new = rebuild(pattern, others)
    assert alike(new, value)
    assert [leaf.array for leaf in flatten_result(new)[1]] == others


def test_each_array_of_a_result_has_a_path() -> None:
    result = {"x": [Array(1)], "y": Pair(Array(2), Batch(Array(3))), "z": None}
    _, leaves = flatten_result(result)
    paths = [leaf.path for leaf in leaves]
    assert paths == ["result['x'][0]", "result['y'].left", "result['y'].right.x"]
    assert [leaf.path for leaf in flatten_result(Array(1))[1]] == ["result"]


def test_simple_containers_are_described_in_simple_terms() -> None:
    pattern, _ = flatten_result({"b": (Array(1), 2), "a": [None]})
    assert pattern == (
        "dict",
        ("b", "a"),
        (("tuple", (("array", 0), ("value", 2))), ("list", (("value", None),))),
    )


def test_an_array_that_is_in_a_result_twice_stays_one() -> None:
    array = Array(2)
    pattern, leaves = flatten_result([array, {"same": array}])
    assert len(leaves) == 1
    first, second = rebuild(pattern, [Array(2)])
    assert first is second["same"]


def test_containers_are_new_each_time() -> None:
    pattern, leaves = flatten_result({"x": [Array(1)]})
    made = [rebuild(pattern, [leaf.array for leaf in leaves]) for _ in range(2)]
    made[0]["x"].append(1)
    assert len(made[1]["x"]) == 1


class Strict(Pair):
    """A namedtuple that is made in another way than by its fields."""

    __slots__ = ()

    def __new__(cls) -> Any:
        return super().__new__(cls, 1, 2)


class Tagged(dict):  # type: ignore[type-arg]
    """A dict with attributes, which cannot be made without one, and refuses items."""

    def __init__(self, tag: Any) -> None:
        super().__init__(x=tag)
        self.tag = tag
        self.other = [tag]

    def __setitem__(self, key: Any, value: Any) -> None:
        raise TypeError


@dataclasses.dataclass
class Counted:
    x: Any
    made: int = dataclasses.field(default=0, init=False)
    unset: Any = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.made += 1
        self.extra = (self.x,)


def test_every_kind_of_container_is_made_without_its_own_init() -> None:
    old, new = Array(1), Array(1)

    def again(value: Any) -> Any:
        made = rebuild(flatten_result(value)[0], [new])
        assert type(made) is type(value)
        return made

    assert again(tuple.__new__(Strict, (old, 5))) == (new, 5)
    assert again(Frozen(old)) == Frozen(new)
    assert again(Slotted(old)).x is new
    counted = again(Counted(old))
    assert (counted.x, counted.made, counted.extra) == (new, 1, (new,))
    assert not hasattr(counted, "unset")
    tagged = again(Tagged(old))
    assert (tagged["x"], tagged.tag, tagged.other) == (new, new, [new])
    mapping = again(collections.OrderedDict(b=old, a=1))
    assert [*mapping.items()] == [("b", new), ("a", 1)]
    grown = again(collections.defaultdict(list, x=old))
    assert (grown["x"], grown["more"]) == (new, [])
    output = again(Output(None, old))
    assert (output.hidden, output["hidden"], output.logits) == (new, new, None)


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 1.5, "text", b"", ..., Color.RED, Array, len, np.float32(2), slice(1)),
        *(range(2), frozenset({1}), time.struct_time(range(9)), time.gmtime(0)),
    ],
)
def test_plain_values_are_returned_as_they_are(value: object) -> None:
    pattern, leaves = flatten_result([value])
    assert rebuild(pattern, leaves) == [value]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (Handle, "a tests.support.structures.Handle, which is neither an array nor a plain value"),
        (lambda: types.SimpleNamespace(x=Array(1)), "SimpleNamespace, which is neither an array"),
        (lambda: {1}, "a set, which is neither"),
        (lambda: iter([1]), "list_iterator, which is neither"),
        (lambda: functools.partial(print, Array(1)), "functools.partial, which is neither"),
        (lambda: np.ones(2), "a NumPy array; a CUDA graph writes device memory only: return it"),
        (lambda: Array(2, kind=1), "Array in host memory; a CUDA graph writes device memory only"),
        (lambda: {Array(1): 1}, "Array as a key"),
    ],
)
def test_what_a_replay_cannot_make_is_refused_with_its_path(
    make: Callable[[], Any], text: str
) -> None:
    with pytest.raises(TypeError, match=rf"^result\['x'\]\[0\]: .*{text}"):
        flatten_result({"x": [make()]})


def test_a_result_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(TypeError, match=r"^result\[0\]: a list that contains itself"):
        flatten_result(loop)


def test_what_was_given_may_be_returned_as_it_is() -> None:
    handle = Handle()
    pattern, _ = flatten_result([handle, Array(1)], given=[handle])
    assert rebuild(pattern, [Array(1)])[0] is handle
