"""How the calls of one callable are padded, and which graph answered those before.

To find the graph of a padded call, its key is made: the structure of the arguments, their
constants, torch's modes. C++ compares all of that again when it runs the graph. So a call whose
arrays have the shapes of an earlier one is given to the same graph at once, and its key is made
only if the graph does not take it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from gpuprof._callable.buckets import Buckets, Padding
from gpuprof._callable.pytree import Flat
from gpuprof._callable.state import requires_grad
from gpuprof._frameworks.array_facts import SHAPE, STRIDES

if TYPE_CHECKING:
    from gpuprof._callable.entry import CapturedCall

_MAX_KNOWN = 1024


class Paddings:
    """The buckets of a callable, with what is known of earlier calls; without buckets, nothing.

    `note` and `forget` are called with the lock of the callable.
    """

    def __init__(self, buckets: Buckets | None) -> None:
        self._buckets = buckets
        self._known: dict[Hashable, tuple[Padding, CapturedCall]] = {}

    def with_mask(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        flatten: Callable[[tuple[Any, ...], Mapping[str, Any]], Flat],
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a call with the mask that the buckets ask for."""
        if self._buckets is None or self._buckets.mask is None:
            return args, dict(kwargs)
        return args, dict(self._buckets.with_mask(flatten(args, kwargs), kwargs))

    def plan(self, flat: Flat) -> Padding | None:
        """Return what to pad; None if nothing is, or no bucket is large enough."""
        if self._buckets is None:
            return None
        padding = self._buckets.plan(flat)
        return None if padding is None or padding.refused else padding

    def of_earlier_call(self, flat: Flat) -> tuple[Padding, CapturedCall] | None:
        """Return how the last call with such arrays was padded, and the graph that answered it."""
        return self._known.get(_kind(flat)) if self._known else None

    def note(
        self, flat: Flat, padding: Padding, captured: CapturedCall, kept: Iterable[CapturedCall]
    ) -> None:
        """Keep what answered a padded call, if the graph is among those that are `kept` still."""
        if not any(each is captured for each in kept):
            return
        if len(self._known) >= _MAX_KNOWN:
            self._known.pop(next(iter(self._known)))
        self._known[_kind(flat)] = padding, captured

    def forget(self, captured: CapturedCall) -> None:
        """Let go of a graph."""
        self._known = {k: each for k, each in self._known.items() if each[1] is not captured}


def _kind(flat: Flat) -> Hashable:
    """Return what a plan depends on of the arrays, and what padding takes over from them."""
    return tuple(
        (leaf.path, leaf.facts[SHAPE], leaf.facts[STRIDES], requires_grad(leaf.array))
        for leaf in flat.leaves
    )
