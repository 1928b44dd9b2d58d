"""Records of real kernels, copies and graph replays through the real CUPTI.

Each test is a process of its own: CUPTI stays attached to one that has used it.
"""

from __future__ import annotations

import textwrap

from tests.gpu.support.scripts import check_script

# The GPU's times are fitted to the host's clock.
_PREAMBLE = """
import ctypes, threading, time
from tests.support import cupti
from tests.support.cupti import KERNEL, MEMCPY, MEMSET, collected

FIT_NS = 50_000

def graph_of(body, count=1):
    stream = device().stream()
    graph, graph_exec = ctypes.c_void_p(), ctypes.c_void_p()
    device().call("cuStreamBeginCapture_v2", ctypes.c_void_p(stream), 1)
    body(stream)
    device().call("cuStreamEndCapture", ctypes.c_void_p(stream), ctypes.byref(graph))
    made = ctypes.byref(graph_exec)
    device().call("cuGraphInstantiateWithFlags", made, graph, ctypes.c_uint64(0))
    return stream, graph, graph_exec
"""


def check_cupti(body: str) -> None:
    check_script(_PREAMBLE + textwrap.dedent(body))


def test_a_kernel_is_where_and_as_long_as_it_says_itself() -> None:
    check_cupti("""
    spin = Spin(device(), stream := device().stream(), 5 * MILLISECOND)
    spin.launch()
    device().synchronize()
    with collected() as seen:
        before = time.monotonic_ns()
        spin.launch()
        launched = time.monotonic_ns()
        device().synchronize(stream)
        after = time.monotonic_ns()
    (kernel,) = seen.named("spin")
    start, stop = spin.stamps()
    assert kernel.kind == KERNEL and kernel.device == 0 and kernel.nbytes == 0, kernel
    assert (kernel.graph_id, kernel.node_id) == (0, 0), kernel
    elapsed = kernel.end_ns - kernel.begin_ns
    assert abs(elapsed - (stop - start)) < FIT_NS, (kernel, stop - start)
    assert before - FIT_NS < kernel.begin_ns < kernel.end_ns, (before, kernel)
    assert kernel.end_ns < after + FIT_NS, (kernel, after)
    launch = seen.launch_of(kernel)
    assert "cuLaunchKernel" in launch.name, launch
    assert before < launch.begin_ns < launch.end_ns < launched, (before, launch, launched)
    assert launch.thread_id == threading.get_native_id(), launch
    plain = seen.plain
    assert plain["totals"] == {(KERNEL, "spin"): (1, elapsed)}, plain
    for key in ("dropped", "cupti_dropped", "incomplete", "unknown", "launches_dropped"):
        assert plain[key] == 0, (key, plain[key])
    assert not plain["displaced"] and plain["problem"] is None, plain
    assert plain["clock_error_ns"] < 100_000, plain["clock_error_ns"]
    """)


def test_what_comes_outside_is_not_in() -> None:
    check_cupti("""
    spin = Spin(device(), device().stream(), 1000)
    counts = []
    for number in (3, 5):
        spin.launch()
        with collected() as seen:
            for _ in range(number):
                spin.launch()
        spin.launch()
        counts.append(len(seen.named("spin")))
        launches = [row for row in seen.launches if "LaunchKernel" in row.name]
        assert len(launches) == number, launches
    assert counts == [3, 5], counts
    """)


def test_what_still_runs_at_the_stop_is_waited_for() -> None:
    check_cupti("""
    spin = Spin(device(), device().stream(), 30 * MILLISECOND)
    with collected() as seen:
        for _ in range(4):
            spin.launch()
    assert len(seen.named("spin")) == 4, seen.plain
    assert all(row.end_ns - row.begin_ns > 29 * MILLISECOND for row in seen.activities)
    assert seen.plain["incomplete"] == 0
    """)


def test_copies_and_memsets_have_their_bytes_and_torchs_names() -> None:
    check_cupti("""
    size = 1 << 20
    address = device().allocate(size)
    other = device().allocate(size)
    host = (ctypes.c_char * size)()
    here, there = ctypes.c_void_p(address), ctypes.c_void_p(other)
    whole, half = ctypes.c_size_t(size), ctypes.c_size_t(size // 2)
    with collected() as seen:
        device().call("cuMemsetD8_v2", here, ctypes.c_ubyte(1), whole)
        device().call("cuMemcpyHtoD_v2", here, host, whole)
        device().call("cuMemcpyDtoH_v2", host, here, half)
        device().call("cuMemcpyDtoD_v2", there, here, whole)
    found = {row.name: (row.kind, row.nbytes) for row in seen.activities}
    assert found == {
        "Memset (Device)": (MEMSET, size),
        "Memcpy HtoD (Pageable -> Device)": (MEMCPY, size),
        "Memcpy DtoH (Device -> Pageable)": (MEMCPY, size // 2),
        "Memcpy DtoD (Device -> Device)": (MEMCPY, size),
    }, seen.activities
    for row in seen.activities:
        name = seen.launch_of(row).name
        assert "Memset" in name or "Memcpy" in name, name
    """)


def test_the_nodes_of_a_replay_are_named_by_cuptis_node_ids() -> None:
    check_cupti("""
    spins = [Spin(device(), device().stream(), ns) for ns in (20_000, 40_000)]
    def body(stream):
        for spin in spins:
            parameters = spin._parameters
            device().call("cuLaunchKernel", device().spin_function, *[ctypes.c_uint(1)] * 6,
                          ctypes.c_uint(0), ctypes.c_void_p(stream), parameters, None)
    stream, graph, graph_exec = graph_of(body)
    with collected() as seen:
        for _ in range(3):
            device().call("cuGraphLaunch", graph_exec, ctypes.c_void_p(stream))
        device().synchronize(stream)
    kernels = seen.named("spin")
    assert len(kernels) == 6, kernels
    assert len({row.node_id for row in kernels}) == 2, kernels
    assert all(row.node_id and row.graph_id for row in kernels), kernels
    launches = [row for row in seen.launches if row.name == "cuGraphLaunch"]
    assert len(launches) == 3, seen.launches
    for kernel in kernels:
        assert seen.launch_of(kernel).name == "cuGraphLaunch"
    """)


def test_launches_of_other_threads_have_their_ids() -> None:
    check_cupti("""
    ids = []
    def work():
        device().make_current()
        ids.append(threading.get_native_id())
        Spin(device(), device().stream(), 1000).launch()
    device()
    with collected() as seen:
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(seen.launch_of(row).thread_id for row in seen.named("spin")) == sorted(ids)
    """)
