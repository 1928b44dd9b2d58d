"""What is collected of a CUPTI that the test speaks for: rows, totals, limits, and other tools."""

from __future__ import annotations

import resource
import time
from typing import Any

import pytest

from tests.fake_cupti import control
from tests.fake_cupti.control import DRIVER_CALLS, RUNTIME_CALLS, FakeCupti
from tests.support.cupti import KERNEL, MEMCPY, MEMSET, PEER_COPY, Collected, collected

NAME = "_Z5scaleIfEvPT_i"
SHOWN = "void scale<float>(float*, int)"
CLOCK_SLACK_NS = 1_000_000


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
        for _ in range(7):
            cupti.call(RUNTIME_CALLS, control.CUDA_LAUNCH_KERNEL)
    assert [row.name for row in seen.activities] == ["a"] * 3
    assert seen.plain["totals"] == {(KERNEL, "a"): (5, 5000), (KERNEL, "b"): (2, 2000)}
    assert figures(seen, "count", "dropped") == {"count": 7, "dropped": 4}
    assert (len(seen.launches), seen.plain["launches_dropped"]) == (6, 1)


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


@pytest.mark.parametrize(
    ("record", "step", "known"),
    [
        ((39).to_bytes(4, "little") + bytes(60), None, ["before", "after"]),  # not asked for
        ((-1).to_bytes(4, "little", signed=True) + bytes(4), None, ["before", "after"]),
        ((0xFFFFFF).to_bytes(4, "little") + bytes(36), None, ["before", "after"]),
        ((39).to_bytes(4, "little"), 13, ["before"]),  # misaligned: nothing is read behind it
    ],
)
def test_unknown_records_are_passed_over(
    cupti: FakeCupti, record: bytes, step: int | None, known: list[str]
) -> None:
    with collected() as seen:
        cupti.kernel("before")
        cupti.raw(record, step)
        cupti.kernel("after")
    assert [row.name for row in seen.activities] == known
    assert seen.plain["unknown"] == 3 - len(known)


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
        assert cupti.get("kinds") == 6
        assert cupti.get("thread_ids") == 1
    assert (cupti.get("kinds"), cupti.get("thread_ids")) == (0, 0)


def test_cupti_is_never_subscribed_to_and_its_clock_stays(cupti: FakeCupti) -> None:
    with collected():
        cupti.kernel("a")
    assert cupti.calls("cuptiSubscribe") == 0
    assert not hasattr(cupti.shared_object, "cuptiActivityRegisterTimestampCallback")
