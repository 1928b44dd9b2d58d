"""What benchmark() measures on a real GPU: known times, cold caches, frameworks, companions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gpuprof
from tests.gpu.support.alone import ALONE
from tests.gpu.support.frameworks import cupy_or_skip
from tests.gpu.support.kernels import MILLISECOND, Spin, device
from tests.gpu.support.scripts import check_script, run_pytest

pytestmark = [*ALONE]

_US = 0.001  # in milliseconds


def measure(
    function: Callable[..., object], arguments: tuple[Any, ...] = (), **options: Any
) -> gpuprof.BenchResult:
    return gpuprof.benchmark(function, arguments, max_time_s=2.0, progress=False, **options)


def spinning(microseconds: int) -> tuple[int, Spin]:
    stream = device().stream()
    return stream, Spin(device(), stream, microseconds * MILLISECOND // 1000)


def own_ms(spin: Spin) -> float:
    spin.launch()
    return spin.milliseconds()


def add(elements: int, torch: Any) -> tuple[Callable[..., object], tuple[Any, Any]]:
    return torch.add, tuple(torch.rand(elements, device="cuda") for _ in range(2))


@pytest.mark.parametrize("microseconds", [50, 500])
def test_graph_mode_reads_the_kernels_own_time(microseconds: int) -> None:
    stream, spin = spinning(microseconds)
    result = measure(spin.launch, stream=stream, mode="graph")
    assert (result.mode, result.clock, result.gate) == ("graph", "cuda", "gated")
    own = own_ms(spin)
    assert abs(result.median_ms - own) <= max(0.03 * own, 1.0 * _US)


@pytest.mark.parametrize(("mode", "limit_us"), [("batched", 3.0), ("isolated", 8.0)])
def test_the_other_modes_read_a_little_more(mode: str, limit_us: float) -> None:
    stream, spin = spinning(500)
    result = measure(spin.launch, stream=stream, mode=mode)
    assert (result.mode, result.clock, result.gate) == (mode, "cuda", "gated")
    assert -1.0 * _US <= result.median_ms - own_ms(spin) <= limit_us * _US + 0.03 * 0.5


def test_a_result_says_how_it_was_measured(torch: Any) -> None:
    function, arguments = add(1024, torch)
    result = measure(function, arguments, name="small add")
    assert (result.name, result.mode, result.requested_mode) == ("small add", "graph", "auto")
    assert (result.clock, result.l2, result.gate) == ("cuda", "hot", "gated")
    assert result.count >= 30
    assert result.machine["gpu"] == torch.cuda.get_device_name()
    assert 0.0 < result.tick_ms < 1.0 * _US
    low, high = result.interval_ms
    assert low <= result.median_ms <= high
    assert high - low >= result.tick_ms
    assert result.host_ms > 0.0


def test_the_hosts_gaps_are_outside(torch: Any) -> None:
    function, arguments = add(1024, torch)

    def slow_to_queue() -> None:
        for _ in range(20_000):
            pass
        function(*arguments)

    fast = measure(function, arguments, mode="batched")
    slow = measure(slow_to_queue, mode="batched")
    assert slow.mode == "batched"
    assert slow.host_ms > 10 * slow.median_ms
    assert slow.median_ms < 2 * fast.median_ms


@pytest.mark.parametrize("mode", ["graph", "batched", "isolated"])
def test_patching_torchs_events_changes_no_result(
    mode: str, torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Event:
        def __init__(self, **_options: object) -> None:
            pass

        def record(self, _stream: object = None) -> None:
            pass

        def synchronize(self) -> None:
            pass

        def query(self) -> bool:
            return True

        def elapsed_time(self, _end: object) -> float:
            return 0.0

    call = functools.partial(torch.cuda._sleep, 400_000)
    before = measure(call, mode=mode)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    patched = measure(call, mode=mode)
    assert patched.mode == before.mode == mode
    assert patched.median_ms == pytest.approx(before.median_ms, rel=0.03)


def test_a_cold_l2_is_made_by_rotating_clones_and_reads_more(torch: Any) -> None:
    function, arguments = add(1024 * 1024, torch)
    hot = measure(function, arguments)
    cold = measure(function, arguments, cold_l2=True)
    assert (hot.l2, cold.l2) == ("hot", "rotated")
    assert cold.clock == "cuda"
    assert cold.median_ms > 1.1 * hot.median_ms


def test_where_clones_cannot_rotate_the_l2_is_flushed(torch: Any) -> None:
    function, arguments = add(1024, torch)
    cold = measure(function, arguments, mode="graph", cold_l2=True)
    assert (cold.l2, cold.mode) == ("flushed", "isolated")
    assert any("clones" in warning for warning in cold.warnings)
    assert cold.median_ms < 0.1  # the flush takes longer, and is outside


def test_a_function_of_cupys_is_timed() -> None:
    cupy = cupy_or_skip()
    ones = cupy.ones(1 << 26, dtype=cupy.float32)
    result = measure(cupy.add, (ones, ones))
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    begin.record()
    for _ in range(20):
        cupy.add(ones, ones)
    end.record()
    end.synchronize()
    assert result.clock == "cuda"
    assert result.mode in {"graph", "batched"}
    expected_ms = cupy.cuda.get_elapsed_time(begin, end) / 20
    assert result.median_ms == pytest.approx(expected_ms, rel=0.1)


@pytest.mark.parametrize("mode", ["graph", "batched", "isolated"])
def test_plain_driver_calls_are_timed_without_a_framework(mode: str) -> None:
    check_script(f"""
        import sys
        stream = device().stream()
        spin = Spin(device(), stream, MILLISECOND // 5)
        result = gpuprof.benchmark(
            spin.launch, stream=stream, mode={mode!r}, max_time_s=2.0, progress=False
        )
        assert (result.mode, result.clock) == ({mode!r}, "cuda"), result
        assert 0.199 <= result.median_ms <= 0.215, result.median_ms
        assert not {{"torch", "cupy"}} & sys.modules.keys()
    """)


def test_compare_finds_a_slower_function_and_lets_the_same_one_pass(torch: Any) -> None:
    found = gpuprof.compare(
        {
            "base": functools.partial(torch.cuda._sleep, 200_000),
            "same": functools.partial(torch.cuda._sleep, 200_000),
            "slower": functools.partial(torch.cuda._sleep, 240_000),
        },
        progress=False,
    )
    assert found["slower"].verdict is gpuprof.Verdict.SLOW
    assert found["slower"].ratio == pytest.approx(1.2, abs=0.02)
    assert found["same"].verdict not in {gpuprof.Verdict.SLOW, gpuprof.Verdict.FAST}
    assert all(result.clock == "cuda" for result in found.results)


def test_the_fixture_times_the_gpu_and_returns_what_the_function_returns(
    torch: Any, tmp_path: Path
) -> None:
    (tmp_path / "test_add.py").write_text(
        "import torch\n"
        "def test_add(gpu_benchmark):\n"
        "    ones = torch.ones(1 << 20, device='cuda')\n"
        "    assert float(gpu_benchmark(torch.add, ones, ones)[0]) == 2.0\n"
        "    assert gpu_benchmark.result.clock == 'cuda'\n"
        "    assert gpu_benchmark.result.median_ms < 1.0\n",
        encoding="utf-8",
    )
    done = run_pytest(tmp_path, "test_add.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test_add" in done.stdout
    assert torch.cuda.get_device_name() in done.stdout


def test_one_kernel_is_the_same_as_itself_in_turns() -> None:
    stream, spin = spinning(20)
    functions = {"one": spin.launch, "again": spin.launch}
    for seed in range(5):
        found = gpuprof.compare(functions, stream=stream, max_time_s=2.0, seed=seed)
        calls = {result.calls_per_sample for result in found.results}
        assert len(calls) == 1
        assert found["again"].verdict is not gpuprof.Verdict.SLOW
