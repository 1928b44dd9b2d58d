"""Baselines in a git ref: saved, compared, dropped, and joined with those of a remote."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

import gpuprof
from gpuprof.errors import BaselineError
from tests.support.benchmark_results import answer, bench, saved

STORE = "git:refs/gpuprof"
MACHINE = {"gpu": "NVIDIA H200", "sms": 132}
FILE = "main/NVIDIA-H200.jsonl"
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    return partial(answer, capsys)


def git(folder: Path, *arguments: str, data: str = "") -> str:
    identity = ["-c", "user.name=n", "-c", "user.email=a@b.invalid"]
    done = subprocess.run(
        ["git", *identity, *arguments],
        cwd=folder,
        check=True,
        capture_output=True,
        input=data,
        text=True,
        timeout=60,
    )
    return done.stdout.strip()


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q", "--bare", "remote")
    return tmp_path / "remote"


def clone(remote: Path, name: str) -> Path:
    folder = remote.with_name(name)
    git(remote.parent, "clone", "-q", str(remote), name)
    (folder / "file").write_text("text", encoding="utf-8")
    git(folder, "add", "file")
    git(folder, "commit", "-q", "-m", "first")
    return folder


@pytest.fixture
def here(remote: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = clone(remote, "here")
    monkeypatch.chdir(folder)
    return folder


def save(day: int, ms: float = 1.0, name: str = "main") -> None:
    created = f"2026-{1 + day // 28:02d}-{1 + day % 28:02d}T08:00:00+00:00"
    result = bench("test_step", [ms] * 30, machine=MACHINE, created=created)
    saved(name, created, result, commit=f"{day:040x}", folder=STORE)


def days() -> list[int]:
    (series,) = gpuprof.history(STORE).series
    return [int(point.commit or "", 16) for point in series.points]


def damage(folder: Path, line: str) -> None:
    """Let the file of the baseline have this line at its end."""
    blob = git(
        folder, "hash-object", "-w", "--stdin", data=f"{git(folder, 'show', BLOB)}\n{line}\n"
    )
    inner = git(folder, "mktree", data=f"100644 blob {blob}\t{FILE.split('/')[1]}\n")
    outer = git(folder, "mktree", data=f"040000 tree {inner}\tmain\n")
    commit = git(folder, "commit-tree", outer, "-m", "by hand")
    git(folder, "update-ref", REF, commit)


REF = "refs/gpuprof/runs"
BLOB = f"{REF}:{FILE}"


def test_a_run_is_a_line_and_nothing_else_of_the_repository_changes(here: Path) -> None:
    (here / "file").write_text("changed", encoding="utf-8")
    before = git(here, "status", "--porcelain"), git(here, "branch", "-a"), git(here, "log")
    for day in range(3):
        save(day)
    assert days() == [0, 1, 2]
    assert len(git(here, "show", BLOB).splitlines()) == 3
    assert git(here, "ls-tree", "-r", "--name-only", REF) == FILE
    after = git(here, "status", "--porcelain"), git(here, "branch", "-a"), git(here, "log")
    assert after == before
    assert not (here / ".gpuprof").exists()


def test_all_runs_are_kept_and_the_last_ones_are_read(here: Path) -> None:
    for day in range(44):
        save(day)
    assert days() == [*range(4, 44)]
    assert len(git(here, "show", BLOB).splitlines()) == 44


@pytest.mark.usefixtures("here")
def test_processes_that_save_at_once_lose_nothing() -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(save, range(8)))
    assert days() == [*range(8)]


def test_two_clones_are_joined_by_the_union_of_their_lines(
    here: Path, remote: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = clone(remote, "there")
    assert call("sync") == (0, f"nothing is saved in {STORE}, here and in origin\n", "")
    save(1)
    save(3)
    assert call("sync", "origin") == (0, f"{STORE} is joined with that of origin, and pushed\n", "")
    monkeypatch.chdir(there)
    save(2)
    save(4)
    assert call("sync")[0] == 0
    assert days() == [1, 2, 3, 4]
    monkeypatch.chdir(here)
    assert days() == [1, 3]
    assert call("sync")[0] == 0
    assert days() == [1, 2, 3, 4]
    assert call("sync") == (0, f"{STORE} is as in origin\n", "")
    assert git(remote, "for-each-ref", "--format=%(refname)") == REF


def test_a_push_that_comes_too_late_is_done_again(
    here: Path, remote: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = clone(remote, "there")
    save(1)
    assert call("sync")[0] == 0
    monkeypatch.chdir(there)
    assert call("sync")[0] == 0
    save(2)
    # Before the push from here, somebody pushes from there.
    hook = here / ".git" / "hooks" / "pre-push"
    hook.write_text(
        f"#!/bin/sh\nrm {hook}\nunset GIT_DIR\nexec git -C {there} push -q origin {REF}:{REF}\n",
        encoding="utf-8",
    )
    hook.chmod(0o755)
    monkeypatch.chdir(here)
    save(3)
    assert call("sync")[0] == 0
    assert not hook.exists()
    assert days() == [1, 2, 3]
    assert len(git(remote, "show", BLOB).splitlines()) == 3


def test_a_dropped_run_stays_dropped_after_a_join(
    here: Path, remote: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = clone(remote, "there")
    save(1)
    save(2)
    assert call("sync")[0] == 0
    monkeypatch.chdir(there)
    assert call("sync")[0] == 0
    code, out, _ = call("drop", "main", "1", "--storage", STORE)
    assert (code, out.startswith("dropped from main (NVIDIA-H200): the run of 2026-01-02")) == (
        0,
        1,
    )
    assert days() == [2]
    assert call("sync")[0] == 0
    monkeypatch.chdir(here)
    assert days() == [1, 2]
    assert call("sync")[0] == 0
    assert days() == [2]
    assert len(git(here, "show", BLOB).splitlines()) == 3


@pytest.mark.usefixtures("here")
def test_the_commands_read_the_store(call: Call) -> None:
    for day in range(6):
        save(day)
        save(day, 1.5, "new")
    code, out, _ = call("compare", "main", "new", "--storage", STORE)
    assert (code, "SLOW test_step: " in out) == (1, True)
    code, out, _ = call("list", "--storage", STORE)
    assert [line.split()[0] for line in out.splitlines()[-2:]] == ["main", "new"]
    assert call("history", "--storage", STORE, "--baseline", "new")[0] == 0
    code, _, err = call("history", "--storage", STORE, "--baseline", "other")
    assert code == 1
    assert "no baseline is called 'other' in git:refs/gpuprof: there are main, new" in err


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "line 2 cannot be used: Expecting"),
        ("[1]", "line 2 cannot be used: it is neither a run nor one that was dropped"),
        ('{"created": "2027", "results": {"x": 3}}', "line 2 cannot be used: .*is missing"),
        ("[" * 40 + "]" * 40, "line 2 cannot be used: it is nested deeper than 32 levels"),
    ],
)
def test_a_bad_line_is_named(here: Path, line: str, why: str) -> None:
    save(1)
    damage(here, line)
    with pytest.raises(BaselineError, match=rf"^git:refs/gpuprof:main/NVIDIA-H200\.jsonl, {why}"):
        gpuprof.history(STORE)


def test_an_object_that_is_not_there_is_named(here: Path) -> None:
    save(1)
    submodule = f"160000 commit {'1' * 40}\t{FILE.split('/')[1]}\n"
    inner = git(here, "mktree", "--missing", data=submodule)
    outer = git(here, "mktree", data=f"040000 tree {inner}\tmain\n")
    git(here, "update-ref", REF, git(here, "commit-tree", outer, "-m", "by hand"))
    with pytest.raises(BaselineError, match=r"main/NVIDIA-H200\.jsonl is no file in this"):
        gpuprof.history(STORE)


@pytest.mark.parametrize(
    "store",
    [
        *("git:", "git:main", "git:refs/heads/main", "git:refs/tags", "git:--x", "git:refs/a..b"),
        "git:refs/gpüprof",
    ],
)
@pytest.mark.usefixtures("here")
def test_only_a_ref_of_its_own_is_a_store(store: str, call: Call) -> None:
    for command in (["history"], ["list"], ["sync"], ["drop", "main", "1"]):
        code, out, err = call(*command, "--storage", store)
        assert (code in {1, 2}, out) == (True, "")
        assert store in err


def test_without_a_repository_or_git_it_says_so(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    code, _, err = call("history", "--storage", STORE)
    assert (code, "git for-each-ref failed: not a git repository" in err) == (1, True)
    monkeypatch.setenv("PATH", os.devnull)
    code, _, err = call("list", "--storage", STORE)
    assert (code, "git:refs/gpuprof needs git, which cannot be run" in err) == (2, True)


@pytest.mark.usefixtures("here")
def test_a_remote_that_is_none_is_an_error(call: Call) -> None:
    save(1)
    code, _, err = call("sync", "nowhere")
    assert (code, "git ls-remote failed: 'nowhere' does not appear" in err) == (1, True)
    assert call("sync", "--", "--upload-pack=x")[2].endswith("is no remote of git\n")
    code, _, err = call("sync", "--storage", ".gpuprof")
    assert (code, ".gpuprof is a folder" in err) == (1, True)
