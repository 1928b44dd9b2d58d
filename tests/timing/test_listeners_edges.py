"""`gpuprof.on_sample`: listeners that raise, are slow or come back; threads, forks and exit."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gpuprof
from tests.support.processes import check_cuda, check_python, run_python
from tests.support.scopes import cpu
from tests.support.threads import PATIENCE_S, beside, in_threads

CAPACITY = 16384


def measure(name: str, count: int = 1) -> None:
    scope = cpu(name)
    for _ in range(count):
        with scope:
            pass


def refuse(samples: list[gpuprof.Sample]) -> None:
    raise ValueError("not today")


def leave(samples: list[gpuprof.Sample]) -> None:
    sys.exit("not today")


# What is wrong with the listener


@pytest.mark.parametrize(("function", "error"), [(refuse, ValueError), (leave, SystemExit)])
def test_one_that_raises_is_ended_with_one_warning_and_the_others_go_on(
    function: Callable[..., None], error: type[BaseException]
) -> None:
    counts: list[int] = []
    bad = gpuprof.on_sample(function)
    good = gpuprof.on_sample(lambda samples: counts.append(len(samples)))
    with pytest.warns(RuntimeWarning) as caught:
        for _ in range(3):
            measure("step")
            gpuprof.flush()
    good.close()
    (warning,) = caught
    for part in (function.__name__, error.__name__, "not today"):
        assert part in str(warning.message)
    assert isinstance(bad.error, error)
    assert bad.closed
    assert "failed" in repr(bad)
    assert (counts, good.error) == ([1, 1, 1], None)


def test_one_that_raises_breaks_nothing_where_warnings_are_errors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[type[BaseException]] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda report: told.append(report.exc_type))
    handle = gpuprof.on_sample(refuse)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with cpu("step") as sample:
            pass
        assert sample.ms >= 0
    assert (told, handle.closed) == ([RuntimeWarning], True)


def test_an_interrupt_in_a_listener_comes_out_of_the_read() -> None:
    def interrupt(samples: list[gpuprof.Sample]) -> None:
        raise KeyboardInterrupt

    heard: list[int] = []
    with gpuprof.on_sample(interrupt):
        measure("step")
        with pytest.raises(KeyboardInterrupt):
            gpuprof.flush()
        with gpuprof.on_sample(lambda samples: heard.append(len(samples))):
            measure("step")
            with pytest.raises(KeyboardInterrupt):
                gpuprof.flush()
    assert heard == [1]


def test_a_slow_one_loses_what_has_no_room_with_one_warning() -> None:
    entered, go_on = threading.Event(), threading.Event()
    heard: list[int] = []

    def wait(samples: list[gpuprof.Sample]) -> None:
        heard.append(len(samples))
        entered.set()
        assert go_on.wait(PATIENCE_S)

    others: list[int] = []
    slow = gpuprof.on_sample(wait)
    quick = gpuprof.on_sample(lambda samples: others.append(len(samples)))
    measure("first")
    reader = threading.Thread(target=gpuprof.flush)
    reader.start()
    assert entered.wait(PATIENCE_S)
    with pytest.warns(RuntimeWarning, match="behind") as caught:
        measure("step", CAPACITY + 1000)
    assert slow.dropped == 1000
    assert "1000 samples dropped" in repr(slow)
    go_on.set()
    reader.join()
    slow.close()
    quick.close()
    assert len(caught) == 1
    assert heard == [1, CAPACITY]
    assert (sum(others), quick.dropped) == (CAPACITY + 1001, 0)


# What a listener may do


def test_scopes_and_statistics_inside_a_listener_call_nobody_again() -> None:
    batches: list[list[str]] = []
    others: list[str] = []

    def listen(samples: list[gpuprof.Sample]) -> None:
        batches.append([sample.path for sample in samples])
        measure("inside", 600)
        assert gpuprof.stats()["step"].host.count == 1
        assert cpu("inside") is not None
        gpuprof.flush()

    with gpuprof.on_sample(listen):
        with gpuprof.on_sample(lambda samples: others.append(samples[0].path)):
            measure("step")
            gpuprof.flush()
            assert batches == [["step"]]
            assert len(others) == 1
            gpuprof.flush()
            assert batches[1:] == [["inside"] * 600]
    assert len(batches) == 3


def test_one_may_close_itself_in_its_call() -> None:
    calls: list[int] = []

    def once(samples: list[gpuprof.Sample]) -> None:
        calls.append(len(samples))
        measure("after")
        handle.close()
        handle.close()

    handle = gpuprof.on_sample(once)
    measure("step")
    gpuprof.flush()
    measure("step")
    gpuprof.flush()
    assert calls == [1]
    assert handle.closed


def test_one_may_add_another_in_its_call() -> None:
    added: list[gpuprof.Listener] = []
    heard: list[str] = []

    def add(samples: list[gpuprof.Sample]) -> None:
        if not added:
            added.append(gpuprof.on_sample(lambda batch: heard.extend(s.path for s in batch)))

    with gpuprof.on_sample(add):
        measure("first")
        gpuprof.flush()
        measure("second")
        gpuprof.flush()
    added[0].close()
    assert heard == ["second"]


def test_close_hands_over_what_is_finished_and_no_more() -> None:
    heard: list[str] = []
    handle = gpuprof.on_sample(lambda samples: heard.extend(s.path for s in samples))
    measure("before")
    handle.close()
    measure("after")
    gpuprof.flush()
    assert heard == ["before"]


def test_a_with_block_closes_and_lets_its_exception_out() -> None:
    heard: list[str] = []
    with pytest.raises(KeyError, match="mine"):
        with gpuprof.on_sample(lambda samples: heard.extend(s.path for s in samples)) as handle:
            measure("step")
            raise KeyError("mine")
    assert handle.closed
    assert heard == ["step"]


def test_a_handle_that_is_dropped_goes_on() -> None:
    heard: list[str] = []
    handles = [gpuprof.on_sample(lambda samples: heard.extend(s.path for s in samples))]
    again = handles[0]
    handles.clear()
    measure("step")
    gpuprof.flush()
    again.close()
    assert heard == ["step"]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((3,), TypeError, "f: expected a function"),
        ((print, 3), TypeError, "paths: expected a str"),
        ((print, ["step", 3]), TypeError, "'step/fwd'.*got int 3"),
        ((print, ""), ValueError, "no path"),
        ((print, "/*"), ValueError, "no path"),
        ((print, []), ValueError, "None is every path"),
    ],
)
def test_a_wrong_call_says_what_is_expected(
    arguments: tuple[Any, ...], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        gpuprof.on_sample(*arguments)


# Threads and processes


@pytest.mark.threads
def test_threads_share_a_listener_which_hears_each_sample_once() -> None:
    heard: list[gpuprof.Sample] = []
    inside = threading.Semaphore(1)
    overlapped = []

    def listen(samples: list[gpuprof.Sample]) -> None:
        if not inside.acquire(blocking=False):
            overlapped.append(1)
            return
        heard.extend(samples)
        inside.release()

    with gpuprof.on_sample(listen) as handle:
        in_threads(*[lambda: measure("shared", 2000)] * 8)
        gpuprof.flush()
    assert overlapped == []
    assert len(heard) == 16_000
    assert len(set(map(id, heard))) == len(heard)
    assert len({sample.thread_id for sample in heard}) == 8
    assert handle.dropped == 0


@pytest.mark.threads
def test_listeners_come_and_go_while_others_time() -> None:
    def come_and_go() -> None:
        for _ in range(200):
            with gpuprof.on_sample(len):
                measure("mine")

    with beside(lambda: measure("busy", 50)):
        in_threads(*[come_and_go] * 4)
    heard: list[str] = []
    with gpuprof.on_sample(lambda samples: heard.extend(s.path for s in samples)):
        measure("last")
    assert "last" in heard


def test_a_forked_child_hears_its_own_samples_only() -> None:
    heard: list[str] = []
    reading, writing = os.pipe()
    with gpuprof.on_sample(lambda samples: heard.extend(s.path for s in samples)):
        measure("parent")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            child = os.fork()
        if child == 0:
            try:
                measure("child")
                gpuprof.flush()
                os.write(writing, repr(heard).encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        gpuprof.flush()
    assert os.read(reading, 1000).decode() == "['child']"
    assert heard == ["parent"]
    os.close(reading)
    os.close(writing)


def test_a_child_forked_in_the_middle_of_a_call_is_heard() -> None:
    entered, go_on = threading.Event(), threading.Event()
    heard: list[str] = []

    def listen(samples: list[gpuprof.Sample]) -> None:
        heard.extend(sample.path for sample in samples)
        if threading.current_thread() is reader:
            entered.set()
            go_on.wait(PATIENCE_S)

    reader = threading.Thread(target=gpuprof.flush)
    with gpuprof.on_sample(listen):
        measure("parent")
        reader.start()
        assert entered.wait(PATIENCE_S)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            child = os.fork()
        if child == 0:
            measure("child")
            gpuprof.flush()
            os._exit(0 if heard == ["parent", "child"] else 1)
        status = os.waitpid(child, 0)[1]
        go_on.set()
        reader.join()
    assert os.waitstatus_to_exitcode(status) == 0


def test_exit_hands_over_what_is_left(fake_path: Path) -> None:
    out = check_cuda(
        fake_path,
        """
        def listen(samples):
            print([(each.path, each.clock, round(each.ms)) for each in samples])
        gpuprof.on_sample(listen)
        with scope:
            fake.work(stream, 3_000_000)
        """,
    )
    assert out.strip() == "[('step', 'cuda', 3)]"


def test_exit_beside_daemon_threads_in_a_listener_does_not_abort() -> None:
    for _ in range(5):
        done = run_python(
            """
            import threading, time
            import gpuprof
            def listen(samples):
                time.sleep(0.001)
            gpuprof.on_sample(listen)
            def work():
                while True:
                    with gpuprof.timer("step", backend="cpu") as sample:
                        time.sleep(0.0001)  # or the listener would fall behind, and say so
                    sample.ms
            for _ in range(4):
                threading.Thread(target=work, daemon=True).start()
            time.sleep(0.05)
            """
        )
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("made_in", ["worker", "parent"])
def test_a_worker_of_multiprocessing_hands_over_at_its_end(made_in: str) -> None:
    out = check_python(
        f"""
        import multiprocessing, os
        import gpuprof
        reading, writing = os.pipe()
        def listen(samples):
            os.write(writing, repr((os.getpid(), [each.path for each in samples])).encode())
        def work():
            if {made_in!r} == "worker":
                gpuprof.on_sample(listen)
            with gpuprof.timer("step", backend="cpu"):
                pass
        if {made_in!r} == "parent":
            gpuprof.on_sample(listen)
        process = multiprocessing.get_context("fork").Process(target=work)
        process.start()
        process.join()
        print(os.read(reading, 100).decode() == repr((process.pid, ["step"])))
        """
    )
    assert out.strip() == "True"
