"""The page for people who come from other tools names what gpuprof has."""

from __future__ import annotations

import ast
import re
import shlex
from functools import cache

import pytest

from tests.docs.examples import ROOT, run
from tests.docs.names import wrong_names

PAGE = (ROOT / "docs" / "coming_from.md").read_text(encoding="utf-8")
OTHERS = [
    *("torch.cuda.Event", "torch.profiler", "nvtx", "Triton's do_bench", "pytest-benchmark"),
    *("viztracer", "Warp"),
]


def cells() -> list[str]:
    """Return the code of the second column of all tables."""
    rows = [line.split(" | ") for line in PAGE.splitlines() if line.startswith("| ")]
    return [code for row in rows for code in re.findall(r"`([^`]+)`", row[1])]


def problem(code: str) -> str | None:
    """Return what is wrong with the code of a cell."""
    if code.startswith("gpuprof "):
        return None if is_command(code) else "no such command"
    if re.fullmatch(r"GPUPROF_[A-Z_]+=\d", code):
        variables = (ROOT / "docs" / "timing.md").read_text(encoding="utf-8")
        return None if f"| `{code.partition('=')[0]}" in variables else "no such variable"
    if code.startswith("with "):
        code += "\n    pass"
    elif code.startswith("@"):
        code += "\ndef f():\n    pass"
    wrong = wrong_names(ast.parse(code))
    return ", ".join(wrong) or None


@cache
def help_of(*command: str) -> str | None:
    """Return the words of a command's help, None for what is no command."""
    done = run("-m", "gpuprof", *command, "--help")
    return done.stdout if done.returncode == 0 else None


def is_command(code: str) -> bool:
    words = shlex.split(code)[1:]
    shown = help_of(*words[: 2 if words[0] == "trace" else 1])
    options = [word for word in words if word.startswith("-")]
    return shown is not None and all(re.search(rf"{each}\b", shown) for each in options)


def test_every_tool_has_a_table_and_says_what_is_missing() -> None:
    sections = re.split(r"^## From ", PAGE, flags=re.M)[1:]
    assert [each.split("\n")[0] for each in sections] == OTHERS
    for each in sections:
        assert "| there | here | what differs |" in each
        assert "Not here: " in each or "what is not here" in each


def test_every_cell_names_what_exists() -> None:
    found = cells()
    assert len(found) > 60
    assert {code: said for code in found if (said := problem(code))} == {}


@pytest.mark.parametrize(
    "code",
    [
        "gpuprof.gone()",
        "gpuprof.Sample.gone",
        'gpuprof.timer("x", gone=1)',
        "gpuprof gone",
        "gpuprof run --gone x.py",
        "GPUPROF_GONE=1",
    ],
)
def test_a_name_that_does_not_exist_would_be_found(code: str) -> None:
    assert problem(code) is not None
