"""What the page on graphed callables shows of a result."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def page(benchmark_scripts: Path) -> Any:
    return importlib.import_module("render").PAGES["callable"]


@pytest.fixture
def result(results: Any) -> Any:
    rows = [
        results.Row("host, a model: gpuprof", 3000.0, "ns"),
        results.Row("a model: gpuprof", 9.5, "us"),
        results.Row("a model: gpuprof, beside torch's", 9.5, "us"),
        results.Row("a model: gpuprof, host time", 3.25, "us"),
    ]
    machine = {"gpu": "Some GPU", "driver": "580.1", "cpu": "Some CPU", "os": "Linux"}
    versions = {"python": "3.12.3", "gpuprof": "0.1.0", "torch": "2.11.0"}
    return results.Result("graphs_callable", "2026-01-31", machine, versions, rows, ["a note"])


def test_a_row_has_the_three_times_of_a_call(page: Any, result: Any, results: Any) -> None:
    results.validate(result.to_dict())
    shown = page.render([result]).splitlines()
    assert shown[0].startswith("Measured on 2026-01-31 on an Some GPU, driver 580.1 (python")
    assert "|  | a call, in a loop | host time |" in shown
    assert [line for line in shown if line.startswith("| a model")] == [
        "| a model: gpuprof | 9.50 µs | 3.25 µs |"
    ]
    assert not any("beside" in line or line.startswith("| host") for line in shown)
    assert "- A note." in shown


def test_results_of_other_scripts_are_not_shown(page: Any, result: Any) -> None:
    other = page.render([replace(result, script="timing_import")])
    assert other == "Nothing has been measured yet.\n"
