"""What benchmark() does with functions that are not what it can time, and what it leaves behind."""

from __future__ import annotations

import random
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import gpuprof
from tests.gpu.support.alone import needs_the_gpu_alone
from tests.gpu.support.frameworks import torch_or_skip
from tests.gpu.support.scripts import check_script
from tests.support.processes import check_python

# A gate that nobody opens holds a test for ever.
pytestmark = pytest.mark.timeout(60)

_MODES = ["auto", "graph", "batched", "isolated"]


@pytest.fixture
def torch() -> Iterator[Any]:
    torch = torch_or_skip()
    torch.cuda.synchronize()
    stream = torch.cuda.current_stream()
    yield torch
    assert torch.cuda.current_stream() == stream
    assert not torch.cuda.is_current_stream_capturing()
    assert_usable(torch)


def assert_usable(torch: Any) -> None:
    ones = torch.ones(1024, device="cuda")
    assert float((ones + torch.rand(1024, device="cuda")).min()) >= 1.0
    with gpuprof.timer("after") as sample:
        ones.add_(1.0)
    assert sample.ms > 0.0


def measure(
    function: Callable[..., object], arguments: tuple[Any, ...] = (), **options: Any
) -> gpuprof.BenchResult:
    return gpuprof.benchmark(function, arguments, max_time_s=1.0, progress=False, **options)


def says(result: gpuprof.BenchResult, *words: str) -> bool:
    return any(word in warning for warning in result.warnings for word in words)


class Interrupted:
    """A call that raises when it is called for the `at`-th time."""

    def __init__(self, call: Callable[[], object], error: BaseException, at: int) -> None:
        self._call = call
        self._error = error
        self._left = at

    def __call__(self) -> None:
        self._left -= 1
        self._call()
        if self._left == 0:
            raise self._error


@pytest.mark.parametrize("mode", _MODES)
def test_a_function_that_waits_for_the_gpu_is_not_held_back(mode: str, torch: Any) -> None:
    ones = torch.ones(1024, device="cuda")
    result = measure(lambda: ones.sum().item(), mode=mode)
    assert result.mode == ("isolated" if mode == "isolated" else "batched")
    assert (result.requested_mode, result.gate) == (mode, "ungated")
    assert says(result, "waits for the GPU")
    assert 0.0 < result.median_ms < 10.0


@needs_the_gpu_alone
@pytest.mark.parametrize("mode", ["auto", "graph"])
def test_work_on_a_second_stream_that_nobody_waits_for_is_inside(mode: str, torch: Any) -> None:
    side = torch.cuda.Stream()
    ones = torch.ones(1024, device="cuda")
    torch.cuda.synchronize()

    def two_streams() -> None:
        torch.add(ones, ones)
        with torch.cuda.stream(side):
            torch.cuda._sleep(1_000_000)

    result = measure(two_streams, mode=mode)
    assert (result.mode, result.clock) == ("synchronized", "host")
    assert says(result, "stream")
    assert result.median_ms > 0.2  # a million cycles, which the first stream does not see


@needs_the_gpu_alone
def test_a_second_stream_that_is_joined_is_inside_a_graph(torch: Any) -> None:
    side = torch.cuda.Stream()
    fork, join = torch.cuda.Event(), torch.cuda.Event()

    def two_streams() -> None:
        fork.record()
        side.wait_event(fork)
        with torch.cuda.stream(side):
            torch.cuda._sleep(1_000_000)
        join.record(side)
        torch.cuda.current_stream().wait_event(join)

    result = measure(two_streams)
    assert result.clock == "cuda"
    assert result.median_ms > 0.2


@pytest.mark.parametrize("mode", _MODES)
def test_a_function_that_keeps_what_it_allocates_ends(mode: str, torch: Any) -> None:
    kept: list[Any] = []
    result = measure(lambda: kept.append(torch.zeros(1024, device="cuda")), mode=mode)
    kept.clear()
    torch.cuda.empty_cache()
    assert result.clock == "cuda"
    assert 0.0 < result.median_ms < 1.0
    # A graph's copies have their memory from the capture on; one call a sample rarely needs more.
    assert mode != "batched" or says(result, "memory")


@needs_the_gpu_alone  # beside others, work of theirs may look like a wait of the function's
def test_a_first_call_that_loads_and_compiles_is_not_measured(torch: Any) -> None:
    check_script("""
        import torch
        values = torch.rand(1024, device="cuda")
        torch.cuda.synchronize()
        calls = []
        def loads():
            if not calls:
                kernels.Device()  # loads a module and launches from it
            calls.append(1)
            return torch.special.erfcx(values)
        result = gpuprof.benchmark(loads, max_time_s=1.0, progress=False)
        assert (result.mode, result.gate) == ("graph", "gated"), result
        assert result.max_ms < 1.0, result
    """)


@needs_the_gpu_alone
@pytest.mark.parametrize("mode", _MODES)
def test_under_launch_blocking_nothing_hangs_and_the_result_says_so(mode: str, torch: Any) -> None:
    script = f"""
        import gpuprof, torch
        ones = torch.ones(1 << 20, device="cuda")
        result = gpuprof.benchmark(
            torch.add, (ones, ones), mode={mode!r}, max_time_s=1.0, progress=False
        )
        assert result.gate != "gated", result
        assert any("CUDA_LAUNCH_BLOCKING" in warning for warning in result.warnings), result
        assert 0.0 < result.median_ms < 1.0, result
    """
    check_python(textwrap.dedent(script), timeout=60, CUDA_LAUNCH_BLOCKING="1")


@pytest.mark.parametrize("mode", ["graph", "batched", "isolated"])
def test_the_random_generators_are_as_they_were(mode: str, torch: Any) -> None:
    random.seed(7)
    torch.manual_seed(7)
    torch.rand(5, device="cuda")
    before = random.getstate(), torch.get_rng_state(), torch.cuda.get_rng_state()
    on_gpu = torch.rand(16, device="cuda")
    torch.cuda.set_rng_state(before[2])

    def draw() -> None:
        random.random()
        torch.rand(16)
        torch.rand(16, device="cuda")

    result = measure(draw, mode=mode)
    assert result.mode == mode
    assert random.getstate() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])
    assert torch.equal(torch.cuda.get_rng_state(), before[2])
    assert torch.equal(torch.rand(16, device="cuda"), on_gpu)


@pytest.mark.parametrize("mode", ["auto", "graph"])
def test_what_cannot_be_captured_is_batched_and_the_result_says_why(mode: str, torch: Any) -> None:
    ones = torch.ones(1024, device="cuda")

    def asks_the_stream() -> None:
        torch.add(ones, ones)
        torch.cuda.current_stream().query()  # allowed, but not while the stream is captured

    result = measure(asks_the_stream, mode=mode)
    assert (result.mode, result.requested_mode, result.clock) == ("batched", mode, "cuda")
    assert says(result, "captur")


@pytest.mark.parametrize("at", [1, 2, 5, 20, 100, 400])
def test_an_interrupt_opens_the_gate(at: int, torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # No watchdog comes to help: a gate that stayed shut would hold the stream for an hour.
    monkeypatch.setattr("gpuprof._benchmark.gate.LIMIT_S", 3600.0)
    ones = torch.ones(1024, device="cuda")
    call = Interrupted(lambda: torch.add(ones, ones), KeyboardInterrupt(), at)
    with pytest.raises(KeyboardInterrupt):
        measure(call, mode="batched", warmup_s=0.0)
    torch.cuda.synchronize()


def test_the_result_of_the_last_call_is_not_kept_alive(torch: Any) -> None:
    ones = torch.ones(1 << 20, device="cuda")
    measure(torch.add, (ones, ones), mode="graph")
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(3):
        measure(torch.add, (ones, ones), mode="graph")
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() <= before
