"""Memory of scopes: CuPy's pools and hooks, alone and beside torch, on the fake driver."""

from __future__ import annotations

import gc
import math
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

import gpuprof
from tests.support.stand_in_memory import AsyncPool, hooked, hooks, install_torch


@pytest.fixture
def pool(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The pool from which CuPy allocates; there is no torch."""
    monkeypatch.delitem(__import__("sys").modules, "torch", raising=False)
    with hooked(cupy) as found:
        yield found
        gc.collect()


def use_of(sample: gpuprof.Sample) -> tuple[float, float, float]:
    """Return peak, absolute peak and change."""
    memory = sample.memory
    assert memory is not None
    assert memory.note == ""
    return memory.peak, memory.absolute_peak, memory.change


def test_the_hook_sees_a_peak_inside_the_scope(cupy: Any, pool: Any) -> None:
    before = cupy.empty(1024, "u1")
    with gpuprof.timer("step", memory=True) as sample:
        kept = cupy.empty(512, "u1")
        del before
        cupy.empty(4096, "u1")
    assert sample.clock == "cuda"
    assert use_of(sample) == (512 + 4096 - 1024, 512 + 4096, 512 - 1024)
    assert pool.used_bytes() == kept.nbytes
    assert hooks() == {}


def test_nested_scopes_share_the_hook_of_the_thread(cupy: Any, pool: Any) -> None:
    with gpuprof.timer("outer", memory=True) as outer:
        cupy.empty(8192, "u1")
        with gpuprof.timer("inner", memory=True) as inner:
            cupy.empty(512, "u1")
        assert len(hooks()) == 1
    assert (use_of(outer)[0], use_of(inner)[0]) == (8192, 512)
    assert hooks() == {}


def test_a_hook_of_the_users_own_stays(cupy: Any, pool: Any) -> None:
    with cupy.cuda.MemoryHook(), gpuprof.timer("step", memory=True) as sample:
        cupy.empty(512, "u1")
    assert use_of(sample)[0] == 512


def test_a_scope_left_on_another_thread(cupy: Any, pool: Any) -> None:
    scope = gpuprof.timer("step", memory=True)
    sample = scope.__enter__()
    cupy.empty(512, "u1")
    with pytest.warns(RuntimeWarning, match="left on another thread"):
        thread = threading.Thread(target=scope.__exit__, args=(None, None, None))
        thread.start()
        thread.join()
        gpuprof.flush()
    assert use_of(sample)[0] == 512
    with gpuprof.timer("step", memory=True) as sample:
        cupy.empty(1024, "u1")
    assert use_of(sample)[0] == 1024
    assert hooks() == {}


def test_a_pool_without_hooks_has_no_peak(cupy: Any, pool: Any) -> None:
    other = AsyncPool()
    with cupy.cuda.using_allocator(other.malloc), gpuprof.timer("step", memory=True) as sample:
        other.malloc(100)
    assert sample.memory is not None
    assert math.isnan(sample.memory.peak)
    assert (sample.memory.change, sample.memory.count) == (100, 1)
    assert sample.memory.note == "the allocator does not tell its peak"
    assert "the allocator does not tell its peak" in gpuprof.stats().tree()


def test_an_allocator_that_is_no_pool_is_left_out(cupy: Any, pool: Any) -> None:
    with (
        cupy.cuda.using_allocator(partial(pool.malloc)),
        gpuprof.timer("step", memory=True) as sample,
    ):
        pass
    assert sample.memory is not None
    assert "neither torch nor CuPy" in sample.memory.note


@pytest.mark.parametrize("torch_too", [False, True])
def test_both_allocators_add_up(
    cupy: Any, pool: Any, monkeypatch: pytest.MonkeyPatch, torch_too: bool
) -> None:
    torch = install_torch(monkeypatch)
    torch.allocate(100)
    stream = cupy.cuda.get_current_stream().ptr
    with gpuprof.timer("step", stream=stream, memory=True) as sample:
        cupy.empty(512, "u1")
        if torch_too:
            torch.use(1000)
    memory = sample.memory
    assert memory is not None
    assert (memory.peak, memory.absolute_peak) == ((1512, 1612) if torch_too else (512, 612))
    assert memory.note.startswith("the sum of torch's and CuPy's peaks") is torch_too
