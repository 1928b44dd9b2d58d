"""Which stream a call of a graphed callable is on: that of the library of its arrays."""

from __future__ import annotations

import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gpuprof
from gpuprof._callable.placement import Place
from gpuprof._frameworks.arrays import CupyArrays
from tests.fake_driver.control import FakeCuda
from tests.support import stand_in_numba
from tests.support.callables import US, called_before_a_copy, twice
from tests.support.processes import check_cuda
from tests.support.stand_in_cupy import MemoryPointer, Stream, installed
from tests.support.stand_in_exchange import ExchangingArray
from tests.support.threads import PATIENCE_S

# Torch, and CuPy whose current stream is another one.
TORCH_AND_CUPY = """
from tests.support import stand_in_torch
from tests.support.callables import twice
from tests.support.stand_in_cupy import installed
torch = stand_in_torch.install_on(fake).torch
side = torch.cuda.Stream()
with installed(fake) as cupy:
"""


def check_beside_torch(fake_path: Path, body: str) -> None:
    check_cuda(fake_path, TORCH_AND_CUPY + textwrap.indent(textwrap.dedent(body), "    "))


@pytest.mark.parametrize("stride", [1, 2])
def test_a_call_with_cupys_arrays_is_on_cupys_stream(fake_path: Path, stride: int) -> None:
    check_beside_torch(
        fake_path,
        f"""
        fast = gpuprof.make_graphed_callable(twice(cupy, ns=1_000_000), (cupy.array([0.0, 0.0]),))
        given = cupy.array([3.0] * {2 * stride})[::{stride}]
        cupy.cuda.get_current_stream().synchronize()
        fake.configure(mode="manual")
        with torch.cuda.stream(side):
            seen = fast(given).copy()
        fake.configure(mode="auto")
        assert seen.tolist() == [3] * 4
        assert fast.stats().replays == 1
        del fast, given, seen
        """,
    )


def test_a_closure_with_cupys_results_is_on_cupys_stream(fake_path: Path) -> None:
    check_beside_torch(
        fake_path,
        """
        stream, given = cupy.cuda.get_current_stream(), cupy.array([0.0])
        fast = gpuprof.make_graphed_callable(
            lambda: twice(cupy, ns=1_000_000)(given), (), stream=stream
        )
        given[...] = cupy.array([3.0])
        stream.synchronize()
        fake.configure(mode="manual")
        with torch.cuda.stream(side):
            seen = fast().copy()
        fake.configure(mode="auto")
        assert seen.tolist() == [3, 3]
        del fast, given, seen
        """,
    )


@pytest.mark.parametrize("size", [1, 2])
def test_a_call_is_in_a_capture_of_its_own_librarys_stream(fake_path: Path, size: int) -> None:
    check_beside_torch(
        fake_path,
        f"""
        fast = gpuprof.make_graphed_callable(twice(cupy), (cupy.array([0.0]),))
        given = cupy.array([3.0] * {size})
        with torch.cuda.stream(side):
            with gpuprof.capture(cupy.cuda.get_current_stream()) as cap:
                fast(given)
        assert cap.graph.kernel_names() == ["twice"]
        seen = fast.stats()
        assert (seen.captures, seen.replays, seen.eager_calls) == (1, 0, 1)
        del fast, given, cap
        """,
    )


@pytest.mark.parametrize(("size", "replays"), [(1, 1), (2, 0)], ids=["graphed", "new"])
def test_a_call_is_not_in_a_capture_of_another_librarys_stream(
    fake_path: Path, size: int, replays: int
) -> None:
    check_beside_torch(
        fake_path,
        f"""
        fast = gpuprof.make_graphed_callable(twice(cupy), (cupy.array([0.0]),))
        given = cupy.array([3.0] * {size})
        fake.begin_capture(side.cuda_stream)
        with torch.cuda.stream(side):
            result = fast(given)
        assert fake.node_types(graph := fake.end_capture(side.cuda_stream)) == []
        fake.graph_destroy(graph)
        assert result.tolist() == [3] * {2 * size}
        assert (fast.stats().replays, fast.stats().eager_calls) == ({replays}, {1 - replays})
        del fast, given, result
        """,
    )


@pytest.fixture
def numba(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A Numba whose arrays are the fake driver's, beside a CuPy with a stream of its own."""
    return stand_in_numba.install(monkeypatch)


def slow_copy(cupy: Any, stream: Any) -> Any:
    """Return a function that copies one of Numba's arrays to another on a stream, slowly."""

    def body(x: Any, out: Any) -> None:
        cupy.fake.kernel(stream.ptr, "wait", 1_000 * US)
        out.copy_to_device(x, stream=stream)

    return body


@pytest.mark.parametrize("stride", [1, 2])
def test_a_call_with_numbas_arrays_is_on_the_stream_it_was_made_with(
    cupy: Any, numba: Any, stride: int
) -> None:
    stream = Stream(non_blocking=True)
    samples = numba.to_device([1.0, 1.0]), numba.to_device([0.0, 0.0])
    fast = gpuprof.make_graphed_callable(slow_copy(cupy, stream), samples, stream=stream)
    x, out = (numba.to_device([value] * 2 * stride)[::stride] for value in (3.0, 0.0))
    seen = numba.to_device([0.0, 0.0])
    stream.synchronize()
    cupy.fake.configure(mode="manual")
    fast(x, out)
    seen.setitem((slice(None),), out, stream=stream)
    cupy.fake.configure(mode="auto")
    assert seen.copy_to_host(stream) == [3, 3]
    assert fast.stats().replays == 1


def test_without_a_stream_a_call_with_numbas_arrays_is_on_the_default_one(
    cupy: Any, numba: Any
) -> None:
    current = cupy.cuda.get_current_stream()
    samples = numba.to_device([1.0]), numba.to_device([0.0])
    # Without a graph the function runs beside the default stream, and not in its order.
    fast = gpuprof.make_graphed_callable(slow_copy(cupy, current), samples, verify="off")
    x, out, seen = (numba.to_device([value]) for value in (3.0, 0.0, 0.0))
    Stream._of(0).synchronize()
    cupy.fake.configure(mode="manual")
    fast(x, out)
    seen.copy_to_device(out, stream=0)
    cupy.fake.configure(mode="auto")
    assert seen.copy_to_host() == [3]
    assert fast.stats().replays == 1


class OfDriverPool:
    """Memory of the driver's pool, which the nodes of a graph do not take in place of another's."""

    def __init__(self, fake: Any, size: int) -> None:
        self._fake = fake
        self.ptr = fake.stream_allocate(size, 0)

    def __del__(self) -> None:
        self._fake.stream_free(self.ptr, 0)
        self._fake.stream_synchronize(0)


def calling(cupy: Any, fast: Any, given: Any, results: list[Any]) -> Callable[[], None]:
    context = cupy.fake.current_context()
    stream = Stream(non_blocking=True)

    def call() -> None:
        cupy.fake.set_current(context)
        with stream:
            results.append(fast(given))
        stream.synchronize()

    return call


def test_a_result_is_fetched_before_another_threads_call_overwrites_it(
    cupy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast = gpuprof.make_graphed_callable(twice(cupy), (cupy.array([0.0]),))
    given, others = cupy.array([5.0]), cupy.array([7.0])
    cupy.cuda.get_current_stream().synchronize()
    results: list[Any] = []
    refused = MemoryPointer(OfDriverPool(cupy.fake, 512), 0)
    with (
        called_before_a_copy(
            monkeypatch,
            CupyArrays,
            lambda static: static.data is refused,
            calling(cupy, fast, others, results),
        ),
        cupy.cuda.using_allocator(lambda _size: refused),
    ):
        result = fast(given)
    assert result.tolist() == [5, 5]
    assert [each.tolist() for each in results] == [[7, 7]]
    assert fast.stats().replays == 2


def test_what_was_written_comes_back_before_another_threads_call_overwrites_it(
    cupy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def body(x: Any, y: Any) -> None:
        x[...] = y

    samples = cupy.array([0.0, 0.0]), cupy.array([1.0, 1.0])
    fast = gpuprof.make_graphed_callable(body, samples)
    wide = cupy.array([0.0] * 4)[::2]
    others = cupy.array([0.0, 0.0])
    ys = cupy.array([5.0, 5.0]), cupy.array([7.0, 7.0])
    cupy.cuda.get_current_stream().synchronize()
    with called_before_a_copy(
        monkeypatch,
        CupyArrays,
        lambda static: static is wide,
        calling(cupy, lambda x: fast(x, ys[1]), others, []),
    ):
        fast(wide, ys[0])
    assert (wide.tolist(), others.tolist()) == ([5, 5], [7, 7])
    assert fast.stats().replays == 2


def test_a_call_that_fails_after_its_launch_lets_the_next_ones_run(
    cupy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast = gpuprof.make_graphed_callable(twice(cupy), (cupy.array([0.0]),))
    given = cupy.array([5.0])
    refused = MemoryPointer(OfDriverPool(cupy.fake, 512), 0)
    with monkeypatch.context() as patch, cupy.cuda.using_allocator(lambda _size: refused):

        def fail(*_: Any) -> None:
            raise ArithmeticError

        patch.setattr(CupyArrays, "fill", fail)
        with pytest.raises(ArithmeticError):
            fast(given)
    results: list[Any] = []
    thread = threading.Thread(target=calling(cupy, fast, given, results))
    thread.start()
    thread.join(PATIENCE_S)
    assert [each.tolist() for each in results] == [[5, 5]]


def test_the_exchange_api_is_asked_for_arrays_and_for_the_stream(
    fake: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = Place.__init__

    def told_by_the_arrays(self: Place, *args: Any) -> None:
        begin(self, *args)
        self.stream_type = ExchangingArray

    monkeypatch.setattr(Place, "__init__", told_by_the_arrays)
    with installed(fake, ExchangingArray) as cupy:
        fast = gpuprof.make_graphed_callable(twice(cupy), (cupy.array([0.0]),))
        looks, asked = ExchangingArray.looks, ExchangingArray.asked_for_streams
        result = fast(cupy.array([4.0]))
        assert ExchangingArray.looks == looks + 2  # the argument and the result
        assert ExchangingArray.asked_for_streams == asked + 1
        assert result.tolist() == [4, 4]
        del fast, result
