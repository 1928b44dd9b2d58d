"""What captured graphs share: buffers in order, seals, and the handles that name pools."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import threading
import types
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import gpuprof
from gpuprof import (
    CapturePool,
    GraphPoolHandle,
    capture_pool_for_handle,
    graph_pool_handle,
    release_graph_pool_handle,
)
from tests.support.stand_in_torch import install


class Buffer:
    """Notes its end, and then does what a hostile destructor does."""

    def __init__(
        self, name: object, gone: list[object], raises: type[Exception] | None = None
    ) -> None:
        self.name = name
        self.gone = gone
        self.raises = raises

    def __del__(self) -> None:
        self.gone.append(self.name)
        if self.raises is not None:
            raise self.raises("mine")


@pytest.fixture
def unraisable(monkeypatch: pytest.MonkeyPatch) -> list[type[BaseException]]:
    """The kinds of what destructors raised; the exceptions themselves would hold their frames."""
    caught: list[type[BaseException]] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda report: caught.append(report.exc_type))
    return caught


def filled(gone: list[object], count: int = 5) -> CapturePool:
    pool = CapturePool()
    for index in range(count):
        assert pool.record_buffer(Buffer(index, gone)) == index
    return pool


def test_buffers_are_counted_from_zero_and_kept() -> None:
    gone: list[object] = []
    pool = filled(gone, 3)
    gc.collect()
    assert (pool.buffer_count, gone) == (3, [])
    assert pool.record_buffer(None) == 3


def test_clearing_drops_in_order_and_starts_again_at_zero() -> None:
    gone: list[object] = []
    pool = filled(gone)
    pool.clear_buffers()
    assert gone == [0, 1, 2, 3, 4]
    assert pool.buffer_count == 0
    assert pool.record_buffer("next") == 0


def test_a_destructor_that_raises_keeps_no_other_buffer(
    unraisable: list[type[BaseException]],
) -> None:
    gone: list[object] = []
    pool = CapturePool()
    pool.record_buffer(Buffer("a", gone))
    pool.record_buffer(Buffer("b", gone, ValueError))
    pool.record_buffer(Buffer("c", gone))
    pool.clear_buffers()
    pool.record_buffer(Buffer("d", gone, KeyError))
    pool.record_buffer(Buffer("e", gone))
    del pool
    assert gone == ["a", "b", "c", "d", "e"]
    assert unraisable == [ValueError, KeyError]


def test_a_destructor_that_uses_the_pool_finds_it_usable() -> None:
    counts: list[int] = []

    class Meddler:
        def __del__(self) -> None:
            counts.append(pool.buffer_count)
            pool.record_buffer("left by a destructor")
            pool.clear_buffers()
            pool.record_buffer("left again")

    pool = CapturePool()
    pool.record_buffer(Meddler())
    pool.record_buffer(Meddler())
    pool.clear_buffers()
    assert counts == [0, 1]
    assert pool.buffer_count == 1


def test_a_cycle_through_a_buffer_is_collected() -> None:
    gone: list[object] = []
    pool = CapturePool()
    buffer: Any = Buffer("cycle", gone)
    buffer.pool = pool
    pool.record_buffer(buffer)
    watch = weakref.ref(pool)
    del pool, buffer
    gc.collect()
    assert watch() is None
    assert gone == ["cycle"]


def test_a_seal_refuses_no_buffer() -> None:
    pool = CapturePool()
    assert not pool.is_sealed
    pool.seal()
    pool.seal()
    assert pool.is_sealed
    assert pool.record_buffer("kept") == 0
    pool.unseal()
    pool.unseal()
    assert not pool.is_sealed


def test_a_pool_says_what_it_holds() -> None:
    pool = CapturePool()
    assert repr(pool) == "<gpuprof.CapturePool, 0 buffers>"
    pool.record_buffer(1)
    pool.seal()
    assert repr(pool) == "<gpuprof.CapturePool, 1 buffer, sealed>"


@pytest.mark.parametrize("how", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_pool_refuses_to_be_copied(how: Any) -> None:
    with pytest.raises(TypeError, match="CapturePool belongs to the graphs of this process"):
        how(CapturePool())


def test_torch_is_asked_for_one_pool_however_many_captures_share_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = install(monkeypatch)
    pool, other = CapturePool(), CapturePool()
    assert pool._torch_handle() == pool._torch_handle() == (0, 1)
    assert other._torch_handle() == (0, 2)
    assert next(world.pools) == 3


@pytest.mark.parametrize("handle", [(1,), (1, 2, 3), ("0", 1), [0, 1], 7, "pool"])
def test_what_is_no_pool_is_refused(handle: Any) -> None:
    with pytest.raises(TypeError, match="pool: expected a CapturePool, a handle or None, got"):
        gpuprof.capture(pool=handle)


def test_each_handle_names_a_pool_of_its_own(fake: object) -> None:
    first, second = graph_pool_handle(), graph_pool_handle()
    assert first
    assert first != second
    assert len({first, second, first}) == 2
    assert int(first) != int(second)
    pool = capture_pool_for_handle(first)
    assert isinstance(pool, CapturePool)
    assert capture_pool_for_handle(first) is pool
    assert capture_pool_for_handle(second) is not pool


def test_a_released_handle_names_nothing_however_often_it_is_released(fake: object) -> None:
    gone: list[object] = []
    handle = graph_pool_handle()
    pool = capture_pool_for_handle(handle)
    assert pool is not None
    pool.record_buffer(Buffer("kept", gone))
    del pool
    gc.collect()
    assert gone == []
    for _ in range(3):
        release_graph_pool_handle(handle)
        assert capture_pool_for_handle(handle) is None
    assert gone == ["kept"]


def test_a_pool_outlives_its_handle_while_a_graph_uses_it(fake: object) -> None:
    gone: list[object] = []
    handle = graph_pool_handle()
    graph = types.SimpleNamespace(pool=capture_pool_for_handle(handle))
    graph.pool.record_buffer(Buffer("used", gone))
    release_graph_pool_handle(handle)
    assert graph.pool.buffer_count == 1
    del graph
    assert gone == ["used"]


def test_a_handle_that_is_dropped_lets_its_pool_go(fake: object) -> None:
    handle = graph_pool_handle()
    watch = weakref.ref(capture_pool_for_handle(handle))  # type: ignore[arg-type]
    assert watch() is not None
    del handle
    assert watch() is None


def test_a_handle_in_its_own_pool_is_collected(fake: object) -> None:
    handle = graph_pool_handle()
    watch = weakref.ref(handle)
    pool = capture_pool_for_handle(handle)
    assert pool is not None
    pool.record_buffer(handle)
    del handle, pool
    gc.collect()
    assert watch() is None


def test_a_handle_cannot_be_made_changed_or_pickled(fake: object) -> None:
    handle = graph_pool_handle()
    with pytest.raises(TypeError, match=r"made by gpuprof\.graph_pool_handle\(\)"):
        GraphPoolHandle()
    with pytest.raises(AttributeError, match="'_number' cannot be set"):
        handle._number = 7
    with pytest.raises(AttributeError, match="'_number' cannot be deleted"):
        del handle._number
    with pytest.raises(TypeError, match="names a pool of this process"):
        pickle.dumps(handle)


def test_a_copy_of_a_handle_is_the_handle(fake: object) -> None:
    handle = graph_pool_handle()
    assert copy.copy(handle) is handle
    assert copy.deepcopy({"pool": handle})["pool"] is handle


@pytest.mark.parametrize("wrong", [None, 0, 1, "1", object(), CapturePool()])
@pytest.mark.parametrize("function", [capture_pool_for_handle, release_graph_pool_handle])
def test_only_handles_name_pools(function: Any, wrong: object) -> None:
    with pytest.raises(TypeError, match=r"^handle: expected a GraphPoolHandle .*, got "):
        function(wrong)


def test_a_handle_is_not_its_number(fake: object) -> None:
    handle = graph_pool_handle()
    assert handle != int(handle)
    assert int(handle) > 0
    assert repr(handle) == f"<gpuprof.GraphPoolHandle {int(handle)}>"


def test_threads_that_make_and_release_handles_get_their_own(fake: object) -> None:
    threads = 8
    start = threading.Barrier(threads)

    def work(_: int) -> set[int]:
        start.wait()
        numbers = set()
        for _ in range(200):
            handle = graph_pool_handle()
            pool = capture_pool_for_handle(handle)
            assert pool is not None
            assert capture_pool_for_handle(handle) is pool
            release_graph_pool_handle(handle)
            assert capture_pool_for_handle(handle) is None
            numbers.add(int(handle))
        return numbers

    with ThreadPoolExecutor(threads) as executor:
        found = list(executor.map(work, range(threads)))
    assert len(set.union(*found)) == threads * 200


def test_threads_that_release_one_handle_let_its_pool_go_once(fake: object) -> None:
    threads = 8
    for _ in range(50):
        gone: list[object] = []
        handle = graph_pool_handle()
        pool = capture_pool_for_handle(handle)
        assert pool is not None
        pool.record_buffer(Buffer("once", gone))
        del pool
        start = threading.Barrier(threads)

        def release(_: int, handle: Any = handle, start: Any = start) -> None:
            start.wait()
            release_graph_pool_handle(handle)
            assert capture_pool_for_handle(handle) is None

        with ThreadPoolExecutor(threads) as executor:
            list(executor.map(release, range(threads)))
        assert gone == ["once"]
