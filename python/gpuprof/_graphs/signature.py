"""The signature of a graph: a text to compare, and what it launches, to say what differs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gpuprof._common.launches import Launches, counted
from gpuprof._graphs import view
from gpuprof._graphs.nodes import Nodes

if TYPE_CHECKING:
    from typing_extensions import Self

    from gpuprof._core import GraphNode

_ELSEWHERE = (
    "the same kernels, copies and memsets by name, but other grids, blocks, sizes or dependencies"
)


class GraphSignature(str):
    """16 hexadecimal digits that are equal for graphs that do the same; text in every respect.

    Attributes
    ----------
    launches : Launches
        What a replay launches: kernels by name, copies, memsets.
    """

    __module__ = "gpuprof"
    __slots__ = ("launches",)
    launches: Launches

    def __new__(cls, text: str, launches: Launches) -> Self:
        """Make one of the digits and the launches."""
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
        _check_type(other)
        if self == other:
            return ""
        return self.launches.diff(other.launches) or _ELSEWHERE


def _check_type(other: object) -> None:
    if not isinstance(other, GraphSignature):
        message = (
            f"other: expected what signature() of a graph returned, got {type(other).__name__}; "
            "to compare with a graph of another process, store signature().launches.to_dict(), "
            "and use launches.diff()"
        )
        raise TypeError(message)


def signature_of(nodes: Nodes) -> GraphSignature:
    """Return the signature of a graph with these nodes."""
    return GraphSignature(view.signature(nodes), launches_of(nodes))


def launches_of(nodes: Nodes) -> Launches:
    """Count what a replay of these nodes launches, child graphs' included."""
    kernels, copies, memsets = [], 0, 0
    for node in _all(nodes):
        if node.type == "kernel":
            kernels.append(node.name or node.symbol)
        copies += node.type == "memcpy"
        memsets += node.type == "memset"
    return Launches(counted(kernels), copies, memsets)


def _all(nodes: Nodes) -> Iterator[GraphNode]:
    for node in nodes:
        yield node
        yield from _all(node.children)
