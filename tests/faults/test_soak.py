"""Every scenario over and over in one process: what it holds does not grow."""

from __future__ import annotations

import ast
import gc
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import gpuprof
from tests.fake_driver.control import FakeCuda
from tests.support.growth import Readings
from tests.support.held import samples_in_memory
from tests.support.processes import ROOT, run_command
from tests.support.scenarios import SCENARIOS, Stage
from tests.support.soak import LEAKS

ROUNDS = 60


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_a_scenario_repeated_holds_no_more_than_at_first(fake: FakeCuda, name: str) -> None:
    stage = Stage(fake, fake.stream_create())

    def held_after_rounds() -> tuple[int, int, int]:
        for _ in range(ROUNDS):
            gpuprof.reset()
            SCENARIOS[name](stage)
            fake.complete(stage.stream)
        gpuprof.flush()
        gc.collect()
        return fake.live(), samples_in_memory(), len(gc.get_objects())

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        # Fill the pool of events: on a slow host any call may take a pair to mark its stream.
        SCENARIOS["scope_on_a_stream"](stage)
        handles, samples, objects = held_after_rounds()
        handles_later, samples_later, objects_later = held_after_rounds()
    assert handles_later == handles
    assert samples_later <= samples + 2
    assert objects_later < objects + ROUNDS
    fake.stream_destroy(stage.stream)


@pytest.mark.parametrize("step_at", range(0, 1_200, 60))
def test_a_step_is_no_growth_and_a_slope_is(step_at: int) -> None:
    rounds = list(range(20, 1_220, 20))
    values = {"step": [1_000 * (each > step_at) for each in rounds], "leak": rounds}
    assert Readings(rounds=rounds, values=values).grown() == ["leak"]


def soaked(fake_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "tests.support.soak", *arguments)
    return run_command(*command, cwd=ROOT, driver=fake_path, timeout=110)


def test_mixed_use_holds_no_more_as_time_goes_on(fake_path: Path) -> None:
    done = soaked(fake_path, "--rounds", "120")
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_planted_leak_is_found(fake_path: Path) -> None:
    done = soaked(fake_path, "--rounds", "60", "--leak", *LEAKS)
    assert done.returncode == 1, done.stdout + done.stderr
    grown = set(ast.literal_eval(done.stdout.partition("grown=")[2]))
    assert grown >= {*LEAKS, "stream", "malloc KiB"} - {"handles"}
