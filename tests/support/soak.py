"""Mixed use for a long time in one process: what it holds stays flat.

``python -m tests.support.soak`` runs an hour of the fake driver's time (``GPUPROF_CUDA_DRIVER``
names it), a second in each round; ``--seconds 600 --gpu`` runs ten minutes on a GPU, with torch
where it is installed. Each round has scopes on several threads, streams and asyncio tasks,
captures, launches, graphed calls of changing shapes, bodies that fail, windows of a trace; some
have dumps of a recorder, collected kernels, a benchmark, a gather, a reset. The table says what was
held, and the status is 1 where something grew. ``--without kernels`` leaves CUPTI out, which keeps
memory of its own for each graph that is captured once it is loaded.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import os
import sys
import tempfile
import threading
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gpuprof
from tests.support.growth import Readings
from tests.support.held import release_idle, samples_in_memory
from tests.support.stuck_streams import Driver

HOUR = 3_600
SECOND_NS = 1_000_000_000
GROUP = 20  # rounds between two readings
REMEMBERED = 1 << 16  # calls, by the fake driver
THREADS = 3
TELLS_S = 30.0
LEAST_READINGS = 3


class World:
    """A driver with streams, and what runs on them: memsets, by the same calls on both drivers."""

    def __init__(self, path: str) -> None:
        self.driver = Driver(path)
        self.streams = [self.driver.stream_create() for _ in range(THREADS)]
        self.folder = Path()
        self.timer = gpuprof.Timer("cuda", self.streams[0])
        self.timer.record_start()
        self.recorder: Any = None
        self.windows: Any = None
        self.threads: Any = None
        self.double: Callable[[int], object] = lambda _size: None  # a graphed call
        self.passed: Callable[[], None] = lambda: None  # lets a second pass
        self.launched: Callable[[], None] = lambda: None  # what CUPTI sees
        self.more: Callable[[], dict[str, int]] = dict

    def work(self, stream: int) -> None:
        self.driver.call("cuMemsetD32Async", self.driver.memory, 1, 1, stream)

    def wait(self) -> None:
        self.driver.call("cuCtxSynchronize")

    def held(self) -> dict[str, int]:
        """Return what gpuprof and the driver hold, once nothing is under way.

        The pool of events is emptied: it keeps as many as ever were under way at once. The context
        stays in use meanwhile, by a timer.
        """
        self.wait()
        gpuprof.flush()
        pairs = release_idle()
        return {"samples": samples_in_memory(), "event pairs": pairs, **self.more()}


Use = Callable[[World], object]
# (every how many rounds, what)
USES: list[tuple[int, Use]] = []


def use(every: int = 1) -> Callable[[Use], Use]:
    def add(function: Use) -> Use:
        USES.append((every, function))
        return function

    return add


def on_a_thread(world: World, stream: int) -> None:
    world.driver.call("cuCtxSetCurrent", world.driver.context)
    for _ in range(20):
        with gpuprof.timer("thread", stream=stream), gpuprof.annotate("range"):
            with gpuprof.timer("inner", stream=stream):
                world.work(stream)
            with gpuprof.timer("host", backend="cpu"):
                pass
    timer = gpuprof.Timer("cuda", stream)
    timer.record_start()
    timer.record_end()
    assert timer.elapsed_ms() >= 0
    gpuprof.finish_probe_timer(gpuprof.start_probe_timer_if(True, stream, "cuda"))


@use()
def scopes_on_threads(world: World) -> None:
    done = [world.threads.submit(on_a_thread, world, each) for each in world.streams]
    on_a_thread(world, 0)
    for each in done:
        each.result()


@use()
def scopes_in_tasks(world: World) -> None:
    async def task(stream: int) -> None:
        async with gpuprof.timer("task", stream=stream):
            world.work(stream)
            await asyncio.sleep(0)

    async def tasks() -> None:
        await asyncio.gather(*(task(each) for each in world.streams))

    asyncio.run(tasks())


@use()
def captures(world: World) -> None:
    stream = world.streams[0]
    pool = gpuprof.CapturePool()
    for timers in ("last", "collect", "strip"):
        with gpuprof.capture(stream, timers=timers, name=timers, pool=pool) as cap:
            for _ in range(2):
                with gpuprof.timer("captured", stream=stream):
                    world.work(stream)
        pool.record_buffer(bytearray(1 << 12))
        for _ in range(3):
            cap.graph.launch(stream)
        assert cap.graph.nodes
        if timers == "last":
            assert cap.graph.timings()
            cap.graph.close()
    scalar = gpuprof.DeviceScalar(0, "float32", stream)
    scalar.update(2.5, stream)
    assert scalar.get() == 2.5


@use()
def bodies_that_fail(world: World) -> None:
    stream = world.streams[1]
    for open_block in (gpuprof.timer("failed", stream=stream), gpuprof.capture(stream)):
        with contextlib.suppress(KeyError), open_block:
            world.work(stream)
            raise KeyError


@use()
def graphed_calls_with_misses(world: World) -> None:
    for size in (1, 2, 3, 4, 2):
        world.double(size)


@use()
def statistics_and_listeners(world: World) -> None:
    heard: list[int] = []
    with gpuprof.on_sample(lambda samples: heard.append(len(samples))):
        with gpuprof.timer("heard", stream=world.streams[0]):
            world.work(world.streams[0])
        stats = gpuprof.stats()
    assert heard
    assert stats.to_json()
    assert str(stats)


@use()
def window_of_a_trace(world: World) -> None:
    world.windows.step()


@use(5)
def kernels(world: World) -> None:
    with gpuprof.kernels() as seen:
        on_a_thread(world, world.streams[0])
        world.launched()
        world.wait()
    assert str(seen.table())


@use(10)
def dump(world: World) -> None:
    assert world.recorder.dump()


@use(20)
def benchmark(world: World) -> None:
    stream = world.streams[2]
    result = gpuprof.benchmark(
        lambda: world.work(stream), stream=stream, warmup_s=0.0, min_samples=3, min_time_s=0.0,
        max_time_s=0.05, launches=False, progress=False,
    )  # fmt: skip
    assert result.to_dict()


@use(20)
def gather_and_reset(_world: World) -> None:
    table = gpuprof.distributed.gather_stats()
    assert table is not None
    assert str(table)
    gpuprof.set_budget(0.5)
    with gpuprof.timer("budget"):
        pass
    gpuprof.set_budget(None)
    gpuprof.reset()


@contextlib.contextmanager
def on_the_fake_driver(world: World, path: str) -> Iterator[None]:
    """Let calls be captured of the stand-in for CuPy, and kernels come from a fake CUPTI."""
    from tests.fake_cupti.build import build
    from tests.fake_cupti.control import FakeCupti
    from tests.fake_driver.control import FakeCuda
    from tests.support.callables import twice
    from tests.support.cupti import loaded
    from tests.support.stand_in_cupy import installed

    fake = FakeCuda(path)
    cupti = FakeCupti(build(Path("build/fake_cupti")))
    for _ in range(REMEMBERED):
        fake.current_context()
    world.passed = lambda: fake.advance(SECOND_NS)
    world.launched = lambda: cupti.kernel("work")
    world.more = lambda: {
        kind: len(handles) for kind, handles in fake.report()["live"].items() if handles
    }
    with loaded(cupti.path), installed(fake, stream=world.streams[0]) as cupy:
        fast = gpuprof.make_graphed_callable(twice(cupy), max_graphs=2, warmup=1)
        world.double = lambda size: fast(cupy.array([1.0] * size)).tolist()
        yield


@contextlib.contextmanager
def on_a_gpu(world: World) -> Iterator[None]:
    """Let calls be captured of torch, where it is installed and sees the GPU.

    The driver's count of handles is not known: what they take of the GPU's memory is.
    """
    total = ctypes.c_size_t()

    def used() -> dict[str, int]:
        free = ctypes.c_size_t()
        world.driver.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return {"device KiB": (total.value - free.value) // 1024}

    world.more = used
    with contextlib.suppress(ImportError):
        import torch

        if torch.cuda.is_available():
            model = torch.nn.Linear(64, 64, device="cuda")
            fast = gpuprof.make_graphed_callable(model, max_graphs=2, warmup=1)
            world.double = lambda size: fast(torch.ones(size, 64, device="cuda")).sum().item()
            world.more = lambda: {**used(), "tensors B": torch.cuda.memory_allocated()}
    yield


def rounds_traced(world: World, numbers: range, uses: list[tuple[int, Use]]) -> None:
    """Run some rounds with a recorder and windows open, and leave no file and no thread.

    Not a thread for each round: the names of the first 10,000 are kept, for traces.
    """
    windows = gpuprof.trace_windows(world.folder / "window.json", schedule=(1, 1, 2, 0))
    ring = {"keep_bytes": 1 << 20, "max_dumps": 1_000_000}
    recorder = gpuprof.flight_recorder(world.folder / "last.json", **ring)
    with windows, recorder, ThreadPoolExecutor(THREADS) as threads:
        world.windows, world.recorder, world.threads = windows, recorder, threads
        for number in numbers:
            for period, function in uses:
                if number % period == 0:
                    function(world)
            world.passed()
    for path in world.folder.iterdir():
        path.unlink()


def soak(world: World, goes_on: Callable[[int], bool], uses: list[tuple[int, Use]]) -> Readings:
    """Run rounds as long as they go on, and read what is held after each group of them."""
    readings = Readings(world.held)
    done, told = 0, 0.0
    while goes_on(done):
        rounds_traced(world, range(done + 1, done + GROUP + 1), uses)
        done += GROUP
        readings.read(done)
        if time.monotonic() > told + TELLS_S:
            told = time.monotonic()
            print(f"{done} rounds: {readings.last()}", flush=True)
    return readings


kept: list[object] = []
asleep = threading.Event()


def keep_a_timer(world: World) -> None:
    timer = gpuprof.Timer("cuda", world.streams[0])
    timer.record_start()
    kept.append(timer)


# What `--leak` adds to each round, so that a test sees that it is found.
LEAKS: dict[str, Use] = {
    "descriptors": lambda _world: kept.append(os.dup(0)),
    "event pairs": keep_a_timer,
    "handles": lambda world: world.driver.stream_create(),
    "objects": lambda _world: kept.extend([] for _ in range(100)),
    "rss KiB": lambda _world: kept.append(b"x" * (1 << 16)),
    "threads": lambda _world: threading.Thread(target=asleep.wait, daemon=True).start(),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=HOUR)
    parser.add_argument("--seconds", type=float, help="in place of a number of rounds")
    parser.add_argument("--gpu", action="store_true")
    names = [function.__name__ for _, function in USES]
    parser.add_argument("--without", choices=names, nargs="*", default=[], help="what not to use")
    parser.add_argument("--leak", choices=LEAKS, nargs="*", default=[])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    path = "libcuda.so.1" if options.gpu else os.environ["GPUPROF_CUDA_DRIVER"]
    tracemalloc.start()
    world = World(path)
    begun = 0.0

    def goes_on(number: int) -> bool:
        if options.seconds is not None:
            return time.monotonic() < begun + options.seconds
        return number < options.rounds

    with contextlib.ExitStack() as stack:
        world.folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(on_a_gpu(world) if options.gpu else on_the_fake_driver(world, path))
        begun = time.monotonic()
        uses = [each for each in USES if each[1].__name__ not in options.without]
        readings = soak(world, goes_on, [*uses, *((1, LEAKS[each]) for each in options.leak)])
    grown = readings.grown()
    took = time.monotonic() - begun
    print(readings.table(), f"{readings.rounds[-1]} rounds, {took:.0f} s; {grown=}", sep="\n")
    return 1 if grown or len(readings.rounds) < LEAST_READINGS else 0


if __name__ == "__main__":
    sys.exit(main())
