"""One captured graph of a callable, which C++ runs, and what is done after a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING, Any

import gpuprof._core as _core
from gpuprof._callable.buckets import NOTHING_LEARNED, ResultSlices
from gpuprof._callable.pytree import Flat
from gpuprof._callable.state import set_gradients
from gpuprof._frameworks import loaded
from gpuprof._frameworks.array_facts import extent

if TYPE_CHECKING:
    from gpuprof._callable.guards import ModuleGuards
    from gpuprof._graphs.graph import CapturedGraph
    from gpuprof._graphs.pool import CapturePool


@dataclass(eq=False)
class Kind:
    """The calls that one graph can serve, and what is known of them."""

    key: Any
    runs: int = 0  # eager calls before the capture
    is_eager: bool = False  # they run the function
    strides_matter: bool = False  # a kind for each layout of the arguments has the graphs


@dataclass(eq=False)
class CapturedCall(_core._CacheEntry):
    """One graph of a callable, with what is known of the call that it was captured for."""

    spec: InitVar[dict[str, Any]]  # what C++ runs it by
    flat: Flat  # without its arrays
    guards: ModuleGuards
    seconds: float
    returned: Flat  # the same
    nbytes: int  # of the arrays that it owns
    pool: CapturePool
    writes: frozenset[str]  # the arguments that the function writes to, by path
    by_torch: bool  # captured, so that torch's current stream was
    externals_written: list[Any]  # tensors that cover what it writes to besides
    floating: list[Any]  # external tensors on the GPU
    hides_writes: bool  # a second run may write a second time to what only the caller knows
    strides_matter: bool  # a call whose arguments are laid out otherwise needs another graph
    device: int
    dtypes: tuple[str, ...]  # that the function computes in
    gradients: list[tuple[Any, Any]]  # parameters with the ``.grad`` that a call leaves them
    kind: Kind = field(init=False)  # of the calls that it serves
    checks: int = 0  # replays that no call has asked for
    slices: ResultSlices = NOTHING_LEARNED  # how results are cut, for a bucket

    def __post_init__(self, spec: dict[str, Any]) -> None:
        super().__init__(**spec)

    @property
    def replays(self) -> int:
        """How many replays calls have asked for, or others of the graph."""
        return int(self.graph.num_replays) - self.checks

    def overlaps(self, flat: Flat) -> bool:
        """Return whether it matters for these arguments which copy is made first."""
        if not (self.writes or self.externals_written):
            return False
        return self.overlap_at([extent(leaf.facts) for leaf in flat.leaves])


def draws(graph: CapturedGraph) -> bool:
    return bool(getattr(graph._by_torch, "must_replay", False))  # of torch's numbers


def floating_dtypes(tensors: Iterable[Any], autocast: Any) -> tuple[str, ...]:
    """Return the names of the floating-point dtypes that a function computes in."""
    found = {str(each.dtype) for each in tensors if each.is_floating_point()} | {str(autocast)}
    return tuple(sorted(name.removeprefix("torch.") for name in found))


def after_run(
    written: Sequence[Any], gradients: Sequence[tuple[Any, Any]], *, copies_back: bool
) -> Any:
    """Return what makes torch see what a run has changed, as an operator would; None for nothing.

    It gets the arrays of a call that were written to; `written` are tensors besides.
    """
    tensors = [each for each in written if not each.is_inference()]
    if not (tensors or gradients or copies_back):
        return None
    increment_version = loaded.torch().autograd.graph.increment_version

    def after(*arrays: Any) -> None:
        own = [each for each in arrays if loaded.is_tensor(each) and not each.is_inference()]
        increment_version([*tensors, *own])
        set_gradients(gradients)

    return after
