"""Which nodes of two graphs belong together: as many as can be, in bounded time."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuprof._graphs import diff
from gpuprof._graphs.diff import Matches, matches

ITEMS = st.lists(st.sampled_from("abcd"), max_size=12)


def most_pairs(own: Sequence[Hashable], other: Sequence[Hashable]) -> int:
    """Return the length of a longest common subsequence, by the definition."""
    row = [0] * (len(other) + 1)
    for x in own:
        above = row[:]
        for place, y in enumerate(other):
            row[place + 1] = above[place] + 1 if x == y else max(above[place + 1], row[place])
    return row[-1]


def check(own: Sequence[Hashable], other: Sequence[Hashable], found: Matches) -> None:
    assert all(own[x] == other[y] for x, y in found)
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(found))


@given(ITEMS, ITEMS)
def test_as_many_items_are_paired_as_can_be(own: list[str], other: list[str]) -> None:
    found = matches(own, other)
    check(own, other, found)
    assert len(found) == most_pairs(own, other)


@given(ITEMS, ITEMS, st.integers(0, 3))
def test_past_the_bound_pairs_are_fewer_but_right(
    own: list[str], other: list[str], bound: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(diff, "MAX_EDITS", bound)
        check(own, other, matches(own, other))


def test_items_stay_at_their_place_where_that_costs_no_pair() -> None:
    assert matches("axbyc", "azbac") == [(0, 0), (2, 2), (4, 4)]
    assert matches("xab", "yba") in ([(1, 2)], [(2, 1)])


def test_what_only_one_side_has_does_not_count_towards_the_bound() -> None:
    count = 3 * diff.MAX_EDITS
    own = [item for i in range(count) for item in (f"own {i}", "same", i % 7)]
    other = ["new", *(item for i in range(count) for item in (f"other {i}", "same", i % 7))]
    assert len(matches(own, other)) == 2 * count


def test_past_the_bound_items_are_paired_by_place_only_if_most_are_equal_there() -> None:
    count = 2 * diff.MAX_EDITS
    own = ["a", "b", "b", "a"] * count
    swapped = ["a", "a", "b", "a"] * count
    assert matches(own, swapped) == [(i, i) for i in range(4 * count) if own[i] == swapped[i]]
    few = ["b", "a", "a", "a"] * count
    assert len(matches(own, few)) < count
