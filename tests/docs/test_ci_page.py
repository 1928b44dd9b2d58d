"""The recipe of the page on CI, run as it stands there on a repository with two commits."""

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


def recipe_of(mark: str, repository: Path, programs: dict[str, str], **variables: str) -> Recipe:
    """Return the script below a mark of the page as a function, run beside some programs."""
    found = re.search(rf"<!-- {mark} -->\n```sh\n(.*?)^```$", PAGE, re.M | re.S)
    assert found
    folder = repository.parent
    python = shlex.quote(sys.executable)
    (folder / "recipe.sh").write_text(found[1], encoding="utf-8")
    (folder / "bin").mkdir()
    for name, text in programs.items():
        path = folder / "bin" / name
        path.write_text(text.format(python=python, log=folder / "pip"), encoding="utf-8")
        path.chmod(0o755)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", str(folder / "recipe.sh"), *arguments],
            cwd=repository,
            env=environment(
                None,
                PATH=f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
                PYTHONPATH=str(Path(gpuprof.__file__).parents[1]),
                **variables,
            ),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    return run


@pytest.fixture
def recipe(repository: Path, tmp_path: Path) -> Recipe:
    (tmp_path / "scratch").mkdir()
    return recipe_of(
        "recipe",
        repository,
        {"python3": PYTHON3, "gpuprof": GPUPROF},
        TMPDIR=str(tmp_path / "scratch"),
        COMMAND=".venv/bin/python bench.py {out}",
        GITHUB_STEP_SUMMARY=str(tmp_path / "summary.md"),
    )


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


MEASURED = """
import time, pytest
import work

@pytest.mark.gpu_benchmark(
    min_samples=30, min_time_s=0.0, max_time_s=1.0, warmup_s=0.0
)
def test_total(gpu_benchmark):
    gpu_benchmark(work.total)
"""


def test_the_history_in_git_is_saved_joined_and_compared(repository: Path, tmp_path: Path) -> None:
    (repository / "test_work.py").write_text(MEASURED, encoding="utf-8")
    git(tmp_path, "init", "-q", "--bare", "remote")
    git(repository, "remote", "add", "origin", str(tmp_path / "remote"))

    python = shlex.quote(sys.executable)
    command = f"{python} -m pytest -q -p no:cacheprovider test_work.py"
    recipe = recipe_of("recipe: history", repository, {"gpuprof": GPUPROF}, COMMAND=command)
    git(repository, "checkout", "-q", "main")
    for _ in range(2):
        done = recipe("save")
        assert done.returncode == 0, done.stdout + done.stderr
    saved = git(tmp_path / "remote", "ls-tree", "-r", "--name-only", "refs/gpuprof/runs")
    # A new checkout, as in another job, has nothing but what the remote has.
    git(repository, "update-ref", "-d", "refs/gpuprof/runs")
    git(repository, "checkout", "-q", "change")
    done = recipe("compare")
    assert done.returncode == 1, done.stdout + done.stderr
    comment = (repository / "comment.md").read_text(encoding="utf-8")
    assert "| test_work.py::test_total |" in comment
    assert comment.count(" SLOW |") == 1
    runs = git(tmp_path / "remote", "show", f"refs/gpuprof/runs:{saved.strip()}").splitlines()
    assert len(runs) == 2


def test_the_workflow_of_the_history_saves_on_main_and_comments_on_pull_requests() -> None:
    yaml = pytest.importorskip("yaml")
    _, text = re.findall(r"```yaml\n(.*?)^```$", PAGE, re.M | re.S)
    found = yaml.safe_load(text)
    assert found["permissions"] == {"contents": "write", "pull-requests": "write"}
    (job,) = found["jobs"].values()
    save, compare, comment = job["steps"][-3:]
    assert (save["run"], compare["run"]) == (
        "bash performance.sh save",
        "bash performance.sh compare",
    )
    assert ("push" in save["if"], "pull_request" in compare["if"]) == (True, True)
    assert comment["if"].startswith("always() && ")
    assert comment["run"].endswith("--body-file comment.md")
