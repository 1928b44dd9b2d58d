"""Each test has a folder of its own, and calls the command in it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.support.benchmark_results import answer

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Call a command; return its exit code, what it prints, and its errors."""
    return partial(answer, capsys)


def printed(answer: tuple[int, str, str]) -> str:
    """Return what a command prints that ends well and without errors."""
    code, out, err = answer
    assert (code, err) == (0, "")
    return out


def refusal(answer: tuple[int, str, str], *, code: int = 2) -> str:
    """Return the errors of a command that prints nothing and ends with that code."""
    found, out, err = answer
    assert (found, out) == (code, "")
    return err
