"""``gpuprof report``: the files it reads, the page it writes, and how it ends."""

from __future__ import annotations

import html
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import gpuprof
from tests.report.contents import COMPARED, CPU_ONLY, HISTORY, RESULTS, SHOWN, STATS, TWO_SIDES
from tests.support.benchmark_results import command
from tests.support.processes import environment
from tests.support.pytest_projects import TWO_TESTS, Project


def page_of(*arguments: str, output: str = "report.html") -> str:
    assert command("report", *arguments) == 0
    return Path(output).read_text(encoding="utf-8")


def keep(project: Project, file: str, *arguments: str) -> int:
    """Write to a file what a command prints as JSON, and return how it ends."""
    done = project.pytester.run(sys.executable, "-m", "gpuprof", *arguments, "--format", "json")
    Path(file).write_text("\n".join(done.outlines))
    return int(done.ret)


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert command("report", *arguments) == 2
    out, error = capsys.readouterr()
    assert not out
    assert not Path("report.html").exists()
    return error


def test_files_of_every_kind_become_one_page(capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.json").write_text(STATS.to_json())
    Path("eval.json").write_text(CPU_ONLY.to_json())
    Path("result.json").write_text(RESULTS[0].to_json())
    Path("compared.json").write_text(COMPARED.to_json())
    files = ("train.json", "eval.json", "result.json", "compared.json")
    text = page_of(*files, "-o", "out.html", "--title", "Nightly <1>", output="out.html")
    for expected in ("Scopes: train", "Scopes: eval", ">quick<", "ratio to base", ">SLOW<"):
        assert expected in text
    assert "<title>Nightly &lt;1&gt;</title>" in text
    out, error = capsys.readouterr()
    assert not out
    assert error.startswith("gpuprof: wrote out.html (")


def test_histories_are_shown_as_the_command_prints_them(project: Project) -> None:
    project.on_gpu(1.0)
    project.pytester.makepyfile(test_it=TWO_TESTS)
    project.save_runs()
    assert keep(project, "runs.json", "history", "test_it*") == 0
    Path("others.json").write_text(HISTORY.to_json())
    text = page_of("runs.json", "others.json")
    for expected in ("History: runs<", "History: others<", "test_it.py::test_b</h3>", "<circle"):
        assert expected in text


def test_files_of_one_name_are_told_apart() -> None:
    for place in ("a", "b"):
        Path(place).mkdir()
        Path(place, "stats.json").write_text(CPU_ONLY.to_json())
    text = page_of("a/stats.json", "b/stats.json")
    assert "Scopes: stats<" in text
    assert "Scopes: b/stats.json<" in text


def test_a_session_of_tests_is_shown_with_its_verdicts(project: Project) -> None:
    project.on_gpu(1.0)
    project.pytester.makepyfile(test_it=TWO_TESTS)
    project.run("--gpu-benchmark-json=out.json").assert_outcomes(passed=2)
    assert ">SLOW<" not in page_of("out.json")
    project.save_runs()
    project.times(1.0, fields=project.plan()["fields"], test_b=[1.6, 1.5])
    project.run("--gpu-benchmark-compare=main", "--gpu-benchmark-json=out.json")
    text = page_of("out.json")
    assert text.count(">SLOW<") == text.count(">SAME<") == 1
    assert "test_it.py::test_b" in text


def test_a_comparison_of_saved_runs_or_of_commands_is_shown(project: Project) -> None:
    project.on_gpu(1.0)
    project.pytester.makepyfile(test_it=TWO_TESTS)
    project.save_runs()
    project.times(1.0, fields=project.plan()["fields"], test_b=[1.6, 1.5])
    project.run("--gpu-benchmark-json=new.json")
    keep(project, "saved.json", "compare", "main", "new.json")
    text = page_of("saved.json")
    assert text.count(">SLOW<") == text.count(">SAME<") == 1
    for expected in (">Comparison</h2>", "baseline &#x27;main&#x27;", "SLOW test_it.py::test_b:"):
        assert expected in text

    nothing = f"{sys.executable} -c pass"
    keep(project, "commands.json", "ab", nothing, nothing, "--runs", "2")
    text = page_of("commands.json", "saved.json")
    assert text.count(">Comparison</h2>") == 2
    assert "-c pass (2 runs)" in text


def test_a_comparison_is_shown_as_text_and_with_what_only_one_side_has() -> None:
    Path("compared.json").write_text(json.dumps(TWO_SIDES))
    text = page_of("compared.json")
    assert html.escape(SHOWN) in text
    assert "<img" not in text
    for expected in ("only in base: gone", ">SAME, MEMORY, LAUNCHES<", "MEMORY grown", "a note"):
        assert expected in text


def test_the_page_can_go_to_the_standard_output(tmp_path: Path) -> None:
    Path("stats.json").write_text(CPU_ONLY.to_json())
    done = subprocess.run(
        [sys.executable, "-m", "gpuprof", "report", "stats.json", "-o", "-"],
        env=environment(None),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=True,
    )
    assert done.stdout.startswith("<!DOCTYPE html>")
    assert done.stdout.endswith("</html>\n")
    assert not done.stderr


def damaged(change: dict[str, Any]) -> str:
    return json.dumps({**STATS.to_dict(), **change})


def slower_by(change: dict[str, Any]) -> str:
    return json.dumps({**TWO_SIDES, "rows": [{**TWO_SIDES["rows"][0], **change}]})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "cannot be used"),
        ("[]", "neither a file of --gpu-benchmark-json nor a result"),
        ('{"format": "other"}', "its format is 'other'"),
        (damaged({"version": 9}), "'version': 9"),
        (damaged({"rows": [{}]}), "Stats.rows[0]: 'path' is missing"),
        (damaged({"rows": 3}), "Stats.rows: expected a list, got 3"),
        (damaged({"memory": [{}]}), "Stats.memory[0].device: expected a str, got None"),
        (json.dumps({**COMPARED.to_dict(), "rows": [{}]}), "rows[0]: 'result' is missing"),
        ('{"benchmarks": []}', "it holds no benchmark"),
        ('{"benchmarks": [3]}', "benchmarks[0] has no object 'gpuprof'"),
        ('{"format": "gpuprof-comparison", "version": 1, "base": {}}', "'rounds' is missing"),
        (json.dumps({**TWO_SIDES, "version": 2}), "another gpuprof may have written it"),
        (json.dumps({**TWO_SIDES, "rows": [3]}), "Comparison.rows[0]: expected a mapping"),
        (slower_by({"base_ms": "long"}), "rows[0].decision.base"),
        (slower_by({"interval": [1.0]}), "decision.interval: expected 2 values, got 1"),
        (slower_by({"verdict": "slowest"}), "'slowest'"),
        (
            json.dumps({**HISTORY.to_dict(), "series": [3]}),
            "series[0]: expected what to_dict() returns",
        ),
        (json.dumps({**HISTORY.to_dict(), "version": 2}), "'version': 2"),
        ("[" * 100_000, "nested deeper"),
    ],
)
def test_a_file_that_cannot_be_shown_is_named(
    text: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("good.json").write_text(STATS.to_json())
    Path("bad.json").write_text(text)
    error = complaint(capsys, "good.json", "bad.json")
    assert "bad.json" in error
    assert why in error
    assert len(error.splitlines()) == 1


def test_a_missing_file_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert "missing.json' cannot be read" in complaint(capsys, "missing.json")


def test_an_output_that_cannot_be_written_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    Path("stats.json").write_text(gpuprof.Stats([]).to_json())
    assert command("report", "stats.json", "-o", "missing/out.html") == 1
    assert "missing/out.html" in capsys.readouterr().err
