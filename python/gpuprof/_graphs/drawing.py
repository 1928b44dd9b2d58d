"""Graphs as DOT text, the language of Graphviz, and the files that it is written to.

Names are escaped: whatever a kernel is called, the text describes the same nodes and edges.
"""

from __future__ import annotations

import errno
import html
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from gpuprof._common.text import shown_text
from gpuprof._graphs.nodes import Edges, Nodes, cut, details, edges_of, short_name
from gpuprof._trace.files import Output

if TYPE_CHECKING:
    from gpuprof._core import GraphNode

_MAX_TOOLTIP = 500
# Shape and colour by type; a type that is not here is drawn as _OTHER.
_STYLES = {
    "kernel": ("box", "#cfe8cf"),
    "memcpy": ("cds", "#cfe0f5"),
    "memset": ("cds", "#dfe8f5"),
    "host": ("house", "#f5d9cf"),
    "graph": ("folder", "#eeeeee"),
    "empty": ("point", "#000000"),
    "event_record": ("diamond", "#fff2b3"),
    "event_wait": ("diamond", "#ffe08a"),
    "mem_alloc": ("cylinder", "#e6d5f2"),
    "mem_free": ("cylinder", "#f3ebf8"),
    "conditional": ("hexagon", "#f5cfe0"),
}
_OTHER = ("ellipse", "#eeeeee")


def to_dot(nodes: Nodes, edges: Edges, name: str) -> str:
    """Write a graph as DOT: a node for each node, child graphs as clusters.

    Parameters
    ----------
    nodes : sequence of GraphNode
    edges : sequence of (int, int)
        Pairs of indices into `nodes`.
    name : str
        The graph's name and heading.

    Returns
    -------
    str
        For ``dot -Tsvg`` and other tools. Dashed edges are programmatic: their second node may
        start before the first is over.
    """
    lines = [
        f"digraph {_quoted(name)} {{",
        f"  label={_quoted(name)};",
        '  node [fontname="Helvetica", fontsize=10, style=filled];',
        *(f"  {line}" for line in _statements(nodes, edges, "n")),
        "}",
    ]
    return "\n".join(lines) + "\n"


def _statements(nodes: Nodes, edges: Edges, prefix: str) -> Iterator[str]:
    for node in nodes:
        identity = f"{prefix}{node.index}"
        if not node.children:
            yield _statement(node, identity)
            continue
        yield f"subgraph cluster_{identity} {{"
        yield f"  label={_quoted(f'child graph of node {node.index}')};"
        yield f"  {_statement(node, identity)}"
        inner = _statements(node.children, edges_of(node.children), f"{identity}_")
        yield from (f"  {line}" for line in inner)
        for child in node.children:
            if not child.dependencies:
                yield f"  {identity} -> {identity}_{child.index} [style=dotted];"
        yield "}"
    for before, after in edges:
        style = " [style=dashed]" if before in nodes[after].programmatic else ""
        yield f"{prefix}{before} -> {prefix}{after}{style};"


def _statement(node: GraphNode, identity: str) -> str:
    shape, colour = _STYLES.get(node.type, _OTHER)
    first = f"{node.index} {short_name(node.name) if node.name else shown_text(node.type)}"
    label = "\\n".join(_escaped(line) for line in [first, *details(node)])
    tooltip = _quoted(cut(node.name or node.type, _MAX_TOOLTIP))
    return f'{identity} [label="{label}", shape={shape}, fillcolor="{colour}", tooltip={tooltip}];'


def _quoted(text: str) -> str:
    return f'"{_escaped(text)}"'


def _escaped(text: str) -> str:
    """Escape text for a label: in a quoted string, where entities and ``\\N`` mean something."""
    entities = html.escape(shown_text(text), quote=False)
    return entities.replace("\\", "\\\\").replace('"', '\\"')


def write_dot(path: str | os.PathLike[str], text: str) -> None:
    """Write `text` to `path`: all of it, or nothing.

    An existing file is replaced at the end, in one step.

    Raises
    ------
    OSError
        It cannot be written: a directory, no space, no permission. Names `path`.
    TypeError, ValueError
        It is not the name of a file.
    """
    name: object = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(name, str):
        message = f"path: expected a str or os.PathLike of str, got {name!r}"
        raise TypeError(message)
    if not name or "\0" in name:
        message = f"path: expected the name of a file to write, got {name!r}"
        raise ValueError(message)
    target = Path(name)
    if target.is_dir():
        reason = "is a directory; expected the name of a file to write"
        raise IsADirectoryError(errno.EISDIR, reason, name)
    try:
        with Output(target) as file:
            file.write(text.encode(errors="replace"))
    except OSError as error:
        # The original one may name the temporary file, or nothing.
        raise OSError(error.errno, error.strerror or str(error), name) from error
