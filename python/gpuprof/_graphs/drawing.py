"""Graphs as DOT text, the language of Graphviz, and as HTML for notebooks.

Names are escaped: whatever a kernel is called, the text describes the same nodes and edges.
"""

from __future__ import annotations

import html
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from gpuprof._common.kernel_name import cut, short_name
from gpuprof._common.outputs import write_whole
from gpuprof._common.text import shown_text
from gpuprof._display.table import Table
from gpuprof._graphs.nodes import (
    Edges,
    Nodes,
    count_by,
    details,
    edges_of,
    plural,
    scope_text,
)

if TYPE_CHECKING:
    from gpuprof._core import GraphNode

MAX_NODES = 500
_MAX_TOOLTIP = 500
_MAX_SUMMARY_ROWS = 50
_DOT_TIMEOUT_S = 10.0
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
    """Write a graph as DOT: child graphs are clusters, programmatic edges are dashed."""
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
    lines = [first, *details(node), *([scope_text(node)] if node.scope else [])]
    label = "\\n".join(_escaped(line) for line in lines)
    tooltip = _quoted(cut(shown_text(node.name or node.type), _MAX_TOOLTIP))
    return f'{identity} [label="{label}", shape={shape}, fillcolor="{colour}", tooltip={tooltip}];'


def _quoted(text: str) -> str:
    return f'"{_escaped(text)}"'


def _escaped(text: str) -> str:
    """Escape text for a label: in a quoted string, where entities and ``\\N`` mean something."""
    entities = html.escape(shown_text(text), quote=False)
    return entities.replace("\\", "\\\\").replace('"', '\\"')


def write_dot(path: str | os.PathLike[str], text: str) -> None:
    """Write `text` to `path`, whole or not at all. Raises OSError that names `path`."""
    write_whole(path, text)


def html_view(nodes: Nodes, edges: Edges, name: str, facts: Mapping[str, str]) -> str:
    """Show a graph as an HTML fragment without scripts.

    Up to 500 nodes are drawn by Graphviz, or listed in a table; of more, the kinds are counted.
    """
    heading = f"<div><b>{_html(name)}</b></div>"
    known = "".join(f"<div>{_html(key)}: {_html(text)}</div>" for key, text in facts.items())
    if len(nodes) > MAX_NODES:
        body = _summary(nodes)
    else:
        body = to_svg(nodes, edges, name) or _table(nodes)
    return f"<div>{heading}{known}{body}</div>"


def to_svg(nodes: Nodes, edges: Edges, name: str) -> str | None:
    """Draw a graph as SVG. None where Graphviz is not installed, fails, or takes too long."""
    program = shutil.which("dot")
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, "-Tsvg"],
            input=to_dot(nodes, edges, name).encode(),
            capture_output=True,
            timeout=_DOT_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    # What comes before the element is a declaration, which has no place inside a page.
    _, begin, rest = done.stdout.decode(errors="replace").partition("<svg")
    return begin + rest if begin else None


def _table(nodes: Nodes) -> str:
    scoped = any(node.scope for node in nodes)
    rows = (
        (
            str(node.index),
            node.type,
            short_name(node.name),
            *([scope_text(node)] if scoped else []),
            ", ".join(details(node)),
            " ".join(map(str, node.dependencies)),
        )
        for node in nodes
    )
    scope = ["scope"] if scoped else []
    return _grid(("node", "type", "kernel", *scope, "details", "waits for"), rows)


def _summary(nodes: Nodes) -> str:
    counts = count_by((node.type, node.name, scope_text(node)) for node in nodes)
    scoped = any(node.scope for node in nodes)
    head = ("type", "kernel", *(["scope"] if scoped else []), "nodes")
    rows = [
        (node_type, short_name(name), *([scope] if scoped else []), f"{count:,}")
        for (node_type, name, scope), count in [*counts.items()][:_MAX_SUMMARY_ROWS]
    ]
    note = f"{len(nodes):,} nodes, too many to draw; by kind:"
    rest = len(counts) - len(rows)
    more = f"<div>and {plural(rest, 'more kind')}</div>" if rest else ""
    return f"<div>{note}</div>{_grid(head, rows)}{more}"


def _grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return Table(head, [*rows], left=head).html()


def _html(text: str) -> str:
    return html.escape(shown_text(text))
