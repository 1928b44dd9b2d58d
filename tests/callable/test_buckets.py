"""Calls of many sizes padded to a few: which arguments are padded, and which results are cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuprof._callable.buckets import Axis, Buckets, Pad, Padding, learn
from gpuprof._callable.pytree import key_of
from tests.support import stand_in_arrays
from tests.support.stand_in_arrays import Array
from tests.support.structures import flat


@pytest.fixture(autouse=True)
def arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in_arrays.install(monkeypatch)


def sizes(padding: Padding | None) -> list[tuple[int, int]]:
    assert padding is not None
    assert not padding.refused
    return [(axis.real, axis.bucket) for axis in padding.axes]


# What is padded


def test_every_array_with_the_size_of_the_first_is_padded() -> None:
    buckets = Buckets({0: (8, 16)})
    call = flat(Array(5, 3), [Array(5)], 1.5, weight=Array(3, 5), scale=Array(), mask=Array(5, 5))
    padding = buckets.plan(call)
    assert sizes(padding) == [(5, 8)]
    assert padding is not None
    padded = {call.leaves[pad.leaf].path: (pad.dim, pad.size) for pad in padding.pads}
    assert padded == {"args[0]": (0, 8), "args[1][0]": (0, 8), "kwargs['mask']": (0, 8)}


def test_the_next_larger_size_is_taken() -> None:
    buckets = Buckets({0: [16, 4, 8, 4]})
    assert [sizes(buckets.plan(flat(Array(n)))) for n in (1, 3, 5, 9)] == [
        [(1, 4)],
        [(3, 4)],
        [(5, 8)],
        [(9, 16)],
    ]


def test_without_such_a_dimension_there_is_nothing_to_pad() -> None:
    for call in (flat(), flat(3), flat(Array())):
        assert Buckets({0: (8,)}).plan(call) is None


def test_listed_sizes_are_left_as_they_are() -> None:
    buckets = Buckets({0: (4, 8)})
    assert buckets.plan(flat(Array(4), Array(4, 2))) is None
    assert buckets.plan(flat(Array(8))) is None


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (9, "args[0]: its size in dimension 0 is 9, and the largest of its buckets 8"),
        (0, "args[0]: its size in dimension 0 is 0, and an empty array is not padded"),
    ],
)
def test_a_size_that_no_bucket_takes_says_so_and_pads_nothing(size: int, text: str) -> None:
    padding = Buckets({0: (4, 8), 1: (16,)}).plan(flat(Array(size, 10)))
    assert padding == Padding((), (), (text,))


def test_several_dimensions_are_padded_each_by_itself() -> None:
    padding = Buckets({0: (4,), 1: (128, 256)}).plan(
        flat(Array(3, 200, 7), Array(3), Array(4, 200))
    )
    assert sizes(padding) == [(3, 4), (200, 256)]
    assert padding is not None
    assert padding.pads == (Pad(0, 0, 4), Pad(1, 0, 4), Pad(0, 1, 256), Pad(2, 1, 256))


def test_a_listed_size_beside_another_that_is_padded_stays() -> None:
    padding = Buckets({0: (4,), 1: (128,)}).plan(flat(Array(4, 100)))
    assert sizes(padding) == [(100, 128)]


def test_dimensions_may_count_from_the_end() -> None:
    padding = Buckets({-1: (8,)}).plan(flat(Array(2, 5), Array(5), Array(5, 2)))
    assert padding is not None
    assert padding.pads == (Pad(0, 1, 8), Pad(1, 0, 8))


def test_arrays_are_named_as_in_errors_or_by_keyword() -> None:
    rules = {"args[0]['x']": {0: (8,)}, "mask": {1: (8,)}, "kwargs['ids']": {-1: (8,)}}
    call = flat({"x": Array(5, 2), "y": Array(5, 2)}, mask=Array(2, 5), ids=Array(5))
    padding = Buckets(rules).plan(call)
    assert sizes(padding) == [(5, 8)]
    assert padding is not None
    padded = {(call.leaves[pad.leaf].path, pad.dim) for pad in padding.pads}
    assert padded == {("args[0]['x']", 0), ("kwargs['mask']", 1), ("kwargs['ids']", 0)}


def test_named_dimensions_with_other_sizes_are_padded_by_themselves() -> None:
    padding = Buckets({"x": {0: (4,), 1: (128,)}, "mask": {0: (128,)}}).plan(
        flat(x=Array(3, 100), mask=Array(100))
    )
    assert sizes(padding) == [(3, 4), (100, 128)]


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


def test_calls_that_are_padded_to_one_size_have_one_key() -> None:
    buckets = Buckets({0: (8,)})
    listed = flat(Array(8, 3), [Array(8)], weight=Array(3))

    def padded(size: int) -> Any:
        call = flat(Array(size, 3), [Array(size)], weight=Array(3))
        padding = buckets.plan(call)
        assert padding is not None
        assert key_of(call) != key_of(listed)
        return key_of(padding.of(call))

    assert padded(5) == padded(7) == key_of(listed)


# What is refused at once


@pytest.mark.parametrize(
    ("rules", "error", "text"),
    [
        (8, TypeError, "buckets: 8; expected {dim: sizes} or {path: {dim: sizes}}"),
        ([8, 16], TypeError, "buckets: [8, 16]; expected {dim"),
        ({}, ValueError, "buckets: it is empty"),
        ({0: 8}, TypeError, "buckets[0]: 8; expected ints above 0, as in (8, 16, 32)"),
        ({0: "816"}, TypeError, "buckets[0]: '816'; expected ints above 0"),
        ({0: {8: 16}}, TypeError, "buckets[0]: {8: 16}; expected ints above 0"),
        ({0: ()}, ValueError, "buckets[0]: no sizes; expected ints"),
        ({0: (8, 0)}, ValueError, "buckets[0]: 0; expected ints above 0"),
        ({-1: (8, -2)}, ValueError, "buckets[-1]: -2; expected ints above 0"),
        ({0: (8.0,)}, TypeError, "buckets[0]: 8.0; expected ints above 0"),
        ({0: (True,)}, TypeError, "buckets[0]: True; expected ints above 0"),
        ({True: (8,)}, TypeError, "buckets: True is no dimension; expected {dim: sizes}"),
        ({0.0: (8,)}, TypeError, "buckets: 0.0 is no dimension"),
        ({0: (8,), "x": {0: (8,)}}, TypeError, "buckets: 'x' is no dimension"),
        ({"x": (8,)}, TypeError, "buckets['x']: (8,); expected {dim: sizes}, as in {0: (8, 16"),
        ({"x": {}}, TypeError, "buckets['x']: {}; expected {dim: sizes}"),
        ({"x": {"y": (8,)}}, TypeError, "buckets['x']: 'y' is no dimension"),
        ({"x": {0: (8, None)}}, TypeError, "buckets['x'][0]: None; expected ints above 0"),
    ],
)
def test_wrong_rules_are_refused_with_what_is_expected(
    rules: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error) as caught:
        Buckets(rules)
    assert str(caught.value).startswith(text)


def test_sizes_may_be_any_iterable_of_whole_numbers() -> None:
    for given_sizes in (range(8, 17, 8), {16, 8}, iter((8, 16)), np.array([8, 16])):
        assert sizes(Buckets({0: given_sizes}).plan(flat(Array(9)))) == [(9, 16)]


# What is cut off the results

FIVE = Padding((Axis(0, 5, 8),), ())


def test_dimensions_of_results_that_follow_are_cut() -> None:
    slices = learn(
        FIVE,
        ["result[0]", "result[1]", "result[2]", "result[3]"],
        [(8, 4), (3, 16, 8), (), (2, 5, 8)],
        [(5, 4), (3, 10, 5), (), (2, 5, 5)],
    )
    assert slices.apply(FIVE) == (((0, 5),), ((1, 10), (2, 5)), (), ((2, 5),))
    three = Padding((Axis(0, 3, 8),), ())
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
    with pytest.raises(ValueError, match=r"the result at result\['y'\] has shape .*drop buckets="):
        learn(FIVE, ["result['x']", "result['y']"], [(8,), padded], [(5,), real])


def test_a_result_with_other_arrays_is_refused() -> None:
    with pytest.raises(
        ValueError, match="returns 2 arrays for padded arguments and 1 for the real"
    ):
        learn(FIVE, ["result[0]", "result[1]"], [(8,), (8,)], [(5,)])


def test_each_result_is_cut_by_the_axis_that_it_follows() -> None:
    both = Padding((Axis("batch", 3, 4), Axis("length", 100, 128)), ())
    slices = learn(both, ["result"], [(4, 128, 256)], [(3, 100, 200)])
    assert slices.apply(both) == (((0, 3), (1, 100), (2, 200)),)
    only_one = Padding((Axis("length", 90, 128),), ())
    assert slices.apply(only_one) == (((1, 90), (2, 180)),)


def test_what_was_not_seen_padded_is_not_known() -> None:
    one = Padding((Axis("length", 100, 128),), ())
    both = Padding((Axis("batch", 3, 4), Axis("length", 100, 128)), ())
    slices = learn(one, ["result"], [(4, 128)], [(4, 100)])
    assert slices.covers(one)
    assert not slices.covers(both)
    with pytest.raises(ValueError, match="not known"):
        slices.apply(both)


def test_a_size_that_may_follow_two_axes_is_refused() -> None:
    both = Padding((Axis("batch", 3, 4), Axis("length", 3, 4)), ())
    with pytest.raises(ValueError, match=r"dimension 1 may follow more than one of the padded"):
        learn(both, ["result"], [(7, 4)], [(7, 3)])


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 4), st.integers(1, 40))
def test_what_was_learned_at_one_size_holds_at_others(
    real: int, more: int, times: int, later: int
) -> None:
    bucket = real + more
    padding = Padding((Axis(0, real, bucket),), ())
    slices = learn(padding, ["result"], [(7, times * bucket)], [(7, times * real)])
    assert slices.apply(Padding((Axis(0, later, bucket),), ())) == (((1, times * later),),)
