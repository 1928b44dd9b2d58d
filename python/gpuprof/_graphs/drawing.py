"""Graphs as HTML for notebooks, drawn by Graphviz where it is installed."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping

import gpuprof._core as _core
from gpuprof._common.text import in_html, plural
from gpuprof._display.table import Table
from gpuprof._graphs.signature import Nodes

MAX_NODES = 500
_MAX_SUMMARY_ROWS = 50
_DOT_TIMEOUT_S = 10.0


def html_view(nodes: Nodes, name: str, facts: Mapping[str, str]) -> str:
    """Show a graph as HTML: drawn by Graphviz, else as a table; of a large one, the kinds."""
    heading = f"<div><b>{in_html(name)}</b></div>"
    known = "".join(f"<div>{in_html(key)}: {in_html(text)}</div>" for key, text in facts.items())
    is_large = len(nodes) > MAX_NODES
    body = _summary(nodes) if is_large else to_svg(nodes, name) or _table(nodes)
    return f"<div>{heading}{known}{body}</div>"


def to_svg(nodes: Nodes, name: str) -> str | None:
    """Draw a graph as SVG. None where Graphviz is not installed, fails, or takes too long."""
    program = shutil.which("dot")
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, "-Tsvg"],
            input=_core._to_dot(nodes, name).encode(),
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
            _core._short_name(node.name),
            *([node._scope_text] if scoped else []),
            ", ".join(node._details),
            " ".join(map(str, node.dependencies)),
        )
        for node in nodes
    )
    scope = ["scope"] if scoped else []
    head = ("node", "type", "kernel", *scope, "details", "waits for")
    return Table(head, [*rows], left=head).html()


def _summary(nodes: Nodes) -> str:
    counts = Counter((node.type, node.name, node._scope_text) for node in nodes)
    scoped = any(node.scope for node in nodes)
    head = ("type", "kernel", *(["scope"] if scoped else []), "nodes")
    rows = [
        (node_type, _core._short_name(name), *([scope] if scoped else []), f"{count:,}")
        for (node_type, name, scope), count in counts.most_common(_MAX_SUMMARY_ROWS)
    ]
    note = f"{len(nodes):,} nodes, too many to draw; by kind:"
    rest = len(counts) - len(rows)
    more = f"<div>and {plural(rest, 'more kind')}</div>" if rest else ""
    return f"<div>{note}</div>{Table(head, rows, left=head).html()}{more}"
