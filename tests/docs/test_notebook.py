"""The notebook of the documentation runs, here on the CPU clock, and its output is kept."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import ROOT, environment

NOTEBOOK = ROOT / "docs" / "notebook.ipynb"
Cell = dict[str, Any]


def code_cells(notebook: dict[str, Any]) -> list[Cell]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def text_of(cell: Cell) -> str:
    """Return all that a cell put out, as plain text."""
    parts: list[str] = []
    for output in cell["outputs"]:
        text = output.get("text") or output.get("data", {}).get("text/plain", "")
        parts.append(text if isinstance(text, str) else "".join(text))
    return "\n".join(parts)


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> list[Cell]:
    """Run the notebook in a fresh kernel, without a driver, and return its code cells."""
    nbclient = pytest.importorskip("nbclient", reason="Python build without nbclient")
    nbformat = pytest.importorskip("nbformat", reason="Python build without nbformat")
    folder = tmp_path_factory.mktemp("notebook")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=120, resources={"metadata": {"path": str(folder)}}
    )
    client.execute(env=environment(None, CUDA_VISIBLE_DEVICES="", PATH=os.environ["PATH"]))
    assert (folder / "notebook.json.gz").is_file()
    return code_cells(notebook)


def test_every_cell_runs_and_says_something(executed: list[Cell]) -> None:
    for cell in executed:
        assert text_of(cell).strip(), cell["source"]
        assert not [each for each in cell["outputs"] if each["output_type"] == "error"]
        assert not [each for each in cell["outputs"] if each.get("name") == "stderr"]


def test_the_cells_show_timers_a_graph_a_trace_and_a_comparison(executed: list[Cell]) -> None:
    by_start = {cell["source"].split("\n")[0]: cell for cell in executed}
    texts = {start: text_of(cell) for start, cell in by_start.items()}
    assert "the CPU" in texts["import sys"]
    assert "50 steps" in texts['row = gpuprof.stats()["step"]']
    statistics = by_start["for _ in range(50):"]["outputs"][-1]["data"]
    assert "first" in statistics["text/plain"]
    assert "<table" in statistics["text/html"]
    everything = "\n".join(text_of(cell) for cell in executed)
    for shown in ("a graph needs a GPU", "traced step", "batch", "list.sort"):
        assert shown in everything, shown


def test_the_kept_output_is_that_of_a_whole_run_in_order() -> None:
    cells = code_cells(json.loads(NOTEBOOK.read_text(encoding="utf-8")))
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        assert text_of(cell).strip(), cell["source"]
        assert not [each for each in cell["outputs"] if each["output_type"] == "error"]


def test_the_kept_output_names_no_folder_of_the_machine_that_made_it() -> None:
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert str(Path.home()) not in text
    assert "/tmp/" not in text
