"""Scopes in many threads and processes at once, in signal handlers, and while Python exits."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpuprof
from tests.support.processes import check_python
from tests.support.scopes import cpu, path_here, spanning
from tests.support.threads import PATIENCE_S, in_threads

THREADS = 100
EXITS = 5


@pytest.fixture(autouse=True)
def ends_at_the_root() -> Iterator[None]:
    yield
    assert path_here() == ""


# Where a thread is


def test_a_thread_starts_at_the_root() -> None:
    paths = []
    with cpu("main"):
        in_threads(lambda: paths.append(path_here()))
        assert path_here() == "main"
    assert paths == [""]


def test_threads_may_hold_one_scope_open_at_once() -> None:
    scope = cpu("shared")
    with scope as outer:

        def work() -> None:
            with scope as inner:
                assert inner.path == "shared"
            assert (inner.state, outer.state) == ("done", "open")

        in_threads(work)
    assert outer.state == "done"


def test_an_entry_made_while_timing_is_off_does_not_close_that_of_another_thread() -> None:
    scope = cpu("shared")
    with warnings.catch_warnings(record=True) as said, scope as outer:
        warnings.simplefilter("always")
        gpuprof.disable()

        def work() -> None:
            with scope as sample:
                assert sample.state == "disabled"

        in_threads(work)
        assert outer.state == "open"
    assert outer.state == "done"
    assert said == []


def test_an_entry_made_while_timing_was_off_does_not_end_that_of_another_thread() -> None:
    scope = cpu("shared")
    entered, go = threading.Event(), threading.Event()

    def work() -> None:
        with scope:
            entered.set()
            go.wait(PATIENCE_S)

    gpuprof.disable()
    thread = threading.Thread(target=work)
    thread.start()
    assert entered.wait(PATIENCE_S)
    gpuprof.enable()
    with warnings.catch_warnings(record=True) as said, scope as sample:
        warnings.simplefilter("always")
        go.set()
        thread.join()
        assert sample.state == "open"
    assert said == []


def test_a_scope_left_in_another_thread_is_closed_and_warned_of_once() -> None:
    scopes = [cpu("first"), cpu("second")]
    samples = [scope.__enter__() for scope in scopes]

    def work() -> None:
        for scope in reversed(scopes):
            scope.__exit__(None, None, None)

    with pytest.warns(RuntimeWarning, match="left on another thread") as said:
        in_threads(work)
    assert len(said) == 1
    assert [sample.state for sample in samples] == ["done", "done"]
    assert gpuprof.stats()["first/second"].time.count == 1


def test_a_scope_may_be_left_after_the_thread_that_entered_it_has_ended() -> None:
    scope = cpu("orphan")
    samples: list[gpuprof.Sample] = []
    in_threads(lambda: samples.append(scope.__enter__()))
    with pytest.warns(RuntimeWarning, match="left on another thread"):
        scope.__exit__(None, None, None)
    assert samples[0].state == "done"


def test_a_generator_finished_in_another_thread_closes_its_entry() -> None:
    generator = spanning(cpu("moved"))
    sample = next(generator)
    with pytest.warns(RuntimeWarning, match="left on another thread"):
        in_threads(lambda: next(generator, None))
    assert sample.state == "done"


# Many threads at once


@pytest.mark.threads
def test_counts_are_exact_with_a_hundred_threads() -> None:
    shared, entries = cpu("shared"), 200

    def work() -> None:
        for _ in range(entries):
            with shared, cpu("inner"):
                pass

    in_threads(*[work] * THREADS)
    counts = {path: row.time.count for path, row in gpuprof.stats().items()}
    assert counts == {"shared": THREADS * entries, "shared/inner": THREADS * entries}


@pytest.mark.threads
def test_a_name_is_one_object_in_all_threads() -> None:
    found: list[gpuprof.Scope] = []
    in_threads(*[lambda: found.append(gpuprof.timer("met first by a hundred threads"))] * THREADS)
    assert len(found) == THREADS
    assert len(set(map(id, found))) == 1


@pytest.mark.threads
def test_a_shared_scope_survives_reading_resetting_and_switching() -> None:
    scope, stop = cpu("busy"), threading.Event()

    def times() -> None:
        while not stop.is_set():
            with scope as sample:
                pass
            assert sample.state in {"done", "disabled"}

    def reads() -> None:
        while not stop.is_set():
            repr(gpuprof.stats())
            repr(scope.last)
            gpuprof.flush()

    def switches() -> None:
        try:
            for _ in range(300):
                gpuprof.disable()
                gpuprof.reset()
                gpuprof.enable()
        finally:
            stop.set()

    in_threads(*[times] * 8, reads, reads, switches)
    gpuprof.reset()
    with scope:
        pass
    assert gpuprof.stats()["busy"].time.count == 1


@pytest.mark.threads
def test_an_exit_that_waits_does_not_lose_its_sample_to_another_threads_exit() -> None:
    waiting, go = threading.Event(), threading.Event()
    slow: set[int] = set()

    def synchronize() -> None:
        if threading.get_ident() in slow:
            waiting.set()
            go.wait(PATIENCE_S)

    scope = gpuprof.timer("held", backend=gpuprof.SyncBackend("device", synchronize))

    def work() -> None:
        scope.__enter__()
        slow.add(threading.get_ident())
        scope.__exit__(None, None, None)

    thread = threading.Thread(target=work)
    thread.start()
    assert waiting.wait(PATIENCE_S)
    with scope:
        pass
    with scope as sample:
        go.set()
        thread.join()
        assert sample.state == "open"
    assert gpuprof.stats()["held"].time.count == 3


LATE = """
import ctypes, threading, time
import gpuprof
library, key = ctypes.CDLL(None), ctypes.c_uint()
@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def late(_):
    with gpuprof.timer("late", backend="cpu"), gpuprof.timer("inner", backend="cpu"):
        pass
    done.append(1)
done = []
assert library.pthread_key_create(ctypes.byref(key), late) == 0
def work():
    library.pthread_setspecific(key, ctypes.c_void_p(1))
    with gpuprof.timer("early", backend="cpu"):
        pass
for index in range(1, 51):
    threading.Thread(target=work).start()
    while len(done) < index:
        time.sleep(0.0001)
print(gpuprof.stats()["late/inner"].host.count)
"""


def test_python_code_that_runs_after_a_threads_own_memory_is_gone_may_use_scopes() -> None:
    assert check_python(LATE, timeout=20, MALLOC_PERTURB_="165") == "50\n"


# Interruptions and exit

# Python ends daemon threads where they take the interpreter lock back, in whatever called Python.
_DAEMONS = """
import os, threading, time, types
import gpuprof

waits_in = os.environ["WAITS_IN"]
entered = threading.Semaphore(0)

def nap():
    time.sleep(0.001)
    return False

if waits_in == "torch":
    sys.modules["torch"] = types.ModuleType("torch")
    sys.modules["torch"].cuda = types.SimpleNamespace(is_initialized=nap)
device = gpuprof.SyncBackend("device", nap)
backends = {"cpu": "cpu", "synchronize": device, "timer": device, "torch": "auto"}

def work():
    make = gpuprof.Timer if waits_in == "timer" else gpuprof.timer
    used = make(backend=backends[waits_in])
    while True:
        with used:
            entered.release()

for _ in range(8):
    threading.Thread(target=work, daemon=True).start()
for _ in range(8):
    entered.acquire()
"""


@pytest.mark.parametrize("waits_in", ["cpu", "synchronize", "timer", "torch"])
def test_daemon_threads_inside_scopes_let_the_process_exit(waits_in: str) -> None:
    for _ in range(EXITS):
        check_python(_DAEMONS, WAITS_IN=waits_in)


def test_objects_alive_at_exit_are_let_go_without_a_word() -> None:
    check_python(
        """
        import gpuprof

        class Holder:
            pass

        holder = Holder()
        holder.me = holder
        holder.scope = gpuprof.timer("open at exit", backend="cpu")
        holder.sample = holder.scope.__enter__()
        holder.timer = gpuprof.Timer("cpu")
        holder.timer.record_start()

        def suspended():
            with gpuprof.timer("suspended", backend="cpu"):
                yield

        generator = suspended()
        next(generator)
        """
    )


# Processes

_JOB = """
import gpuprof

scope = gpuprof.timer("job", backend="cpu")

def job(number):
    with scope, gpuprof.timer("inner", backend="cpu") as sample:
        pass
    host = gpuprof.stats()["job/inner"].host
    return sample, host.count

def job_of(given):
    with given as sample:
        pass
    return sample.path
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_scopes_work_in_the_workers_of_a_pool(method: str, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(_JOB, encoding="utf-8")
    out = check_python(
        f"""
        import multiprocessing
        import gpuprof, job

        context = multiprocessing.get_context({method!r})
        with context.Pool(2) as pool:
            results = pool.map(job.job, range(4))
            given = pool.apply(job.job_of, (gpuprof.timer("given", backend="cpu"),))
        pool.join()
        assert all(sample.ms > 0 and sample.path == "job/inner" for sample, _ in results), results
        assert len(gpuprof.stats()) == 0
        print(given)
        """,
        PYTHONPATH=str(tmp_path),
    )
    assert out.strip() == "given"


def test_a_forked_child_and_its_parent_count_apart() -> None:
    out = check_python(
        """
        import os
        import gpuprof

        scope = gpuprof.timer("forked", backend="cpu")
        with scope:
            pass
        with scope as across:
            child = os.fork()
            with gpuprof.timer("inside", backend="cpu") as inside:
                pass
        assert (across.state, inside.path) == ("done", "forked/inside")
        gpuprof.reset()
        for _ in range(2 if child else 5):
            with scope:
                pass
        count = gpuprof.stats()["forked"].host.count
        if child == 0:
            os._exit(0 if count == 5 else 1)
        assert os.waitpid(child, 0)[1] == 0
        print(count)
        """
    )
    assert out.strip() == "2"


def test_a_fork_while_other_threads_time_leaves_a_working_child() -> None:
    check_python(
        """
        import os, threading, warnings
        import gpuprof

        warnings.filterwarnings("ignore", message=".*multi-threaded.*fork")
        gpuprof.stats()  # a fork during an import would leave Python's own lock taken
        stop = threading.Event()

        def work():
            while not stop.is_set():
                with gpuprof.timer("busy", backend="cpu"):
                    gpuprof.stats()

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(20):
            child = os.fork()
            if child == 0:
                gpuprof.reset()
                with gpuprof.timer("child", backend="cpu") as sample:
                    pass
                fine = sample.path == "child" and gpuprof.stats()["child"].host.count == 1
                os._exit(0 if fine else 1)
            assert os.waitpid(child, 0)[1] == 0
        stop.set()
        for thread in threads:
            thread.join()
        """
    )
