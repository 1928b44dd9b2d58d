"""Which nodes of two graphs belong together, in bounded time."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuprof._graphs import diff
from gpuprof._graphs.diff import Matches, matches

ITEMS = st.lists(st.sampled_from("abcd"), max_size=12)


def check(own: Sequence[Hashable], other: Sequence[Hashable], found: Matches) -> None:
    assert all(own[x] == other[y] for x, y in found)
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(found))


@given(ITEMS, ITEMS, st.integers(0, 20))
def test_pairs_are_of_equal_items_in_order_within_the_bound_and_past_it(
    own: list[str], other: list[str], bound: int
) -> None:
    check(own, other, matches(own, other))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(diff, "MAX_COMPARED", bound)
        check(own, other, matches(own, other))


@given(st.lists(st.integers(), unique=True, max_size=12), st.data())
def test_what_stays_is_paired_when_items_are_added_and_removed(
    own: list[int], data: st.DataObject
) -> None:
    stays = [data.draw(st.booleans()) for _ in own]
    other = [item for item, kept in zip(own, stays, strict=True) if kept]
    for number in range(data.draw(st.integers(0, 4))):
        other.insert(data.draw(st.integers(0, len(other))), f"new {number}")  # type: ignore[arg-type]
    assert [own[x] for x, _ in matches(own, other)] == [item for item in other if item in own]


def test_items_stay_at_their_place_where_that_costs_no_pair() -> None:
    assert matches("axbyc", "azbac") == [(0, 0), (2, 2), (4, 4)]
    assert matches("xab", "yba") in ([(1, 2)], [(2, 1)])


def test_a_layer_more_in_a_long_graph_is_the_only_difference() -> None:
    own = [("kernel", layer, step) for layer in range(100) for step in range(10)]
    other = [*own[:300], *((*item, "new") for item in own[300:310]), *own[300:]]
    assert len(matches(own, other)) == len(own)


def test_past_the_bound_items_are_paired_by_place_only_if_most_are_equal_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(diff, "MAX_COMPARED", 1_000)
    count = 100
    own = ["a", "b", "b", "a"] * count
    swapped = ["a", "a", "b", "a"] * count
    assert matches(own, swapped) == [(i, i) for i in range(4 * count) if own[i] == swapped[i]]
    few = ["b", "a", "a", "a"] * count
    assert len(matches(own, few)) < count
