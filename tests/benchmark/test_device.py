"""What a result says of the device: the memory of a call, and the shares of the device's peaks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import gpuprof
from gpuprof._benchmark import device
from gpuprof._benchmark.device import MOST_CALLS, memory_of_call, peaks_for
from gpuprof._benchmark.options import checked_options
from gpuprof._benchmark.work import Work
from gpuprof._common import peaks
from gpuprof._frameworks import memory
from gpuprof._frameworks.memory import Figures
from tests.fake_driver.control import FakeCuda
from tests.support.benchmark_results import QUICK
from tests.support.stand_in_memory import KIB, hooked, install_torch
from tests.support.warm_torch import WarmTorch

KERNEL_US = 10


@pytest.fixture(autouse=True)
def no_peaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(peaks, "_given", {})


@pytest.fixture
def function(fake: FakeCuda, stream: int) -> Callable[[], None]:
    def step() -> None:
        fake.kernel(stream, "step_k", 1000 * KERNEL_US)

    return step


class Allocators:
    """Stands for the readings of torch's and CuPy's allocators: the figures, call by call."""

    def __init__(self, figures: Iterable[Figures]) -> None:
        self._figures = iter(figures)
        self.readings = 0

    def begin(self, _stream: object = None) -> Allocators:
        self.readings += 1
        return self

    def end(self) -> Figures:
        return next(self._figures)


@pytest.fixture
def allocate(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Allocators]:
    def stand_in(*peaks_and_changes: tuple[float, float], note: int = memory.READ) -> Allocators:
        read = Allocators(Figures(peak, peak, change, note) for peak, change in peaks_and_changes)
        monkeypatch.setattr(memory, "Reading", read.begin)
        monkeypatch.setattr(device, "somebody_allocates", lambda: True)
        return read

    return stand_in


def measure(function: Callable[[], object], stream: int, **options: Any) -> gpuprof.BenchResult:
    return gpuprof.benchmark(function, stream=stream, **{**QUICK, **options})


# Memory


@pytest.mark.parametrize("mode", ["graph", "batched", "isolated"])
def test_two_calls_that_agree_are_the_memory_of_a_call(
    function: Callable[[], None], stream: int, allocate: Callable[..., Allocators], mode: str
) -> None:
    allocators = allocate((4096, 512), (4096, 512))
    result = measure(function, stream, mode=mode)
    assert result.memory == {"peak_bytes": 4096, "change_bytes": 512}
    assert result.peak_bytes == 4096
    assert allocators.readings == 2


def test_of_three_calls_the_middle_one_counts(
    function: Callable[[], None], stream: int, allocate: Callable[..., Allocators]
) -> None:
    allocators = allocate((4096, 0), (9000, 0), (4608, 0))
    assert measure(function, stream).peak_bytes == 4608
    assert allocators.readings == MOST_CALLS


def test_a_call_may_take_nothing(
    function: Callable[[], None], stream: int, allocate: Callable[..., Allocators]
) -> None:
    allocate((0, 0), (0, 0))
    result = measure(function, stream)
    assert result.memory == {"peak_bytes": 0, "change_bytes": 0}
    assert "peak 0 B above the level before a call" in str(result)


@pytest.mark.parametrize(
    ("peak", "note"), [(math.nan, memory.NO_PEAK), (math.nan, memory.NO_ALLOCATOR)]
)
def test_without_a_peak_no_memory_is_said(
    function: Callable[[], None],
    stream: int,
    allocate: Callable[..., Allocators],
    peak: float,
    note: int,
) -> None:
    allocate((peak, 0), note=note)
    assert measure(function, stream).memory == {}


def test_the_peaks_of_two_allocators_are_said_to_be_a_sum(
    function: Callable[[], None], stream: int, allocate: Callable[..., Allocators]
) -> None:
    allocate((4096, 0), (4096, 0), note=memory.SUM)
    result = measure(function, stream)
    assert any("the sum of torch's peak and CuPy's" in text for text in result.warnings)


def test_each_call_is_set_up(
    fake: FakeCuda, stream: int, allocate: Callable[..., Allocators]
) -> None:
    allocate((0, 0), (0, 0))
    calls: list[str] = []

    def step(value: int) -> None:
        calls.append(f"step {value}")
        fake.kernel(stream, "step_k", 1000)

    def setup() -> tuple[tuple[int], dict[str, Any]]:
        calls.append("setup")
        return (3,), {}

    measure(step, stream, setup=setup)
    assert calls[-4:] == ["setup", "step 3", "setup", "step 3"]


def test_without_a_library_that_allocates_there_is_no_call_more(
    function: Callable[[], None], stream: int, allocate: Callable[..., Allocators], monkeypatch: Any
) -> None:
    allocators = allocate()
    monkeypatch.setattr(device, "somebody_allocates", lambda: False)
    assert measure(function, stream).memory == {}
    assert allocators.readings == 0


def test_on_the_cpus_clock_there_is_no_memory(allocate: Callable[..., Allocators]) -> None:
    allocators = allocate()
    result = gpuprof.benchmark(sorted, ([2, 1],), **QUICK)
    assert (result.clock, result.memory, allocators.readings) == ("cpu", {}, 0)


def test_functions_that_are_compared_have_their_memory(
    function: Callable[[], None], stream: int, allocate: Callable[..., Allocators]
) -> None:
    allocate((1 << 20, 0), (1 << 20, 0), (2 << 20, 0), (2 << 20, 0))
    both = {"old": function, "new": function}
    found = gpuprof.compare(both, stream=stream, rounds=8, warmup_s=0.0)
    assert [result.peak_bytes for result in found.results] == [1 << 20, 2 << 20]
    assert "memory" in repr(found).splitlines()[0]
    assert "2.00 MiB" in repr(found)


def memory_of(function: Callable[[], object]) -> tuple[dict[str, int], list[str]]:
    work = Work((function, (), {}), None)
    return memory_of_call(work, checked_options()), work.warnings


def test_torchs_peak_is_above_the_level_before_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = install_torch(monkeypatch)
    torch.use(100 * KIB)  # an earlier peak, higher than the function's
    torch.allocate(10 * KIB)

    def step() -> None:
        torch.use(3 * KIB)

    assert memory_of(step) == ({"peak_bytes": 3 * KIB, "change_bytes": 0}, [])


def test_a_value_that_is_returned_counts_for_the_peak_and_not_for_the_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = install_torch(monkeypatch)

    class Tensor:
        def __init__(self) -> None:
            torch.allocate(KIB)

        def __del__(self) -> None:
            torch.free(KIB)

    assert memory_of(Tensor)[0] == {"peak_bytes": KIB, "change_bytes": 0}


def test_memory_that_every_call_keeps_is_the_change(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = install_torch(monkeypatch)
    assert memory_of(lambda: torch.allocate(KIB))[0] == {"peak_bytes": KIB, "change_bytes": KIB}


def test_torch_and_cupy_together_are_a_sum(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = install_torch(monkeypatch)
    with hooked(cupy) as pool:

        def step() -> None:
            torch.use(3 * KIB)
            pool.malloc(2 * KIB)

        found, warnings = memory_of(step)
        assert found == {"peak_bytes": 5 * KIB, "change_bytes": 0}
        assert any("the sum of torch's peak and CuPy's" in text for text in warnings)
        assert memory_of(lambda: torch.use(KIB)) == ({"peak_bytes": KIB, "change_bytes": 0}, [])


def test_a_reading_that_ends_on_another_thread_leaves_that_threads_hook(cupy: Any) -> None:
    with hooked(cupy) as pool:
        moved = memory.Reading()

        def measure() -> Figures:
            with cupy.cuda.using_allocator(pool.malloc):
                outer = memory.Reading()
                moved.end()
                inner = memory.Reading().end()
                outer.end()
                return inner

        with ThreadPoolExecutor(1) as threads:
            assert threads.submit(measure).result() == Figures(0, 0, 0)


# Shares of the peaks


def test_rates_are_shown_as_shares_of_the_devices_peak(
    function: Callable[[], None], stream: int
) -> None:
    gpuprof.set_peaks({"bfloat16": 1e15, "float32": 1e14}, 4e12)
    amounts = {"nbytes": 10_000_000, "flops": 5_000_000_000}
    result = measure(function, stream, **amounts)
    assert result.peaks["dtype"] == "bfloat16"
    assert result.bytes_share == pytest.approx(0.25, rel=0.02)
    assert result.flops_share == pytest.approx(0.5, rel=0.02)
    text = str(result)
    assert "TB/s (25." in text or "TB/s (24." in text
    assert "% of peak)" in text
    assert "4.00 TB/s, 1,000 TFLOP/s for bfloat16\n" in text
    assert measure(function, stream, flops_dtype="fp32", **amounts).peaks["dtype"] == "float32"
    assert measure(function, stream).peaks == {}


def test_a_data_type_without_a_peak_is_a_warning(function: Callable[[], None], stream: int) -> None:
    gpuprof.set_peaks({"bfloat16": 1e15})
    result = measure(function, stream, flops=1, flops_dtype="int8")
    assert result.peaks == {}
    assert "no peak is known for int8; there are those of bfloat16" in result.warnings


def test_a_data_type_that_is_none_is_refused_before_anything_is_measured() -> None:
    with pytest.raises(ValueError, match=r"the data type: expected a name .*, got 'a b'"):
        gpuprof.benchmark(sorted, ([],), flops_dtype="a b")


@pytest.mark.torch
def test_the_data_type_is_that_of_the_arguments() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    gpuprof.set_peaks({"bfloat16": 1e15, "float16": 2e15, "float32": 1e14, "tf32": 5e14})

    def dtype_for(*arguments: Any) -> Any:
        work = Work((lambda *_: None, arguments, {}), None)
        return peaks_for(work, checked_options(flops=1), 0).get("dtype")

    def made(dtype: Any) -> Any:
        return torch.ones(2, dtype=dtype)

    assert dtype_for(made(torch.bfloat16), made(torch.int64), 3) == "bfloat16"
    assert dtype_for([made(torch.float32)]) == "float32"
    assert dtype_for(made(torch.float64)) is None  # whose peak is not known
    for mixed in ((made(torch.float32), made(torch.bfloat16)), (made(torch.int64),), ()):
        assert dtype_for(*mixed) == "float16"  # the fastest


@pytest.mark.torch
@pytest.mark.parametrize(
    ("setting", "dtype"),
    [
        ("pass", "float32"),
        ("torch.set_float32_matmul_precision('high')", "tf32"),
        ("torch.backends.cuda.matmul.allow_tf32 = True", "tf32"),
        # After these, torch's older functions raise.
        ("torch.backends.cuda.matmul.fp32_precision = 'tf32'", "tf32"),
        ("torch.backends.cuda.matmul.fp32_precision = 'ieee'", "float32"),
    ],
)
def test_tf32_is_the_type_where_torch_uses_it(
    warm_torch: WarmTorch, setting: str, dtype: str
) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if "fp32_precision" in setting and not hasattr(torch.backends.cuda.matmul, "fp32_precision"):
        pytest.skip("this torch has the older setting alone")
    warm_torch.check(
        f"""
        import torch
        import gpuprof
        from gpuprof._benchmark.device import peaks_for
        from gpuprof._benchmark.options import checked_options
        from gpuprof._benchmark.work import Work
        {setting}
        gpuprof.set_peaks({{"float32": 1e14, "tf32": 5e14}})
        work = Work((torch.neg, (torch.ones(2),), {{}}), None)
        found = peaks_for(work, checked_options(flops=1), 0)
        assert found["dtype"] == {dtype!r}, found
        """
    )
