"""What is known of one graph of a graphed callable."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpuprof._callable.leaves import extent, is_used_in_place

if TYPE_CHECKING:
    import gpuprof._core as _core
    from gpuprof._callable.guards import Watched
    from gpuprof._callable.pytree import Flat
    from gpuprof._callable.state import State
    from gpuprof._graphs.graph import CapturedGraph


@dataclass
class CapturedCall:
    """One graph of a callable, with what is known of the call that it was captured for."""

    entry: _core._CallEntry
    graph: CapturedGraph
    key: Any
    flat: Flat  # without its arrays
    state: State
    watched: Watched
    seconds: float
    result_shapes: list[tuple[str, tuple[int, ...]]]
    nbytes: int  # of the arrays that it owns
    writes: list[str]  # the arguments that the function writes to, by path
    taken: tuple[tuple[int, int], ...]  # where it writes besides, from one address to another
    slices: Any = None  # how results are cut, for a bucket
    listening: list[Any] = field(default_factory=list)

    def is_entangled_with(self, flat: Flat) -> bool:
        """Return whether it matters for these arguments which copy is made first.

        So it is where one that is written to lies over another, or one over what the function
        writes to besides.
        """
        ends = sorted(extent(leaf.facts) for leaf in flat.leaves)
        if self.writes and any(end > begin for (_, end), (begin, _) in itertools.pairwise(ends)):
            return True
        copied = [extent(leaf.facts) for leaf in flat.leaves if not is_used_in_place(leaf.array)]
        return any(
            begin < taken_end and taken < end
            for begin, end in copied
            for taken, taken_end in self.taken
        )
