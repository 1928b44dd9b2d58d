"""What is collected of a CUPTI that the test speaks for: rows, totals, limits, and other tools."""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import gpuprof
from gpuprof import _core
from tests.fake_cupti import control
from tests.fake_cupti.build import cached
from tests.fake_cupti.control import DRIVER_CALLS, RUNTIME_CALLS, FakeCupti
from tests.support.cupti import KERNEL, MEMCPY, MEMSET, PEER_COPY, Collected, collected

NAME = "_Z5scaleIfEvPT_i"
SHOWN = "void scale<float>(float*, int)"
CLOCK_SLACK_NS = 1_000_000


@pytest.fixture
def cupti(pytestconfig: pytest.Config) -> Iterator[FakeCupti]:
    """The CUPTI that gpuprof uses, as after its load; nothing of it stays enabled."""
    fake = FakeCupti(cached(pytestconfig))
    assert _core._cupti_load([fake.path])["path"] == fake.path, "another CUPTI is in the process"
    fake.reset()
    yield fake
    if _core._cupti_state()["collecting"]:
        _core._cupti_stop()
        pytest.fail("the test left a collection behind")
    fake.flush()
    fake.reset()


def stopped(**options: Any) -> Collected:
    """End the collection, where what CUPTI has does not come, however long one waits."""
    result = Collected()
    result.take(_core._cupti_stop(timeout_s=0.0, **options))
    return result


def figures(seen: Collected, *keys: str) -> dict[str, Any]:
    return {key: seen.plain[key] for key in keys}


def test_a_kernel_has_its_fields_and_the_hosts_times(cupti: FakeCupti) -> None:
    before = time.monotonic_ns()
    with collected() as seen:
        cupti.kernel(NAME, stream=9, correlation=21, graph=4, node=0x500000002)
        after = time.monotonic_ns()
    (row,) = seen.activities
    assert before - CLOCK_SLACK_NS < row.begin_ns < after + CLOCK_SLACK_NS
    assert row.end_ns - row.begin_ns == 1000
    found = {key: value for key, value in vars(row).items() if not key.endswith("_ns")}
    assert found == {
        "kind": KERNEL,
        "name": SHOWN,
        "device": 1,
        "context": 2,
        "stream": 9,
        "correlation": 21,
        "graph_id": 4,
        "node_id": 0x500000002,
        "nbytes": 0,
    }
    assert seen.plain["totals"] == {(KERNEL, SHOWN): (1, 1000)}
    assert seen.plain["version"] == 130001
    assert seen.plain["path"] == cupti.path


def test_copies_are_named_as_torch_names_them(cupti: FakeCupti) -> None:
    with collected() as seen:
        cupti.copy(control.HTOD, control.PINNED, control.DEVICE, nbytes=64, correlation=1)
        cupti.copy(control.DTOH, control.DEVICE, control.PAGEABLE, nbytes=32)
        cupti.copy(control.DTOD, control.DEVICE, control.DEVICE, nbytes=8, what=control.PEER_COPY)
        cupti.copy(what=control.MEMSET, destination=control.DEVICE, nbytes=16)
        cupti.copy(99, 99, 99)
    found = [(row.kind, row.name, row.nbytes) for row in seen.activities]
    assert found == [
        (MEMCPY, "Memcpy HtoD (Pinned -> Device)", 64),
        (MEMCPY, "Memcpy DtoH (Device -> Pageable)", 32),
        (PEER_COPY, "Memcpy PtoP (Device -> Device)", 8),
        (MEMSET, "Memset (Device)", 16),
        (MEMCPY, "Memcpy <unknown> (Unknown -> Unknown)", 0),
    ]
    assert seen.activities[0].correlation == 1


def test_of_cudas_functions_only_launches_are_collected(cupti: FakeCupti) -> None:
    with collected() as seen:
        cupti.call(RUNTIME_CALLS, control.CUDA_LAUNCH_KERNEL_PTSZ, thread=77, correlation=5)
        cupti.call(RUNTIME_CALLS, control.CUDA_GRAPH_LAUNCH, correlation=6)
        cupti.call(RUNTIME_CALLS, control.CUDA_MEMCPY_ASYNC)
        cupti.call(DRIVER_CALLS, control.CU_LAUNCH_KERNEL)
        for function in (control.CUDA_MALLOC, control.CUDA_SET_PARAMS):
            cupti.call(RUNTIME_CALLS, function)
        for function in (control.CU_LAUNCH_HOST_FUNC, control.CU_DEVICE_GET):
            cupti.call(DRIVER_CALLS, function)
    names = [row.name for row in seen.launches]
    assert names == ["cudaLaunchKernel", "cudaGraphLaunch", "cudaMemcpyAsync", "cuLaunchKernel"]
    first = seen.launches[0]
    assert (first.thread_id, first.correlation, first.end_ns - first.begin_ns) == (77, 5, 500)
    assert seen.activities == []


def test_records_of_later_versions_are_longer(cupti: FakeCupti) -> None:
    cupti.set("extra", 48)
    with collected() as seen:
        cupti.kernel(NAME, correlation=1)
        cupti.copy(nbytes=5)
        cupti.kernel(NAME, correlation=2)
    assert [row.correlation for row in seen.activities] == [1, 0, 2]
    assert figures(seen, "unknown", "incomplete") == {"unknown": 0, "incomplete": 0}


def test_past_the_limit_records_are_counted_and_added_to_the_totals(cupti: FakeCupti) -> None:
    with collected(max_records=3) as seen:
        cupti.kernel("a", times=5)
        cupti.kernel("b", times=2)
        for _ in range(4):
            cupti.call(RUNTIME_CALLS, control.CUDA_LAUNCH_KERNEL)
    assert [row.name for row in seen.activities] == ["a"] * 3
    assert seen.plain["totals"] == {(KERNEL, "a"): (5, 5000), (KERNEL, "b"): (2, 2000)}
    assert figures(seen, "count", "dropped") == {"count": 7, "dropped": 4}
    assert (len(seen.launches), seen.plain["launches_dropped"]) == (3, 1)


def test_a_limit_of_zero_keeps_totals_alone(cupti: FakeCupti) -> None:
    with collected(max_records=0) as seen:
        cupti.kernel("a")
    assert seen.activities == []
    assert seen.plain["totals"] == {(KERNEL, "a"): (1, 1000)}


def test_ten_million_kernels_take_no_memory(cupti: FakeCupti) -> None:
    with collected(max_records=1000) as warm:
        cupti.kernel("a", times=20_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with collected(max_records=1000) as seen:
        cupti.kernel("a", times=10_000_000)
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert warm.plain["count"] == 20_000
    assert seen.plain["totals"] == {(KERNEL, "a"): (10_000_000, 10_000_000_000)}
    assert grown_kib < 16 * 1024


def test_different_names_are_bounded(cupti: FakeCupti) -> None:
    with collected() as seen:
        for number in range(66_000):
            cupti.kernel(f"kernel_{number}")
        cupti.kernel("kernel_0")
    assert len(seen.plain["names"]) == 65_537
    others = len(seen.named("(other names)"))
    assert others == 66_000 - 65_536
    assert seen.plain["totals"][KERNEL, "(other names)"] == (others, others * 1000)
    assert seen.plain["totals"][KERNEL, "kernel_0"][0] == 2


def test_symbols_that_read_alike_are_one_total(cupti: FakeCupti) -> None:
    long_arguments = ["N" + "1a" * 600 + suffix for suffix in ("E", "1bE")]
    with collected() as seen:
        for argument in long_arguments:
            cupti.kernel(f"_ZN2ns6kernelI{argument}Evv_not_mangled")
        cupti.kernel(None)
    assert seen.plain["totals"] == {
        (KERNEL, "ns::kernel<...>"): (2, 2000),
        (KERNEL, "(unnamed kernel)"): (1, 1000),
    }


def test_records_without_times_that_can_be_are_in_no_figure(cupti: FakeCupti) -> None:
    day = 86_400_000_000_000
    with collected() as seen:
        now = cupti.now()
        cupti.kernel("never ended", now, 0)
        cupti.kernel("never ran", 0, 0)
        cupti.kernel("ended before it began", now, now - 1)
        cupti.kernel("of an earlier collection", now - 60_000_000_000, now)
        cupti.kernel("on another clock", now + day, now + day + 5)
        cupti.kernel("good")
    assert [row.name for row in seen.activities] == ["good"]
    assert figures(seen, "incomplete", "count", "unknown") == {
        "incomplete": 5,
        "count": 1,
        "unknown": 0,
    }
    assert list(seen.plain["totals"]) == [(KERNEL, "good")]


@pytest.mark.parametrize(
    ("record", "step"),
    [
        ((39).to_bytes(4, "little") + bytes(60), None),  # a kind that was not asked for
        ((-1).to_bytes(4, "little", signed=True) + bytes(4), None),
        ((0xFFFFFF).to_bytes(4, "little") + bytes(36), None),
    ],
)
def test_unknown_records_are_passed_over(cupti: FakeCupti, record: bytes, step: int | None) -> None:
    with collected() as seen:
        cupti.kernel("before")
        cupti.raw(record, step)
        cupti.kernel("after")
    assert [row.name for row in seen.activities] == ["before", "after"]
    assert seen.plain["unknown"] == 1


def test_nothing_is_read_behind_a_misaligned_record(cupti: FakeCupti) -> None:
    with collected() as seen:
        cupti.kernel("before")
        cupti.raw((39).to_bytes(4, "little"), 13)
        cupti.kernel("after")
    assert [row.name for row in seen.activities] == ["before"]
    assert seen.plain["unknown"] == 2


def test_nothing_is_read_behind_the_end_of_a_buffer(cupti: FakeCupti) -> None:
    with collected() as seen:
        cupti.kernel("whole")
        cupti.raw(control.KERNEL.to_bytes(4, "little") + bytes(92))  # cut off behind 96 bytes
    assert [row.name for row in seen.activities] == ["whole"]
    assert seen.plain["unknown"] == 1


def test_records_that_cupti_drops_are_counted(cupti: FakeCupti) -> None:
    cupti.set("keeps", 1)
    nothing = (39).to_bytes(4, "little")
    with collected() as seen:
        for _ in range(256):  # as many buffers as CUPTI gets while no kernel of them has ended
            cupti.raw(nothing, 1 << 20)
        cupti.kernel("no room", times=3)
        assert cupti.get("dropped") == 3
        cupti.flush()
        cupti.kernel("room again")
    assert seen.plain["cupti_dropped"] == 3
    assert [row.name for row in seen.activities] == ["room again"]
    with collected() as later:
        cupti.kernel("later")
    assert later.plain["cupti_dropped"] == 0
    assert [row.name for row in later.activities] == ["later"]


def test_full_buffers_come_from_another_thread(cupti: FakeCupti) -> None:
    cupti.set("own_thread", 1)
    with collected() as seen:
        cupti.kernel("a", times=20_000)
    assert len(seen.activities) == 20_000


def test_what_is_enabled_is_disabled_again_and_the_rest_is_as_before(cupti: FakeCupti) -> None:
    cupti.set("thread_ids", 0)
    with collected():
        assert cupti.get("kinds") == 4
        assert cupti.get("functions") == 9
        assert cupti.get("thread_ids") == 1
    assert (cupti.get("kinds"), cupti.get("functions"), cupti.get("thread_ids")) == (0, 0, 0)


def test_cupti_is_never_subscribed_to_and_its_clock_stays(cupti: FakeCupti) -> None:
    with collected():
        cupti.kernel("a")
    assert cupti.calls("cuptiSubscribe") == 0
    assert not hasattr(cupti.shared_object, "cuptiActivityRegisterTimestampCallback")


def test_there_is_one_collection_at_a_time(cupti: FakeCupti) -> None:
    with collected() as seen:
        cupti.kernel("a")
        with pytest.raises(gpuprof.InvalidStateError, match="already.*end that one first"):
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
    ("cuptiActivityEnableRuntimeApi", 999, "does not start"),
    ("cuptiActivityEnableDriverApi", 8, r"failed: CUPTI's error \(8\)"),
    ("cuptiGetTimestamp", 999, "cuptiGetTimestamp"),
    ("cuptiGetThreadIdType", 15, "cuptiGetThreadIdType"),
    ("cuptiSetThreadIdType", 15, "cuptiSetThreadIdType"),
]


@pytest.mark.parametrize(("call", "code", "said"), REFUSALS)
@pytest.mark.parametrize("after", [0, 2])
def test_a_refused_start_says_why_and_leaves_nothing_enabled(
    cupti: FakeCupti, call: str, code: int, said: str, after: int
) -> None:
    if after and call not in {"cuptiActivityEnable", "cuptiActivityEnableRuntimeApi"}:
        after = 0
    cupti.fail(call, code, after=after)
    with pytest.raises(gpuprof.CudaUnavailableError, match=said) as raised:
        _core._cupti_start()
    assert cupti.path in str(raised.value)
    assert (cupti.get("kinds"), cupti.get("functions"), cupti.get("thread_ids")) == (0, 0, 0)
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
    assert not _core._cupti_state()["collecting"]
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


def test_a_tool_that_takes_cupti_keeps_its_records(cupti: FakeCupti) -> None:
    _core._cupti_start()
    cupti.kernel("ours")
    cupti.flush()
    cupti.other_tool(True)
    cupti.kernel("theirs", times=3)
    seen = stopped(release=False)
    assert [row.name for row in seen.activities] == ["ours"]
    assert seen.plain["displaced"]
    assert cupti.get("kinds") == 4, "nothing was disabled under it"
    cupti.kernel("theirs", times=2)
    cupti.other_tool(False)
    assert cupti.get("other_records") == 5


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
    done = threading.Event()

    def launch() -> None:
        while not done.is_set():
            cupti.kernel("a", times=10)

    launcher = threading.Thread(target=launch)
    launcher.start()
    try:
        for _ in range(50):
            with collected(max_records=1000) as seen:
                cupti.kernel("b")
            assert seen.plain["unknown"] == 0
    finally:
        done.set()
        launcher.join()


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
            collecting = _core._cupti_state()["collecting"]
            os._exit(7 if outcomes == {True} and not collecting else 1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 7
        cupti.kernel("after")
    assert [row.name for row in seen.activities] == ["before", "after"]


def test_node_ids_come_from_the_loaded_library(cupti: FakeCupti) -> None:
    assert _core._cupti_graph_node_id(100) == 107
    assert _core._cupti_graph_node_id(0) is None


@pytest.mark.parametrize("bad", [-1, 1.5, "many"])
def test_the_limit_is_a_whole_number(cupti: FakeCupti, bad: Any) -> None:
    with pytest.raises(TypeError):
        _core._cupti_start(bad)
    assert not _core._cupti_state()["collecting"]
