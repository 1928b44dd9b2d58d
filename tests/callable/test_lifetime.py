"""Who keeps a graphed callable, and what it keeps: nothing outlives its last user."""

from __future__ import annotations

import copy
import gc
import pickle
import textwrap
import weakref
from pathlib import Path
from typing import Any

import pytest

import gpuprof
from tests.support.callables import twice
from tests.support.cuda import kinds_alive
from tests.support.held import drain_kept, release_idle
from tests.support.processes import check_cuda


def make(fn: Any, *args: Any, **options: Any) -> gpuprof.GraphedCallable:
    return gpuprof.make_graphed_callable(fn, args, **options)


def settle(cupy: Any) -> None:
    """Let all replays end, and give back what they kept and what is in reserve."""
    cupy.cuda.get_current_stream().synchronize()
    gpuprof.flush()
    release_idle()


def alive(cupy: Any) -> dict[str, int]:
    """Return how many of each kind there are, memory aside, which a pool keeps in reserve."""
    settle(cupy)
    live = kinds_alive(cupy.fake)
    return {kind: len(list(handles)) for kind, handles in live.items() if kind != "memory"}


def test_without_cycles_it_goes_when_its_last_user_does(cupy: Any) -> None:
    warm = make(twice(cupy), cupy.array([1.0]))
    warm(cupy.array([1.0]))
    del warm
    before = alive(cupy)
    gc.disable()
    try:
        fast = make(twice(cupy), cupy.array([1.0]))
        fast(cupy.array([1.0, 2.0]))
        gone = [weakref.ref(fast), weakref.ref(fast.eager), weakref.ref(fast.graph)]
        result = fast(cupy.array([2.0]))
        assert alive(cupy)["exec"] >= 2
        del fast
        assert [each() for each in gone] == [None] * 3
        assert alive(cupy) == before
        assert result.tolist() == [2, 2]
    finally:
        gc.enable()


def test_it_goes_by_the_collector_where_its_function_has_it(cupy: Any) -> None:
    class Model:
        def __init__(self) -> None:
            self.fast = make(self.forward, cupy.array([1.0]))

        def forward(self, x: Any) -> Any:
            return x.copy()

    before = alive(cupy)
    model = Model()
    assert model.fast(cupy.array([2.0])).tolist() == [2]
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None
    assert alive(cupy).get("exec") == before.get("exec")


def test_it_goes_by_the_collector_where_a_constant_or_a_cell_has_it(cupy: Any) -> None:
    class Config:
        fast: Any = None

    def function() -> Any:
        holder: list[Any] = []

        def body(x: Any, config: Config) -> Any:
            assert config is not holder
            return x.copy()

        return body, holder

    config, (body, holder) = Config(), function()
    config.fast = make(body, cupy.array([1.0]), config)
    holder.append(config.fast)
    config.fast(cupy.array([2.0]), config)
    gone = [weakref.ref(config), weakref.ref(config.fast)]
    del config, holder, body
    gc.collect()
    assert [each() for each in gone] == [None, None]


def test_a_call_in_flight_keeps_what_it_needs(cupy: Any) -> None:
    fast = make(twice(cupy), cupy.array([0.0]))
    cupy.fake.configure(mode="manual")
    result = fast(cupy.array([3.0]))
    del fast
    gc.collect()
    drain_kept()
    others = [cupy.array([9.0]) for _ in range(8)]
    cupy.fake.configure(mode="auto")
    assert result.tolist() == [3, 3]
    assert [each.tolist() for each in others] == [[9]] * 8


def test_a_graph_outlives_its_callable(cupy: Any) -> None:
    x, out = cupy.array([1.0]), cupy.array([0.0])

    def body() -> None:
        out[...] = x

    graph = make(body).graph
    gc.collect()
    graph.launch()
    assert out.tolist() == [1]
    graph.close()


def test_a_call_keeps_neither_its_arguments_nor_its_results(cupy: Any) -> None:
    fast = make(twice(cupy), cupy.array([0.0]))
    x = cupy.array([1.0])
    result = fast(x)
    gone = [weakref.ref(x.data), weakref.ref(result.data)]
    gc.disable()
    try:
        del x, result
        assert [each() for each in gone] == [None, None]
    finally:
        gc.enable()


def test_samples_are_not_kept(cupy: Any) -> None:
    x = cupy.array([0.0])
    gone = weakref.ref(x.data)
    fast = make(twice(cupy), x)
    del x
    gc.collect()
    assert gone() is None
    assert fast(cupy.array([1.0])).tolist() == [1, 1]


def test_a_thousand_calls_leave_no_more_than_one(cupy: Any) -> None:
    fast = make(twice(cupy), cupy.array([0.0]))
    x = cupy.array([1.0])
    fast(x)
    gc.collect()
    before, objects = alive(cupy), len(gc.get_objects())
    for _ in range(1000):
        fast(x)
    assert alive(cupy) == before
    assert len(gc.get_objects()) <= objects + 5


def test_closing_its_graph_makes_calls_an_error_and_no_crash(cupy: Any) -> None:
    fast = make(twice(cupy), cupy.array([0.0]))
    fast.graph.close()
    with pytest.raises(gpuprof.errors.InvalidStateError, match="clos"):
        fast(cupy.array([1.0]))
    assert [each.num_nodes for each in fast.stats().graphs] == [None]
    fast.reset()
    assert fast(cupy.array([1.0])).tolist() == [1, 1]


def test_callables_of_one_pool_run_one_after_the_other(cupy: Any) -> None:
    pool = gpuprof.CapturePool()
    first, second = (
        make(twice(cupy, ns=1_000_000), cupy.array([0.0]), pool=pool) for _ in range(2)
    )
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    cupy.fake.configure(mode="manual")
    before = cupy.fake.now()
    results = []
    for fast, stream in zip((first, second), streams, strict=True):
        with stream:
            results.append(fast(cupy.array([4.0])))
    cupy.fake.configure(mode="auto")
    for stream in streams:
        stream.synchronize()
    assert cupy.fake.now() - before >= 2_000_000
    assert [each.tolist() for each in results] == [[4, 4]] * 2


# Two callables of one pool, and a thread in whose launch of the first one the driver blocks.
BLOCKED = """
from tests.support.callables import twice
from tests.support.stand_in_cupy import installed
with installed(fake) as cupy:
    pool = gpuprof.CapturePool()
    x = cupy.array([1.0])
    def make(**options):
        return gpuprof.make_graphed_callable(twice(cupy), (x,), pool=pool, **options)
    first, second = make(), make(max_graphs=1)
    second(x)
    results = []
    def call():
        fake.set_current(context)
        with cupy.cuda.Stream(non_blocking=True):
            results.append(first(x))
    execs = fake.live("exec")
    fake.script("cuGraphLaunch@1=0:block")
    thread = threading.Thread(target=call)
    thread.start()
    while not fake.report()["blocked_calls"]:
        time.sleep(0.001)
"""


def check_beside_a_blocked_launch(fake_path: Path, body: str) -> None:
    code = BLOCKED + textwrap.indent(textwrap.dedent(body), "    ")
    check_cuda(fake_path, code, timeout=20, GPUPROF_RELEASE_GIL="1")  # type: ignore[arg-type]


@pytest.mark.parametrize("let_go", ["del second", "second.reset()"])
def test_a_graph_is_let_go_without_a_wait_for_anothers_launch(fake_path: Path, let_go: str) -> None:
    check_beside_a_blocked_launch(
        fake_path,
        f"""
        {let_go}
        assert results == [] and fake.live("exec") == execs
        fake.release()
        thread.join()
        assert fake.live("exec") == execs - 1
        second = make()
        assert second(x).tolist() == [1, 1] == results[0].tolist()
        del first, second
        """,
    )


@pytest.mark.parametrize(
    "action",
    [
        "second(cupy.array([1.0, 2.0]))",
        "second.graph.timings()",
        "second.graph.close()",
        "make(warmup=0)",
    ],
    ids=["eviction", "timings", "close", "capture"],
)
def test_other_threads_run_while_one_waits_for_anothers_launch(
    fake_path: Path, action: str
) -> None:
    check_beside_a_blocked_launch(
        fake_path,
        f"""
        threading.Timer(0.05, fake.release).start()
        {action}  # would never end if the lock were held: nobody could call release()
        thread.join()
        assert results[0].tolist() == [1, 1]
        del first, second
        """,
    )


@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.copy, copy.deepcopy])
def test_it_is_neither_pickled_nor_copied(cupy: Any, duplicate: Any) -> None:
    fast = make(twice(cupy), cupy.array([0.0]))
    with pytest.raises(TypeError, match="cannot be pickled or copied"):
        duplicate(fast)


def test_it_looks_like_its_function(cupy: Any) -> None:
    def step(x: Any) -> Any:
        """Copy."""
        return x.copy()

    fast = make(step, cupy.array([0.0]))
    assert (fast.__name__, fast.__doc__, fast.__wrapped__) == ("step", "Copy.", step)
    assert fast.eager is step
    assert fast.name.endswith("step")


@pytest.mark.parametrize("threshold", [1, 2])
def test_the_collector_may_run_at_any_time_of_the_first_capture(
    fake_path: Path, threshold: int
) -> None:
    check_cuda(
        fake_path,
        f"""
        import gc
        from tests.support.stand_in_cupy import installed, ndarray
        with installed(fake, ndarray) as cupy:
            gc.set_threshold({threshold})
            fast = gpuprof.make_graphed_callable(lambda x: {{"a": x.copy()}}, warmup=0)
            assert fast(cupy.array([1.0]))["a"].tolist() == [1.0]
        """,
    )


def test_a_daemon_may_be_in_a_constructor_at_exit(fake_path: Path) -> None:
    check_cuda(
        fake_path,
        """
        import threading, time
        from tests.support.stand_in_cupy import installed, ndarray

        class Slow(dict):
            def __new__(cls, *args, **kwargs):
                time.sleep(0.002)
                return dict.__new__(cls)

        world = installed(fake, ndarray)  # to the end of the process
        cupy = world.__enter__()
        fast = gpuprof.make_graphed_callable(
            lambda p: Slow(x=p["x"].copy()), buckets={0: (8,)}, warmup=0, verify="off"
        )
        fast(Slow(x=cupy.array([1.0] * 3)))
        started = threading.Semaphore(0)

        def work():
            fake.set_current(context)
            x = Slow(x=cupy.array([1.0] * 5))
            while True:
                fast(x)
                started.release()

        for _ in range(4):
            threading.Thread(target=work, daemon=True).start()
        for _ in range(20):
            started.acquire()
        """,
    )
