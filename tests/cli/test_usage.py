"""What the command says of itself: help, wrong usage, formats, and a shell's completions."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Call, printed, refusal
from tests.support.benchmark_results import bench, saved

FORMATS = ("text", "json", "csv", "markdown")


@pytest.mark.parametrize("given", ["", "trace", "compare", "ab", "run", "report", "trace diff"])
def test_without_the_arguments_that_it_needs_it_shows_its_help(call: Call, given: str) -> None:
    err = refusal(call(*given.split()))
    assert err.startswith(f"usage: gpuprof {given}".rstrip())
    assert "exit codes: " in err
    assert "error:" not in err


@pytest.mark.parametrize(
    ("arguments", "usage", "error"),
    [
        ("dem", "gpuprof", "'dem': expected one of trace, info, demo, "),
        ("dem", "gpuprof", "; did you mean demo?"),
        ("trace sumary t.json", "gpuprof trace", "; did you mean summary?"),
        ("compare a b --fail-in slow", "gpuprof compare", "slow; did you mean --fail-on?"),
        ("info --formt=json", "gpuprof info", "--formt=json; did you mean --format?"),
        ("list --format markdwn", "gpuprof list", "'markdwn': expected one of text, json, csv,"),
        ("list --format markdwn", "gpuprof list", "; did you mean markdown?"),
        ("run --wtch script.py", "gpuprof run", "--wtch; did you mean --watch?"),
        (
            "demo --steps many",
            "gpuprof demo",
            "expected a whole number from 1 to 100000, got 'many'",
        ),
        ("demo --steps 0", "gpuprof demo", "expected a whole number from 1 to 100000, got 0"),
        ("info --zebra", "gpuprof info", "unrecognized arguments: --zebra\n"),
    ],
)
def test_wrong_usage_shows_the_commands_own_usage_and_what_may_be_meant(
    call: Call, arguments: str, usage: str, error: str
) -> None:
    err = refusal(call(*arguments.split()))
    assert err.startswith(f"usage: {usage} [-h]")
    assert error in err


@pytest.fixture
def _saved() -> None:
    for day in (1, 2):
        created = f"2026-11-{day:02d}T08:00:00+00:00"
        saved("main", created, bench("add", [1.0, 1.1] * 20, created=created))


@pytest.mark.usefixtures("_saved")
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("given", ["info", "list", "list main", "history", "compare main main"])
def test_each_command_that_prints_a_result_has_each_format(
    call: Call, given: str, form: str
) -> None:
    out = printed(call(*given.split(), "--format", form))
    assert out.endswith("\n")
    assert not out.endswith("\n\n")
    if form == "json":
        json.loads(out)
    elif form == "csv":
        head, *lines = csv.reader(io.StringIO(out))
        assert lines
        assert {len(line) for line in lines} == {len(head)}
    elif form == "markdown":
        table = [line for line in out.splitlines() if line.startswith("|")]
        assert len(table) > 2
        assert len({line.count(" | ") for line in table}) == 1
    else:
        assert "|" not in out.partition("\n")[0]


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completions_are_a_script_of_the_shell(call: Call, tmp_path: Path, shell: str) -> None:
    pytest.importorskip("shtab", reason="shtab is not installed")
    out = printed(call("--print-completion", shell))
    for word in ("compare", "--fail-on", "markdown", "summary", "--storage"):
        assert word in out
    if path := shutil.which(shell):
        script = tmp_path / "script"
        script.write_text(out)
        subprocess.run([path, "-n", script], check=True, timeout=60)


def test_bash_completes_commands_options_and_files(call: Call, tmp_path: Path) -> None:
    pytest.importorskip("shtab", reason="shtab is not installed")
    (tmp_path / "page.json").touch()

    def completed(*words: str) -> list[str]:
        line = " ".join(f'"{word}"' for word in ("gpuprof", *words))
        ask = f"COMP_WORDS=({line}) COMP_CWORD={len(words)} COMP_LINE='gpuprof {' '.join(words)}'"
        ask += "\n_shtab_gpuprof\nprintf '%s\\n' \"${COMPREPLY[@]}\""
        return subprocess.check_output(
            ["bash", "-c", f"{script}\n{ask}"], text=True, cwd=tmp_path, timeout=60
        ).split()

    script = call("--print-completion", "bash")[1]
    assert completed("comp") == ["compare"]
    assert completed("list", "--form") == ["--format"]
    assert set(completed("list", "--format", "")) == set(FORMATS)
    assert completed("report", "pa") == ["page.json"]


def test_completions_without_shtab_say_what_to_install(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    err = refusal(call("--print-completion", "bash"), code=1)
    assert err == (
        "gpuprof: gpuprof --print-completion needs shtab, which is not installed: pip install "
        "shtab\n"
    )
