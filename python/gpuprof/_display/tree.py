"""The order of rows in a tree table: each path, then what is inside it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

Names = tuple[str, ...]


class HasNames(Protocol):
    """A row of a path, which may have several rows."""

    @property
    def names(self) -> Names:
        """The names of the path, outermost first."""


R = TypeVar("R", bound=HasNames)


@dataclass(frozen=True)
class Line(Generic[R]):
    """A row's place in the tree. `label` is what the lines above it do not say of its path."""

    row: R
    depth: int
    label: str


def tree_lines(rows: Iterable[R]) -> list[Line[R]]:
    """Put rows in the order of the tree.

    A path stands below the closest path around it that has a row. Paths side by side, and rows of
    one path, keep their order.

    Parameters
    ----------
    rows : iterable
        In the order in which paths side by side are shown.

    Returns
    -------
    list of Line
        One for each row.
    """
    by_names: dict[Names, list[R]] = {}
    for row in rows:
        by_names.setdefault(row.names, []).append(row)
    inside: dict[Names, list[Names]] = {}
    for names in by_names:
        outer = names[:-1]
        while outer and outer not in by_names:
            outer = outer[:-1]
        inside.setdefault(outer, []).append(names)
    result = []
    waiting = [(names, 0, 0) for names in reversed(inside.get((), []))]
    while waiting:
        names, depth, above = waiting.pop()
        label = "/".join(names[above:])
        result += [Line(row, depth, label) for row in by_names[names]]
        below = reversed(inside.get(names, []))
        waiting += [(child, depth + 1, len(names)) for child in below]
    return result
