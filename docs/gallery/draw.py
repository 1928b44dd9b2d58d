"""Draw the pictures of the gallery that are made of the data in this folder.

    python docs/gallery/draw.py [NAME ...]

- graph.svg: the nodes of a graph, as tests/docs/test_gallery.py captures them on the driver of the
  tests; it needs Graphviz,
- history.svg: a history, as gpuprof history --format json printed it, measured on a CPU.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpuprof
from gpuprof import _core
from gpuprof._core import GraphNode

HERE = Path(__file__).resolve().parent
IMAGES = HERE.parent / "images"


def graph_dot() -> str:
    """Return a captured graph in Graphviz' language."""
    nodes = [_node(each) for each in json.loads((HERE / "graph.json").read_text("utf-8"))]
    return _core._to_dot(nodes, "decoder block")


def _node(data: dict[str, Any]) -> GraphNode:
    fields = {name: value for name, value in data.items() if value is not None}
    return GraphNode(**{name: fields[name] for name in NODE_FIELDS if name in fields})


NODE_FIELDS = (
    *("index", "type", "name", "symbol", "grid", "block", "shared_memory", "nbytes", "value"),
    *("element_size", "dependencies", "programmatic", "dependents", "scope", "scope_names"),
)


def graph() -> str:
    """Return that graph as Graphviz draws it."""
    dot = shutil.which("dot")
    if dot is None:
        sys.exit("draw: graph.svg needs Graphviz, which is not installed: apt install graphviz")
    done = subprocess.run(
        [dot, "-Tsvg"], input=graph_dot(), check=True, capture_output=True, encoding="utf-8"
    )
    return done.stdout


def history() -> str:
    """Return the runs of a benchmark, and where it changed."""
    return gpuprof.History.from_json((HERE / "history.json").read_text("utf-8")).to_svg()


PICTURES: dict[str, Callable[[], str]] = {
    "graph.svg": graph,
    "history.svg": history,
}


def main() -> None:
    """Draw what is named, or everything."""
    parser = argparse.ArgumentParser(description="Draw pictures of the gallery.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PICTURES))
    names = parser.parse_args().names or [*PICTURES]
    if unknown := [name for name in names if name not in PICTURES]:
        parser.error(f"no picture is called {unknown[0]!r}; there are {', '.join(PICTURES)}")
    for name in names:
        (IMAGES / name).write_text(PICTURES[name](), encoding="utf-8")
        sys.stdout.write(f"written: {IMAGES / name}\n")


if __name__ == "__main__":
    main()
