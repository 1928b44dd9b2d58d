"""What ends a measurement, and the clocks of the GPU meanwhile: what NVML says, if it can."""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gpuprof._benchmark.loop import MIN_INDEPENDENT, Clocks, are_enough, next_check
from tests.support.stand_in_nvml import FakeNvml


def _samples(memory: float, count: int, sigma: float = 0.002) -> list[float]:
    chance, value, found = random.Random(2), 0.0, []
    for _ in range(count):
        value = memory * value + chance.gauss(0.0, sigma * (1.0 - memory**2) ** 0.5)
        found.append(1.0 + value)
    return found


def test_independent_samples_are_enough_once_they_are_precise() -> None:
    assert are_enough(_samples(0.0, 30), 0.01)
    assert not are_enough(_samples(0.0, 30, sigma=0.2), 0.01)


def test_samples_that_are_alike_need_to_be_more() -> None:
    few = _samples(0.95, 100)
    assert not are_enough(few, 0.01)
    assert are_enough(few, 0.01, extended=True)  # the time for that is over
    assert are_enough(_samples(0.95, 100 * MIN_INDEPENDENT), 0.01)


def test_more_time_does_not_replace_precision() -> None:
    assert not are_enough(_samples(0.95, 100, sigma=0.2), 0.01, extended=True)


def test_checks_come_at_growing_distances() -> None:
    assert next_check(30) == 40
    assert next_check(1000) == 1200


# The clocks of a GPU


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeNvml]:
    module = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", module)
    yield module
    assert module.is_open == 0


def is_inert(clocks: Clocks) -> bool:
    return (clocks.sm_mhz(), clocks.throttle_reasons()) == (None, ())


@pytest.mark.parametrize("uuid", ["12-34", "GPU-12-34", "56", "MIG-56"])
def test_the_clock_is_that_of_the_device_or_of_the_gpu_around_the_slice(
    nvml: FakeNvml, uuid: str
) -> None:
    with closing(Clocks(uuid)) as clocks:
        assert nvml.is_open == 1
        assert clocks.sm_mhz() == 1980.0
        nvml.mhz = 1200
        assert clocks.sm_mhz() == 1200.0


def test_reasons_are_what_holds_the_clocks_down(nvml: FakeNvml) -> None:
    with closing(Clocks("12-34")) as clocks:
        assert clocks.throttle_reasons() == ()
        nvml.reasons = 0x4 | 0x40
        assert clocks.throttle_reasons() == ("software power cap", "hardware thermal slowdown")
        nvml.reasons = 0x1 | 0x2
        assert clocks.throttle_reasons() == ()


@pytest.mark.parametrize("uuid", [None, "", "78"])
def test_an_unknown_device_has_no_clocks(nvml: FakeNvml, uuid: str | None) -> None:
    clocks = Clocks(uuid)
    assert nvml.is_open == 0
    assert is_inert(clocks)


def test_a_closed_one_knows_nothing_and_closes_twice(nvml: FakeNvml) -> None:
    clocks = Clocks("12-34")
    clocks.close()
    clocks.close()
    assert is_inert(clocks)


@pytest.mark.parametrize("error", [FakeNvml.NVMLError("lost"), OSError("no library")])
def test_a_fault_of_nvml_is_no_fault_of_the_benchmark(nvml: FakeNvml, error: Exception) -> None:
    with closing(Clocks("12-34")) as clocks:
        nvml.fault = error
        assert is_inert(clocks)
        nvml.fault = None
        assert clocks.sm_mhz() == 1980.0
    nvml.fault = error
    assert is_inert(Clocks("12-34"))


def test_without_nvidia_ml_py_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert is_inert(Clocks("12-34"))


def test_an_old_package_of_that_name_may_warn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "pynvml.py").write_text(
        "import warnings\n"
        "warnings.warn('use nvidia-ml-py', FutureWarning)\n"
        "class NVMLError(Exception): pass\n"
        "NVML_CLOCK_SM = 1\n"
        "nvmlInit = nvmlShutdown = lambda: None\n"
        "nvmlDeviceGetHandleByUUID = lambda uuid: uuid\n"
        "nvmlDeviceGetClockInfo = lambda handle, which: 900\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with closing(Clocks("12-34")) as clocks:
            assert clocks.sm_mhz() == 900.0
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
