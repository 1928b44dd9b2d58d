"""How the instructions of samples are counted: around each, never in its time, and when not."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gpuprof
from gpuprof._benchmark import readings as beside
from gpuprof._benchmark.readings import MAX_READINGS, InstructionReadings
from gpuprof._common.instruction_counter import InstructionCounter
from gpuprof._common.instructions import reason_of
from tests.support.benchmark_results import QUICK
from tests.support.threads import in_threads


class FakeCounter:
    """A counter by which each reading is later by `step`; others may share it."""

    def __init__(self, *, error: int = 0, step: int = 1000, shared: bool = False) -> None:
        self.error, self.closed = error, 0
        self._shared = shared
        self._count = itertools.count(0, step)
        self.failing: OSError | None = None

    def read(self) -> tuple[int, int, int]:
        if self.failing is not None:
            raise self.failing
        value = next(self._count)
        return value, value, value // 2 if self._shared else value

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeCounter]:
    def install(**options: Any) -> FakeCounter:
        made = FakeCounter(**options)
        monkeypatch.setattr(beside, "open_counter", lambda: made)
        return made

    return install


def test_a_result_on_the_cpus_clock_has_the_instructions_of_a_call(
    counter: Callable[..., FakeCounter],
) -> None:
    made = counter(step=64_000)
    result = gpuprof.benchmark(lambda: None, **QUICK)
    assert result.instructions is not None
    assert set(result.instructions.per_call) == {64_000 / result.calls_per_sample}
    assert len(result.instructions.per_call) <= MAX_READINGS
    assert made.closed
    assert "instructions" in str(result)
    again = gpuprof.BenchResult.from_dict(result.to_dict())
    assert again.instructions == result.instructions


def test_a_counter_that_is_missing_leaves_the_reason(counter: Callable[..., FakeCounter]) -> None:
    counter(error=errno.ENOENT)
    result = gpuprof.benchmark(lambda: None, **QUICK)
    assert result.instructions == gpuprof.results.Instructions(reason=reason_of(errno.ENOENT))
    assert "instructions" not in str(result)
    assert not any("instructions" in text for text in result.warnings)


def test_readings_of_a_shared_counter_do_not_count(counter: Callable[..., FakeCounter]) -> None:
    counter(shared=True)
    found = gpuprof.benchmark(lambda: None, **QUICK).instructions
    assert found is not None
    assert found.per_call == ()
    assert "took turns with others" in found.reason


def test_a_counter_that_fails_later_is_given_up(counter: Callable[..., FakeCounter]) -> None:
    made = counter()
    readings = InstructionReadings()
    readings.begin()
    readings.end(1)
    made.failing = OSError(errno.EBADF, "bad")
    for _ in range(3):
        readings.begin()
        readings.end(1)
    assert readings.found().per_call == (1000.0,)
    assert made.closed == 1


def test_enough_readings_are_enough(counter: Callable[..., FakeCounter]) -> None:
    counter()
    readings = InstructionReadings()
    for _ in range(MAX_READINGS + 20):
        readings.begin()
        readings.end(1)
    assert len(readings.found().per_call) == MAX_READINGS
    readings.restart()
    assert readings.found().per_call == ()


def test_a_sample_that_raised_does_not_reach_into_the_next(
    counter: Callable[..., FakeCounter],
) -> None:
    counter()
    readings = InstructionReadings()
    readings.begin()  # and then the function raised
    readings.begin()
    readings.end(1)
    assert readings.found().per_call == (1000.0,)


def test_comparisons_have_them_too(counter: Callable[..., FakeCounter]) -> None:
    counter()
    rows = gpuprof.compare({"a": lambda: None, "b": lambda: None}, warmup_s=0.0, rounds=6)
    assert all(row.result.instructions for row in rows.values())


# The system's own


def test_the_system_counts_or_says_why_not() -> None:
    def counted(count: int) -> gpuprof.results.Instructions:
        found = gpuprof.benchmark(lambda: sum(range(count)), **QUICK).instructions
        assert found is not None
        return found

    few, many = counted(100_000), counted(200_000)
    error = InstructionCounter().error
    if few.median is None or many.median is None:
        assert few.reason == many.reason == reason_of(error)
        assert few.reason.startswith(errno.errorcode[error])
    else:
        assert error == 0
        assert 1.8 < many.median / few.median < 2.2


def test_the_call_itself_works_with_a_counter_that_every_machine_has() -> None:
    counter = InstructionCounter(task_clock=True)
    if counter.error:  # as where a container forbids the call
        assert counter.error in {errno.EPERM, errno.EACCES, errno.ENOSYS}
        return
    before = counter.read()
    sum(range(1_000_000))
    after = counter.read()
    assert all(b > a for a, b in zip(before, after, strict=True))
    in_threads(lambda: sum(range(20_000_000)))
    # This thread has only waited: what was counted is the other's work.
    assert counter.read()[0] - after[0] > 1_000_000
    counter.close()
    counter.close()
    with pytest.raises(OSError, match=r"[Bb]ad file"):
        counter.read()


@pytest.mark.parametrize(
    ("error", "part"),
    [
        (errno.ENOSYS, "ENOSYS: this system has no perf_event_open"),
        (errno.ENOENT, "ENOENT: there is no hardware counter of instructions; a virtual machine"),
        (errno.EOPNOTSUPP, "there is no hardware counter of instructions"),
        (errno.ENODEV, "ENODEV: there is no hardware counter"),
        (errno.EMFILE, "EMFILE: the process has too many open files"),
        (errno.EINVAL, "EINVAL: perf_event_open failed: Invalid argument"),
        (99999, "error 99999: perf_event_open failed"),
    ],
)
def test_each_error_says_what_it_means(error: int, part: str) -> None:
    assert part in reason_of(error)


@pytest.mark.parametrize("error", [errno.EPERM, errno.EACCES])
def test_what_is_not_permitted_says_what_to_do(error: int, tmp_path: Path) -> None:
    paranoid = tmp_path / "perf_event_paranoid"
    paranoid.write_text("4\n")
    name = errno.errorcode[error]
    assert reason_of(error, paranoid) == (
        f"{name}: perf_event_paranoid is 4, and counting in user space takes 2 or less: "
        "sudo sysctl kernel.perf_event_paranoid=2"
    )
    paranoid.write_text("2\n")
    text = reason_of(error, paranoid)
    assert text.startswith(f"{name}: perf_event_open is not permitted although")
    assert "--cap-add PERFMON" in text
    assert "although" not in reason_of(error, tmp_path / "none")
