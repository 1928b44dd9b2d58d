"""The progress: late, on standard error, a bar or lines, and never a fault."""

from __future__ import annotations

import io
import sys
import threading
import types
from collections.abc import Callable

import pytest

import gpuprof
from gpuprof._display import progress as display_progress
from gpuprof._display.progress import SHOWN_AFTER_S, Progress


class Terminal(io.StringIO):
    """Standard error as a terminal."""

    def isatty(self) -> bool:
        return True

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(display_progress, "monotonic", found)
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    return found


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    found = Terminal()
    # pytest sets sys.stderr anew when the test itself begins.
    seen = types.SimpleNamespace(stderr=found, modules=sys.modules)
    monkeypatch.setattr(display_progress, "sys", seen)
    return found


def half_way(clock: Clock, enabled: bool | None = None) -> None:
    with Progress("add", enabled) as bar:
        clock.now += SHOWN_AFTER_S
        bar.update(0.5)


@pytest.fixture
def _no_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.progress", None)


def test_what_is_short_shows_nothing(clock: Clock, terminal: Terminal) -> None:
    with Progress("add", None) as bar:
        bar.update(0.1)
        clock.now += SHOWN_AFTER_S - 0.01
        bar.update(0.9)
    assert terminal.getvalue() == ""


@pytest.mark.usefixtures("_no_rich")
def test_a_terminal_without_rich_gets_a_line_every_five_seconds(
    clock: Clock, terminal: Terminal
) -> None:
    with Progress("add", None) as bar:
        clock.now += SHOWN_AFTER_S
        for _ in range(100):
            bar.update(0.5, "warming up")
            clock.now += 0.1
    assert terminal.getvalue() == "add: 50 % warming up\n" * 2


@pytest.mark.usefixtures("_no_rich")
def test_names_cannot_steer_the_terminal(clock: Clock, terminal: Terminal) -> None:
    with Progress("a\x1b[31m\nb", None) as bar:
        clock.now += SHOWN_AFTER_S
        bar.update(0.5, "\x07")
    assert "\x1b" not in terminal.getvalue()
    assert "\x07" not in terminal.getvalue()
    assert terminal.getvalue().count("\n") == 1


@pytest.mark.usefixtures("_no_rich")
@pytest.mark.parametrize(
    ("fraction", "shown"), [(-1.0, 0), (7.0, 100), (float("nan"), 0), (float("inf"), 0)]
)
def test_a_senseless_fraction_is_shown_within_bounds(
    clock: Clock, terminal: Terminal, fraction: float, shown: int
) -> None:
    with Progress("add", None) as bar:
        clock.now += SHOWN_AFTER_S
        bar.update(fraction)
    assert terminal.getvalue() == f"add: {shown} %\n"


def test_drawing_is_rare_enough_to_cost_nothing(clock: Clock, terminal: Terminal) -> None:
    with Progress("add", None) as bar:
        clock.now += SHOWN_AFTER_S
        for _ in range(100):
            clock.now += 0.001
            bar.update(0.5)
        assert terminal.getvalue().count("50%") <= 2


def test_an_exception_leaves_no_bar_behind(clock: Clock, terminal: Terminal) -> None:
    with pytest.raises(KeyboardInterrupt), Progress("add", None) as bar:
        clock.now += SHOWN_AFTER_S
        bar.update(0.5)
        raise KeyboardInterrupt
    assert terminal.getvalue().rstrip().endswith("\x1b[2K")


def test_rich_draws_its_bar_without_a_thread_and_takes_it_away(
    clock: Clock, terminal: Terminal
) -> None:
    threads = threading.active_count()
    standard = (sys.stdout, sys.stderr)
    with Progress("[red]add", None) as bar:
        clock.now += SHOWN_AFTER_S
        bar.update(0.25, "[bold]now")
        assert "[red]add" in terminal.getvalue()
        assert "[bold]now" in terminal.getvalue()
        assert "25%" in terminal.getvalue()
        assert threading.active_count() == threads
        assert (sys.stdout, sys.stderr) == standard
    # The last thing written erases the line and shows the cursor again.
    assert terminal.getvalue().rstrip().endswith("\x1b[2K")
    assert terminal.getvalue().rindex("\x1b[?25h") > terminal.getvalue().rindex("\x1b[?25l")


def test_a_bar_in_a_bar_is_no_fault(clock: Clock, terminal: Terminal) -> None:
    with Progress("outer", None) as outer, Progress("inner", None) as inner:
        clock.now += SHOWN_AFTER_S
        outer.update(0.5)
        inner.update(0.5)
        clock.now += 1
        outer.update(0.75)
        inner.update(0.75)
    assert "outer" in terminal.getvalue()


@pytest.mark.parametrize("enabled", [None, False])
def test_a_pipe_gets_nothing(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, enabled: bool | None
) -> None:
    pipe = io.StringIO()
    monkeypatch.setattr(sys, "stderr", pipe)
    half_way(clock, enabled)
    assert pipe.getvalue() == ""


def test_a_pipe_gets_lines_if_told_to(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    monkeypatch.setattr(sys, "stderr", pipe)
    with Progress("add", True) as bar:
        clock.now += SHOWN_AFTER_S
        bar.update(0.5, "sampling")
        clock.now += 1
        bar.update(0.6)
        clock.now += 5
        bar.update(0.75)
    assert pipe.getvalue() == "add: 50 % sampling\nadd: 75 %\n"


def test_a_terminal_gets_nothing_if_told_so(clock: Clock, terminal: Terminal) -> None:
    half_way(clock, enabled=False)
    assert terminal.getvalue() == ""


def test_a_notebook_gets_lines(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    ipython = types.ModuleType("IPython")
    shell = types.SimpleNamespace(kernel=object())
    ipython.get_ipython = lambda: shell  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    half_way(clock)
    assert out.getvalue() == "add: 50 %\n"


def test_without_standard_error_there_is_no_bar(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    for enabled in (None, True):
        half_way(clock, enabled)


@pytest.mark.parametrize("rich_too", [True, False])
def test_a_stream_that_fails_ends_the_bar_and_nothing_else(
    clock: Clock, terminal: Terminal, monkeypatch: pytest.MonkeyPatch, rich_too: bool
) -> None:
    if not rich_too:
        monkeypatch.setitem(sys.modules, "rich.progress", None)
    written = []

    def refuse(text: str) -> int:
        written.append(text)
        raise OSError("gone")

    monkeypatch.setattr(terminal, "write", refuse)
    with Progress("add", None) as bar:
        clock.now += SHOWN_AFTER_S
        bar.update(0.5)
        count = len(written)
        clock.now += 1
        bar.update(0.6)
        assert len(written) == count > 0


def test_the_bar_of_a_sweep_tells_which_point_is_being_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def by_size(n: int) -> Callable[[], int]:
        return lambda: n

    monkeypatch.setattr(display_progress, "SHOWN_AFTER_S", 0.0)
    gpuprof.sweep(by_size, {"n": [1, 2]}, progress=True, warmup_s=0.0, max_time_s=0.01)
    assert "gpuprof.sweep by_size" in capsys.readouterr().err
