"""The signature of a graph: a text to compare, and what it launches, to say what differs."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import gpuprof._core as _core
from gpuprof._common.launches import Launches, counted
from gpuprof._common.records import in_results

if TYPE_CHECKING:
    from typing_extensions import Self

    from gpuprof._core import GraphNode

Nodes: TypeAlias = "Sequence[GraphNode]"

# What a node does, by field. Not addresses, kernel arguments or events: they differ between
# captures of the same work.
FIELDS = ("type", "symbol", "grid", "block", "shared_memory", "nbytes", "value", "element_size")
_ELSEWHERE = (
    "the same kernels, copies and memsets by name, but other grids, blocks, sizes or dependencies"
)


@in_results
class GraphSignature(str):
    """16 hexadecimal digits that are equal for graphs that do the same; text in every respect.

    Attributes
    ----------
    launches : Launches
        What a replay launches: kernels by name, copies, memsets.
    """

    __slots__ = ("launches",)
    launches: Launches

    def __new__(cls, text: str, launches: Launches) -> Self:
        made = super().__new__(cls, text)
        made.launches = launches
        return made

    def __reduce_ex__(self, _protocol: Any) -> tuple[Any, ...]:
        return type(self), (str(self), self.launches)

    def diff(self, other: GraphSignature) -> str:
        """Say in words how another graph differs.

        Parameters
        ----------
        other : GraphSignature

        Returns
        -------
        str
            Such as ``"+2 elementwise_kernel, -1 sgemm, 14 -> 15 kernels"``; empty if both
            signatures are the same.

        Raises
        ------
        TypeError
            `other` is no signature: its digits alone do not tell what differs.
        """
        given: object = other
        if not isinstance(given, GraphSignature):
            message = (
                "other: expected what signature() of a graph returned, got "
                f"{type(given).__name__}; to compare with a graph of another process, store "
                "signature().launches.to_dict(), and use launches.diff()"
            )
            raise TypeError(message)
        return "" if self == other else self.launches.diff(other.launches) or _ELSEWHERE


def facts(node: GraphNode) -> tuple[Any, ...]:
    """Return what the node does, without its place in the graph, to be compared and hashed."""
    return tuple(getattr(node, field) for field in FIELDS)


def in_order(nodes: Nodes) -> list[GraphNode]:
    """Put every node behind those that it waits for, and else in the driver's order."""
    return [nodes[index] for index in _core._node_order(nodes)]


def digits(nodes: Nodes) -> str:
    """Return 16 hexadecimal digits that are equal for graphs that do the same.

    In it are what each node does (`FIELDS`), the child graphs, and who waits for whom, in full or
    programmatically; not the order in which the driver lists the nodes.
    """
    order = in_order(nodes)
    above: dict[int, bytes] = {}
    for node in order:
        waits = ((index, above[index]) for index in node.dependencies)
        own = [repr(facts(node)).encode(), digits(node.children).encode()]
        above[node.index] = _digest(*own, *_sorted_links(waits, node.programmatic))
    # What is above a node does not tell two nodes from one; what is below does.
    below: dict[int, bytes] = {}
    for node in reversed(order):
        followers = ((index, below[index]) for index in node.dependents)
        below[node.index] = _digest(above[node.index], *_sorted_links(followers, ()))
    return _digest(*sorted(below.values())).hex()


def _sorted_links(ends: Iterable[tuple[int, bytes]], programmatic: tuple[int, ...]) -> list[bytes]:
    return sorted((b"p" if index in programmatic else b"f") + end for index, end in ends)


def _digest(*parts: bytes) -> bytes:
    state = hashlib.blake2b(digest_size=8)
    for part in parts:
        state.update(len(part).to_bytes(8, "little") + part)
    return state.digest()


def launches_of(nodes: Nodes) -> Launches:
    """Count what a replay of these nodes launches, child graphs' included."""
    every = [*_all(nodes)]
    kernels = [node.name or node.symbol for node in every if node.type == "kernel"]
    types = Counter(node.type for node in every)
    return Launches(counted(kernels), types["memcpy"], types["memset"])


def _all(nodes: Nodes) -> Iterator[GraphNode]:
    for node in nodes:
        yield node
        yield from _all(node.children)
