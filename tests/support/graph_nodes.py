"""Nodes of graphs as tests of views make them: of plain data, without a driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpuprof import CapturedGraph, GraphNode

HOSTILE = 'k"];n9[label="x\\N\n<b>&lt;\0\x1b[31m\u202e\\'


@dataclass(frozen=True)
class Spec:
    """A node to be made, and the places in the list of those that it waits for."""

    name: str = ""
    after: Sequence[int] = ()
    type: str = "kernel"
    grid: tuple[int, int, int] = (8, 1, 1)
    nbytes: int | None = None
    value: int | None = None
    programmatic: Sequence[int] = ()
    children: tuple[GraphNode, ...] = ()


def make(*specs: Spec) -> tuple[GraphNode, ...]:
    """Make the nodes of a graph."""
    made = []
    for index, spec in enumerate(specs):
        kernel = spec.type == "kernel"
        made.append(
            GraphNode(
                index,
                spec.type,
                name=spec.name,
                symbol=spec.name,
                grid=spec.grid if kernel else None,
                block=(256, 1, 1) if kernel else None,
                shared_memory=0 if kernel else None,
                nbytes=spec.nbytes,
                value=spec.value,
                element_size=None if spec.value is None else 4,
                dependencies=sorted(spec.after),
                programmatic=sorted(spec.programmatic),
                dependents=[i for i, other in enumerate(specs) if index in other.after],
                children=spec.children,
            )
        )
    return tuple(made)


def chain(*names: str) -> tuple[GraphNode, ...]:
    """Make kernels that run one after the other."""
    return make(*(Spec(name, after=[i - 1] if i else []) for i, name in enumerate(names)))


def nodes_in(graph: int) -> tuple[GraphNode, ...]:
    """Return the nodes of a graph by its handle."""
    return _seen(graph).nodes


def edges_in(graph: int) -> tuple[tuple[int, int], ...]:
    """Return the edges of a graph by its handle."""
    return _seen(graph).edges


def _seen(graph: int) -> CapturedGraph:
    return CapturedGraph.from_handles(graph, 1)  # whose executable copy is never used
