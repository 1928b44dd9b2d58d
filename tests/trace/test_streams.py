"""Streams in traces: their tracks and names, also of one at the address of a dead one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpuprof
from gpuprof.errors import InvalidStateError
from tests.fake_driver.control import FakeCuda
from tests.support.trace_events import events, metadata

MS = 1_000_000


@pytest.fixture
def reused(fake: FakeCuda) -> Iterator[FakeCuda]:
    """The driver as it really is: a new stream gets the address of the one destroyed last."""
    fake.configure(reuse=True)
    yield fake
    fake.configure(reuse=False)


def gpu_tracks(path: Path) -> dict[str, str]:
    """Return the name of the track that each GPU slice is on."""
    called = {m["tid"]: m["args"]["name"] for m in metadata(path, "thread_name")}
    return {e["name"]: called[e["tid"]] for e in events(path) if e["cat"].startswith("gpu")}


def work(fake: FakeCuda, stream: int, name: str) -> None:
    with gpuprof.timer(name, stream=stream):
        fake.work(stream, MS)
    fake.stream_synchronize(stream)


def test_a_stream_at_a_dead_one_s_address_has_a_track_of_its_own(
    reused: FakeCuda, path: Path
) -> None:
    with gpuprof.trace(path):
        first = reused.stream_create()
        gpuprof.name_stream(first, "copies")
        work(reused, first, "on the first")
        reused.stream_destroy(first)
        second = reused.stream_create()
        assert second == first
        work(reused, second, "on the second")
        reused.stream_destroy(second)
        third = reused.stream_create()
        gpuprof.name_stream(third, "compute")
        work(reused, third, "on the third")
    reused.stream_destroy(third)
    tracks = gpu_tracks(path)
    assert "copies" in tracks["on the first"]
    assert "copies" not in tracks["on the second"]
    assert "compute" in tracks["on the third"]
    assert len(set(tracks.values())) == 3


def test_replays_on_a_stream_at_a_dead_one_s_address_have_a_track_of_their_own(
    reused: FakeCuda, path: Path
) -> None:
    capturing = reused.stream_create()
    with gpuprof.capture(capturing, timers="collect", name="step") as cap:
        with gpuprof.timer("inside", stream=capturing):
            reused.work(capturing, MS)
    with gpuprof.trace(path):
        for name in ("dead", "alive"):
            stream = reused.stream_create()
            gpuprof.name_stream(stream, name)
            cap.graph.launch(stream)
            reused.stream_synchronize(stream)
            gpuprof.flush()
            reused.stream_destroy(stream)
    cap.graph.close()
    reused.stream_destroy(capturing)
    called = {m["tid"]: m["args"]["name"] for m in metadata(path, "thread_name")}
    for category in ("gpu_graph", "gpu_in_graph"):
        on = [called[e["tid"]] for e in events(path) if e["cat"] == category]
        assert ["dead" in on[0], "alive" in on[1]] == [True, True], on


def test_the_name_of_a_stream_is_that_of_its_address_only_where_no_number_is_told(
    fake: FakeCuda, stream: int, path: Path
) -> None:
    with fake.faults("cuStreamGetId@1-9=999"):
        gpuprof.name_stream(stream, "by its address")
        with gpuprof.trace(path):
            work(fake, stream, "work")
    assert "by its address" in gpu_tracks(path)["work"]


def test_a_default_stream_is_named_by_its_handle(fake: FakeCuda, path: Path) -> None:
    before = fake.calls("cuStreamGetId")
    with gpuprof.trace(path):
        work(fake, 0, "legacy")
        work(fake, 2, "of the thread")
    tracks = gpu_tracks(path)
    assert ", default stream" in tracks["legacy"]
    assert "per-thread default stream" in tracks["of the thread"]
    assert fake.calls("cuStreamGetId") == before


def test_a_stream_that_is_being_captured_is_named_before_or_after(
    fake: FakeCuda, stream: int
) -> None:
    with gpuprof.capture(stream) as cap:
        fake.work(stream, MS)
        with pytest.raises(InvalidStateError, match="name it before the capture"):
            gpuprof.name_stream(stream, "busy")
    assert cap.graph.num_nodes == 1
    cap.graph.close()
    gpuprof.name_stream(stream, "free")


def test_no_number_is_asked_for_without_a_trace(fake: FakeCuda, stream: int) -> None:
    before = fake.calls("cuStreamGetId")
    work(fake, stream, "work")
    assert fake.calls("cuStreamGetId") == before


def test_a_closing_trace_waits_for_a_gpu_that_other_processes_have(
    fake: FakeCuda, stream: int, path: Path
) -> None:
    with gpuprof.trace(path) as writer:
        with gpuprof.timer("step", stream=stream) as sample:
            fake.work(stream, MS)
        assert sample.ms == pytest.approx(1.0, rel=0.1)
        fake.configure(seen_ns=200 * MS)
        turn = threading.Timer(0.4, fake.configure, kwargs={"seen_ns": 0})
        turn.start()
    turn.join()
    assert sorted(event["cat"] for event in events(path)) == ["gpu", "scope"]
    assert writer.stats()["unplaced"] == 0


def test_slices_that_cannot_be_placed_for_want_of_an_anchor_are_counted(
    fake: FakeCuda, stream: int, path: Path
) -> None:
    fake.configure(seen_ns=10_000 * MS)  # as where other processes keep the GPU: no anchor in time
    try:
        with (
            pytest.warns(RuntimeWarning, match="lacks 1 GPU slices"),
            gpuprof.trace(path) as writer,
        ):
            with gpuprof.timer("step", stream=stream) as sample:
                fake.work(stream, MS)
            assert sample.ms == pytest.approx(1.0, rel=0.1)
    finally:
        fake.configure(seen_ns=0)
    assert [event["cat"] for event in events(path)] == ["scope"]
    assert writer.stats()["unplaced"] == 1
