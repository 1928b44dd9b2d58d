"""Arguments and results of graphed callables, made anew around other arrays."""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import gc
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
from tests.support.stand_in_arrays import Array
from tests.support.structures import (
    CONSTANTS,
    STRUCTURES,
    Batch,
    Cache,
    Color,
    Frozen,
    Handle,
    Named,
    Output,
    Pair,
    Point,
    Register,
    Slotted,
    alike,
    flat,
    same,
)

pytestmark = pytest.mark.usefixtures("arrays")

PAIRS = st.one_of(
    st.tuples(STRUCTURES, STRUCTURES), STRUCTURES.map(lambda value: (value, copy.deepcopy(value)))
)


@given(PAIRS)
def test_keys_are_equal_if_and_only_if_the_structures_are(pair: tuple[Any, Any]) -> None:
    one, other = pair
    assert same(flat(one), flat(other)) == alike(one, other)


@given(STRUCTURES)
def test_arguments_are_made_anew_around_other_arrays(value: Any) -> None:
    found = flat(value, again=value)
    others = [Array(*leaf.facts[4], dtype=leaf.facts[3]) for leaf in found.leaves]
    args, kwargs = rebuild(found.pattern, others)
    assert alike((args, kwargs), ((value,), {"again": value}))
    again = flatten_arguments(args, kwargs)
    assert same(again, found)
    assert [*again.arrays] == others


def order(value: Any) -> list[Any]:
    """Return all in a structure, an array by its identity, in order."""
    if isinstance(value, Array):
        return [id(value)]
    parts = [*value.items()] if isinstance(value, dict) else value
    if dataclasses.is_dataclass(value):
        names = [each.name for each in dataclasses.fields(value)]
        attributes = [(name, getattr(value, name)) for name in names]
        parts = [attributes, [*value.items()] if isinstance(value, dict) else None]
    if isinstance(parts, (list, tuple)):
        return [type(value), *(each for part in parts for each in order(part))]
    return [type(value), repr(value)]


@given(st.lists(STRUCTURES, max_size=3), st.dictionaries(st.sampled_from("abc"), STRUCTURES))
def test_around_the_same_arrays_a_structure_is_the_same(
    args: list[Any], kwargs: dict[str, Any]
) -> None:
    for value, found in (
        ((tuple(args), kwargs), flat(*args, **kwargs)),
        ([*args, kwargs], flatten_result([*args, kwargs])),
    ):
        for arrays in (found.arrays, [*found.arrays]):
            assert order(rebuild(found.pattern, arrays)) == order(value)


@pytest.mark.usefixtures("register")
def test_an_error_where_a_structure_is_made_comes_through(register: Register) -> None:
    def refuse(*_: Any) -> None:
        raise ZeroDivisionError

    register(Cache, lambda each: (each.keys, None), refuse)
    for found in (flat({"x": Cache([Array(1)], [])}), flatten_result((1, Cache([Array(1)], [])))):
        with pytest.raises(ZeroDivisionError):
            rebuild(found.pattern, found.arrays)
    with pytest.raises(IndexError):
        rebuild(flatten_result([Array(1)]).pattern, [])


@pytest.mark.parametrize("kind", [list, tuple])
def test_others_see_whole_containers_while_one_is_made(register: Register, kind: Any) -> None:
    """The collector knows them from the beginning, and a profiler of memory asks it."""

    def make(*_: Any) -> Any:
        for each in gc.get_objects():
            if type(each) in {list, tuple} and len(each) < 5:
                list(each)
        return Cache([], [])

    register(Cache, lambda each: (each.keys, None), make)
    value = kind([1, Cache([Array(1)], []), Array(2)])
    found = flatten_result(value)
    assert type(rebuild(found.pattern, found.arrays)) is kind


def test_arguments_made_anew_keep_their_order_and_attributes() -> None:
    one, two = Array(1), Array(2)
    found = flat({"b": one, "a": two}, Output(one, two), Output(None, two))
    (mapping, output, half), _ = rebuild(found.pattern, found.arrays)
    assert [*mapping.items()] == [("b", one), ("a", two)]
    assert (output.logits, output["hidden"]) == (one, two)
    assert (half.logits, half.hidden, [*half]) == (None, two, ["hidden"])


@given(CONSTANTS, CONSTANTS)
def test_constants_are_the_same_if_they_look_it(one: Any, other: Any) -> None:
    assert same_value(one, other) == alike(one, other)


@given(STRUCTURES)
def test_a_result_is_made_anew(value: Any) -> None:
    found = flatten_result(value)
    assert alike(rebuild(found.pattern, found.arrays), value)
    others = [Array(*leaf.facts[4], dtype=leaf.facts[3]) for leaf in found.leaves]
    new = rebuild(found.pattern, others)
    assert alike(new, value)
    assert [*flatten_result(new).arrays] == others


def test_each_array_of_a_result_has_a_path() -> None:
    result = {"x": [Array(1)], "y": Pair(Array(2), Batch(Array(3))), "z": None}
    paths = [leaf.path for leaf in flatten_result(result).leaves]
    assert paths == ["result['x'][0]", "result['y'].left", "result['y'].right.x"]
    assert [leaf.path for leaf in flatten_result(Array(1)).leaves] == ["result"]


def test_simple_containers_are_described_in_simple_terms() -> None:
    pattern = flatten_result({"b": (Array(1), 2), "a": [None]}).pattern
    assert pattern == (
        "dict",
        ("b", "a"),
        (("tuple", (("array", 0), ("value", 2))), ("list", (("value", None),))),
    )


def test_an_array_that_is_in_a_result_twice_stays_one() -> None:
    array = Array(2)
    found = flatten_result([array, {"same": array}])
    assert found.arrays == (array,)
    first, second = rebuild(found.pattern, [Array(2)])
    assert first is second["same"]


def test_containers_are_new_each_time() -> None:
    found = flatten_result({"x": [Array(1)]})
    made = [rebuild(found.pattern, found.arrays) for _ in range(2)]
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
        made = rebuild(flatten_result(value).pattern, [new])
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
        *(None, True, 1, 1.5, 1j, "text", b"", ..., Color.RED, Color, Array, types, len, flat),
        *(np.float32(2), np.dtype, slice(1, 2), range(2), frozenset({1, "a"})),
        *(time.struct_time(range(9)), time.gmtime(0)),
    ],
)
def test_plain_values_are_returned_as_they_are(value: object) -> None:
    assert rebuild(flatten_result([value]).pattern, []) == [value]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (Handle, "a tests.support.structures.Handle, which is neither an array nor a plain value"),
        (lambda: types.SimpleNamespace(x=Array(1)), "SimpleNamespace, which is neither an array"),
        (lambda: {1}, "a set, which is neither"),
        (lambda: iter([1]), "list_iterator, which is neither"),
        (lambda: functools.partial(print, Array(1)), "functools.partial, which is neither"),
        (lambda: Named("a"), "Named, which is neither"),
        (lambda: frozenset({Handle()}), "a frozenset, which is neither"),
        (lambda: slice(Handle()), "a slice, which is neither"),
        (lambda: [].append, "a builtin_function_or_method, which is neither"),
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


# Classes that torch.utils._pytree knows.


@pytest.mark.usefixtures("register")
def test_parts_and_context_tell_them_apart() -> None:
    def cache(window: Any = 4, layers: int = 2, size: int = 3) -> Cache:
        return Cache([Array(size)] * layers, [Array(size)] * layers, window)

    found = flat(cache())
    paths = ["args[0][0][0]", "args[0][0][1]", "args[0][1][0]", "args[0][1][1]"]
    assert [leaf.path for leaf in found.leaves] == paths
    assert same(found, flat(cache()))
    for other in (cache(5), cache(4.0), cache(None), cache(layers=1), cache(size=2), Point(1), [1]):
        assert not same(found, flat(other))


@pytest.mark.usefixtures("register")
def test_they_are_made_anew_as_their_own_class() -> None:
    given, others = Cache([Array(3)], [Array(3)], window=(1, "a")), [Array(3), Array(3)]
    found = flatten_result({"past": given})
    for pattern in (found.pattern, flat(given).pattern[1][0]):
        made = rebuild(pattern, others)
        made = made["past"] if isinstance(made, dict) else made[0]
        assert type(made) is Cache
        assert (made.keys, made.values, made.window) == ([others[0]], [others[1]], (1, "a"))


@pytest.mark.usefixtures("register")
def test_a_dataclass_is_taken_apart_as_it_was_registered() -> None:
    assert same(flat(Point(Array(2), {1})), flat(Point(Array(2), {2})))


def test_arrays_in_a_context_are_followed(register: Register) -> None:
    register(Cache, lambda each: (each.keys, each.values), Cache)
    found = flat(Cache([Array(1)], [Array(2)]))
    assert [leaf.path for leaf in found.leaves] == ["args[0][0]", "args[0] (context)[0]"]


def test_what_cannot_be_told_apart_in_a_context_is_refused(register: Register) -> None:
    register(Cache, lambda each: (each.keys, each.hits), Cache.of)
    for take in (flat, flatten_result):
        with pytest.raises(TypeError, match=r"\(context\): a set, which has no order"):
            take(Cache([Array(1)], []))
    register(Cache, lambda each: (each.keys, Handle), Cache.of)
    assert flatten_result(Cache([Array(1)], [])).values[0][1] is Handle


@pytest.mark.usefixtures("register")
def test_one_that_contains_itself_is_refused() -> None:
    cache = Cache([], [])
    cache.keys.append(cache)
    with pytest.raises(TypeError, match=r"Cache that contains itself"):
        flat(cache)


@pytest.mark.usefixtures("register")
def test_a_class_that_is_not_registered_is_told_of_it() -> None:
    class Deque(collections.deque[Any]):
        pass

    advice = r"register its class with torch\.utils\._pytree\.register_pytree_node"
    with pytest.raises(TypeError, match=rf"^args\[0\]: a .*Deque, .*{advice}"):
        flat(Deque([Array(1)]))
    with pytest.raises(TypeError, match=rf"^result: a .*Deque, .*{advice}"):
        flatten_result(Deque([Array(1)]))
