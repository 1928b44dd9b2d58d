"""The notebook of the documentation: it runs, its output is kept, and its page shows both.

It runs here on the CPU clock, and the page is looked at in a browser.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.examples import run
from tests.support import chromium
from tests.support.chromium import Chromium
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
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Run the notebook in a fresh kernel, without a driver, and return it."""
    nbclient = pytest.importorskip("nbclient", reason="Python build without nbclient")
    nbformat = pytest.importorskip("nbformat", reason="Python build without nbformat")
    folder = tmp_path_factory.mktemp("notebook")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=120, resources={"metadata": {"path": str(folder)}}
    )
    client.execute(env=environment(None, CUDA_VISIBLE_DEVICES="", PATH=os.environ["PATH"]))
    assert (folder / "notebook.json.gz").is_file()
    return notebook


@pytest.fixture(scope="module")
def executed(notebook: Any) -> list[Cell]:
    return code_cells(notebook)


@pytest.fixture(scope="module")
def page(notebook: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """Open the page of the notebook that was run, without a network."""
    if chromium.chromium() is None:
        pytest.skip("Chromium is not installed")
    folder = tmp_path_factory.mktemp("page")
    source = folder / "source"
    source.mkdir()
    (source / "index.md").write_text("# Start\n\n```{toctree}\nnotebook\n```\n", encoding="utf-8")
    (source / "notebook.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    script = str(ROOT / "docs" / "build_site.py")
    done = run(script, "--version", "1.0", "--out", str(folder), "--source", str(source))
    assert done.returncode == 0, done.stderr
    with Chromium() as browser:
        for domain in ("Log", "Runtime"):
            browser.send(f"{domain}.enable")
        browser.go((folder / "1.0" / "notebook.html").as_uri())
        yield browser


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


def test_it_starts_with_a_scope_and_its_time(executed: list[Cell]) -> None:
    kept = code_cells(json.loads(NOTEBOOK.read_text(encoding="utf-8")))
    for cell in (executed[0], kept[0]):
        assert "".join(cell["source"]).startswith("import gpuprof\n\nwith gpuprof.timer():\n")
        assert text_of(cell).count("\n") == 1
        assert text_of(cell).startswith(("host ", "GPU "))


def shown(page: Chromium, selector: str) -> list[str]:
    """Return the texts of elements that a reader sees."""
    found = page.evaluate(
        f"""[...document.querySelectorAll("article {selector}")]
        .filter((e) => e.getClientRects().length && e.clientHeight > 5).map((e) => e.innerText)"""
    )
    assert isinstance(found, list)
    return found


def test_the_page_shows_each_cell_and_its_output(page: Chromium, executed: list[Cell]) -> None:
    blocks = [text.rstrip() for text in shown(page, "pre")]
    assert blocks[0].startswith("import gpuprof\n\nwith gpuprof.timer():\n")
    assert blocks[1] == text_of(executed[0]).rstrip()
    assert "no GPU time was measured" in blocks[1]
    for cell in executed:
        assert "".join(cell["source"]).rstrip() in blocks
    complaints = {"Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"}
    assert [event for event in page.events if event["method"] in complaints] == []


def test_the_page_shows_tables_as_tables(page: Chromium) -> None:
    heads = shown(page, ".cell-output th")
    assert heads[:2] == ["scope", "host p50"]
    assert "ratio to sorted" in heads
    cells = shown(page, ".cell-output td")
    assert {"step", "first", "second", "list.sort"} <= set(cells)
    assert "<td" not in page.evaluate("document.querySelector('article').innerText")


@pytest.mark.parametrize("width", [400, 1280])
def test_the_page_is_never_wider_than_the_screen(page: Chromium, width: int) -> None:
    page.resize(width, 800)
    assert page.evaluate("innerWidth") == width
    assert page.evaluate("document.documentElement.scrollWidth") <= width


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
