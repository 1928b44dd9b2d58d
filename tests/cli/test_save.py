"""``gpuprof save``: a file's runs in a baseline, in a folder or in git."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Call
from tests.support.benchmark_results import saved, stored
from tests.support.pytest_projects import made_up

DATES = [f"2026-11-0{day}T08:00:00+00:00" for day in (1, 2)]


@pytest.fixture
def file() -> Path:
    """A file with two runs, as a baseline holds them; nothing else is saved."""
    folder = Path("elsewhere")
    for date, ms in zip(DATES, (1.0, 2.0), strict=True):
        saved("any", date, made_up(ms), commit="abc", folder=folder)
    (found,) = folder.rglob("*.json")
    return found


def test_the_runs_of_a_file_are_added_to_a_baseline(call: Call, file: Path) -> None:
    saved("main", "2026-10-01T08:00:00+00:00", made_up(1.0))
    code, out, err = call("save", "main", str(file))
    assert (code, err) == (0, "")
    (runs,) = stored("main").values()
    assert [run.created for run in runs] == ["2026-10-01T08:00:00+00:00", *DATES]
    assert [run.commit for run in runs] == [None, "abc", "abc"]
    (path,) = Path(".gpuprof").rglob("*.json")
    lines = [f"saved 1 benchmark of {date} as main in {path}" for date in DATES]
    assert out.splitlines() == lines


@pytest.mark.parametrize("store", [(), ("--store", "git:refs/gpuprof")])
def test_a_run_that_is_there_is_left_out(call: Call, file: Path, store: tuple[str, ...]) -> None:
    subprocess.run(["git", "init", "-q"], check=True)
    save = ("save", "main", str(file), *store)
    call(*save)
    code, out, _ = call(*save)
    assert code == 0
    assert out.splitlines() == [
        f"left out 1 benchmark of {date}: main has that run" for date in DATES
    ]
    call(*save, "--commit", "v2")
    rows = json.loads(call("list", "main", *store, "--format", "json")[1])["rows"]
    assert sorted(row["commit"] for row in rows) == ["abc", "abc", "v2", "v2"]


def test_the_commit_that_is_given_is_that_of_all_runs(call: Call, file: Path) -> None:
    assert call("save", "new", str(file), "--commit", "v2")[0] == 0
    (runs,) = stored("new").values()
    assert [run.commit for run in runs] == ["v2", "v2"]


def test_a_store_in_git_takes_them_as_well(call: Call, file: Path) -> None:
    subprocess.run(["git", "init", "-q"], check=True)
    store = ("--store", "git:refs/gpuprof")
    assert call("save", "main", str(file), *store)[0] == 0
    rows = json.loads(call("list", "main", *store, "--format", "json")[1])["rows"]
    assert [row["saved"] for row in rows] == DATES


@pytest.mark.parametrize(
    ("name", "what", "text"),
    [
        ("..", "FILE", "a baseline cannot be called '..'"),
        ("main", "nowhere.json", "'nowhere.json' cannot be read: No such file"),
        ("main", "odd.json", "neither a baseline, nor a file of --gpu-benchmark-json"),
    ],
)
def test_what_cannot_be_saved_is_refused(
    call: Call, file: Path, name: str, what: str, text: str
) -> None:
    Path("odd.json").write_text("{}", encoding="utf-8")
    code, out, err = call("save", name, str(file) if what == "FILE" else what)
    assert (code, out) == (2, "")
    assert text in err
    assert not Path(".gpuprof").exists()
