"""The recipe of the page on CI, run as it stands there on a repository with two commits.

tests/docs/test_example_repository.py runs the one that keeps a history.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import gpuprof
from tests.support.processes import ROOT, environment

PAGE = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")

# What is measured: two scopes, of which the second commit makes one slower.
BENCH = """
import sys, time
import gpuprof
import work
for _ in range(5):
    with gpuprof.timer("parse", backend="cpu"):
        work.parse()
    with gpuprof.timer("total", backend="cpu"):
        work.total()
with open(sys.argv[1], "w") as file:
    file.write(gpuprof.stats().to_json())
"""
WORK = """
import time
def parse():
    time.sleep(0.004)
def total():
    time.sleep({seconds})
"""
# In place of the real one: a virtual environment without an installation, which needs a network.
PYTHON3 = """#!/bin/sh
test "$1 $2" = "-m venv" || exit 9
mkdir -p "$3/bin"
cat > "$3/bin/python" <<'END'
#!/bin/sh
if test "$1 $2" = "-m pip"; then echo "$*" >> {log}; exit 0; fi
exec {python} "$@"
END
chmod +x "$3/bin/python"
"""
GPUPROF = '#!/bin/sh\nexec {python} -m gpuprof "$@"\n'

Recipe = Callable[..., subprocess.CompletedProcess[str]]


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=n", "-c", "user.email=a@b.invalid", "-c", "commit.gpgsign=false"]
    return subprocess.run(
        ["git", *identity, *arguments],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository whose branch `change` has made `total` slower."""
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "bench.py").write_text(BENCH, encoding="utf-8")
    (folder / "work.py").write_text(WORK.format(seconds=0.002), encoding="utf-8")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "base")
    git(folder, "checkout", "-q", "-b", "change")
    (folder / "work.py").write_text(WORK.format(seconds=0.02), encoding="utf-8")
    git(folder, "commit", "-qam", "change")
    return folder


@pytest.fixture
def recipe(repository: Path, tmp_path: Path) -> Recipe:
    """Return the script of the page as a function, run beside stand-ins for two programs."""
    found = re.search(r"<!-- recipe -->\n```sh\n(.*?)^```$", PAGE, re.M | re.S)
    assert found
    python = shlex.quote(sys.executable)
    (tmp_path / "recipe.sh").write_text(found[1], encoding="utf-8")
    (tmp_path / "scratch").mkdir()
    (tmp_path / "bin").mkdir()
    for name, text in {"python3": PYTHON3, "gpuprof": GPUPROF}.items():
        path = tmp_path / "bin" / name
        path.write_text(text.format(python=python, log=tmp_path / "pip"), encoding="utf-8")
        path.chmod(0o755)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", str(tmp_path / "recipe.sh"), *arguments],
            cwd=repository,
            env=environment(
                None,
                PATH=f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
                PYTHONPATH=str(Path(gpuprof.__file__).parents[1]),
                TMPDIR=str(tmp_path / "scratch"),
                COMMAND=".venv/bin/python bench.py {out}",
                GITHUB_STEP_SUMMARY=str(tmp_path / "summary.md"),
            ),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    return run


def test_the_recipe_fails_and_names_the_slower_scope(
    recipe: Recipe, repository: Path, tmp_path: Path
) -> None:
    done = recipe("main", "--runs", "8", "--warmup", "0", "--threshold", "50%")
    assert (done.returncode, done.stderr) == (1, "")
    slow = [line for line in done.stdout.splitlines() if line.endswith(" SLOW |")]
    assert [line.split()[1] for line in slow] == ["total"]
    assert (tmp_path / "summary.md").read_text(encoding="utf-8") == done.stdout
    # Both checkouts were installed, and neither they nor their folder is left.
    installed = (tmp_path / "pip").read_text(encoding="utf-8").splitlines()
    assert [line.split()[4][-5:] for line in installed] == ["/base", "/head"]
    wheel = ".tools/wheels/gpuprof-*.whl"  # no file has this name here
    assert [line.split()[5:] for line in installed] == [[wheel, "pytest"]] * 2
    assert [*(tmp_path / "scratch").iterdir()] == []
    assert len(git(repository, "worktree", "list").splitlines()) == 1


def test_the_recipe_ends_with_3_if_one_side_fails(recipe: Recipe, repository: Path) -> None:
    (repository / "work.py").write_text("raise SystemExit('broken')", encoding="utf-8")
    git(repository, "commit", "-qam", "broken")
    done = recipe("main")
    assert done.returncode == 3
    assert "command B failed with exit code 1" in done.stderr
    assert "broken" in done.stderr


def test_the_workflow_runs_the_script_with_the_whole_history() -> None:
    yaml = pytest.importorskip("yaml")
    found = re.search(r"```yaml\n(.*?)^```$", PAGE, re.M | re.S)
    assert found
    (job,) = yaml.safe_load(found[1])["jobs"].values()
    assert job["steps"][0]["with"]["fetch-depth"] == 0
    assert job["steps"][-1]["run"] == 'bash compare_base.sh "origin/$BASE"'


def test_the_workflow_of_the_history_may_write_what_it_saves_and_comments() -> None:
    yaml = pytest.importorskip("yaml")
    _, text = re.findall(r"```yaml\n(.*?)^```$", PAGE, re.M | re.S)
    found = yaml.safe_load(text)
    assert found["permissions"] == {"contents": "write", "pull-requests": "write"}
    (job,) = found["jobs"].values()
    assert job["steps"][-1]["run"].endswith("--body-file comment.md")
