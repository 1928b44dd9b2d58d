"""``gpuprof save``: a file's runs in a baseline, in a folder or in git."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Call, printed, refusal
from tests.support.benchmark_results import saved, stored
from tests.support.pytest_projects import made_up

DATE = "2026-11-01T08:00:00+00:00"


@pytest.fixture
def file() -> Path:
    """A file with a run of a commit."""
    one = made_up(1.0, created=DATE).to_dict()
    entry = {"fullname": "test_x", "gpuprof": {"result": one}}
    content = {"benchmarks": [entry], "commit_info": {"id": "abc"}}
    path = Path("new.json")
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def test_the_run_of_a_file_is_added_to_a_baseline(call: Call, file: Path) -> None:
    saved("main", "2026-10-01T08:00:00+00:00", made_up(1.0))
    out = printed(call("save", "main", str(file)))
    (runs,) = stored("main").values()
    assert [run.created for run in runs] == ["2026-10-01T08:00:00+00:00", DATE]
    assert [run.commit for run in runs] == [None, "abc"]
    (path,) = Path(".gpuprof").rglob("*.jsonl")
    assert out == f"saved 1 benchmark of {DATE} as main in {path}\n"


@pytest.mark.parametrize("store", [(), ("--storage", "git:refs/gpuprof")])
def test_a_run_that_is_there_is_left_out(call: Call, file: Path, store: tuple[str, ...]) -> None:
    subprocess.run(["git", "init", "-q"], check=True)
    save = ("save", "main", str(file), *store)
    call(*save)
    code, out, _ = call(*save)
    assert (code, out) == (0, f"left out 1 benchmark of {DATE}: main has that run\n")
    call(*save, "--commit", "v2")
    rows = json.loads(call("list", "main", *store, "--format", "json")[1])["rows"]
    assert sorted(row["commit"] for row in rows) == ["abc", "v2"]


def test_the_commit_that_is_given_is_that_of_the_run(call: Call, file: Path) -> None:
    assert call("save", "new", str(file), "--commit", "v2")[0] == 0
    (runs,) = stored("new").values()
    assert [run.commit for run in runs] == ["v2"]


def test_a_store_in_git_takes_them_as_well(call: Call, file: Path) -> None:
    subprocess.run(["git", "init", "-q"], check=True)
    store = ("--storage", "git:refs/gpuprof")
    assert call("save", "main", str(file), *store)[0] == 0
    rows = json.loads(call("list", "main", *store, "--format", "json")[1])["rows"]
    assert [row["saved"] for row in rows] == [DATE]


@pytest.mark.parametrize(
    ("name", "what", "text"),
    [
        ("..", "FILE", "a baseline cannot be called '..'"),
        ("main", "nowhere.json", "'nowhere.json' cannot be read: No such file"),
        ("main", "odd.json", "neither a file of --gpu-benchmark-json nor a result"),
    ],
)
def test_what_cannot_be_saved_is_refused(
    call: Call, file: Path, name: str, what: str, text: str
) -> None:
    Path("odd.json").write_text("{}", encoding="utf-8")
    err = refusal(call("save", name, str(file) if what == "FILE" else what))
    assert text in err
    assert not Path(".gpuprof").exists()
