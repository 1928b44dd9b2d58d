"""Calls that no graph fits: captured, run by the function, padded or refused, as was asked for."""

from __future__ import annotations

import gc
from typing import Any

import pytest

import gpuprof
from gpuprof import errors
from gpuprof.results import GraphedCallableStats
from tests.support.callables import Counted, counts, make, twice

SAMPLE = [0.0, 0.0]


def test_another_shape_is_captured_once(cupy: Any) -> None:
    runs = Counted()
    fast = make(twice(cupy, runs), cupy.array(SAMPLE), warmup=1)
    for _ in range(3):
        assert fast(cupy.array([1.0, 2.0, 3.0])).tolist() == [1, 2, 3] * 2
        assert fast(cupy.array([4.0, 5.0])).tolist() == [4, 5] * 2
    assert runs() == 4
    assert counts(fast, "captures", "replays", "eager_calls") == (2, 6, 0)
    assert [each.arguments for each in fast.stats().graphs] == [
        "args[0]: float32 (2,)",
        "args[0]: float32 (3,)",
    ]
    assert len(fast.graphs) == 2
    assert fast.graph is fast.graphs[0]


def test_another_dtype_constant_or_structure_is_another_graph(cupy: Any) -> None:
    def body(x: Any, *, scale: Any = None) -> Any:
        return x.copy() if scale is None else (x.copy(), scale)

    x = cupy.array(SAMPLE)
    fast = make(body, x)
    assert fast(cupy.array([1, 2], "i4")).tolist() == [1, 2]
    for scale in (1, True, 1.0, -0.0, 0.0):
        for _ in range(2):
            found = fast(x, scale=scale)[1]
            assert (type(found), str(found)) == (type(scale), str(scale))
    assert counts(fast, "captures", "hits", "misses") == (7, 5, 6)


def test_with_eager_another_shape_runs_the_function(cupy: Any) -> None:
    runs = Counted()
    fast = make(twice(cupy, runs), cupy.array(SAMPLE), on_new_shape="eager")
    ran = runs()
    for _ in range(3):
        assert fast(cupy.array([1.0])).tolist() == [1, 1]
    assert runs() == ran + 3
    assert fast(cupy.array([4.0, 5.0])).tolist() == [4, 5] * 2
    assert runs() == ran + 3
    assert counts(fast, "captures", "replays", "eager_calls") == (1, 1, 3)


def test_with_raise_every_difference_is_listed(cupy: Any) -> None:
    runs = Counted()

    def body(x: Any, table: dict[str, Any], scale: float, flag: Any = None) -> Any:
        runs.note()
        return x.copy()

    def arguments(shape: tuple[int, ...], dtype: str) -> tuple[Any, dict[str, Any]]:
        return cupy.empty((2,)), {"y": [cupy.empty(shape, dtype)]}

    fast = make(body, *arguments((2, 3), "f4"), 1.0, name="step", on_new_shape="raise")
    ran = runs()
    x, table = arguments((2, 4), "i4")
    with pytest.raises(errors.InvalidStateError) as caught:
        fast(x, table | {"z": None}, 2.0, flag=True)
    assert str(caught.value).splitlines() == [
        "step: no graph was captured for such a call (on_new_shape='raise')",
        "  args[1]['y'][0]: shape (2, 4), captured (2, 3)",
        "  args[1]['y'][0]: dtype int32, captured float32",
        "  args[1]['z']: None, captured without it",
        "  args[2]: 2.0, captured 1.0",
        "  kwargs['flag']: True, captured without it",
    ]
    assert runs() == ran
    fast(x, arguments((2, 3), "f4")[1], 1.0)
    assert counts(fast, "captures", "replays", "eager_calls") == (1, 1, 0)


# Graphs that are kept.


def test_the_least_recently_used_graph_goes(cupy: Any) -> None:
    runs = Counted()
    fast = make(twice(cupy, runs), cupy.array([0.0]), warmup=0, max_graphs=2)
    fast(cupy.array([0.0] * 2))
    fast(cupy.array([0.0]))
    fast(cupy.array([0.0] * 3))  # in the place of 2
    assert counts(fast, "captures", "evictions") == (3, 1)
    fast(cupy.array([0.0]))
    assert runs() == 3
    fast(cupy.array([0.0] * 2))  # in the place of 3
    assert runs() == 4
    assert counts(fast, "captures", "evictions", "replays") == (4, 2, 5)
    assert len(fast.graphs) == 2


def test_ever_new_shapes_hold_no_more_than_the_graphs_that_are_kept(cupy: Any) -> None:
    fast = make(twice(cupy), cupy.array([0.0]), warmup=0, max_graphs=2)

    def live_after(sizes: range) -> int:
        for size in sizes:
            assert fast(cupy.array([1.0] * size)).tolist() == [1.0] * (2 * size)
        gpuprof.flush()
        cupy.fake.stream_synchronize(0)
        gpuprof._core._release_idle()
        return cupy.fake.live()

    with pytest.warns(RuntimeWarning, match="8 graphs were captured and dropped again"):
        held = live_after(range(1, 20))
    assert live_after(range(20, 60)) == held
    assert counts(fast, "evictions") == (57,)


def test_an_evicted_graph_that_runs_still_finishes(cupy: Any) -> None:
    fast = make(twice(cupy), cupy.array([0.0]), warmup=0, max_graphs=1)
    cupy.fake.configure(mode="manual")
    first = fast(cupy.array([1.0]))
    second = fast(cupy.array([2.0, 3.0]))
    cupy.fake.configure(mode="auto")
    assert (first.tolist(), second.tolist()) == ([1, 1], [2, 3, 2, 3])


def test_reset_drops_the_graphs_and_the_next_call_captures_anew(cupy: Any) -> None:
    runs = Counted()
    fast = make(twice(cupy, runs), cupy.array([0.0]), warmup=0)
    first = fast(cupy.array([1.0]))
    fast.reset()
    assert (fast.graphs, fast.stats().graphs) == ((), ())
    with pytest.raises(errors.InvalidStateError, match="nothing was captured yet"):
        fast.graph  # noqa: B018
    assert fast(cupy.array([2.0])).tolist() == [2, 2]
    assert first.tolist() == [1, 1]
    assert (runs(), *counts(fast, "captures", "replays")) == (2, 2, 2)


# Capture when called.


@pytest.mark.parametrize(("given", "warmup"), [(0, 0), (1, 1), (3, 3), (None, 3)])
def test_without_samples_the_first_calls_run_eagerly(cupy: Any, given: Any, warmup: int) -> None:
    runs = Counted()
    fast = gpuprof.make_graphed_callable(twice(cupy, runs), warmup=given)
    assert runs() == 0
    for value in range(warmup):
        assert fast.graphs == ()
        assert fast(cupy.array([value])).tolist() == [value, value]
    assert (runs(), len(fast.graphs)) == (warmup, 0)
    for value in range(3):
        assert fast(cupy.array([value])).tolist() == [value, value]
    assert (runs(), len(fast.graphs)) == (warmup + 1, 1)
    assert counts(fast, "captures", "replays", "eager_calls") == (1, 3, 0)


def test_each_shape_is_warmed_up_by_calls_of_its_own(cupy: Any) -> None:
    fast = gpuprof.make_graphed_callable(twice(cupy), warmup=1)
    for size in (1, 2, 1, 2):
        fast(cupy.array([0.0] * size))
    assert counts(fast, "captures", "replays", "misses") == (2, 2, 4)


# Padding.


def padded_calls(cupy: Any, sizes: range, **options: Any) -> gpuprof.GraphedCallable:
    def body(x: Any, y: Any) -> Any:
        cupy.launch("pad")
        return x.copy(), [y.copy()], twice(cupy)(x)

    x, y = cupy.empty((3, 2)), cupy.empty((2,))
    rule = {"args[0]": {0: (4, 8)}}
    fast = make(body, x, y, buckets=rule, warmup=1, **options)
    for size in sizes:
        x = cupy.array(range(2 * size), shape=(size, 2))
        whole, (other,), double = fast(x, cupy.array([7.0, 8.0]))
        assert (whole.shape, whole.tolist()) == ((size, 2), list(range(2 * size)))
        assert other.tolist() == [7, 8]
        assert double.shape == (2 * size, 2)
    return fast


def test_sizes_are_padded_to_the_listed_ones_and_the_results_are_cut(cupy: Any) -> None:
    fast = padded_calls(cupy, range(1, 9))
    # The first padded call of each bucket shows how results are cut: it is the function's.
    assert counts(fast, "captures", "replays", "padded_calls", "eager_calls") == (2, 6, 4, 2)
    assert [each.arguments for each in fast.stats().graphs] == [
        "args[0]: float32 (8, 2), args[1]: float32 (2,)",
        "args[0]: float32 (4, 2), args[1]: float32 (2,)",
    ]


def test_padding_that_changes_nothing_is_compared_once(cupy: Any) -> None:
    runs = Counted()

    def body(x: Any) -> Any:
        runs.note()
        return x.copy()

    x = cupy.array([1.0, 2.0])
    fast = make(body, x, buckets={0: (4,)}, warmup=0, writes=(), verify="capture")
    ran = runs()
    for size in (2, 3, 2):
        assert fast(cupy.array([5.0] * size)).tolist() == [5] * size
    assert runs() == ran + 1
    assert counts(fast, "replays", "padded_calls", "eager_calls") == (2, 2, 1)


def test_a_padded_argument_ends_in_zeros(cupy: Any) -> None:
    seen = cupy.array([9.0] * 4)

    def body(x: Any) -> None:
        seen[: x.shape[0]] = x

    fast = make(body, cupy.array([1.0, 2.0]), buckets={0: (4,)}, warmup=0)
    fast(cupy.array([5.0] * 4))
    fast(cupy.array([1.0]))
    assert seen.tolist() == [1, 5, 5, 5], "this call shows how results are cut"
    fast(cupy.array([3.0, 4.0, 5.0]))
    assert seen.tolist() == [3, 4, 5, 0]
    assert counts(fast, "padded_calls", "eager_calls") == (1, 1)


def test_a_size_over_the_largest_is_a_shape_like_any_other(cupy: Any) -> None:
    fast = padded_calls(cupy, range(9, 11))
    assert counts(fast, "captures", "padded_calls") == (3, 0)


def test_statistics_are_a_snapshot_that_can_be_shown_and_written(cupy: Any) -> None:
    fast = make(twice(cupy), cupy.array([1.0, 2.0]), name="<step>")
    fast(cupy.array([1.0, 2.0]))
    stats = fast.stats()
    fast(cupy.array([1.0, 2.0]))
    assert isinstance(stats, GraphedCallableStats)
    # A kernel, two copies of the function's, those of the argument, also back, and of the result.
    assert (stats.replays, fast.stats().replays, stats.graphs[0].num_nodes) == (1, 2, 6)
    assert stats.capture_s >= stats.graphs[0].capture_s > 0
    assert stats.memory_bytes is not None
    assert stats.memory_bytes >= 24
    assert '"replays": 1' in stats.to_json()
    assert repr(fast) == "<gpuprof.GraphedCallable '<step>': 1 graph, 2 replays>"
    html = fast._repr_html_()
    assert "&lt;step&gt;" in html
    assert "<step>" not in html
    gc.collect()
