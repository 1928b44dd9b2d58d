"""Versions and tags, and the workflows, which may only call what is in the repository."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import gpuprof
from tests.support.processes import ROOT, run_command

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


# Versions


def git(folder: Path, *arguments: str) -> None:
    settings = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", folder, *settings, *arguments], check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "python/gpuprof").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "its-own"\n', encoding="utf-8")
    git(tmp_path, "init", "-q")
    return tmp_path


def commit(folder: Path, version: str, *tags: str) -> None:
    text = f'"""The package."""\n\n__version__ = "{version}"\n'
    (folder / "python/gpuprof/__init__.py").write_text(text, encoding="utf-8")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "--allow-empty", "-m", version)
    for tag in tags:
        git(folder, "tag", tag)


def check(folder: Path, *options: str) -> tuple[int, str]:
    done = run_command(sys.executable, ROOT / ".ci/version.py", "--root", folder, *options)
    return done.returncode, (done.stdout + done.stderr).strip()


def test_this_checkout_has_a_version_that_its_tags_allow() -> None:
    assert check(ROOT) == (0, gpuprof.__version__)


def test_a_tag_must_be_the_version(checkout: Path) -> None:
    commit(checkout, "1.2.3", "v1.2.3", "nightly")
    assert check(checkout, "--release") == (0, "1.2.3")
    git(checkout, "tag", "v1.2.4")
    status, said = check(checkout)
    assert status == 1
    assert "the tag v1.2.4 is on this commit, but the version is 1.2.3" in said


def test_work_goes_on_under_another_version(checkout: Path) -> None:
    commit(checkout, "1.2.3", "v1.2.3")
    commit(checkout, "1.2.3")
    status, said = check(checkout)
    assert status == 1
    assert "v1.2.3 is the tag of another commit" in said
    commit(checkout, "1.3.0.dev0")
    assert check(checkout) == (0, "1.3.0.dev0")


def test_a_release_needs_its_tag(checkout: Path) -> None:
    commit(checkout, "1.2.3")
    assert check(checkout) == (0, "1.2.3")
    assert "git tag v1.2.3" in check(checkout, "--release")[1]
    commit(checkout, "1.3.0.dev0", "v1.3.0.dev0")
    assert "is a version of development" in check(checkout, "--release")[1]


def test_nothing_is_published_under_a_name_that_is_somebody_elses(checkout: Path) -> None:
    commit(checkout, "1.2.3", "v1.2.3")
    (checkout / "pyproject.toml").write_text('[project]\nname = "gpuprof"\n', encoding="utf-8")
    status, said = check(checkout, "--release")
    assert status == 1
    assert "give the distribution a name of its own" in said
    publish = (ROOT / ".github/workflows/publish.yml").read_text(encoding="utf-8")
    assert "python3 .ci/version.py --release" in publish


def says_to_install(text: str) -> list[str]:
    """Return the parts of a text that name the package `gpuprof` of PyPI as what to install."""
    command = (
        r"\b(?:pip3?|pipx|uv|conda|poetry)(?: \w+)* (?:install|add)\b"
        r"[^`\n&|;]*?(?<![\w./-])gpuprof(?![\w./-])"
    )
    requirement = r"(?<![\w.])gpuprof\[[a-z]"  # with an extra, whatever stands before it
    return re.findall(f"{command}|{requirement}", text)


def test_nothing_says_to_install_the_package_of_that_name() -> None:
    name = "gpuprof"  # so that this file has none of these texts
    assert says_to_install(f"run: pip install {name}")
    assert says_to_install(f"pip install -q '{name}[bench]'")
    assert says_to_install(f'PACKAGE = "{name}[bench]"')
    assert not says_to_install("pip install '.[test]'")
    folders = ("python", "docs", "tests", ".github", ".ci", "benchmarks", "include", "src")
    files = [*ROOT.glob("*.*"), *(file for each in folders for file in (ROOT / each).rglob("*.*"))]
    texts = {".py", ".md", ".rst", ".yml", ".toml", ".sh", ".ipynb", ".txt", ".hpp", ".cpp"}
    found = [
        f"{file.relative_to(ROOT)}: {said}"
        for file in files
        if file.suffix in texts
        for said in says_to_install(file.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_what_is_no_version_is_refused(checkout: Path) -> None:
    commit(checkout, "1.2")
    assert "expected 1.2.3, 1.2.3rc1 or 1.2.3.dev0" in check(checkout)[1]


def test_the_version_needs_no_git(tmp_path: Path) -> None:
    (tmp_path / "python/gpuprof").mkdir(parents=True)
    (tmp_path / "python/gpuprof/__init__.py").write_text('__version__ = "2.0.0"\n')
    assert check(tmp_path) == (0, "2.0.0")


# Workflows


def load(path: Path) -> Any:
    yaml = pytest.importorskip("yaml", reason="Python build without PyYAML")
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def commands(workflow: Any) -> list[str]:
    """Return each `run`, once for each value of a matrix that is in it."""
    found = []
    for job in workflow["jobs"].values():
        matrix = job.get("strategy", {}).get("matrix", {})
        for step in job.get("steps", []):
            texts = [step["run"]] if "run" in step else []
            for name, values in matrix.items():
                mark = f"${{{{ matrix.{name} }}}}"
                texts = [
                    text.replace(mark, value)
                    for text in texts
                    for value in (values if mark in text else [""])
                ]
            found += texts
    return found


def problem(command: str) -> str | None:
    """Return why a command is not a call of a script of the repository, else None."""
    words = command.split()
    if re.search(r"[;&|<>`$\n]", command.strip()):
        return "more than one call"
    if words[0] == ".ci/run":
        absent = [step for step in words[1:] if not (ROOT / ".ci" / f"{step}.sh").is_file()]
        return f"no steps {absent}" if absent or len(words) < 2 else None
    if words[0] == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        called = {word for word in words[1:] if not word.startswith("WHEELS=--")}
        return None if called and called <= set(targets) else "no such target"
    if words[0] in {"python", "python3"}:
        return None if (ROOT / words[1]).is_file() else "no such script"
    return "no script of the repository"


@pytest.mark.parametrize(
    "command",
    [
        "pip install x",
        "make nothing",
        "make",
        ".ci/run",
        ".ci/run dance",
        "python .ci/no.py",
        "make wheels; rm -r x",
        "make wheels && make sdist",
    ],
)
def test_another_command_would_be_found(command: str) -> None:
    assert problem(command)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_only_call_what_is_in_the_repository(path: Path) -> None:
    found = {command: problem(command) for command in commands(load(path))}
    assert found
    assert not {command: said for command, said in found.items() if said}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_have_few_rights_and_an_end(path: Path) -> None:
    workflow = load(path)
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        assert "timeout-minutes" in job or "uses" in job, name
        assert job.get("permissions", {}) in ({}, {"id-token": "write"}), name


def test_there_are_workflows_for_tests_wheels_and_publishing() -> None:
    assert {path.stem for path in WORKFLOWS} == {"test", "wheels", "publish"}


def test_every_step_of_ci_is_run_by_a_workflow() -> None:
    text = (ROOT / ".ci/run").read_text(encoding="utf-8")
    steps = re.search(r"^all=\((.*)\)$", text, re.MULTILINE)
    assert steps is not None
    called = " ".join(commands(load(ROOT / ".github/workflows/test.yml"))).split()
    assert set(steps[1].split()) <= set(called)


def test_publishing_asks_for_the_tag_and_has_no_password() -> None:
    workflow = load(ROOT / ".github/workflows/publish.yml")
    jobs = workflow["jobs"]
    assert "python3 .ci/version.py --release" in commands(workflow)
    assert jobs["build"]["needs"] == "version"
    assert jobs["publish"]["needs"] == "build"
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert "secrets" not in (ROOT / ".github/workflows/publish.yml").read_text(encoding="utf-8")
