"""Calls that a graph answers: what they give, and which memory it is in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gpuprof
from tests.fake_driver.control import FakeCuda
from tests.support import stand_in_cupy
from tests.support.callables import US, Counted, make, on_streams, twice
from tests.support.processes import check_cuda
from tests.support.stand_in_cupy import MemoryPointer, installed
from tests.support.stand_in_exchange import ExchangingArray
from tests.support.structures import Batch, Pair


@pytest.fixture(params=["interface", "exchange"])
def cupy(fake: FakeCuda, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The stand-in with arrays that tell of themselves in one way or the other."""
    kind = ExchangingArray if request.param == "exchange" else stand_in_cupy.ndarray
    with installed(fake, kind) as module:
        yield module


def test_a_call_replays_and_gives_what_the_function_would(cupy: Any) -> None:
    runs = Counted()
    fast = make(twice(cupy, runs), cupy.array([0.0, 0.0]))
    ran = runs()
    for value in range(5):
        x = cupy.array([value, -value])
        result = fast(x)
        assert type(result) is cupy.ndarray
        assert result.tolist() == [value, -value] * 2
        assert x.tolist() == [value, -value]
    assert runs() == ran
    stats = fast.stats()
    assert (stats.replays, stats.hits, stats.eager_calls, stats.captures) == (5, 5, 0, 1)
    assert fast.generation == 5


def test_arguments_may_change_while_calls_are_in_flight(cupy: Any) -> None:
    fast = make(twice(cupy), cupy.array([0, 0], "i4"))
    cupy.fake.configure(mode="manual")
    # The arguments are gone when they are read, and their memory is given out again.
    results = [fast(cupy.array([value, 1 - value], "i4")) for value in range(200)]
    cupy.fake.configure(mode="auto")
    assert [each.tolist() for each in results] == [[v, 1 - v] * 2 for v in range(200)]
    assert len({each.data.ptr for each in results}) == 200
    assert fast.stats().replays == 200


def test_static_results_are_the_same_arrays_and_can_be_told_stale(cupy: Any) -> None:
    fast = make(twice(cupy), cupy.array([0.0]), outputs="static")
    first = fast(cupy.array([1.0]))
    before = fast.generation
    assert first.tolist() == [1.0, 1.0]
    assert fast(cupy.array([2.0])) is first
    assert first.tolist() == [2.0, 2.0]
    assert fast.generation == before + 1
    fast.graph.launch()
    assert fast.generation == before + 2


def test_static_results_cost_no_copy(cupy: Any) -> None:
    x = cupy.array([0.0])
    copying = make(twice(cupy), x).graph.num_nodes
    assert make(twice(cupy), x, outputs="static").graph.num_nodes == copying - 1


def test_structures_go_in_and_come_out_as_they_are(cupy: Any) -> None:
    def body(batch: Batch, pairs: list[Any], *, table: dict[str, Any]) -> Any:
        both = cupy.empty((2,))
        both[:1] = batch.x
        both[1:] = table["b"]
        return {"both": both, "again": (both, None, batch.scale), "pair": Pair(both[:1], pairs[1])}

    def arguments(a: float, b: float) -> tuple[Any, ...]:
        return (Batch(cupy.array([a]), 0.5), [True, "x", None]), {"table": {"b": cupy.array([b])}}

    args, kwargs = arguments(0, 0)
    fast = gpuprof.make_graphed_callable(body, args, kwargs, verify="off")
    args, kwargs = arguments(1, 2)
    result = fast(*args, **kwargs)
    assert list(result) == ["both", "again", "pair"]
    assert result["both"].tolist() == [1, 2]
    assert result["again"] == (result["both"], None, 0.5)
    assert result["again"][0] is result["both"]
    assert type(result["pair"]) is Pair
    assert (result["pair"].left.tolist(), result["pair"].right) == ([1], "x")
    assert fast.stats().replays == 1


def test_an_argument_that_is_returned_comes_back_with_its_value(cupy: Any) -> None:
    fast = make(lambda x: (x, x[1:]), cupy.array([0.0, 0.0]))
    whole, part = fast(cupy.array([1.0, 2.0]))
    assert (whole.tolist(), part.tolist()) == ([1, 2], [2])


def test_arrays_without_elements_pass(cupy: Any) -> None:
    fast = make(lambda x, y: (x[:0], y.copy()), cupy.array([]), cupy.array([1.0]))
    none, one = fast(cupy.array([]), cupy.array([2.0]))
    assert (none.shape, one.tolist()) == ((0,), [2.0])
    assert fast.stats().replays == 1


def test_a_function_without_results_gives_none(cupy: Any) -> None:
    total = cupy.array([0.0])

    def body(x: Any) -> None:
        total[...] = x

    fast = make(body, cupy.array([1.0]))
    assert fast(cupy.array([7.0])) is None
    assert total.tolist() == [7.0]


# What the copies in the graph cannot take.


def test_arrays_of_other_strides_have_graphs_of_their_own(cupy: Any) -> None:
    square = cupy.array([1, 2, 3, 4], shape=(2, 2))
    fast = make(lambda x: x.copy(), square)
    assert fast(square.T).tolist() == [1, 3, 2, 4]
    wide = cupy.array(range(8), shape=(2, 4))
    for _ in range(2):
        assert fast(wide[:, ::2]).tolist() == [0, 2, 4, 6]
        assert fast(square).tolist() == [1, 2, 3, 4]
    stats = fast.stats()
    assert (stats.captures, stats.replays, stats.eager_calls) == (3, 5, 0)


def test_the_stride_of_a_dimension_of_one_element_is_no_matter(cupy: Any) -> None:
    fast = make(lambda x: x.copy(), cupy.array([1.0, 2.0], shape=(1, 2)))
    wide = cupy.array(range(8), shape=(2, 4))
    assert fast(wide[:1, :2]).tolist() == [0, 1]
    assert (fast.stats().captures, fast.stats().replays) == (1, 1)


def test_results_have_the_strides_of_the_function_s_where_these_are_dense(cupy: Any) -> None:
    fast = make(lambda x: (x.T, x[:, ::2]), cupy.array(range(8), shape=(2, 4)))
    turned, cut = fast(cupy.array(range(8), shape=(2, 4)))
    assert (turned.shape, turned.strides) == ((4, 2), (4, 16))
    assert turned.tolist() == [0, 4, 1, 5, 2, 6, 3, 7]
    assert (cut.shape, cut.tolist()) == ((2, 2), [0, 2, 4, 6])


class Pinned:
    """Host memory that the device can read."""

    def __init__(self, fake: FakeCuda, size: int) -> None:
        self._fake = fake
        self.ptr = fake.host_allocate(size)

    def __del__(self) -> None:
        self._fake.stream_synchronize(0)
        self._fake.host_free(self.ptr)


def pinned(cupy: Any, values: list[float]) -> Any:
    x = cupy.ndarray((len(values),), "f4", MemoryPointer(Pinned(cupy.fake, 512), 0))
    x[...] = cupy.array(values)
    return x


def test_memory_that_the_graph_s_copies_refuse_goes_through_other_memory(cupy: Any) -> None:
    fast = make(twice(cupy), cupy.array([0.0, 0.0]))
    outside = pinned(cupy, [1.0, 2.0])
    for _ in range(2):
        assert fast(outside).tolist() == [1, 2, 1, 2]
        assert fast(cupy.array([3.0, 4.0])).tolist() == [3, 4, 3, 4]
    assert (fast.stats().captures, fast.stats().replays) == (1, 4)
    cupy.fake.stream_synchronize(cupy.cuda.get_current_stream().ptr)


def test_results_in_memory_that_the_copies_refuse_are_filled_all_the_same(cupy: Any) -> None:
    fast = make(twice(cupy), cupy.array([0.0]))
    x = cupy.array([5.0])
    with cupy.cuda.using_allocator(lambda size: MemoryPointer(Pinned(cupy.fake, size), 0)):
        result = fast(x)
    assert result.tolist() == [5, 5]
    assert fast(x).tolist() == [5, 5]
    assert fast.stats().replays == 2


# Arguments that are written to.


def test_what_the_function_writes_to_its_arguments_comes_back(cupy: Any) -> None:
    def body(x: Any, y: Any) -> Any:
        x[...] = y
        return y[:1]

    fast = make(body, cupy.array([1.0, 2.0]), cupy.array([3.0, 4.0]))
    x, y = cupy.array([0.0, 0.0]), cupy.array([5.0, 6.0])
    assert fast(x, y).tolist() == [5]
    assert (x.tolist(), y.tolist()) == ([5, 6], [5, 6])
    wide = cupy.array([0.0] * 4)
    fast(wide[::2], y)  # with a graph of its own
    assert wide.tolist() == [5, 0, 6, 0]
    outside = pinned(cupy, [0.0, 0.0])
    fast(outside, y)
    assert outside.tolist() == [5, 6]
    assert fast.stats().replays == 3


@pytest.mark.parametrize("warmup", [0, 1, 3])
@pytest.mark.parametrize(("writes", "copies"), [("auto", 7), (("x",), 6), (("args[0]",), 6)])
def test_what_is_written_comes_back_where_real_calls_warm_up(
    cupy: Any, warmup: int, writes: Any, copies: int
) -> None:
    def body(x: Any, y: Any) -> Any:
        x[...] = y
        return y.copy()

    fast = gpuprof.make_graphed_callable(body, warmup=warmup, writes=writes)
    for value in range(5):
        x, y = cupy.array([0.0]), cupy.array([value + 1.0])
        assert fast(x, y).tolist() == x.tolist() == y.tolist() == [value + 1]
    assert fast.stats().replays == 5 - warmup
    # Of work that torch does not know, all arguments count as written, or those that are named.
    assert [each.type for each in fast.graph.nodes].count("memcpy") == copies


def test_a_sample_is_not_written_to(cupy: Any) -> None:
    def body(x: Any) -> None:
        x[:1] = x[1:]

    x = cupy.array([1.0, 2.0])
    make(body, x)
    assert x.tolist() == [1.0, 2.0]


def test_what_a_call_has_written_is_told_once(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    tell = lambda *arrays: told.append(arrays)  # noqa: E731
    monkeypatch.setattr("gpuprof._callable.capture.after_run", lambda *_, **__: tell)

    def body(x: Any, y: Any, z: Any) -> None:
        cupy.launch("fill")
        x[:] = y
        z[:] = y

    x, y, z = (cupy.array([value]) for value in (1.0, 2.0, 3.0))
    fast = make(body, x, y, z, writes=("x", "z"))
    fast(x, y, z)
    ((first, last),) = told
    assert first is x
    assert last is z


def test_arguments_that_overlap_one_that_is_written_to_run_eagerly(cupy: Any) -> None:
    def body(x: Any, y: Any) -> None:
        x[...] = y

    fast = make(body, cupy.array([1.0, 2.0]), cupy.array([3.0, 4.0]))
    both = cupy.array([1.0, 2.0, 3.0])
    fast(both[:2], both[1:])
    assert both.tolist() == [2, 3, 3]
    assert (fast.stats().eager_calls, fast.stats().replays) == (1, 0)
    fast(cupy.array([1.0, 2.0]), both[1:])
    assert (fast.stats().eager_calls, fast.stats().replays) == (1, 1)


def test_overlapping_arguments_are_found_whatever_their_strides(cupy: Any) -> None:
    ones = cupy.array([1.0] * 4)

    def body(x: Any, y: Any) -> Any:
        x[...] = ones
        return y.copy()

    fast = make(body, cupy.array([0.0] * 4), cupy.array([0.0] * 4), writes=("x",))
    for first, second in [
        (slice(0, 8, 2), slice(5, 9)),
        (slice(5, 9), slice(0, 8, 2)),
        (slice(8, 4, -1), slice(3, 7)),
        (slice(3, 7), slice(8, 4, -1)),
    ]:
        given, wanted = cupy.array([0.0] * 10), cupy.array([0.0] * 10)
        result = fast(given[first], given[second])
        assert result.tolist() == body(wanted[first], wanted[second]).tolist()
        assert given.tolist() == wanted.tolist()
    assert fast.stats().eager_calls == 4
    apart = cupy.array([0.0] * 20)
    assert fast(apart[:8:2], apart[8:12]).tolist() == [0.0] * 4
    assert fast.stats().replays == 1


def test_arguments_that_are_only_read_may_be_one_array(cupy: Any) -> None:
    def body(x: Any, y: Any) -> Any:
        both = cupy.empty((2,))
        both[:1] = x
        both[1:] = y
        return both

    x = cupy.array([7.0])
    for writes, replays in (((), 1), ("auto", 0)):  # it may write to all that is not excluded
        fast = make(body, cupy.array([1.0]), cupy.array([3.0]), writes=writes)
        assert fast(x, x).tolist() == [7, 7]
        assert (fast.stats().replays, fast.stats().eager_calls) == (replays, 1 - replays)


# Streams and threads.


def test_calls_on_two_streams_run_one_after_the_other(cupy: Any) -> None:
    fast = make(twice(cupy, ns=1_000 * US), cupy.array([0], "i4"))
    fast(cupy.array([0, 0], "i4"))  # another graph: what is of one graph, the driver orders
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    given = [[value] * (1 + value % 2) for value in range(10)]
    cupy.cuda.get_current_stream().synchronize()
    cupy.fake.configure(mode="manual")
    before, results = cupy.fake.now(), []
    for value, values in enumerate(given):
        with streams[value % 2]:
            results.append(fast(cupy.array(values, "i4")))
    cupy.fake.configure(mode="auto")
    for stream in streams:
        stream.synchronize()
    assert cupy.fake.now() - before >= 10 * 1_000 * US
    assert [each.tolist() for each in results] == [values * 2 for values in given]


def test_threads_call_at_once(cupy: Any) -> None:
    fast = make(twice(cupy), cupy.array([0, 0], "i4"))

    def work(first: int) -> None:
        for value in range(first, first + 50):
            assert fast(cupy.array([value, -value], "i4")).tolist() == [value, -value] * 2

    on_streams(cupy, *[lambda first=first: work(first) for first in (0, 100, 200)])
    assert fast.stats().replays == 150


def test_the_legacy_default_stream_serves(cupy: Any) -> None:
    with cupy.cuda.Stream._of(0):
        fast = make(twice(cupy), cupy.array([1.0]))
        assert fast(cupy.array([2.0])).tolist() == [2, 2]


def test_a_call_in_a_capture_becomes_part_of_it(cupy: Any) -> None:
    runs = Counted()
    fast = make(twice(cupy, runs), cupy.array([1.0]))
    ran, x = runs(), cupy.array([1.0])
    with gpuprof.capture() as cap:
        result = fast(x)
    assert runs() == ran + 1
    assert cap.graph.kernel_names() == ["twice"]
    x[...] = cupy.array([9.0])
    cap.graph.launch()
    assert result.tolist() == [9, 9]
    assert (fast.stats().eager_calls, fast.stats().replays) == (1, 0)
    assert fast(x).tolist() == [9, 9]


def test_a_call_in_a_capture_adds_nothing_but_the_function_s_own_work(cupy: Any) -> None:
    def body(x: Any) -> None:
        cupy.launch("own")

    fast = make(body, cupy.array([1.0, 2.0]))
    wide = cupy.array([0.0] * 4)
    with gpuprof.capture() as cap:
        fast(wide[::2])
    assert [each.type for each in cap.graph.nodes] == ["kernel"]


def test_a_callable_inside_of_another_becomes_part_of_its_graph(cupy: Any) -> None:
    inner = make(twice(cupy), cupy.array([1.0]))
    outer = make(lambda x: inner(x).copy(), cupy.array([1.0]))
    replayed = inner.stats().replays
    assert replayed == 3, "it replays in the warm-up of the outer one"
    assert outer(cupy.array([5.0])).tolist() == [5, 5]
    assert outer.graph.kernel_names() == ["twice"]
    assert inner.stats().replays == replayed


@pytest.mark.parametrize("version", [12000, 12020])
def test_calls_replay_with_the_oldest_drivers(fake_path: Path, version: int) -> None:
    check_cuda(
        fake_path,
        """
        from tests.support.callables import twice
        from tests.support.stand_in_cupy import installed
        with installed(fake) as cupy:
            fast = gpuprof.make_graphed_callable(twice(cupy), (cupy.array([1.0]),))
            assert fast(cupy.array([2.0])).tolist() == [2, 2]
            assert fast.stats().replays == 1
            del fast
        """,
        FAKECUDA_CONFIG=f"driver_version={version}",
    )
