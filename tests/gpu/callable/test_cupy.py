"""Graphed calls of functions that use CuPy alone, or Numba's arrays, and of both beside torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import gpuprof
from tests.gpu.support.callables import assert_counts, assert_replays
from tests.gpu.support.frameworks import cupy_or_skip, numba_cuda_or_skip, torch_or_skip
from tests.gpu.support.kernels import device


@pytest.fixture
def cupy() -> Iterator[Any]:
    cupy = cupy_or_skip()
    allocator = cupy.cuda.get_allocator()
    stream = cupy.cuda.get_current_stream()
    yield cupy
    assert cupy.cuda.get_allocator() == allocator
    assert cupy.cuda.get_current_stream() == stream


@pytest.fixture
def stream(cupy: Any) -> Iterator[Any]:
    """A stream of CuPy's, current for the test."""
    with cupy.cuda.Stream(non_blocking=True) as current:
        yield current


def work(values: Any, more: Any) -> dict[str, Any]:
    """Compute with temporaries."""
    return {"sum": (values + 1) * (values - 1) + more * 2, "first": values[:2] * 3}


def test_results_in_flight_are_all_right(cupy: Any, stream: Any) -> None:
    given = tuple(cupy.zeros((64, 64), dtype=cupy.float32) for _ in range(2))
    fast = gpuprof.make_graphed_callable(work, given, writes=())
    found = []
    for step in range(100):
        values = cupy.full((64, 64), float(step), dtype=cupy.float32)
        found.append(fast(values, values)["sum"])
        cupy.full((64, 64), -1.0, dtype=cupy.float32)  # takes the argument's memory
    stream.synchronize()
    for step, result in enumerate(found):
        assert bool((result == (step + 1) * (step - 1) + 2 * step).all())
    assert_replays(fast, 100)


def test_arrays_of_the_driver_pool_are_staged(cupy: Any, stream: Any) -> None:
    given = tuple(cupy.zeros((16, 24), dtype=cupy.float32) for _ in range(2))
    fast = gpuprof.make_graphed_callable(work, given)
    pool = cupy.cuda.MemoryAsyncPool()
    for seed in range(3):
        with cupy.cuda.using_allocator(pool.malloc):
            values, more = (cupy.full((16, 24), seed + by, dtype="f4") for by in (0, 7))
        found, wanted = fast(values, more), work(values, more)
        assert bool((found["sum"] == wanted["sum"]).all())
    assert_replays(fast, 3)


@dataclass
class OfNumba:
    """A kernel of Numba's that adds 1, what runs it on a stream, and arrays for it."""

    cuda: Any
    numpy: Any
    stream: Any
    handle: int
    run: Callable[[Any, Any], None]

    def arrays(self, value: float) -> tuple[Any, Any]:
        """Return 100 such values, and as many zeros, made on the stream."""
        values, result = self.numpy.full(100, value), self.numpy.zeros(100)
        return tuple(self.cuda.to_device(each, stream=self.stream) for each in (values, result))


@pytest.fixture
def of_numba(monkeypatch: pytest.MonkeyPatch) -> OfNumba:
    cuda = numba_cuda_or_skip(monkeypatch)
    numpy = pytest.importorskip("numpy", reason="NumPy (for Numba) is not installed")

    @cuda.jit
    def add(values: Any, result: Any) -> None:
        index = cuda.grid(1)
        if index < values.size:
            result[index] = values[index] + 1

    handle = device().stream()
    stream = cuda.external_stream(handle)

    def run(values: Any, result: Any) -> None:
        add[2, 64, stream](values, result)

    return OfNumba(cuda, numpy, stream, handle, run)


def test_a_kernel_of_numba(of_numba: OfNumba) -> None:
    fast = gpuprof.make_graphed_callable(of_numba.run, of_numba.arrays(1.0), stream=of_numba.handle)
    for step in range(3):
        values, result = of_numba.arrays(float(step))
        assert fast(values, result) is None
        of_numba.cuda.synchronize()
        assert result.copy_to_host().tolist() == [step + 1.0] * 100
    assert_replays(fast, 3)


HELD = 50_000_000  # cycles: torch's stream is busy for some 25 ms


def test_calls_inside_a_stream_of_torchs_are_on_cupys(cupy: Any, stream: Any) -> None:
    torch = torch_or_skip()
    given = tuple(cupy.zeros((64, 64), dtype=cupy.float32) for _ in range(2))
    fast = gpuprof.make_graphed_callable(work, given, writes=())
    stream.synchronize()
    found = []
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(HELD)
        for step in range(20):
            values = cupy.full((64, 64), float(step), dtype=cupy.float32)
            found.append(fast(values, values)["sum"].copy())
    stream.synchronize()
    for step, result in enumerate(found):
        assert bool((result == (step + 1) * (step - 1) + 2 * step).all()), step
    assert_replays(fast, 20)
    torch.cuda.synchronize()


@pytest.mark.parametrize("size", [8, 16], ids=["graphed", "new"])
def test_a_call_in_a_capture_of_cupys_stream_inside_one_of_torchs(
    cupy: Any, stream: Any, size: int
) -> None:
    torch = torch_or_skip()
    fast = gpuprof.make_graphed_callable(
        lambda values: values * 2, (cupy.ones(8, dtype=cupy.float32),)
    )
    values = cupy.arange(size, dtype=cupy.float32)
    with torch.cuda.stream(torch.cuda.Stream()), gpuprof.capture(stream) as cap:
        found = fast(values)
    assert_counts(fast, captures=1, replays=0, eager_calls=1)
    values += 1
    cap.graph.launch(stream)
    assert bool((found == values * 2).all())


def test_calls_with_arrays_of_numba_inside_a_stream_of_torchs(of_numba: OfNumba) -> None:
    torch = torch_or_skip()
    fast = gpuprof.make_graphed_callable(of_numba.run, of_numba.arrays(1.0), stream=of_numba.handle)
    of_numba.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(HELD)
        for step in range(3):
            values, result = of_numba.arrays(float(step))
            fast(values, result)
            found = result.copy_to_host(stream=of_numba.stream)
            of_numba.stream.synchronize()
            assert found.tolist() == [step + 1.0] * 100
    assert_replays(fast, 3)
    torch.cuda.synchronize()


def test_an_array_of_cupy_as_an_argument_of_a_torch_function(cupy: Any) -> None:
    torch = torch_or_skip()

    def scaled(values: Any, by: Any) -> Any:
        return values * torch.from_dlpack(by)

    values = torch.randn(8, device="cuda")
    cupy.cuda.Device().synchronize()
    fast = gpuprof.make_graphed_callable(scaled, (values, cupy.ones(8, dtype=cupy.float32)))
    for step in range(3):
        by = cupy.full(8, float(step), dtype=cupy.float32)
        cupy.cuda.Device().synchronize()
        assert torch.equal(fast(values, by), values * step)
    assert_replays(fast, 3)
