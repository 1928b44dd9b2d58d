"""How a collection begins, ends and is refused, and what becomes of it beside other tools."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import pytest

import gpuprof
from gpuprof import _core
from tests.fake_cupti import control
from tests.fake_cupti.control import FakeCupti
from tests.support.cupti import Collected, collected
from tests.support.threads import beside

CLOCK_SLACK_NS = 1_000_000


def stopped() -> Collected:
    """End the collection, where what CUPTI has does not come, however long one waits."""
    result = Collected()
    result.take(_core._cupti_stop(timeout_s=0.0))
    return result


def test_there_is_one_collection_at_a_time(cupti: FakeCupti) -> None:
    with collected() as seen:
        cupti.kernel("a")
        with pytest.raises(gpuprof.InvalidStateError, match=r"already.*end that one first"):
            _core._cupti_start()
        cupti.kernel("b")
    assert [row.name for row in seen.activities] == ["a", "b"]
    with pytest.raises(gpuprof.InvalidStateError, match="no kernels are being collected"):
        _core._cupti_stop()


REFUSALS = [
    ("cuptiActivityEnable", 39, "Another tool holds CUPTI.*Nsight"),
    ("cuptiActivityRegisterCallbacks", 39, "Another tool holds CUPTI"),
    ("cuptiActivityEnable", 35, "NVreg_RestrictProfilingToAdminUsers"),
    ("cuptiActivityEnable", 15, "older than this CUPTI"),
    ("cuptiActivityEnable", 999, "does not start"),
    ("cuptiActivityEnable", 8, r"failed: CUPTI's error \(8\)"),
    ("cuptiGetTimestamp", 999, "cuptiGetTimestamp"),
    ("cuptiGetThreadIdType", 15, "cuptiGetThreadIdType"),
    ("cuptiSetThreadIdType", 15, "cuptiSetThreadIdType"),
]


@pytest.mark.parametrize(("call", "code", "said"), REFUSALS)
@pytest.mark.parametrize("after", [0, 2])
def test_a_refused_start_says_why_and_leaves_nothing_enabled(
    cupti: FakeCupti, call: str, code: int, said: str, after: int
) -> None:
    if after and call != "cuptiActivityEnable":
        after = 0
    cupti.fail(call, code, after=after)
    with pytest.raises(gpuprof.CudaUnavailableError, match=said) as raised:
        _core._cupti_start()
    assert cupti.path in str(raised.value)
    assert (cupti.get("kinds"), cupti.get("thread_ids")) == (0, 0)
    cupti.fail(call, 0)
    with collected() as seen:
        cupti.kernel("a")
    assert len(seen.activities) == 1


@pytest.mark.parametrize("call", ["cuptiActivityFlushAll", "cuptiActivityDisable"])
def test_a_refusal_at_the_stop_is_told_beside_the_records(cupti: FakeCupti, call: str) -> None:
    _core._cupti_start()
    cupti.kernel("a")
    cupti.flush()
    cupti.fail(call, 999)
    seen = stopped()
    assert call in seen.plain["problem"]
    assert [row.name for row in seen.activities] == ["a"]
    cupti.fail(call, 0)


def test_the_stop_waits_for_what_still_runs(cupti: FakeCupti) -> None:
    cupti.set("running", 20)
    with collected() as seen:
        cupti.kernel("a")
    assert [row.name for row in seen.activities] == ["a"]
    assert cupti.calls("cuptiActivityFlushAll") == 22


def test_past_the_timeout_what_still_runs_is_counted(cupti: FakeCupti) -> None:
    cupti.set("running", 1_000_000)
    _core._cupti_start()
    now = cupti.now()
    cupti.kernel("done", now, now + 5)
    cupti.kernel("running", now, 0)
    seen = Collected()
    seen.take(_core._cupti_stop(timeout_s=0.02))
    assert [row.name for row in seen.activities] == ["done"]
    assert seen.plain["incomplete"] == 1
    assert cupti.get("kinds") == 0


@pytest.mark.parametrize("timeout_s", [-1.0, float("nan")])
def test_no_time_at_all_is_one_look(cupti: FakeCupti, timeout_s: float) -> None:
    cupti.set("running", 1_000_000)
    _core._cupti_start()
    cupti.kernel("a")
    _core._cupti_stop(timeout_s=timeout_s)
    assert cupti.calls("cuptiActivityFlushAll") <= 3


def test_ctrl_c_ends_the_wait_and_the_collection(cupti: FakeCupti) -> None:
    cupti.set("running", 1_000_000_000)
    _core._cupti_start()
    cupti.kernel("a")
    interrupt = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        _core._cupti_stop()
    interrupt.join()
    assert not _core._cupti_is_collecting()
    assert (cupti.get("kinds"), cupti.get("thread_ids")) == (0, 0)
    cupti.set("running", 0)
    with collected() as seen:
        cupti.kernel("a")
    assert len(seen.activities) == 1


def test_buffers_that_come_after_the_end_are_in_no_collection(cupti: FakeCupti) -> None:
    _core._cupti_start()
    cupti.kernel("late", times=10)
    cupti.set("stuck", 1)
    first = stopped()
    assert first.activities == []
    assert first.plain["displaced"]
    cupti.set("stuck", 0)
    cupti.flush()
    with collected() as second:
        cupti.kernel("second")
    assert [row.name for row in second.activities] == ["second"]
    assert not second.plain["displaced"]


def test_buffers_that_come_in_the_next_collection_bring_what_is_of_it(cupti: FakeCupti) -> None:
    early = cupti.now() - 1_000_000_000
    _core._cupti_start()
    cupti.kernel("first")
    cupti.set("stuck", 1)
    stopped()
    _core._cupti_start()
    cupti.kernel("old", early, early + 5)
    cupti.kernel("second")
    cupti.set("stuck", 0)
    seen = stopped()
    assert "second" in [row.name for row in seen.activities]
    assert "old" not in [row.name for row in seen.activities]


def test_a_buffer_that_another_tool_got_is_missed_and_never_freed(cupti: FakeCupti) -> None:
    for _ in range(3):
        _core._cupti_start()
        cupti.kernel("in our buffer")
        cupti.other_tool(True)
        cupti.flush()  # to the other tool, which does not know it
        cupti.kernel("theirs")
        seen = stopped()
        assert seen.plain["displaced"]
        assert seen.activities == []
        cupti.other_tool(False)
    with collected() as after:
        cupti.kernel("ours again")
    assert [row.name for row in after.activities] == ["ours again"]
    assert not after.plain["displaced"]


def test_a_buffer_of_another_tool_is_left_alone(cupti: FakeCupti) -> None:
    cupti.other_tool(True)
    cupti.kernel("theirs")
    with collected() as seen:  # takes the callbacks, as nothing tells that there is another tool
        cupti.flush()
        cupti.kernel("ours")
    assert [row.name for row in seen.activities] == ["ours"]


def test_after_the_end_cupti_gets_no_buffer(cupti: FakeCupti) -> None:
    with collected():
        pass
    cupti.enable(control.KERNEL)
    cupti.kernel("nobody asked", times=2)
    assert cupti.get("dropped") == 2
    assert cupti.get("lent") == 0


@pytest.mark.parametrize("rate", [2.1, 0.03125])
def test_another_tools_clock_is_converted(cupti: FakeCupti, rate: float) -> None:
    cupti.set("rate", rate)
    begun = time.monotonic_ns()
    with collected() as seen:
        middle = cupti.now()
        before = time.monotonic_ns()
        cupti.kernel("a", middle, middle + int(4_000_000 * rate))
        time.sleep(0.05)
    ended = time.monotonic_ns()
    (row,) = seen.activities
    slack = (ended - begun) // 50
    assert abs(row.end_ns - row.begin_ns - 4_000_000) < slack
    assert abs(row.begin_ns - before) < slack
    (total,) = seen.plain["totals"].values()
    assert abs(total[1] - (row.end_ns - row.begin_ns)) <= 1


def test_the_wall_clock_being_set_is_in_the_error(cupti: FakeCupti) -> None:
    with collected() as steady:
        pass
    assert steady.plain["clock_error_ns"] < CLOCK_SLACK_NS


@pytest.mark.threads
def test_threads_may_launch_while_collections_come_and_go(cupti: FakeCupti) -> None:
    with beside(lambda: cupti.kernel("a", times=10), 1):
        for _ in range(50):
            with collected(max_records=1000) as seen:
                cupti.kernel("b")
            assert seen.plain["unknown"] == 0


def test_a_child_is_refused_and_the_parent_goes_on(cupti: FakeCupti) -> None:
    with collected() as seen:
        cupti.kernel("before")
        child = os.fork()
        if child == 0:
            outcomes = set()
            for act in (_core._cupti_stop, _core._cupti_start):
                try:
                    act()
                except gpuprof.ForkedProcessError as error:
                    outcomes.add("spawn" in str(error))
            collecting = _core._cupti_is_collecting()
            os._exit(7 if outcomes == {True} and not collecting else 1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 7
        cupti.kernel("after")
    assert [row.name for row in seen.activities] == ["before", "after"]


@pytest.mark.parametrize("bad", [-1, 1.5, "many"])
def test_the_limit_is_a_whole_number(cupti: FakeCupti, bad: Any) -> None:
    with pytest.raises(TypeError):
        _core._cupti_start(bad)
    assert not _core._cupti_is_collecting()
