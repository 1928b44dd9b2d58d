"""Which items of two sequences belong together, so that as many as possible are equal.

Times stay short whatever is given: how far a search goes is bounded, and past that the answer is
no longer the best one, but never wrong.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeAlias

Matches: TypeAlias = "list[tuple[int, int]]"

# More insertions and deletions than these are not searched for: that takes their number times the
# length.
MAX_EDITS = 400


def matches(own: Sequence[Hashable], other: Sequence[Hashable]) -> Matches:
    """Return pairs of places with equal items, ascending on both sides.

    They are as many as can be, unless the two differ in more than `MAX_EDITS` items that both of
    them have. Items that stayed at their place are preferred where that costs no pair.
    """
    numbers: dict[Hashable, int] = {}
    a = [numbers.setdefault(item, len(numbers)) for item in own]
    b = [numbers.setdefault(item, len(numbers)) for item in other]
    shortest = min(len(a), len(b))
    head = next((i for i in range(shortest) if a[i] != b[i]), shortest)
    tail = next((i for i in range(shortest - head) if a[-1 - i] != b[-1 - i]), shortest - head)
    return [
        *((i, i) for i in range(head)),
        *(
            (head + x, head + y)
            for x, y in _between(a[head : len(a) - tail], b[head : len(b) - tail])
        ),
        *((len(a) - i, len(b) - i) for i in range(tail, 0, -1)),
    ]


def _between(own: list[int], other: list[int]) -> Matches:
    """Align what is left between equal ends."""
    by_place = [(i, i) for i, (x, y) in enumerate(zip(own, other, strict=False)) if x == y]
    # What only one side has takes no part, and so costs no edits.
    common = {*own} & {*other}
    a = [i for i, item in enumerate(own) if item in common]
    b = [i for i, item in enumerate(other) if item in common]
    found = _longest([own[i] for i in a], [other[i] for i in b])
    if found is None:
        # Few that are equal by chance would only be in the way of a coarser comparison.
        return by_place if 2 * len(by_place) >= min(len(own), len(other)) else []
    if len(own) == len(other) and len(found) <= len(by_place):
        return by_place
    return [(a[x], b[y]) for x, y in found]


def _longest(own: list[int], other: list[int]) -> Matches | None:
    """Find a longest common subsequence by Myers' greedy algorithm; None past `MAX_EDITS`."""
    if abs(len(own) - len(other)) > MAX_EDITS:
        return None
    # How far into own one gets, by diagonal: the place in own minus the place in other. Negative
    # diagonals lie at the end of the list.
    reach = [0] * (2 * MAX_EDITS + 3)
    rows: list[list[int]] = []  # what each number of edits reached, every second diagonal
    for edits in range(MAX_EDITS + 1):
        rows.append([])
        for diagonal in range(-edits, edits + 1, 2):
            before, after = reach[diagonal - 1], reach[diagonal + 1]
            inserts = diagonal == -edits or (diagonal != edits and before < after)
            x = after if inserts else before + 1
            y = x - diagonal
            while x < len(own) and y < len(other) and own[x] == other[y]:
                x += 1
                y += 1
            reach[diagonal] = x
            rows[-1].append(x)
            if x >= len(own) and y >= len(other):
                return _walked_back(rows, len(own), len(other))
    return None


def _walked_back(rows: list[list[int]], x: int, y: int) -> Matches:
    """Return the pairs on the way on which `_longest` reached the end, which is (x, y)."""
    found = []
    for edits in range(len(rows) - 1, -1, -1):
        diagonal = x - y
        at = (diagonal + edits) // 2
        row = rows[edits - 1] if edits else []
        inserts = edits > 0 and (at == 0 or (at < edits and row[at - 1] < row[at]))
        begin = (row[at] if inserts else row[at - 1] + 1) if edits else 0
        while x > begin:
            x, y = x - 1, y - 1
            found.append((x, y))
        if inserts:
            y -= 1
        else:
            x -= 1
    return found[::-1]
