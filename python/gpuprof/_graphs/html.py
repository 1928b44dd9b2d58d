"""Graphs for notebooks: a drawing by Graphviz where its ``dot`` is installed, else a table."""

from __future__ import annotations

import html
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence

from gpuprof._common.text import shown_text
from gpuprof._graphs.drawing import to_dot
from gpuprof._graphs.nodes import Edges, Nodes, count_by, details, plural, short_name

MAX_NODES = 500
_MAX_SUMMARY_ROWS = 50
_DOT_TIMEOUT_S = 10.0


def graph_html(nodes: Nodes, edges: Edges, name: str, facts: Mapping[str, str]) -> str:
    """Show a graph as an HTML fragment without scripts.

    Up to 500 nodes are drawn by Graphviz, or listed in a table; of more, the kinds are counted.
    """
    heading = f"<div><b>{_escaped(name)}</b></div>"
    known = "".join(f"<div>{_escaped(key)}: {_escaped(text)}</div>" for key, text in facts.items())
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
    rows = (
        (
            str(node.index),
            node.type,
            short_name(node.name),
            ", ".join(details(node)),
            " ".join(map(str, node.dependencies)),
        )
        for node in nodes
    )
    return _grid(("node", "type", "kernel", "details", "waits for"), rows)


def _summary(nodes: Nodes) -> str:
    counts = count_by((node.type, node.name) for node in nodes)
    rows = [
        (node_type, short_name(name), f"{count:,}")
        for (node_type, name), count in [*counts.items()][:_MAX_SUMMARY_ROWS]
    ]
    note = f"{len(nodes):,} nodes, too many to draw; by kind:"
    rest = len(counts) - len(rows)
    more = f"<div>and {plural(rest, 'more kind')}</div>" if rest else ""
    return f"<div>{note}</div>{_grid(('type', 'kernel', 'nodes'), rows)}{more}"


def _grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return (
        f"<table><thead><tr>{_cells('th', head)}</tr></thead><tbody>"
        + "".join(f"<tr>{_cells('td', row)}</tr>" for row in rows)
        + "</tbody></table>"
    )


def _cells(tag: str, cells: Sequence[str]) -> str:
    opening = f'<{tag} style="text-align:left">'
    return "".join(f"{opening}{_escaped(cell)}</{tag}>" for cell in cells)


def _escaped(text: str) -> str:
    return html.escape(shown_text(text))
