"""Small scripts do the same with `gpuprof.compat` as with the packages that they were written for.

The originals run where they are installed; what they gave is stored for the rest.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from tests.nvtx_injection.build import build
from tests.support.processes import check_python

SCRIPTS = Path(__file__).parent / "scripts"


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvtx"), "extension")


def has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def run_script(name: str, imports: str, after: str = "", **variables: str) -> str:
    script = str(SCRIPTS / name)
    code = f"import runpy\n{imports}\nrunpy.run_path({script!r}, names)\n{after}"
    return check_python(code, **variables)


SHOW = """
import json
from tests.nvtx_injection.tool import Tool
events = Tool().events()
categories = {(e.domain, e.category): e.text for e in events if e.kind == "category"}
kinds = {"push", "pop", "mark", "start", "end"}
threads = {}
print(json.dumps([
    [e.kind, e.domain, e.text, categories.get((e.domain, e.category)),
     None if e.color is None else e.color & 0xFFFFFF, e.payload,
     threads.setdefault(e.tid, len(threads))]
    for e in events if e.kind in kinds
]))
"""


def ranges_by(imports: str, tool: Path, **variables: str) -> list[Any]:
    variables["NVTX_INJECTION64_PATH"] = str(tool)
    out = run_script("nvtx_ranges.py", imports, SHOW, **variables)
    found: list[Any] = json.loads(out)
    return found


OURS = "import gpuprof.compat\nnames = {'nvtx': gpuprof.compat.nvtx}"
THEIRS = "import nvtx\nnames = {'nvtx': nvtx}"
GREEN, ORANGE, BLUE, RED = 0x008000, 0xFF8800, 0x0000FF, 0xFF0000
ONE_TURN = [
    ["push", None, "load", None, GREEN, None, 0],
    ["pop", None, None, None, None, None, 0],
    ["push", None, "train", "epoch", ORANGE, 7, 0],
    ["push", "model", "forward", None, BLUE, None, 0],
    ["pop", "model", None, None, None, None, 0],
    ["push", None, "backward", None, RED, [1, 2, 3], 0],
    ["push", "comm", "reduce", None, BLUE, None, 0],
    ["pop", "comm", None, None, None, None, 0],
    ["pop", None, None, None, None, None, 0],
    ["pop", None, None, None, None, None, 0],
]
RANGES = [
    *ONE_TURN,
    *ONE_TURN,
    ["start", None, "prefetch", None, BLUE, None, 1],
    ["mark", None, "fetched", "epoch", BLUE, None, 1],
    ["end", None, None, None, None, None, 1],
    ["push", "engine", "step", "loop", BLUE, None, 0],
    ["mark", "engine", "inside", None, BLUE, None, 0],
    ["pop", "engine", None, None, None, None, 0],
    ["start", "engine", "async step", None, BLUE, None, 0],
    ["end", "engine", None, None, None, None, 0],
    ["push", None, "fails", None, BLUE, None, 0],
    ["pop", None, None, None, None, None, 0],
    ["mark", None, "caught", None, BLUE, None, 0],
]


def test_a_tool_sees_the_ranges_of_a_script_for_the_nvtx_package(tool: Path) -> None:
    # No GPUPROF_NVTX: a tool listens, and that is enough.
    assert ranges_by(OURS, tool) == RANGES


@pytest.mark.skipif(not has("nvtx"), reason="the original package is not installed")
def test_the_nvtx_package_shows_the_same_ranges(tool: Path) -> None:
    assert ranges_by(THEIRS, tool) == RANGES


def test_a_script_runs_where_no_tool_listens_and_where_nvtx_is_switched_off(tool: Path) -> None:
    run_script("nvtx_ranges.py", OURS)
    for switch in ({"NVTX_DISABLE": "1"}, {"GPUPROF_NVTX": "0"}):
        assert ranges_by(OURS, tool, **switch) == []
