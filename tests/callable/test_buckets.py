"""Calls of many sizes padded to a few: which arguments are padded, and which results are cut."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuprof._callable.buckets import Buckets, Pad, Padding, learned
from gpuprof._callable.pytree import flatten_result
from tests.support.stand_in_arrays import Array
from tests.support.structures import Batch, flat

pytestmark = pytest.mark.usefixtures("arrays")


def sizes(padding: Padding | None) -> list[tuple[int, int]]:
    assert padding is not None
    return [*{pad.axis: (pad.real, pad.bucket) for pad in padding.pads}.values()]


# What is padded


def test_without_rules_there_is_nothing_to_pad() -> None:
    buckets, arguments = Buckets(None), {"x": Array(2, 5)}
    assert buckets.plan(flat(**arguments)) is None
    assert buckets.with_mask((), arguments) is arguments


@pytest.mark.parametrize(
    ("rules", "call", "expected"),
    [
        ({0: (8,)}, flat, []),
        ({0: (8,)}, lambda: flat(3), []),
        ({0: (8,)}, lambda: flat(Array()), []),
        # Listed sizes stay, and all does beside a size that no bucket takes.
        ({0: (4, 8)}, lambda: flat(Array(4), Array(4, 2)), []),
        ({0: (4, 8)}, lambda: flat(Array(8)), []),
        ({0: (4, 8), 1: (16,)}, lambda: flat(Array(9, 10)), []),
        ({0: (4, 8), 1: (16,)}, lambda: flat(Array(0, 10)), []),
        ({0: (4,), 1: (128,)}, lambda: flat(Array(4, 100)), [(100, 128, {"args[0]": 1})]),
        # The next larger size is taken.
        ({0: [16, 4, 8, 4]}, lambda: flat(Array(1)), [(1, 4, {"args[0]": 0})]),
        ({0: [16, 4, 8, 4]}, lambda: flat(Array(3)), [(3, 4, {"args[0]": 0})]),
        ({0: [16, 4, 8, 4]}, lambda: flat(Array(5)), [(5, 8, {"args[0]": 0})]),
        ({0: [16, 4, 8, 4]}, lambda: flat(Array(9)), [(9, 16, {"args[0]": 0})]),
        (
            {-1: (8,)},
            lambda: flat(Array(2, 5), Array(5), Array(5, 2)),
            [(5, 8, {"args[0]": 1, "args[1]": 0})],
        ),
        (
            {0: (8, 16)},  # of every array whose size is that of the first
            lambda: flat(
                *(Array(5, 3), [Array(5)], 1.5),
                weight=Array(3, 5),
                scale=Array(),
                mask=Array(5, 5),
            ),
            [(5, 8, {"args[0]": 0, "args[1][0]": 0, "kwargs['mask']": 0})],
        ),
        (
            {0: (4,), 1: (128, 256)},  # each dimension by itself
            lambda: flat(Array(3, 200, 7), Array(3), Array(4, 200)),
            [(3, 4, {"args[0]": 0, "args[1]": 0}), (200, 256, {"args[0]": 1, "args[2]": 1})],
        ),
        (
            {"args[0]['x']": {0: (8,)}, "mask": {1: (8,)}, "kwargs['ids']": {-1: (8,)}},
            lambda: flat({"x": Array(5, 2), "y": Array(5, 2)}, mask=Array(2, 5), ids=Array(5)),
            [(5, 8, {"args[0]['x']": 0, "kwargs['mask']": 1, "kwargs['ids']": 0})],
        ),
        (
            {"x": {0: (4,), 1: (128,)}, "mask": {0: (128,)}},
            lambda: flat(x=Array(3, 100), mask=Array(100)),
            [(3, 4, {"kwargs['x']": 0}), (100, 128, {"kwargs['x']": 1, "kwargs['mask']": 0})],
        ),
    ],
)
def test_what_is_padded_is_the_dimensions_of_a_size(
    rules: Any, call: Callable[[], Any], expected: list[tuple[int, int, dict[str, int]]]
) -> None:
    given = call()
    padding = Buckets(rules).plan(given)
    found: dict[Any, tuple[int, int, dict[str, int]]] = {}
    for pad in padding.pads if padding is not None else ():
        *_, places = found.setdefault(pad.axis, (pad.real, pad.bucket, {}))
        places[given.leaves[pad.leaf].path] = pad.dim
    assert [*found.values()] == expected
    assert (padding is None) == (not expected)


def test_named_dimensions_with_the_same_sizes_must_agree() -> None:
    buckets = Buckets({"x": {0: (8,)}, "y": {1: [8]}})
    assert sizes(buckets.plan(flat(x=Array(5), y=Array(2, 5)))) == [(5, 8)]
    with pytest.raises(
        ValueError, match=r"kwargs\['y'\].*is 6, but kwargs\['x'\].* is 5.*together"
    ):
        buckets.plan(flat(x=Array(5), y=Array(2, 6)))


def test_a_named_array_that_is_not_there_is_an_error_unless_it_is_none() -> None:
    buckets = Buckets({"x": {0: (8,)}, "mask": {0: (8,)}})
    assert sizes(buckets.plan(flat(x=Array(5), mask=None))) == [(5, 8)]
    text = r"no array at kwargs\['mask'\]; it has arrays at args\[0\], kwargs\['x'\]"
    with pytest.raises(ValueError, match=text):
        buckets.plan(flat(Array(5), x=Array(5)))


def test_a_named_array_with_too_few_dimensions_is_an_error() -> None:
    with pytest.raises(
        ValueError, match=r"args\[0\]: shape \(5,\), and buckets= names dimension 1"
    ):
        Buckets({"args[0]": {1: (8,)}}).plan(flat(Array(5)))


def test_two_rules_about_one_dimension_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"two of its rules are about args\[0\]: .*dimension 1"):
        Buckets({1: (8,), -1: (16,)}).plan(flat(Array(3, 5)))


# What is refused at once


@pytest.mark.parametrize(
    ("rules", "error", "text"),
    [
        (8, TypeError, "buckets: expected {dim: sizes} or {path: {dim: sizes}}, as in .*, got 8"),
        ([8, 16], TypeError, r"buckets: expected {dim.*, got \[8, 16\]"),
        ({}, ValueError, "buckets: expected {dim.*, or None, got {}"),
        ({0: 8}, TypeError, r"buckets\[0\]: expected ints above 0, as in \(8, 16, 32\), got 8"),
        ({0: "816"}, TypeError, r"buckets\[0\]: expected ints above 0.* got '816'"),
        ({0: {8: 16}}, TypeError, r"buckets\[0\]: expected ints above 0.* got {8: 16}"),
        ({0: ()}, ValueError, r"buckets\[0\]: expected ints above 0.* got \(\)"),
        ({0: (8, 0)}, ValueError, r"buckets\[0\]: expected a whole number of at least 1, got 0"),
        ({-1: (8, -2)}, ValueError, r"buckets\[-1\]: .* number of at least 1, got -2"),
        ({0: (8.0,)}, TypeError, r"buckets\[0\]: .* number of at least 1, got 8\.0"),
        ({0: (True,)}, TypeError, r"buckets\[0\]: .* number of at least 1, got True"),
        ({True: (8,)}, TypeError, "buckets: expected a number of a dimension, got True"),
        ({0.0: (8,)}, TypeError, r"buckets: expected a number of a dimension, got 0\.0"),
        ({0: (8,), "x": {0: (8,)}}, TypeError, "buckets: expected a number of a .*, got 'x'"),
        ({"x": (8,)}, TypeError, r"buckets\['x'\]: expected {dim: sizes}, .*, got \(8,\)"),
        ({"x": {}}, TypeError, r"buckets\['x'\]: expected {dim: sizes}.*, got {}"),
        ({"x": {"y": (8,)}}, TypeError, r"buckets\['x'\]: expected a number of a .*, got 'y'"),
        ({"x": {0: (8, None)}}, TypeError, r"buckets\['x'\]\[0\]: .* of at least 1, got None"),
        ({"mask": "valid"}, ValueError, "buckets: expected {dim.*, or None, got {}"),
        ({0: (8,), "mask": "a b"}, ValueError, r"buckets\['mask'\]: .* keyword .*, got 'a b'"),
        ({0: (8,), "mask": ""}, ValueError, r"buckets\['mask'\]: expected a keyword .*, got ''"),
        ({0: (8,), "mask": True}, TypeError, "buckets: expected a number of a .*, got 'mask'"),
        ({"x": {0: (8,)}, "mask": 8}, TypeError, r"buckets\['mask'\]: expected {dim: .*, got 8"),
    ],
)
def test_wrong_rules_are_refused_with_what_is_expected(
    rules: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=f"^{text}$"):
        Buckets(rules)


def test_sizes_may_be_any_iterable_of_whole_numbers() -> None:
    for given_sizes in (range(8, 17, 8), {16, 8}, iter((8, 16)), np.array([8, 16])):
        assert sizes(Buckets({0: given_sizes}).plan(flat(Array(9)))) == [(9, 16)]


# What is cut off the results


def axes(*each: tuple[Any, int, int]) -> Padding:
    """Padding of some axes, by their names, real sizes and buckets."""
    return Padding(tuple(Pad(axis, 0, 0, real, bucket) for axis, real, bucket in each))


FIVE = axes((0, 5, 8))


def learn(padding: Padding, padded: list[Any], real: list[Any]) -> Any:
    """What is learned of arrays of these shapes, in a list if there are several."""
    results = [[Array(*shape) for shape in shapes] for shapes in (padded, real)]
    of_padded, of_real = (result if len(result) > 1 else result[0] for result in results)
    return learned(padding, flatten_result(of_padded).without_arrays(), of_real, ())


def test_dimensions_of_results_that_follow_are_cut() -> None:
    slices = learn(
        FIVE,
        [(8, 64), (3, 16, 8), (), (2, 6, 8)],
        [(5, 64), (3, 10, 5), (), (2, 6, 5)],
    )
    assert slices.apply(FIVE) == (((0, 5),), ((1, 10), (2, 5)), (), ((2, 5),))
    three = axes((0, 3, 8))
    assert slices.apply(three) == (((0, 3),), ((1, 6), (2, 3)), (), ((2, 3),))


@pytest.mark.parametrize(
    ("padded", "real"),
    [
        ((9,), (6,)),  # one more
        ((64,), (25,)),  # squared
        ((4,), (2,)),  # halved
        ((7,), (5,)),
        ((8, 1), (5,)),
        ((5,), (8,)),
    ],
)
def test_a_result_that_follows_in_another_way_is_refused_by_its_path(
    padded: tuple[int, ...], real: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match=r"the result at result\[1\] has shape .*drop buckets="):
        learn(FIVE, [(8,), padded], [(5,), real])


def test_a_result_with_other_arrays_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"returns \(result: a list replayed, a float32 .* by the f"
    ):
        learn(FIVE, [(8,), (8,)], [(5,)])


def test_each_result_is_cut_by_the_axis_that_it_follows() -> None:
    both = axes(("batch", 3, 4), ("length", 100, 128))
    slices = learn(both, [(4, 128, 256)], [(3, 100, 200)])
    assert slices.apply(both) == (((0, 3), (1, 100), (2, 200)),)
    only_one = axes(("length", 90, 128))
    assert slices.apply(only_one) == (((1, 90), (2, 180)),)


def test_what_was_not_seen_padded_is_not_known() -> None:
    one = axes(("length", 100, 128))
    both = axes(("batch", 3, 4), ("length", 100, 128))
    slices = learn(one, [(4, 128)], [(4, 100)])
    assert slices.covers(one)
    assert not slices.covers(both)
    more = slices.with_(learn(both, [(4, 128)], [(3, 100)]))
    assert more.apply(both) == (((1, 100), (0, 3)),)


def test_a_size_that_stayed_is_looked_at_again_where_fewer_are_real() -> None:
    def padding(real: int) -> Padding:
        return axes((0, real, 8))

    slices = learn(padding(6), [(8, 4, 64)], [(6, 4, 64)])
    assert [slices.covers(padding(real)) for real in (3, 4, 7)] == [False, True, True]
    with pytest.raises(ValueError, match="does not follow"):
        learn(padding(3), [(8, 4, 64)], [(3, 3, 64)])
    more = slices.with_(learn(padding(2), [(8, 4, 64)], [(2, 4, 64)]))
    assert more.covers(padding(1))


def test_a_dimension_that_follows_two_axes_is_refused_when_the_second_is_seen() -> None:
    slices = learn(axes(("a", 3, 4)), [(32,)], [(24,)])
    other = learn(axes(("b", 5, 8)), [(32,)], [(20,)])
    with pytest.raises(ValueError, match="a result follows several axes; drop buckets="):
        slices.with_(other)


def test_what_is_besides_arrays_has_to_be_that_for_real_arguments() -> None:
    padded = flatten_result((Array(8), {"count": 8})).without_arrays()
    slices = learned(FIVE, padded, (Array(5), {"count": 8}), ())
    assert slices.apply(FIVE) == (((0, 5),),)
    with pytest.raises(
        ValueError, match=r"\(result\[1\]\['count'\]: 8 replayed, 5 by the function\)"
    ):
        learned(FIVE, padded, (Array(5), {"count": 5}), ())


def test_a_size_that_may_follow_two_axes_is_refused() -> None:
    both = axes(("batch", 3, 4), ("length", 3, 4))
    with pytest.raises(ValueError, match=r"dimension 1 may follow more than one of the padded"):
        learn(both, [(7, 4)], [(7, 3)])


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 4), st.integers(1, 40))
def test_what_was_learned_at_one_size_holds_at_others(
    real: int, more: int, times: int, later: int
) -> None:
    bucket = real + more
    padding = axes((0, real, bucket))
    slices = learn(padding, [(99, times * bucket)], [(99, times * real)])
    assert slices.apply(axes((0, later, bucket))) == (((1, times * later),),)


# What is given back


class Library:
    """Tells what is asked of the library of an array."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def at(self, on: Any) -> Library:
        self.asked.append(("on", on))
        return self

    def slice(self, array: Array, dim: int, size: int) -> Array:
        assert size <= array.shape[dim]
        return Array(*array.shape[:dim], size, *array.shape[dim + 1 :])

    def fill(self, array: Array, other: Array) -> None:
        self.asked.append((array, other.shape))


def test_written_arrays_that_were_padded_are_filled_on_the_stream_of_the_call() -> None:
    library, on = Library(), object()
    call = flat(Array(3, 9, 100), Array(3), Array(7), Batch(Array(3)))
    leaves = tuple(leaf._replace(framework=library) for leaf in call.leaves)  # type: ignore[arg-type]
    call = dataclasses.replace(call, leaves=leaves)
    padding = Buckets({0: (4,), 2: (128,)}).plan(call)
    assert padding is not None
    padded = [Array(4, 9, 128), Array(4), Array(7), Array(4)]
    padding.give_back(call, padded, {"args[0]", "args[2]", "args[3].x"}, on)  # type: ignore[arg-type]
    filled = [(call.arrays[0], (3, 9, 100)), (call.arrays[3], (3,))]
    assert library.asked == [("on", on), filled[0], ("on", on), filled[1]]


# The mask


class CupyArray(Array):
    """An array of CuPy's that knows which device was current when it was made."""

    current: int | None = None

    @property
    @contextlib.contextmanager
    def device(self) -> Iterator[None]:
        CupyArray.current = self.facts[2]
        yield
        CupyArray.current = None


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Any:
    module: Any = types.ModuleType("cupy")
    module.ndarray, module.cuda, module.empty_like = CupyArray, None, None
    module.ones = lambda size, dtype: (CupyArray.current, size, dtype)
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


@pytest.mark.parametrize(
    ("rules", "size"),
    [
        ({0: (8,), 1: (16,)}, 5),
        ({1: (16,), 0: (8,)}, 6),
        ({-1: (16,)}, 7),
        ({"x": {-2: (8,)}}, 6),
        ({"args[0]": {-1: (8,)}, "x": {0: (16,)}}, 7),
    ],
)
def test_the_mask_is_of_the_real_size_and_the_device_of_the_first_rule(
    cupy: Any, rules: dict[Any, Any], size: int
) -> None:
    buckets = Buckets({**rules, "mask": "valid"})
    kwargs = {"x": CupyArray(5, 6, 7, device=3)}
    made = buckets.with_mask((CupyArray(5, 6, 7, device=3),), kwargs)
    assert made == {**kwargs, "valid": (3, size, bool)}
    assert buckets.mask == "valid"
    assert cupy is sys.modules["cupy"]


def test_the_mask_is_padded_with_the_axis_of_the_first_rule_alone() -> None:
    buckets = Buckets({1: (16,), 0: (8,), -1: (32,), "mask": "a"})
    call = flat(a=Array(5), x=Array(5, 5, 5))
    padding = buckets.plan(call)
    assert sizes(padding) == [(5, 16), (5, 8), (5, 32)]
    assert padding is not None
    places = [(pad.leaf, pad.dim, pad.bucket) for pad in padding.pads]
    assert places == [(1, 1, 16), (0, 0, 16), (1, 0, 8), (1, 2, 32)]


def test_without_a_mask_the_keywords_stay() -> None:
    kwargs = {"valid": 1}
    assert Buckets({0: (8,)}).mask is None
    assert Buckets({0: (8,)}).with_mask((), kwargs) is kwargs
    named = Buckets({"mask": {0: (8,)}})  # an argument of that name
    assert named.mask is None
    assert sizes(named.plan(flat(mask=Array(5)))) == [(5, 8)]


def test_a_mask_that_cannot_be_made_is_an_error(cupy: Any) -> None:
    buckets = Buckets({"x": {0: (8,)}, "mask": "valid"})
    with pytest.raises(TypeError, match=r"^kwargs\['valid'\]: buckets= makes this argument"):
        buckets.with_mask((), {"x": CupyArray(5), "valid": None})
    with pytest.raises(TypeError, match=r"kwargs\['x'\]: .*Array; buckets= makes masks of torch"):
        buckets.with_mask((), {"x": Array(5)})
    with pytest.raises(ValueError, match=r"^kwargs\['x'\]: no array with dimension 0"):
        buckets.with_mask((), {"x": None})
    with pytest.raises(ValueError, match="the arguments: no array with dimension -2"):
        Buckets({-2: (8,), "mask": "valid"}).with_mask((CupyArray(5),), {})
    assert cupy is sys.modules["cupy"]
