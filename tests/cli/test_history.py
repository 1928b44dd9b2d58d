"""``gpuprof history``: what it prints and writes, and how it ends."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.cli.conftest import Call, printed, refusal
from tests.support.benchmark_results import bench, saved


@pytest.fixture
def call(call: Call) -> Call:
    return partial(call, "history")


@pytest.fixture
def _saved() -> None:
    """Twelve runs of two benchmarks, of which one becomes slower with the seventh."""
    machine = {"gpu": "NVIDIA H200", "sms": 132}
    for day in range(1, 13):
        created = f"2026-11-{day:02d}T08:00:00+00:00"
        step = (1.1 if day > 6 else 1.0) * (1.0 + 0.001 * (day % 4))
        results = [
            bench(name, [ms] * 40, machine=machine, created=created)
            for name, ms in (("test_step", step), ("test_load", 1.0 + 0.001 * (day % 3)))
        ]
        saved("main", created, *results, commit=f"{day:02d}" * 20)


@pytest.mark.usefixtures("_saved")
def test_it_prints_a_plot_for_each_benchmark_and_the_run_where_it_changed(call: Call) -> None:
    out = printed(call())
    load, step = out.split("\n\n")
    assert load.splitlines()[0] == "test_load (baseline 'main', NVIDIA-H200)"
    assert load.splitlines()[-1] == "no change found in 12 runs"
    assert "changed at run 7 of 12, 2026-11-07T08:00:00+00:00, 0707070707, NVIDIA H200" in step
    assert "+10.0 %" in step.splitlines()[1]


@pytest.mark.usefixtures("_saved")
def test_a_name_selects(call: Call) -> None:
    assert call("test_step")[1] == call("*step")[1]
    assert "test_load" not in call("test_step")[1]
    err = refusal(call("nope"), code=1)
    assert err == "gpuprof: no saved benchmark is called 'nope'; there are test_load, test_step\n"


@pytest.mark.usefixtures("_saved")
def test_it_writes_svg_json_and_csv(call: Call, tmp_path: Path) -> None:
    code, out, err = call("--svg", "plot.svg")
    assert (code, out, err) == (0, "", "wrote plot.svg\n")
    ElementTree.parse(tmp_path / "plot.svg")
    code, out, err = call("test_step", "--format", "json", "--svg", "plot.svg")
    assert code == 0
    assert json.loads(out)["series"][0]["changes"][0]["index"] == 6
    code, out, _ = call("--format", "csv")
    assert (code, len(out.splitlines())) == (0, 25)


@pytest.mark.usefixtures("_saved")
def test_the_threshold_hides_small_changes(call: Call) -> None:
    assert "changed at" not in call("--threshold", "20%")[1]


def test_without_saved_runs_it_says_how_to_save_one(call: Call) -> None:
    err = refusal(call("--storage", "elsewhere"), code=1)
    assert "nothing is saved in elsewhere: pytest --gpu-benchmark-save=NAME" in err


@pytest.mark.usefixtures("_saved")
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--baseline", "other"], 1, "no baseline is called 'other'"),
        (["--baseline", "../x"], 1, "a baseline cannot be called"),
        (["--svg", "."], 2, "--svg: expected a file, got the folder ."),
        (["--svg", "missing/plot.svg"], 1, "No such file or directory: 'missing/plot.svg'"),
        (["--threshold", "x"], 2, "expected a number from 0 to 1"),
        (["--storage", ""], 2, "expected a non-empty str"),
    ],
)
def test_wrong_usage(call: Call, arguments: list[str], code: int, said: str) -> None:
    assert said in refusal(call(*arguments), code=code)
