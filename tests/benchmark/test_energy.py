"""The energy of a call: NVML's counter around blocks of calls, and the errors where there is none.

The fake driver's clock stands for the host's, and NVML's counter follows it in steps.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import gpuprof
from tests.fake_driver.control import FakeCuda
from tests.support.benchmark_results import QUICK
from tests.support.stand_in_nvml import FakeNvml

WATTS = 250
KERNEL_US = 10
READING_NS = 4_000_000
BLOCK_S, STEPS = 0.2, 20  # of the least block


class Meter(FakeNvml):
    """An NVML whose GPU takes `WATTS` at all times, which the counter tells every `step_ms`.

    To read it takes time, in which a GPU without work would be idle.
    """

    step_ms = 5.0

    def __init__(self, fake: FakeCuda) -> None:
        super().__init__()

        def read() -> int:
            fake.advance(READING_NS)
            step_ns = int(1e6 * self.step_ms)
            return WATTS * (fake.now() // step_ns * step_ns) // 10**6

        self.millijoules = read


@pytest.fixture
def function(fake: FakeCuda, stream: int) -> Callable[[], None]:
    return lambda: fake.kernel(stream, "step_k", 1000 * KERNEL_US)


@pytest.fixture
def meter(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> Iterator[Meter]:
    found = Meter(fake)
    found.uuid = str(gpuprof.benchmark(int, **QUICK).machine["gpu_uuid"])
    monkeypatch.setitem(sys.modules, "pynvml", found)
    monkeypatch.setattr("gpuprof._benchmark.energy.perf_counter", lambda: fake.now() * 1e-9)
    yield found
    assert found.is_open == 0


def measure(function: Callable[[], object], stream: int, **options: Any) -> gpuprof.BenchResult:
    return gpuprof.benchmark(function, stream=stream, **{**QUICK, "energy": True, **options})


@pytest.mark.parametrize("mode", ["graph", "batched"])
def test_a_call_takes_its_share_of_what_the_counter_tells(
    meter: Meter, function: Callable[[], None], stream: int, mode: str
) -> None:
    result = measure(function, stream, mode=mode)
    found = result.energy
    assert (result.mode, result.warnings) == (mode, ())
    assert found["watts"] == pytest.approx(WATTS, rel=found["resolution"])
    assert found["joules"] == pytest.approx(WATTS * KERNEL_US * 1e-6, rel=0.02)
    assert found["block_s"] >= BLOCK_S
    assert found["step_joules"] >= WATTS * meter.step_ms * 1e-3
    assert found["resolution"] == pytest.approx(
        found["step_joules"] / WATTS / found["block_s"], rel=0.1
    )
    (line,) = (line for line in str(result).splitlines() if line.startswith("  energy "))
    assert re.search(r"2\.\d\d mJ a call at \d+ W; the counter's steps of [\d.]+ J are", line)
    assert " mJ | " in result.to_markdown()


def test_a_block_is_longer_where_the_counter_is_coarse_and_a_warning_says_how_coarse(
    meter: Meter, function: Callable[[], None], stream: int
) -> None:
    meter.step_ms = 50.0
    assert measure(function, stream).energy["block_s"] == pytest.approx(STEPS * 0.05, rel=0.1)
    meter.step_ms = 700.0
    result = measure(function, stream)
    assert result.energy["block_s"] == pytest.approx(2.1, rel=0.1)
    assert [text for text in result.warnings if "moves in steps of 175 J" in text]


def test_several_streams_are_run_until_the_device_is_done(
    fake: FakeCuda, meter: Meter, stream: int, other: int
) -> None:
    def function() -> None:
        fake.kernel(stream, "a", 1000)
        fake.kernel(other, "b", 1000 * KERNEL_US * 100)

    result = measure(function, stream)
    assert result.mode == "synchronized"
    assert result.energy["joules"] == pytest.approx(WATTS * KERNEL_US * 1e-4, rel=0.1)


@pytest.mark.usefixtures("meter")
def test_a_counter_that_stands_still_is_an_error(
    function: Callable[[], None], stream: int, meter: Meter
) -> None:
    meter.millijoules = lambda: 7
    with pytest.raises(gpuprof.GpuprofError, match=r"^energy: .* counter does not move while"):
        measure(function, stream)


def test_a_gpu_without_a_counter_is_an_error_before_a_sample_is_taken(
    fake: FakeCuda, function: Callable[[], None], stream: int, meter: Meter
) -> None:
    meter.millijoules = None
    with pytest.raises(
        gpuprof.GpuprofError, match=r"^energy: .*: the GPU has no counter of its energy"
    ):
        measure(function, stream, warmup_s=3600.0)
    meter.uuid = "another"
    with pytest.raises(gpuprof.GpuprofError, match="NVML does not know the device"):
        measure(function, stream)


def test_without_nvml_the_error_says_what_to_install(
    function: Callable[[], None], stream: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(gpuprof.GpuprofError, match="pip install nvidia-ml-py"):
        measure(function, stream)


@pytest.mark.usefixtures("meter")
def test_calls_that_do_not_follow_each_other_have_no_energy(
    fake: FakeCuda, function: Callable[[], None], stream: int, other: int
) -> None:
    for isolated in ({"mode": "isolated"}, {"setup": lambda: None}):
        with pytest.raises(gpuprof.InvalidStateError, match=r"^energy: .* measured in isolated"):
            measure(function, stream, **isolated)

    def on_two_streams() -> None:
        function()
        fake.kernel(other, "b", 1000 * KERNEL_US * 100)

    with pytest.raises(gpuprof.InvalidStateError, match="synchronized mode, each after its setup"):
        measure(on_two_streams, stream, setup=lambda: None)
    with pytest.raises(gpuprof.InvalidStateError, match="measured in cpu mode"):
        measure(int, stream)
    with pytest.raises(TypeError, match="energy has no meaning here"):
        gpuprof.compare({"a": int, "b": int}, energy=True)


def test_energy_is_off_unless_it_is_asked_for(
    function: Callable[[], None], stream: int, meter: Meter
) -> None:
    assert measure(function, stream, energy=False).energy == {}
