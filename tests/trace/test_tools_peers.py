"""Traces that other tools write, made here and now: read, checked, and merged with ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.benchmark_results import answer, command
from tests.support.processes import check_python
from tests.support.trace_files import load
from tests.support.warm_torch import WarmTorch

# What is imported is imported before, or it is most of a trace of all calls.
OURS = """
import gpuprof
with gpuprof.timer("first", backend="cpu"):
    pass
def ours(path):
    with gpuprof.trace(path):
        with gpuprof.timer("ours", backend="cpu"):
            return time.time_ns()
"""


def begin_ns(path: Path, name: str) -> int:
    """When the first range of that name began, on the wall clock."""
    data = load(path)
    first = min(event["ts"] for event in data["traceEvents"] if event.get("name") == name)
    return int(data["baseTimeNanoseconds"]) + round(first * 1000)


Ranges = dict[str, dict[str, Any]]


def ranges(capsys: pytest.CaptureFixture[str], path: Path) -> Ranges:
    """The ranges of a sound trace by their names."""
    arguments = ("trace", "summary", path, "--top", 1000, "--json")
    code, out, err = answer(capsys, *arguments)
    assert (code, err) == (0, "")
    return {row["name"]: row for row in json.loads(out)["ranges"]}


def merge(*arguments: Path) -> None:
    """Check and merge traces, the last of which is the new one."""
    *theirs, merged = arguments
    assert command("trace", "validate", theirs[0]) == 0
    assert command("trace", "merge", *theirs, "-o", merged) == 0
    assert command("trace", "validate", merged) == 0


def test_a_trace_of_viztracer_is_read_and_lines_up_with_ours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs, ours, merged = (tmp_path / name for name in ("viz.json", "ours.json.gz", "all.json.gz"))
    check_python(
        f"""
        import time
        from viztracer import VizTracer
        {OURS.replace(chr(10), chr(10) + " " * 8)}
        with VizTracer(output_file={str(theirs)!r}, verbose=0, log_gc=False):
            sum(abs(number) for number in range(50))
            ours({str(ours)!r})
        """
    )
    assert "builtins.abs" in ranges(capsys, theirs)
    merge(theirs, ours, merged)
    capsys.readouterr()
    # The scope ran inside of the function that viztracer saw.
    found = ranges(capsys, merged)
    (around,) = (name for name in found if name.startswith("ours ("))
    lag = begin_ns(merged, "ours") - begin_ns(merged, around)
    assert 0 <= lag <= found[around]["total_ms"] * 1e6


@pytest.mark.torch
def test_a_trace_of_torch_is_read_and_lines_up_with_ours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], warm_torch: WarmTorch
) -> None:
    theirs, ours, merged = (tmp_path / name for name in ("torch.json", "ours.json", "all.json"))
    # Torch writes to standard error what it is doing.
    done = warm_torch.run(
        "-c",
        f"""
import time
import torch
from torch.profiler import profile, record_function
{OURS}
with profile() as recorded:
    with record_function("around"):
        torch.ones(64, 64) @ torch.ones(64, 64)
        ours({str(ours)!r})
recorded.export_chrome_trace({str(theirs)!r})
""",
    )
    assert done.returncode == 0, done.stderr
    assert "aten::mm" in ranges(capsys, theirs)
    merge(theirs, ours, merged)
    capsys.readouterr()
    lag = begin_ns(merged, "ours") - begin_ns(merged, "around")
    assert 0 <= lag <= ranges(capsys, merged)["around"]["total_ms"] * 1e6
    # On the wall clock it is where torch's own file says, to what microseconds can tell.
    assert abs(begin_ns(merged, "around") - begin_ns(theirs, "around")) <= 1000
