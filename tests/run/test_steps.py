"""What is made of the times of steps: which steps count, and which are known."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace

import pytest

from gpuprof._run import steps as module
from gpuprof._run.diagnosis import diagnose
from gpuprof._run.step_times import cut
from gpuprof._run.steps import OPTIMIZER, Mark, Steps

MS = 1_000_000


def sample(noted: Steps, name: str, begin: float, end: float, one_in: int = 1) -> SimpleNamespace:
    return SimpleNamespace(
        failed=False,
        one_in=one_in,
        clock="cpu",
        names=(name,),
        thread_id=noted._main_id,
        host_begin_ns=round(begin * MS),
        host_end_ns=round(end * MS),
    )


def program(waits_ms: list[float], one_in: int = 1, around: bool = False) -> Steps:
    """Return what is noted of steps of 10 ms and a wait for a batch, by that wait."""
    noted, now = Steps(), 1000.0
    samples = []
    for wait in waits_ms:
        samples.append(sample(noted, "dataloader", now, now + wait, one_in))
        now += wait
        samples.append(sample(noted, "Net", now, now + 9, one_in))
        now += 10
        noted.marks.append(Mark(round(now * MS), OPTIMIZER, "0"))
    if around:
        samples.append(sample(noted, "train", 1000.0, now + 1))
    noted._samples = deque(samples, maxlen=module.MOST)
    return noted


def report(noted: Steps) -> str:
    table = diagnose(noted)
    assert table is not None
    return "\n".join(table.plain())


def test_long_steps_that_are_much_of_the_time_leave_nothing_to_say() -> None:
    # Each eighth batch takes long, half of the time, and the others say input too.
    said = report(program([200 if number % 8 == 0 else 20 for number in range(200)]))
    assert "; 24 longer ones, 49 % of the time, are left out" in said
    assert "bound by" not in said
    said = report(program([100 if number % 40 == 0 else 20 for number in range(200)]))
    assert "; 4 longer ones, 7 % of the time, are left out" in said
    assert "bound by input" in said


@pytest.mark.parametrize("around", [False, True])
def test_steps_whose_samples_are_forgotten_do_not_count(
    monkeypatch: pytest.MonkeyPatch, around: bool
) -> None:
    monkeypatch.setattr(module, "MOST", 60)
    noted = program([20.0] * 200, around=around)
    kept, long = cut(noted)
    assert long == []
    assert 25 <= len(kept) <= 30
    for step in kept:
        ran = {names[-1]: ns for names, ns in step.host.items()}
        assert ran == {"dataloader": 20 * MS, "Net": 9 * MS}


def test_with_a_budget_no_step_is_shown() -> None:
    said = report(program([20.0] * 40, one_in=4))
    assert said == "a step: not shown, a budget leaves visits of scopes out"
    assert "dataloader" in report(program([20.0] * 40))


@pytest.mark.parametrize(
    ("more", "is_gpus", "is_said"), [(100, False, False), (600, False, True), (100, True, True)]
)
def test_a_process_may_fill_a_buffer(more: int, is_gpus: bool, is_said: bool) -> None:
    noted = program([0.5] * 40)
    noted.memory = [(500 << 20) + (more << 20) * number // 47 for number in range(48)]
    noted.memory_is_gpus = is_gpus
    said = report(noted).splitlines()
    assert ("memory grows" in said) == is_said
    assert not [line for line in said if line.startswith("bound by")]
