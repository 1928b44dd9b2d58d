"""Many scopes: memory stays flat, and nothing is lost between threads."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import gpuprof
from tests.gpu.support.kernels import device

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:gpuprof")]

_MIB = 1 << 20


def _resident_bytes() -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("/proc/self/status has no VmRSS line")


def test_scopes_that_nobody_reads_leave_memory_flat() -> None:
    gpuprof.reset()
    scope = gpuprof.timer("unread", stream=device().stream())

    def enter(times: int) -> None:
        for _ in range(times):
            with scope:
                pass

    enter(20_000)
    before = _resident_bytes()
    enter(100_000)
    assert _resident_bytes() - before < 8 * _MIB
    row = gpuprof.stats()["unread"]
    assert row.gpu is not None
    assert row.gpu.count + row.dropped == 120_000


def test_eight_threads_count_exactly() -> None:
    gpuprof.reset()
    threads, entries = 8, 10_000
    barrier = threading.Barrier(threads)

    def work(stream: int, index: int) -> None:
        device().make_current()
        shared = gpuprof.timer("shared", stream=stream)
        own = gpuprof.timer(f"own {index}", stream=stream)
        barrier.wait()
        for _ in range(entries // 2):
            with shared:
                pass
            with own:
                pass

    workers = [
        threading.Thread(target=work, args=(device().stream(), index)) for index in range(threads)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    stats = gpuprof.stats()
    shared = stats["shared"]
    assert shared.gpu is not None
    assert shared.gpu.count + shared.dropped == threads * entries // 2
    assert shared.failed == 0
    for index in range(threads):
        row = stats[f"own {index}"]
        assert row.gpu is not None
        assert row.gpu.count + row.dropped == entries // 2
        assert (row.failed, row.pending) == (0, 0)
