"""``gpuprof ab`` without a file: wall and CPU times of commands, and how many runs there are."""

from __future__ import annotations

import json
import math
import random
import shlex
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cli.conftest import Call

Compare = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def compare(call: Call) -> Compare:
    """Return the exit code and the JSON of a comparison."""

    def compare(*arguments: object) -> tuple[int, dict[str, Any]]:
        code, out, err = call("ab", *arguments, "--format", "json")
        assert err == ""
        return code, json.loads(out)

    return compare


def verdicts(found: dict[str, Any]) -> dict[str, str]:
    return {row["name"]: row["verdict"] for row in found["rows"]}


def test_the_cpu_time_is_that_of_the_command_and_its_children(compare: Compare) -> None:
    busy = "import time\nwhile time.process_time() < 0.2: pass"
    in_a_child = f"{shlex.quote(sys.executable)} -S -c {shlex.quote(busy)}; true"
    code, found = compare("sleep 0.1", in_a_child, "--shell", "--runs", 1, "--warmup", 0)
    assert (code, found["measure"]) == (3, "both")  # one pair has no verdict
    assert found["cpu_s"]["B"][0] >= 0.2
    assert found["cpu_s"]["A"][0] < 0.1 <= found["wall_s"]["A"][0]
    assert found["times_ms"]["CPU time"]["B"][0] == pytest.approx(1e3 * found["cpu_s"]["B"][0])


@pytest.mark.parametrize(
    ("measure", "names"),
    [("wall", ["wall time"]), ("cpu", ["CPU time"]), ("both", ["wall time", "CPU time"])],
)
def test_what_is_measured_can_be_chosen(compare: Compare, measure: str, names: list[str]) -> None:
    _, found = compare("true", "true", "--runs", 1, "--warmup", 0, "--measure", measure)
    assert [*verdicts(found)] == names


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let runs take times that are made up, wall and CPU seconds by side, in turn."""

    def let(**times: tuple[Callable[[], float], Callable[[], float]]) -> None:
        def run_once(command: Any, *_: object) -> SimpleNamespace:
            wall, cpu = times[command.side]
            return SimpleNamespace(status=0, timed_out=False, seconds=wall(), cpu_seconds=cpu())

        monkeypatch.setattr("gpuprof._cli.ab.run_once", run_once)

    return let


def around(middle: float, deviation: float, chance: random.Random) -> Callable[[], float]:
    return lambda: middle * math.exp(chance.gauss(0.0, deviation))


def test_without_a_number_of_runs_it_ends_when_all_is_clear(
    compare: Compare, made_up: Callable[..., None]
) -> None:
    chance = random.Random(1)
    slower = around(1.2, 0.002, chance)
    made_up(A=(around(1.0, 0.002, chance),) * 2, B=(slower, slower))
    code, found = compare("a", "b")
    assert (code, verdicts(found)) == (1, {"wall time": "slow", "CPU time": "slow"})
    assert (found["order"].count("A"), found["notes"]) == (8, [])


def test_it_goes_on_for_what_is_not_clear_yet(
    compare: Compare, made_up: Callable[..., None]
) -> None:
    chance = random.Random(1)
    noisy = around(1.0, 0.033, chance)
    made_up(A=(noisy, noisy), B=(noisy, noisy))
    code, found = compare("a", "b", "--measure", "cpu")
    assert (code, verdicts(found)) == (0, {"CPU time": "same"})
    assert 16 <= found["order"].count("A") <= 512
    assert found["order"].count("A") == found["order"].count("B")


def test_it_ends_when_the_time_is_up_and_says_how_it_goes_on(
    compare: Compare, made_up: Callable[..., None]
) -> None:
    wild = around(1.0, 0.5, random.Random(1))
    made_up(A=(wild, wild), B=(wild, wild))
    code, found = compare("a", "b", "--max-time", "1e-6")
    assert (code, {*verdicts(found).values()}) == (0, {"ambiguous"})
    assert found["order"].count("A") == 12
    assert found["notes"] == [
        "with --max-time 4e-06 it goes on for longer where a verdict is not clear"
    ]
