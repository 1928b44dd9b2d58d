"""How the fake CUDA driver keeps time and fails on request."""

from __future__ import annotations

import re

import pytest

from tests.fake_driver import control
from tests.fake_driver.control import DriverCallError, FakeCuda

MS = 1_000_000


def timed_ms(driver: FakeCuda, stream: int, ns: int) -> float:
    begin, end = driver.event_create(), driver.event_create()
    driver.event_record(begin, stream)
    assert driver.work(stream, ns) == 0
    driver.event_record(end, stream)
    driver.event_synchronize(end)
    return driver.elapsed_ms(begin, end)


# Time


def test_an_empty_pair_reads_the_cost_of_one_record(driver: FakeCuda) -> None:
    driver.configure(record_ns=1280)
    stream = driver.stream_create()
    begin, end = driver.event_create(), driver.event_create()
    driver.event_record(begin, stream)
    driver.event_record(end, stream)
    driver.event_synchronize(end)
    assert round(driver.elapsed_ms(begin, end) * 1e6) == 1280


def test_only_who_asks_again_makes_the_clock_move(driver: FakeCuda) -> None:
    stream, event = driver.stream_create(), driver.event_create()
    driver.configure(query_ns=1000, call_ns=0)
    for _ in range(3):
        driver.work(stream, MS)
        driver.event_record(event, stream)
        before = driver.now()
        assert driver.event_query(event) == 600
        assert driver.stream_query(stream) == 600
        assert driver.now() == before, "asked once, between what was queued"
        assert driver.event_query(event) == 600
        assert driver.now() == before + 1000
        assert driver.stream_query(stream) == 600
        assert driver.now() == before + 2000


def test_events_show_steps_of_32_ns(driver: FakeCuda) -> None:
    stream = driver.stream_create()
    driver.work(stream, MS)
    readings = {round(timed_ms(driver, stream, ns) * 1e6) for ns in (1001, 1033, 1065)}
    assert all(reading % 32 == 0 for reading in readings)


def test_drift_stretches_what_events_show(driver: FakeCuda) -> None:
    stream = driver.stream_create()
    driver.configure(drift_ppb=10_000_000)
    assert timed_ms(driver, stream, 100 * MS) == pytest.approx(101.0, rel=1e-5)


def test_the_legacy_stream_and_blocking_streams_wait_for_each_other(driver: FakeCuda) -> None:
    driver.configure(mode="manual")
    blocking, free = driver.stream_create(0), driver.stream_create()
    start = driver.now()
    driver.work(blocking, 2 * MS)
    driver.work(free, 50 * MS)
    driver.work(control.LEGACY_STREAM, 3 * MS)
    driver.work(blocking, 4 * MS)
    assert driver.stream_tail(control.LEGACY_STREAM) - start == 5 * MS
    assert driver.stream_tail(blocking) - start == 9 * MS


def test_branches_of_a_graph_run_side_by_side(driver: FakeCuda) -> None:
    driver.configure(mode="manual")
    origin, branch = driver.stream_create(), driver.stream_create()
    fork, join = driver.event_create(), driver.event_create()
    driver.begin_capture(origin)
    driver.work(origin, MS)
    driver.event_record(fork, origin)
    driver.call("cuStreamWaitEvent", branch, fork, 0)
    driver.work(branch, 5 * MS)
    driver.event_record(join, branch)
    driver.work(origin, 2 * MS)
    driver.call("cuStreamWaitEvent", origin, join, 0)
    graph_exec = driver.instantiate(driver.end_capture(origin))
    start = driver.now()
    driver.graph_launch(graph_exec, origin)
    driver.stream_synchronize(origin)
    assert driver.now() - start == 6 * MS


def test_replays_of_one_graph_follow_each_other_on_any_streams(driver: FakeCuda) -> None:
    driver.configure(mode="manual")
    one, other = driver.stream_create(), driver.stream_create()
    driver.begin_capture(one)
    driver.work(one, MS)
    graph_exec = driver.instantiate(driver.end_capture(one))
    start = driver.now()
    driver.graph_launch(graph_exec, one)
    driver.graph_launch(graph_exec, other)
    assert driver.stream_tail(other) - start == 2 * MS


# Faults


@pytest.mark.parametrize(
    ("calls", "answers"),
    [("2-3", [0, 2, 2, 0, 0]), ("3*", [0, 0, 2, 2, 2]), ("1", [2, 0, 0, 0, 0])],
)
def test_a_fault_hits_a_range_of_calls(driver: FakeCuda, calls: str, answers: list[int]) -> None:
    driver.script(f"cuEventQuery@{calls}=2")
    event = driver.event_create()
    assert [driver.event_query(event) for _ in range(5)] == answers


def test_a_sticky_fault_is_answered_by_every_later_call_on_the_device(driver: FakeCuda) -> None:
    stream, event = driver.stream_create(), driver.event_create()
    with driver.faults("cuEventRecord@1=719:sticky"), pytest.raises(DriverCallError):
        driver.event_record(event, stream)
    assert driver.event_query(event) == 719
    assert driver.stream_query(stream) == 719
    assert driver.current_context() != 0
    with pytest.raises(DriverCallError, match="719"):
        driver.primary_retain()


@pytest.mark.parametrize("options", ["sticky", "sticky:after", "after:sticky"])
def test_a_sticky_fault_stays_also_where_the_call_has_its_effect(
    driver: FakeCuda, options: str
) -> None:
    stream, event = driver.stream_create(), driver.event_create()
    with driver.faults(f"cuEventRecord@1=719:{options}"), pytest.raises(DriverCallError):
        driver.event_record(event, stream)
    assert driver.event_query(event) == 719


@pytest.mark.parametrize(
    "text",
    ["cuEventQuery", "cuEventQuery@0=1", "cuEventQuery@x=1", "cuEventQuery@3-1=1", "@1=1",
     "cuEventQuery@1=", "cuEventQuery@1=1:never"],
)  # fmt: skip
def test_a_script_with_a_mistake_changes_nothing(driver: FakeCuda, text: str) -> None:
    event = driver.event_create()
    driver.script("cuEventQuery@1=700")
    with pytest.raises(ValueError, match=re.escape(text)):
        driver.script(f"cuEventQuery@1=0;{text}")
    assert driver.event_query(event) == 700


@pytest.mark.parametrize("text", ["record_ns=fast", "mode=slow", "colour=red", "reuse"])
def test_a_configuration_with_a_mistake_changes_nothing(driver: FakeCuda, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        driver.configure(f"record_ns=9999;{text}")
    stream = driver.stream_create()
    assert timed_ms(driver, stream, MS) == pytest.approx(1.0)
