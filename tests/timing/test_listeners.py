"""`gpuprof.on_sample`: which samples a listener gets, when, and with what on them."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import gpuprof
from tests.fake_driver.control import FakeCuda
from tests.support.scopes import cpu

MS = 1_000_000
BATCH = 256


class Heard:
    """A listener that keeps what it gets, and the handle of it."""

    def __init__(self, **options: Any) -> None:
        self.batches: list[list[gpuprof.Sample]] = []
        self.handle = gpuprof.on_sample(self.batches.append, **options)

    @property
    def samples(self) -> list[gpuprof.Sample]:
        return [sample for batch in self.batches for sample in batch]

    @property
    def paths(self) -> list[str]:
        return [sample.path for sample in self.samples]


@pytest.fixture
def heard() -> Iterator[Heard]:
    listener = Heard()
    yield listener
    listener.handle.close()


# What reads


def test_a_listener_gets_each_sample_once_as_scopes_end(heard: Heard) -> None:
    with cpu("step"):
        with cpu("fwd") as sample:
            pass
    assert heard.batches == []
    gpuprof.flush()
    assert heard.paths == ["step/fwd", "step"]
    assert heard.samples[0] == sample
    gpuprof.flush()
    assert len(heard.batches) == 1


@pytest.mark.parametrize(
    "read",
    [
        lambda _: gpuprof.stats(),
        lambda _: gpuprof.stats(wait=False),
        lambda _: gpuprof.flush(),
        lambda scope: scope.last.ms,
        lambda scope: scope.last.try_ms(),
        lambda scope: scope.ms,
    ],
    ids=["stats", "stats without waiting", "flush", "ms", "try_ms", "ms of the scope"],
)
def test_whoever_reads_hands_on_what_is_finished(heard: Heard, read: Any) -> None:
    scope = cpu("read")
    with scope as sample:
        pass
    read(scope)
    assert heard.samples == [sample]


def test_a_repr_hands_on_nothing(heard: Heard) -> None:
    with cpu("read") as sample:
        pass
    repr(sample)
    assert heard.batches == []


def test_a_full_batch_is_handed_on_at_an_outermost_exit(heard: Heard) -> None:
    for _ in range(BATCH - 1):
        with cpu("step"):
            pass
    assert heard.batches == []
    with cpu("step"):
        pass
    assert [len(batch) for batch in heard.batches] == [BATCH]


def test_inside_another_scope_a_full_batch_waits(heard: Heard) -> None:
    with cpu("step"):
        for _ in range(3 * BATCH):
            with cpu("part"):
                pass
        assert heard.batches == []
    assert [len(batch) for batch in heard.batches] == [3 * BATCH + 1]


def test_inside_a_scope_without_end_no_sample_is_lost(heard: Heard) -> None:
    with cpu("everything"):
        for _ in range(40_000):
            with cpu("part"):
                pass
        assert len(heard.samples) > 30_000
    gpuprof.flush()
    assert len(heard.samples) == 40_001
    assert heard.handle.dropped == 0


def test_an_exit_of_a_disabled_scope_hands_on_nothing(heard: Heard) -> None:
    for _ in range(BATCH - 1):
        with cpu("step"):
            pass
    gpuprof.disable()
    with cpu("step"):
        pass
    assert heard.batches == []


# Which samples


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (None, ["step/fwd/mm", "step/fwd", "step/bwd", "step", "stepping"]),
        ("*", ["step/fwd/mm", "step/fwd", "step/bwd", "step", "stepping"]),
        ("step", ["step"]),
        ("step/*", ["step/fwd/mm", "step/fwd", "step/bwd"]),
        ("step/fwd/*", ["step/fwd/mm"]),
        ({"step", "step/bwd"}, ["step/bwd", "step"]),
        (["step/fwd", "step/fwd/*"], ["step/fwd/mm", "step/fwd"]),
        ("absent", []),
    ],
)
def test_paths_choose_what_a_listener_gets(paths: Any, expected: list[str]) -> None:
    heard = Heard(paths=paths)
    for _ in range(2):
        with cpu("step"):
            with cpu("fwd"), cpu("mm"):
                pass
            with cpu("bwd"):
                pass
        with cpu("stepping"):
            pass
    heard.handle.close()
    assert heard.paths == expected * 2


def test_a_long_path_is_found_by_its_whole_text() -> None:
    name = "é" * 5000
    exact, below = Heard(paths=name), Heard(paths=f"{name}/*")
    with cpu(name), cpu("inside"):
        pass
    exact.handle.close()
    below.handle.close()
    assert [sample.names[-1] for sample in below.samples] == ["inside"]
    assert len(exact.samples) == 1


def test_unnamed_skipped_and_disabled_samples_are_not_heard(
    heard: Heard, fake: FakeCuda, stream: int
) -> None:
    with cpu():
        pass
    with cpu("off", enabled=False):
        pass
    fake.begin_capture(stream)
    with pytest.warns(RuntimeWarning, match="in_capture"), gpuprof.timer("skipped", stream=stream):
        pass
    fake.graph_destroy(fake.end_capture(stream))
    gpuprof.flush()
    assert heard.batches == []


def test_a_failed_sample_is_heard_as_failed(heard: Heard) -> None:
    with pytest.raises(KeyError), cpu("step"):
        raise KeyError
    gpuprof.flush()
    assert [(sample.path, sample.failed) for sample in heard.samples] == [("step", True)]


def test_reset_takes_nothing_from_a_listener(heard: Heard) -> None:
    with cpu("step"):
        pass
    gpuprof.reset()
    gpuprof.flush()
    assert heard.paths == ["step"]
    assert len(gpuprof.stats()) == 0


def test_what_was_measured_before_disable_is_heard_after_it(heard: Heard) -> None:
    with cpu("step"):
        pass
    gpuprof.disable()
    gpuprof.flush()
    assert heard.paths == ["step"]


# What is on a sample


def test_a_sample_says_where_and_when(heard: Heard) -> None:
    began = time.monotonic_ns()
    with cpu("step"), cpu("a/b"):
        pass
    ended = time.monotonic_ns()
    gpuprof.flush()
    inner, outer = heard.samples
    assert inner.names == ("step", "a/b")
    assert began <= outer.host_begin_ns <= inner.host_begin_ns
    assert inner.host_begin_ns <= inner.host_end_ns <= outer.host_end_ns <= ended
    assert inner.host_end_ns - inner.host_begin_ns == pytest.approx(inner.host_ms * MS)
    assert inner.thread_id == threading.get_native_id()


def test_a_sample_has_its_own_thread_whoever_reads(heard: Heard) -> None:
    ids = []

    def work() -> None:
        ids.append(threading.get_native_id())
        with cpu("elsewhere"):
            pass

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    gpuprof.flush()
    assert [sample.thread_id for sample in heard.samples] == ids


def test_without_a_listener_no_thread_is_noted() -> None:
    with cpu("step") as sample:
        assert sample.host_begin_ns > 0
        assert sample.host_end_ns == 0
    assert sample.thread_id == 0
    with cpu("step", enabled=False) as off:
        pass
    assert (off.host_begin_ns, off.host_end_ns, off.thread_id) == (0, 0, 0)


def test_a_pickle_keeps_when_and_where(heard: Heard) -> None:
    with cpu("step") as sample:
        pass
    again = pickle.loads(pickle.dumps(sample))
    for name in ("host_begin_ns", "host_end_ns", "thread_id", "names", "host_ms"):
        assert getattr(again, name) == getattr(sample, name)


# The GPU


def test_gpu_samples_are_heard_once_the_gpu_is_done(
    heard: Heard, fake: FakeCuda, stream: int
) -> None:
    fake.configure("mode=manual")
    with gpuprof.timer("gpu", stream=stream) as sample:
        fake.work(stream, 5 * MS)
    gpuprof.stats(wait=False)
    assert heard.batches == []
    fake.complete(stream)
    gpuprof.stats(wait=False)
    assert heard.samples == [sample]
    assert heard.samples[0].ms == pytest.approx(5, abs=0.01)
    assert heard.samples[0].thread_id == threading.get_native_id()
    heard.batches.clear()


def test_spans_inside_graph_replays_are_heard(heard: Heard, fake: FakeCuda, stream: int) -> None:
    with gpuprof.capture(stream, timers="collect", name="decode") as cap:
        with gpuprof.timer("inside", stream=stream):
            fake.work(stream, 2 * MS)
    with cpu("request"):
        for _ in range(3):
            cap.graph.launch(stream)
    gpuprof.flush()
    inside = [sample for sample in heard.samples if sample.path == "inside"]
    assert [sample.ms for sample in inside] == pytest.approx([2, 2, 2], abs=0.01)
    assert {sample.thread_id for sample in heard.samples} == {threading.get_native_id()}
    counts = {key: row.time.count for key, row in gpuprof.stats().items()}
    assert {path: heard.paths.count(path) for path in set(heard.paths)} == counts
    heard.batches.clear()
    del inside
    cap.graph.close()


def test_a_listener_is_not_called_inside_an_open_capture(
    heard: Heard, fake: FakeCuda, stream: int
) -> None:
    for _ in range(BATCH - 1):
        with cpu("before"):
            pass
    with gpuprof.capture(stream) as cap:
        fake.work(stream, MS)
        for _ in range(3):
            with cpu("beside"):
                pass
        assert heard.batches == []
    cap.graph.close()
    with cpu("after"):
        pass
    assert [len(batch) for batch in heard.batches] == [BATCH + 3]


def test_a_driver_failure_is_heard_as_failed(heard: Heard, fake: FakeCuda, stream: int) -> None:
    fake.script("cuEventRecord@2=2")
    with pytest.warns(RuntimeWarning, match="OUT_OF_MEMORY"):
        with gpuprof.timer("gpu", stream=stream):
            pass
        gpuprof.flush()
    assert [(sample.path, sample.failed) for sample in heard.samples] == [("gpu", True)]
    heard.batches.clear()
