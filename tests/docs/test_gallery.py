"""The pictures of the gallery are those that its script draws of the stored data."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import gpuprof
from tests.docs.examples import ROOT
from tests.fake_driver.control import FakeCuda
from tests.support.captures import usable_stream

SVG = "{http://www.w3.org/2000/svg}"
GALLERY = ROOT / "docs" / "gallery"
IMAGES = ROOT / "docs" / "images"
PAGE = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")


@pytest.fixture
def draw(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(GALLERY))
    return importlib.import_module("draw")


@pytest.fixture
def stream(fake: FakeCuda) -> Iterator[int]:
    with usable_stream(fake) as made:
        yield made


def captured(fake: FakeCuda, stream: int) -> list[dict[str, Any]]:
    """Capture what a block of a decoder launches, with the MLP's two halves on two streams."""
    with usable_stream(fake) as branch:
        with gpuprof.capture(stream, name="decoder block", timers="strip") as cap:
            with gpuprof.timer("attention", stream=stream):
                fake.kernel(stream, "rms_norm", grid=(32, 1, 1), block=(256, 1, 1))
                fake.kernel(stream, "qkv_gemm", grid=(24, 8, 1), block=(128, 1, 1))
                fake.kernel(stream, "flash_attention", grid=(32, 16, 1), block=(128, 1, 1))
            with gpuprof.timer("mlp", stream=stream):
                fake.kernel(stream, "rms_norm", grid=(32, 1, 1), block=(256, 1, 1))
                fake.fork(stream, branch)
                fake.kernel(stream, "gate_gemm", grid=(32, 8, 1), block=(128, 1, 1))
                fake.kernel(branch, "up_gemm", grid=(32, 8, 1), block=(128, 1, 1))
                fake.join(stream, branch)
                fake.kernel(stream, "silu_mul", grid=(64, 1, 1), block=(256, 1, 1))
                fake.kernel(stream, "down_gemm", grid=(16, 8, 1), block=(128, 1, 1))
            fake.copy(stream, 65_536)
        return [each.to_dict() for each in cap.graph.nodes]


def test_the_graph_is_what_a_capture_has(fake: FakeCuda, stream: int) -> None:
    assert captured(fake, stream) == json.loads((GALLERY / "graph.json").read_text("utf-8"))


def test_a_picture_is_what_the_script_draws(draw: Any) -> None:
    assert draw.history() == (IMAGES / "history.svg").read_text(encoding="utf-8")


def test_the_picture_of_the_graph_has_its_nodes_and_edges(draw: Any) -> None:
    # Graphviz, which places them, is not everywhere, and its versions place them differently.
    root = ElementTree.parse(IMAGES / "graph.svg").getroot()
    titles = [each.text or "" for each in root.iter(f"{SVG}title")]
    dot = draw.graph_dot()
    nodes = re.findall(r"^ *(n\d+) \[", dot, re.M)
    edges = [f"{a}->{b}" for a, b in re.findall(r"^ *(n\d+) -> (n\d+)", dot, re.M)]
    assert len(nodes) == 9
    assert len(edges) == 9
    assert sorted(titles) == sorted(["decoder block", *nodes, *edges])
    shown = " ".join(each.text or "" for each in root.iter(f"{SVG}text"))
    assert "flash_attention" in shown
    assert "attention" in shown


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("kernels.svg", ["serve", "cuGraphLaunch", "layer 2", "attention", "mlp"]),
        ("ranks.svg", ["step", "forward", "backward", "step/backward/collective/ddp"]),
    ],
)
def test_a_picture_of_a_trace_has_its_scopes(name: str, shown: list[str]) -> None:
    # Their traces are too large to be kept here; tests/kernels has tests of what draws them.
    root = ElementTree.parse(IMAGES / name).getroot()
    titles = {(each.text or "").split(": ")[0] for each in root.iter(f"{SVG}title")}
    assert {*shown} <= titles


def test_the_script_writes_what_is_asked_for(
    draw: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(draw, "IMAGES", tmp_path)
    monkeypatch.setattr("sys.argv", ["draw.py", "history.svg"])
    draw.main()
    assert [path.name for path in tmp_path.iterdir()] == ["history.svg"]
    assert "history.svg" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["draw.py", "gone.svg"])
    with pytest.raises(SystemExit):
        draw.main()
    assert "there are graph.svg" in capsys.readouterr().err


def test_the_page_has_five_pictures_each_with_how_it_was_made() -> None:
    pictures = re.findall(r"^!\[[^\]]+\]\(images/([\w.]+)\)$", PAGE, re.M)
    assert len({*pictures}) == 5
    for name in pictures:
        assert (IMAGES / name).stat().st_size > 1000
    assert len(re.findall(r"^Made by ", PAGE, re.M)) == 5
    for script in re.findall(r"`((?:benchmarks|docs|tests)/[\w/]+\.py)", PAGE):
        assert (ROOT / script).is_file()
