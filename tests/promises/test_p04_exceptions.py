"""P4: a user's exception leaves a scope unchanged in type and identity."""

from __future__ import annotations

import pytest

import gpuprof
from tests.fake_driver.control import FakeCuda

KINDS = [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit, StopIteration]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", ["", "cuEventRecord@2=999", "cuStreamIsCapturing@2=999"])
def test_a_scope_on_a_stream_lets_it_through_also_when_the_driver_fails(
    fake: FakeCuda, kind: type[BaseException], fault: str
) -> None:
    mine = kind("mine")
    scope = gpuprof.timer("step", stream=0, backend="cuda")
    with fake.faults(fault), pytest.raises(kind) as caught:
        if fault:
            with pytest.warns(RuntimeWarning, match="999"), scope:
                raise mine
        else:
            with scope:
                raise mine
    assert caught.value is mine
    assert mine.__context__ is None


def test_a_driver_failure_never_raises_into_the_body(fake: FakeCuda) -> None:
    reached = []
    with fake.faults("any@1*=999"), pytest.warns(RuntimeWarning, match="The program goes on"):
        with gpuprof.timer("step", stream=0, backend="auto"):
            reached.append(True)
    assert reached == [True]


def test_timer_as_a_context_manager_lets_it_through(fake: FakeCuda) -> None:
    mine = LookupError("mine")
    timer = gpuprof.Timer("cuda", 0)
    with fake.faults("cuEventRecord@2=999"), pytest.raises(LookupError) as caught, timer:
        raise mine
    assert caught.value is mine
    timer.close()
