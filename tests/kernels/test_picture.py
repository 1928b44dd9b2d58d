"""The picture of a trace with kernels: benchmarks/kernels_picture.py."""

from __future__ import annotations

import importlib
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
    return importlib.import_module("kernels_picture")


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
    svg = picture.draw(slices, *picture.window(slices, "", 5_000))

    found = [title.split(":")[0] for title in titles(svg)]
    for name in ("cudaLaunchKernel", "early", "fwd", "void early_kernel<float>(float*)"):
        assert name in found
    assert not any("late" in name for name in found)


def test_a_window_begins_where_a_scope_begins(picture: Any, trace: Path) -> None:
    slices = picture.read(trace)
    begin, end = picture.window(slices, "late", 1_000)

    assert end - begin == 1_000
    assert begin == next(
        each.begin for each in slices if (each.category, each.name) == ("scope", "late")
    )
    assert not any("early" in title for title in titles(picture.draw(slices, begin, end)))


def test_a_scope_without_kernels_is_told(picture: Any, trace: Path) -> None:
    with pytest.raises(SystemExit, match="no kernel of the scope 'other'"):
        picture.window(picture.read(trace), "other", 1_000)
