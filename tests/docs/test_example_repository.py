"""The example repository, run whole as its workflow says: save, change, verdict, comment.

Each job is a new clone, as on a machine of CI. What it takes from outside stands for the real
thing: `pip` notes what it is to install, `gh` keeps the comment, and the source of gpuprof is a
folder with a test that must not be collected.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gpuprof
from tests.support.processes import ROOT, run_command

EXAMPLE = ROOT / "docs" / "examples" / "library"
WORKFLOWS = EXAMPLE / ".github" / "workflows"
PAGE = ROOT / "docs" / "ci.md"
PROGRAMS = {
    "python": 'exec {python} "$@"',
    "gpuprof": 'exec {python} -m gpuprof "$@"',
    "pip": 'echo "$*" >>{log}\ntest "$1" = install || mkdir "$4"\ntouch .tools/wheels/gpuprof-1-any.whl',  # noqa: E501
    "gh": 'echo "$*" >>{log}\ncat comment.md >{comment}',
}

Job = Callable[[str, str], int]


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=n", "-c", "user.email=a@b.invalid", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", *identity, *arguments],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout


def steps_of(name: str) -> list[dict[str, Any]]:
    yaml = pytest.importorskip("yaml")
    (job,) = yaml.safe_load((WORKFLOWS / name).read_text(encoding="utf-8"))["jobs"].values()
    return [*job["steps"]]


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    """A server's repository, whose main branch is the example; `change` has made it slower."""
    work, found = tmp_path / "work", tmp_path / "remote"
    shutil.copytree(EXAMPLE, work)
    git(tmp_path, "init", "-q", "--bare", "-b", "main", str(found))
    git(work, "init", "-q", "-b", "main")
    git(work, "add", ".")
    git(work, "commit", "-qm", "base")
    git(work, "push", "-q", str(found), "main")
    git(work, "checkout", "-q", "-b", "change")
    git(work, "apply", "slower.patch")
    git(work, "commit", "-qam", "change")
    git(work, "push", "-q", str(found), "change")
    return found


@pytest.fixture
def run_job(remote: Path, tmp_path: Path) -> Job:
    """Run the workflow of the history for an event, on a branch; return the job's exit code."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in PROGRAMS.items():
        filled = text.format(
            python=shlex.quote(sys.executable), log=tmp_path / "log", comment=tmp_path / "comment"
        )
        (programs / name).write_text(f"#!/bin/sh\n{filled}\n", encoding="utf-8")
        (programs / name).chmod(0o755)
    variables = {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(Path(gpuprof.__file__).parents[1]),
        "PYTHONDONTWRITEBYTECODE": "1",
        # No other plugin: those that are installed here take longer to load than all else.
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_PLUGINS": "gpuprof._pytest.plugin",
        # What is slower takes 50 times as long, for which a median known to 10 % is enough.
        "PYTEST_ADDOPTS": "--gpu-benchmark-precision=0.1",
        "GIT_CONFIG_GLOBAL": os.devnull,  # as where nobody has a name yet
    }

    def run(event: str, branch: str) -> int:
        folder = tmp_path / f"job{len([*tmp_path.glob('job*')])}"
        code = 0
        for step in steps_of("history.yml"):
            if not is_due(step.get("if", ""), event, code):
                continue
            if step.get("uses", "").startswith("actions/checkout"):
                check_out(step.get("with", {}), remote, branch, folder)
            if "run" in step:
                own = {
                    name: re.sub(r"\$\{\{.*?\}\}", "7", text)
                    for name, text in step.get("env", {}).items()
                }
                command = ("bash", "-e", "-c", step["run"])
                done = run_command(*command, cwd=folder, timeout=240, **variables, **own)
                print(done.stdout, done.stderr)  # pytest shows it where the test fails
                code = code or done.returncode
        return code

    return run


def is_due(condition: str, event: str, code: int) -> bool:
    """Return whether a step with this condition is run; one that is not known fails the test."""
    parts = condition.split(" && ") if condition else []
    if "always()" in parts:
        parts.remove("always()")
    elif code:
        return False
    wanted = [re.fullmatch(r"github\.event_name == '(\w+)'", part) for part in parts]
    return all(found is not None and found[1] == event for found in wanted)


def check_out(options: dict[str, Any], remote: Path, branch: str, folder: Path) -> None:
    if "repository" not in options:
        git(remote, "clone", "-q", "--depth=1", f"--branch={branch}", remote.as_uri(), str(folder))
        return
    tests = folder / options["path"] / "tests"
    tests.mkdir(parents=True)
    (tests / "test_of_gpuprof.py").write_text("raise SystemExit('collected')", encoding="utf-8")


def test_the_example_is_saved_changed_judged_and_commented(
    run_job: Job, remote: Path, tmp_path: Path
) -> None:
    comment = tmp_path / "comment"
    # The pull request that adds the files has nothing to be compared with.
    assert run_job("pull_request", "main") == 0
    assert comment.read_text(encoding="utf-8").startswith("No run of the main branch is saved")
    comment.unlink()

    # With five runs the verdict is on what neighbours do not change.
    assert [run_job("push", "main") for _ in range(5)] == [0] * 5
    assert not comment.exists()
    (saved,) = git(remote, "ls-tree", "-r", "--name-only", "refs/gpuprof/runs").split()
    assert len(git(remote, "show", f"refs/gpuprof/runs:{saved}").splitlines()) == 5

    assert run_job("pull_request", "change") == 1
    said = comment.read_text(encoding="utf-8")
    lines = [line for line in said.splitlines() if line.startswith("| test_tables.py::")]
    assert [line.split()[1] for line in lines] == [
        "test_tables.py::test_ranks",
        "test_tables.py::test_dump",
    ]
    assert lines[0].endswith(" SLOW |")
    notes = (tmp_path / "log").read_text(encoding="utf-8").splitlines()
    assert [note for note in notes if note.startswith("pr comment 7 ")]
    # What is installed are files that are there, and a name that is nobody else's.
    installed = [note.split()[1:] for note in notes if note.startswith("install ")]
    assert installed == [[".tools/wheels/gpuprof-1-any.whl", "pytest", "."]] * 7


@pytest.mark.parametrize(
    "name",
    [
        "compare_base.sh",
        "performance.sh",
        ".github/workflows/performance.yml",
        ".github/workflows/history.yml",
    ],
)
def test_the_page_prints_the_files_of_the_example(name: str) -> None:
    language = "sh" if name.endswith(".sh") else "yaml"
    text = (EXAMPLE / name).read_text(encoding="utf-8")
    assert f"```{language}\n{text}```\n" in PAGE.read_text(encoding="utf-8")
