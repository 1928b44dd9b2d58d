"""``gpuprof list``, and ``gpuprof compare --format csv``: for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpuprof import BenchResult
from tests.cli.conftest import Call, printed, refusal
from tests.support.benchmark_results import csv_lines, saved
from tests.support.pytest_projects import GPU_MACHINE, made_up

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Two baselines, the first of two kinds of machine, saved after the second."""
    found = tmp_path / ".gpuprof"
    for day in (1, 2):
        append(found, "main", day, made_up(1.0, name="a"), made_up(2.0, name="b"), commit=COMMIT)
    on_gpu = made_up(0.5, name="a", mode="graph", clock="cuda", l2="hot", machine=GPU_MACHINE)
    append(found, "main", 4, on_gpu)
    odd = made_up(3.0, name='=1+1 \x1b[31m,"\n', extra_info={"dtype": "int8"}, params={"n": 3})
    append(found, "odd", 3, odd)
    return found


def append(
    store: Path, name: str, day: int, *results: BenchResult, commit: str | None = None
) -> None:
    saved(name, f"2026-11-{day:02d}T00:00:00+00:00", *results, commit=commit, folder=store)


def test_the_baselines_are_listed_the_last_saved_at_the_end(store: Path, call: Call) -> None:
    out = printed(call("list"))
    lines = out.splitlines()
    assert lines[0].split() == ["baseline", "machine", "runs", "benchmarks", "saved", "commit"]
    assert [line.split()[:4] for line in lines[2:]] == [
        ["main", "cpu-Test-CPU", "2", "2"],
        ["odd", "cpu-Test-CPU", "1", "1"],
        ["main", "Test-GPU", "1", "1"],
    ]
    assert lines[2].split()[4:] == ["2026-11-02T00:00:00+00:00", COMMIT[:12]]


def test_a_baseline_has_a_line_for_each_benchmark_of_each_run(store: Path, call: Call) -> None:
    code, out, _ = call("list", "main")
    assert code == 0
    found = [line.split() for line in out.splitlines()[2:]]
    assert [(line[0], line[1], line[2]) for line in found] == [
        ("a", "1", "500"),
        ("a", "1", "1.00"),
        ("a", "2", "1.00"),
        ("b", "1", "2.00"),
        ("b", "2", "2.00"),
    ]
    _, markdown, _ = call("list", "main", "--format", "markdown")
    assert markdown.startswith("| benchmark | run |")


def test_csv_has_the_figures_in_seconds_and_a_column_for_each_parameter(
    store: Path, call: Call
) -> None:
    (odd,) = csv_lines(call("list", "odd", "--format", "csv")[1])
    assert odd["benchmark"] == '=1+1 \\x1b[31m,"\\x0a'
    assert (odd["params_n"], odd["extra_info_dtype"]) == ("3", "int8")
    assert float(odd["median"]) == made_up(3.0).median_ms / 1e3
    assert (odd["rounds"], odd["iterations"], odd["mode"]) == ("45", "1", "cpu")
    assert (odd["commit"], odd["machine"]) == ("", "cpu-Test-CPU")
    main_rows = csv_lines(call("list", "main", "--format", "csv")[1])
    assert [row["run"] for row in main_rows] == ["1", "1", "2", "1", "2"]
    assert main_rows[1]["commit"] == COMMIT
    baselines = csv_lines(call("list", "--format", "csv")[1])
    assert [row["runs"] for row in baselines] == ["2", "1", "1"]


def test_json_has_the_same(store: Path, call: Call) -> None:
    found = json.loads(call("list", "odd", "--format", "json")[1])
    assert (found["format"], found["version"], found["unit"]) == ("gpuprof-list", 1, "s")
    (row,) = found["rows"]
    assert row["params"] == {"n": 3}
    assert row["median"] == made_up(3.0).median_ms / 1e3
    (name, *_) = json.loads(call("list", "--format", "json")[1])["rows"]
    assert name["baseline"] == "main"


def test_a_file_is_listed_as_compare_reads_it(call: Call) -> None:
    Path("one.json").write_text(made_up(1.0).to_json(), encoding="utf-8")
    (row,) = csv_lines(call("list", "one.json", "--format", "csv")[1])
    assert row["benchmark"] == "made up"


@pytest.mark.parametrize("form", ["text", "markdown", "csv", "json"])
def test_nothing_saved_is_no_error(call: Call, form: str) -> None:
    out = printed(call("list", "--format", form))
    if form == "csv":
        assert out == ""
    elif form == "json":
        assert json.loads(out)["rows"] == []
    else:
        assert out == "no baseline is saved in .gpuprof\n"


def test_an_unknown_name_and_a_damaged_file_are_wrong_usage(store: Path, call: Call) -> None:
    err = refusal(call("list", "mian"))
    assert "'mian' is neither a file nor a baseline" in err
    assert "'main'" in err
    (file,) = store.glob("baselines/odd/*.jsonl")
    file.write_text("{", encoding="utf-8")
    for arguments in (["list"], ["list", "odd"]):
        err = refusal(call(*arguments))
        assert "cannot be used" in err
    assert call("list", "main")[0] == 0


def test_another_storage_folder_and_no_empty_one(store: Path, call: Call) -> None:
    assert call("list", "--storage", str(store))[1].count("\n") == 5
    assert call("list", "--storage", "")[0] == 2


def test_compare_writes_csv(store: Path, call: Call) -> None:
    append(store, "new", 5, made_up(2.0, name="a"), made_up(2.0, name="c\x1b,"))
    code, out, err = call("compare", "main", "new", "--format", "csv")
    assert (code, err) == (1, "")
    found = {row["name"]: row for row in csv_lines(out)}
    assert list(found) == ["a", "b", "c\\x1b,"]
    assert found["a"]["verdict"] == "slow"
    assert float(found["a"]["base_ms"]) == made_up(1.0).median_ms
    assert float(found["a"]["ratio"]) == pytest.approx(2.0)
    assert float(found["a"]["interval_low"]) < 2.0 < float(found["a"]["interval_high"])
    assert found["a"]["machine"] == "cpu-Test-CPU"
    assert (found["b"]["verdict"], found["b"]["rule"]) == ("nodata", "only in base")
    assert (found["c\\x1b,"]["base_ms"], found["c\\x1b,"]["rule"]) == ("", "only in new")
