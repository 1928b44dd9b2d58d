"""Every scenario over and over in one process: what it holds does not grow."""

from __future__ import annotations

import gc
import warnings

import pytest

import gpuprof
from tests.fake_driver.control import FakeCuda
from tests.support.held import samples_in_memory
from tests.support.scenarios import SCENARIOS, Stage

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
