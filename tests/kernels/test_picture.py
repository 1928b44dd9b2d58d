"""The picture of a trace with kernels: benchmarks/trace_picture.py."""

from __future__ import annotations

import importlib
import json
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import gpuprof
from tests.support.gpu_records import Recording

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def picture(benchmark_scripts: Path) -> Any:
    return importlib.import_module("trace_picture")


@pytest.fixture
def trace(gpu: Recording, tmp_path: Path) -> Path:
    path = tmp_path / "run.json"
    with gpuprof.trace(path), gpuprof.kernels():
        for name in ("early", "late"):
            with gpuprof.timer(name), gpuprof.timer("fwd"):
                gpu.run(f"void {name}_kernel<float>(float*)", 100_000)
            time.sleep(0.01)
    return path


def titles(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    return [each.text or "" for each in root.iter(f"{SVG}title")]


def test_a_picture_has_launches_scopes_and_kernels(picture: Any, trace: Path) -> None:
    slices = picture.read(trace)
    svg = picture.draw(slices, *picture.window(slices, "early", 0, 5_000))

    found = [title.split(":")[0] for title in titles(svg)]
    for name in ("cudaLaunchKernel", "early", "fwd", "void early_kernel<float>(float*)"):
        assert name in found
    assert not any("late" in name for name in found)


def test_a_window_begins_where_a_scope_begins(picture: Any, trace: Path) -> None:
    slices = picture.read(trace)
    begin, end = picture.window(slices, "late", -1, 1_000)

    assert end - begin == 1_000
    assert begin == next(
        each.begin for each in slices if (each.category, each.name) == ("scope", "late")
    )
    assert not any("early" in title for title in titles(picture.draw(slices, begin, end)))


def test_without_kernels_it_shows_the_scopes_of_each_rank(picture: Any, tmp_path: Path) -> None:
    events: list[dict[str, Any]] = []
    for pid in (1, 2):
        event = {"ph": "X", "pid": pid, "tid": 7, "name": "step", "ts": 5.0, "dur": 90.0}
        events += [event | {"cat": "scope"}, event | {"cat": "gpu", "tid": 8}]
        named = {"name": "process_name", "args": {"name": f"rank {pid - 1}"}}
        events.append({"ph": "M", "pid": pid, "tid": 0, **named})
    path = tmp_path / "all.json"
    path.write_text(json.dumps({"traceEvents": events}))

    slices = picture.read(path)
    svg = picture.draw(slices, *picture.window(slices, "step", 0, 100))

    tracks = [each.text for each in ElementTree.fromstring(svg).iter(f"{SVG}text")]
    shown = ["rank 0: 7", "rank 0: 8", "rank 1: 7", "rank 1: 8"]
    assert [text for text in tracks if text in shown] == shown
    assert len(titles(svg)) == 4


@pytest.mark.parametrize("entry", [1, -2])
def test_an_entry_that_is_not_there_is_told(picture: Any, trace: Path, entry: int) -> None:
    with pytest.raises(SystemExit, match="1 entries of the scope 'late'"):
        picture.window(picture.read(trace), "late", entry, 1_000)
