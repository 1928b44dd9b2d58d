"""P9 without an interpreter lock: what it would otherwise keep apart, in many threads at once.

Everything here holds with the lock too; without it, and under ThreadSanitizer, the threads overlap.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gpuprof
from tests.fake_driver.control import FakeCuda
from tests.support.captures import captured
from tests.support.processes import check_python
from tests.support.threads import PATIENCE_S, in_threads

pytestmark = pytest.mark.threads


def cpu(name: str | None = None, **options: Any) -> gpuprof.Scope:
    return gpuprof.timer(name, backend="cpu", **options)


def until(stop: threading.Event, work: Callable[[], object]) -> Callable[[], None]:
    """Return what does `work` again and again until `stop` is set."""

    def run() -> None:
        while not stop.is_set():
            work()

    return run


def then_stop(stop: threading.Event, work: Callable[[], object]) -> Callable[[], None]:
    """Return what does `work` once and has the others end."""

    def run() -> None:
        try:
            work()
        finally:
            stop.set()

    return run


def test_functions_decorated_once_are_called_by_many_threads() -> None:
    @cpu("scoped")
    @gpuprof.annotate("shown")
    def work(value: int) -> int:
        return value + 1

    @cpu("resumed")
    def steps() -> Any:
        yield 1
        yield 2

    def calls() -> None:
        for i in range(300):
            assert work(i) == i + 1
            assert sum(steps()) == 3

    in_threads(*[calls] * 8)
    stats = gpuprof.stats()
    assert stats["scoped"].time.count == 2400
    assert stats["resumed"].time.count == 7200  # each resume


def test_entries_are_left_by_other_threads_than_entered_them() -> None:
    scope, handed = cpu("handed on"), threading.Semaphore(0)
    stop = threading.Event()

    def enters() -> None:
        for _ in range(50):
            scope.__enter__()
            handed.release()

    def leaves() -> None:
        for _ in range(50):
            assert handed.acquire(timeout=PATIENCE_S)
            scope.__exit__(None, None, None)

    def reads() -> None:
        repr(scope)
        repr(scope.last)

    with pytest.warns(RuntimeWarning, match="left on another thread"):
        in_threads(enters, enters, leaves, then_stop(stop, leaves), until(stop, reads))
    assert sum(row.time.count for _, row in gpuprof.stats().items()) == 100


def test_tasks_of_many_threads_share_scopes_and_annotations() -> None:
    scope, shown = cpu("awaited"), gpuprof.annotate("awaited")

    async def task() -> None:
        for _ in range(20):
            async with scope, shown:
                await asyncio.sleep(0)

    async def tasks() -> None:
        await asyncio.gather(*[task() for _ in range(5)])

    in_threads(*[lambda: asyncio.run(tasks())] * 4)
    assert gpuprof.stats()["awaited"].time.count == 400


@pytest.mark.filterwarnings("ignore:gpuprof. NVTX is on")
def test_ranges_of_all_kinds_beside_a_switch(tmp_path: Path) -> None:
    stop, shared = threading.Event(), gpuprof.annotate("shared")

    def shows() -> None:
        with gpuprof.annotate("new"), shared, cpu("timed"):
            gpuprof.mark("now", args={"a": [1, (2, 3)]})
        gpuprof.range_end(gpuprof.range_start("begun"))

    def switches() -> None:
        for _ in range(100):
            gpuprof.nvtx.enable()
            gpuprof.nvtx.disable()

    try:
        with gpuprof.trace(tmp_path / "t.json"):
            in_threads(*[until(stop, shows)] * 6, then_stop(stop, switches))
    finally:
        gpuprof.nvtx.disable()
    assert json.loads((tmp_path / "t.json").read_text())


def test_a_writer_is_closed_beside_those_that_write_to_it(tmp_path: Path) -> None:
    for number in range(10):
        stop = threading.Event()
        writer = gpuprof.TraceWriter(tmp_path / f"{number}.json").start()

        def writes(writer: Any = writer) -> None:
            with contextlib.suppress(gpuprof.InvalidStateError):
                writer.push("slice", "cat", 0.001)
            gpuprof.push("for all", "cat", 0.001)
            with cpu("timed"):
                pass

        in_threads(*[until(stop, writes)] * 4, then_stop(stop, writer.close))
        assert json.loads((tmp_path / f"{number}.json").read_text())


def test_arguments_of_marks_change_while_they_are_written(tmp_path: Path) -> None:
    values: list[Any] = [1, 2, 3]
    args = {"values": values}
    stop = threading.Event()

    def changes() -> None:
        values.append([4])
        values.pop(0)
        args[str(len(args))] = values
        if len(args) > 20:
            args.clear()

    def marks() -> None:
        for _ in range(300):
            gpuprof.mark("with arguments", args=args)

    with gpuprof.trace(tmp_path / "t.json"):
        in_threads(until(stop, changes), marks, then_stop(stop, marks))
    assert json.loads((tmp_path / "t.json").read_text())


def test_rows_are_read_reset_and_exported_beside_scopes() -> None:
    stop = threading.Event()

    def times() -> None:
        with cpu("outer"), cpu("inner") as sample:
            sample.flops = 1.0
        assert sample.state in {"done", "disabled", "dropped"}
        sample.to_dict()

    def reads() -> None:
        stats = gpuprof.stats()
        repr(stats)
        [row.time.count for _, row in stats.items()]

    def resets() -> None:
        for _ in range(200):
            gpuprof.reset()

    in_threads(*[until(stop, times)] * 6, until(stop, reads), then_stop(stop, resets))


def test_scopes_come_and_go_with_their_threads() -> None:
    def work() -> None:
        for i in range(50):
            with gpuprof.timer(f"row {i % 7}", backend="cpu", enabled=True), cpu():
                pass

    for _ in range(5):
        in_threads(*[work] * 20)
    assert sum(row.time.count for _, row in gpuprof.stats().items()) == 5 * 20 * 50


def test_a_scope_of_the_gpu_is_shared_by_threads(fake: FakeCuda) -> None:
    context = fake.current_context()

    def work() -> None:
        fake.set_current(context)
        stream = fake.stream_create()
        for _ in range(100):
            with gpuprof.timer("work", stream=stream) as sample:
                pass
            assert sample.ms >= 0.0
        fake.stream_destroy(stream)

    in_threads(*[work] * 8)
    assert gpuprof.stats()["work"].gpu.count == 800


def test_graphs_are_captured_launched_and_closed_on_many_threads(
    fake: FakeCuda, stream: int
) -> None:
    context = fake.current_context()
    shared = captured(fake, stream)

    def work() -> None:
        fake.set_current(context)
        mine = fake.stream_create()
        for _ in range(10):
            with captured(fake, mine) as graph:
                graph.launch(mine)
                shared.launch(mine)
            assert graph.is_closed
        fake.stream_synchronize(mine)
        fake.stream_destroy(mine)

    in_threads(*[work] * 6)
    assert shared.num_replays == 60
    fake.stream_synchronize(stream)
    shared.close()


def test_a_callable_is_called_by_many_threads(cupy: Any) -> None:
    context = cupy.fake.current_context()
    fast = gpuprof.make_graphed_callable(
        lambda x: cupy.concatenate((x, x)) if False else x.copy(),
        (cupy.array([0.0, 0.0]),),
        verify="off",
    )

    def work() -> None:
        cupy.fake.set_current(context)
        with cupy.cuda.Stream(non_blocking=True) as stream:
            for i in range(40):
                result = fast(cupy.array([float(i), -float(i)]))
                stream.synchronize()
                assert result.tolist() == [float(i), -float(i)]

    in_threads(*[work] * 4)
    assert fast.stats().replays >= 160


def test_what_a_thread_left_open_is_no_burden_to_the_others() -> None:
    scope = cpu("left open")

    def leaves_open() -> None:
        scope.__enter__()

    def times() -> None:
        for _ in range(100):
            with cpu("meanwhile"):
                pass

    in_threads(*[leaves_open] * 10, *[times] * 10)
    with pytest.warns(RuntimeWarning, match="left on another thread"):
        for _ in range(10):
            scope.__exit__(None, None, None)
    assert gpuprof.stats()["meanwhile"].time.count == 1000
    assert gpuprof.stats()["left open"].time.count == 10


def test_the_collector_and_finalisers_use_scopes_on_all_threads() -> None:
    check_python(
        """
        import gc, threading
        import gpuprof

        scope = gpuprof.timer("work", backend="cpu")

        class Finalised:
            def __init__(self):
                self.me = self
            def __del__(self):
                with gpuprof.timer("finaliser", backend="cpu"), scope:
                    gpuprof.annotate("gone")

        def work():
            for _ in range(100):
                Finalised()
                with scope:
                    pass
                gc.collect(0)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        gc.collect()
        count = gpuprof.stats()["work"].time.count
        assert count >= 400, count
        """
    )


def test_a_process_forks_while_others_time() -> None:
    check_python(
        """
        import os, threading
        import gpuprof

        stop = threading.Event()

        def work():
            while not stop.is_set():
                with gpuprof.timer("work", backend="cpu"):
                    gpuprof.annotate("shown")

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(20):
            child = os.fork()
            if child == 0:
                with gpuprof.timer("child", backend="cpu"):
                    pass
                os._exit(gpuprof.stats()["child"].time.count != 1)
            assert os.waitpid(child, 0)[1] == 0
        stop.set()
        for thread in threads:
            thread.join()
        """
    )
