"""``%gputime`` and ``%%gputime``: what is timed, in whose namespace, and what the user sees."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import gpuprof
from tests.support.processes import run_python

# Warm-ups take up to five times their least: together it is less than a second.
DEFAULTS = {"mode": "auto", "cold_l2": False, "scopes": False, "warmup_s": 0.06, "max_time_s": 0.6}
LONG = f"{'1 + ' * 40}1"
HAS_IPYTHON = importlib.util.find_spec("IPython") is not None


class Shell:
    """As much of IPython's shell as the extension uses."""

    def __init__(self) -> None:
        self.user_ns: dict[str, Any] = {"calls": []}
        self.magics: dict[str, Callable[..., Any]] = {}
        self.magics_manager = SimpleNamespace(magics={"line": self.magics, "cell": {}})

    def register_magic_function(
        self, function: Callable[..., Any], magic_kind: str, magic_name: str
    ) -> None:
        assert magic_kind == "line_cell"
        self.magics[magic_name] = function

    def transform_cell(self, code: str) -> str:
        return code.replace("!ls", "shell('ls')") + "\n"

    def magic(self, line: str, cell: str | None = None) -> Any:
        gputime = self.magics["gputime"]
        return gputime(line) if cell is None else gputime(line, cell)


class Measured:
    """Stands in for `gpuprof.benchmark`: calls the function once and notes the options."""

    def __init__(self) -> None:
        self.options: dict[str, Any] = {}
        self.value: object = None

    def __call__(self, function: Callable[[], object], **options: Any) -> Measured:
        self.options = options
        self.value = function()
        return self

    def __str__(self) -> str:
        return "a result"


@pytest.fixture
def shell() -> Shell:
    found = Shell()
    gpuprof.load_ipython_extension(found)
    return found


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Measured:
    found = Measured()
    monkeypatch.setattr("gpuprof._benchmark.api.benchmark", found)
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    return found


def test_a_statement_runs_in_the_users_namespace(
    shell: Shell, measured: Measured, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shell.magic("calls.append(1)") is None
    assert shell.user_ns["calls"] == [1]
    assert measured.options == {"name": "calls.append(1)", **DEFAULTS}
    assert capsys.readouterr().out == "a result\n"


def test_the_result_is_returned_instead_of_shown_with_o(
    shell: Shell, measured: Measured, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shell.magic("-o 1 + 1") is measured
    assert measured.value == 2
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("line", "options", "value"),
    [
        ("-m graph -c -n add 1 + 2", {"mode": "graph", "cold_l2": True, "name": "add"}, 3),
        ("-c  -m isolated 4", {"mode": "isolated", "cold_l2": True, "name": "4"}, 4),
        ('-n "my name" 1', {"name": "my name"}, 1),
        ("-n'two  blanks' -m'graph' 1", {"name": "two  blanks", "mode": "graph"}, 1),
        ("-n \"it's\" 'a' + \"-c  '\"", {"name": "it's"}, "a-c  '"),
        ("'-c' + 'x'", {"name": "'-c' + 'x'"}, "-cx"),
        ("-t 5 7", {"name": "7", "warmup_s": 0.3, "max_time_s": 3.0}, 7),
        ("-s 6", {"scopes": True, "name": "6"}, 6),
        ("-- -5 ", {"name": "-5"}, -5),
        ("{'a': 1}['a'] - 1", {"name": "{'a': 1}['a'] - 1"}, 0),
        (LONG, {"name": f"{LONG[:59]}…"}, 41),
    ],
)
def test_options_stand_before_the_statement(
    shell: Shell, measured: Measured, line: str, options: dict[str, Any], value: object
) -> None:
    shell.magic(line)
    assert measured.options == {**DEFAULTS, **options}
    assert measured.value == value


def test_names_that_the_statement_assigns_stay_in_it(shell: Shell, measured: Measured) -> None:
    shell.magic("y = len(calls); calls.append(y)")
    assert shell.user_ns["calls"] == [0]
    assert "y" not in shell.user_ns


def test_a_cell_is_timed_whole(shell: Shell, measured: Measured) -> None:
    shell.magic("-n loop", "for i in range(3):\n    calls.append(i)\nlen(calls)\n")
    assert measured.value == 3
    assert measured.options["name"] == "loop"


def test_a_cells_line_is_its_setup_and_leaves_no_names(shell: Shell, measured: Measured) -> None:
    shell.magic("import math; calls.append(math.pi); k = 2", "x = math.floor(calls[0]) + k\nx")
    assert measured.value == 5
    assert measured.options["name"] == "x = math.floor(calls[0]) + k"
    assert shell.user_ns.keys() <= {"calls", "__builtins__"}


def test_ipythons_own_syntax_is_understood(shell: Shell, measured: Measured) -> None:
    shell.user_ns["shell"] = lambda command: f"ran {command}"
    shell.magic("!ls")
    assert measured.value == "ran ls"


def test_the_line_is_not_ipythons_to_fill_in(shell: Shell) -> None:
    assert shell.magics["gputime"]._ipython_magic_no_var_expand  # type: ignore[attr-defined]


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize(
    ("line", "cell", "text"),
    [
        ("", None, "nothing to time"),
        ("-c", None, "nothing to time"),
        ("", "# only a comment\n", "nothing to time"),
        ("-x 1", None, "option -x not recognized"),
        ("-m", None, "option -m requires argument"),
        ("-t soon 1", None, "could not convert string to float: 'soon'"),
        ("-t 0 1", None, "-t: expected a"),
        ("-m warp 1", None, "mode: expected one of 'auto', "),
        ("yield 1", None, "yields"),
    ],
)
def test_wrong_use_is_an_error_that_says_how_to_use_it(
    shell: Shell, line: str, cell: str | None, text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        shell.magic(line, cell)


def test_the_magic_can_be_taken_away_again(shell: Shell) -> None:
    for _ in range(2):
        gpuprof.unload_ipython_extension(shell)
        assert shell.magics == {}
    gpuprof.load_ipython_extension(shell)
    assert [*shell.magics] == ["gputime"]


@pytest.mark.usefixtures("measured")
def test_a_syntax_error_is_the_users_own(shell: Shell) -> None:
    with pytest.raises(SyntaxError):
        shell.magic("1 +")


@pytest.mark.usefixtures("measured")
def test_an_exception_shows_the_line_that_raised(shell: Shell) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        shell.magic("", "x = 1\nx / 0\n")
    assert "x / 0" in "".join(traceback.format_exception(caught.value))


REAL = """
    import gpuprof
    from IPython.core.interactiveshell import InteractiveShell
    seen = []
    def benchmark(function, **options):
        seen.append((function(), options["name"]))
        return "RESULT"
    assert gpuprof.benchmark
    sys.modules["gpuprof._benchmark.api"].benchmark = benchmark
    shell = InteractiveShell.instance(colors="NoColor")
    def run(code):
        shell.run_cell(code)
    run("%load_ext gpuprof")
    run("a = {'x': 3}")
    run("%gputime {'k': a}['k']['x'] + 1")
    run("%%gputime -n cell b = 4\\nb * 2")
    run("r = %gputime -o len('ab')")
    assert shell.user_ns["r"] == "RESULT"
    assert "b" not in shell.user_ns
    assert seen == [(4, "{'k': a}['k']['x'] + 1"), (8, "cell"), (2, "len('ab')")], seen
    run("%gputime -x 1")
    run("%unload_ext gpuprof")
    run("%gputime 2")
    run("%load_ext gpuprof")
    run("r = %gputime -o -n 'my name' 3")
    assert seen[3:] == [(3, "my name")], seen
"""


@pytest.mark.skipif(not HAS_IPYTHON, reason="no IPython build is installed")
def test_in_ipython_itself(tmp_path: Path) -> None:
    done = run_python(REAL, IPYTHONDIR=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("RESULT") == 2
    refused, unloaded = done.stderr.splitlines()
    assert refused.startswith("UsageError: option -x not recognized; usage: ")
    assert unloaded.startswith("UsageError: Line magic function `%gputime` not found")
