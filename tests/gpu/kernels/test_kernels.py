"""`gpuprof.kernels` on a GPU, with torch and without it.

Each test is a process of its own: a process has one profiler, and torch is there or not.
"""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

from tests.gpu.support.alone import needs_the_gpu_alone
from tests.gpu.support.frameworks import torch_or_skip
from tests.support import processes
from tests.support.trace_events import assert_tracks_nest

_TORCH = """
import json, time, warnings
warnings.simplefilter("ignore")
import torch
import gpuprof
from torch.profiler import ProfilerActivity, profile

model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(4)]).cuda()
data = torch.randn(64, 256, device="cuda")

def step():
    with gpuprof.timer("step"):
        with gpuprof.timer("forward"):
            loss = model(data).sum()
        with gpuprof.timer("backward"):
            loss.backward()

for _ in range(3):
    step()
torch.cuda.synchronize()
"""

_CUPTI = """
import json, sys, time
import gpuprof
from tests.gpu.support.kernels import Spin, device

gpu = device()
stream = gpu.stream()
short, long = Spin(gpu, stream, 20_000), Spin(gpu, stream, 200_000)
assert "torch" not in sys.modules
"""


def result_of(preamble: str, body: str) -> Any:
    """Run `body`, which sets `result`; return that as plain data."""
    return processes.result_of(preamble + textwrap.dedent(body), timeout=200)


def test_a_torch_step_is_under_its_scopes() -> None:
    torch_or_skip()
    found = result_of(
        _TORCH,
        """
        with gpuprof.kernels() as k:
            for _ in range(5):
                step()
        result = {
            **k.to_dict(),
            "scopes": sorted({"/".join(r.scope) for r in k.records}),
            "early": sum(r.begin_ns < r.launched_ns for r in k.records),
            "unknown": sum(not r.launch for r in k.records),
            "worst": max(r.begin_ns - r.launched_ns for r in k.records),
        }
        print(k)
        """,
    )
    assert found["source"].startswith("CUPTI")
    # Autograd's thread launches the backward pass, for the scope that waits for it.
    assert found["scopes"] == ["step/backward", "step/forward"]
    assert found["unknown"] == 0
    assert found["early"] == 0
    assert found["worst"] < 1_000_000_000
    (step,) = [row for row in found["rows"] if row["path"] == "step"]
    assert step["share"] == pytest.approx(1.0)
    assert step["count"] == found["records"] >= 5 * 12


def test_copies_and_memsets_of_the_drivers_api_are_under_their_scopes() -> None:
    torch_or_skip()
    found = result_of(
        _TORCH,
        """
        import ctypes
        driver = ctypes.CDLL("libcuda.so.1")
        stream = ctypes.c_void_p(torch.cuda.Stream().cuda_stream)
        size = ctypes.c_size_t(1 << 22)
        one, other = (torch.zeros(1 << 20, device="cuda") for _ in range(2))
        pinned = torch.zeros(1 << 20).pin_memory()

        def address(tensor):
            return ctypes.c_uint64(tensor.data_ptr())

        def copy(function, *arguments):
            assert getattr(driver, function)(*arguments, size, stream) == 0

        def work():
            with gpuprof.timer("set"):
                copy("cuMemsetD8Async", address(one), ctypes.c_ubyte(0))
            with gpuprof.timer("copy"):
                copy("cuMemcpyHtoDAsync_v2", address(one), ctypes.c_void_p(pinned.data_ptr()))
                with gpuprof.timer("inner"):
                    copy("cuMemcpyDtoDAsync_v2", address(other), address(one))
            copy("cuMemsetD8Async", address(one), ctypes.c_ubyte(0))

        work()
        torch.cuda.synchronize()
        with gpuprof.kernels() as k:
            work()
        result = [[r.kind, "/".join(r.scope)] for r in k.records]
        """,
    )
    expected = [["memset", "set"], ["memcpy", "copy"], ["memcpy", "copy/inner"], ["memset", ""]]
    assert found == expected


def test_a_stream_that_waits_for_another_one_has_a_dependency() -> None:
    torch_or_skip()
    found = result_of(
        _TORCH,
        """
        busy, waiting = torch.cuda.Stream(), torch.cuda.Stream()
        torch.cuda._sleep(1)  # the first one loads its code, for which the host is late
        torch.cuda.synchronize()
        with gpuprof.kernels() as k:
            with torch.cuda.stream(waiting):
                data.add_(1)
            with torch.cuda.stream(busy):
                torch.cuda._sleep(40_000_000)
            waiting.wait_stream(busy)
            with torch.cuda.stream(waiting), gpuprof.timer("late", stream=waiting):
                data.add_(1)
        (result,) = [row.to_dict() for row in k.rows if row.path == "late"]
        """,
    )
    assert found["dependency_ms"] > 10
    assert found["dependency_ms"] > 5 * found["host_bound_ms"]


def test_the_kernels_are_those_of_torchs_own_table() -> None:
    torch_or_skip()
    found = result_of(
        _TORCH,
        """
        def steps():
            for _ in range(5):
                step()
            torch.cuda.synchronize()

        def plain(name):  # demanglers differ in their spaces
            return name.replace(" ", "")

        with gpuprof.kernels() as k:
            steps()
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as prof:
            steps()
        ours = {plain(each.name): [each.count, each.total_ms] for each in k.by_kernel()}
        theirs = {
            plain(each.key): [each.count, each.self_device_time_total / 1000]
            for each in prof.key_averages()
            if str(each.device_type).endswith("CUDA") and not each.is_user_annotation
        }
        result = {"ours": ours, "theirs": theirs}
        """,
    )
    ours, theirs = found["ours"], found["theirs"]
    assert {name: count for name, (count, _) in ours.items()} == {
        name: count for name, (count, _) in theirs.items()
    }
    assert sum(ms for _, ms in ours.values()) == pytest.approx(
        sum(ms for _, ms in theirs.values()), rel=0.2
    )


_REPLAYS = """
with gpuprof.capture() as cap:
    with gpuprof.timer("forward"):
        hidden = torch.relu(data @ data.T)
    with gpuprof.timer("head"):
        out = (torch.relu(hidden @ hidden) + 1).clone()
graph = cap.graph
graph.launch()
torch.cuda.synchronize()
"""


def test_replays_of_torchs_work_are_under_the_scopes_of_the_capture() -> None:
    torch_or_skip()
    found = result_of(
        _TORCH + _REPLAYS,
        """
        with gpuprof.kernels() as k:
            for _ in range(10):
                with gpuprof.timer("serve"):
                    graph.launch()
        work = [n for n in graph.nodes if n.type in ("kernel", "memcpy", "memset")]
        expected = {}
        for node in work:
            expected[node.scope] = expected.get(node.scope, 0) + 10
        counts = {}
        for record in k.records:
            path = "/".join(record.scope)
            counts[path] = counts.get(path, 0) + 1
        result = {"counts": counts, "expected": expected, "notes": k.notes,
                  "launches": sorted({r.launch for r in k.records})}
        """,
    )
    assert found["counts"] == {f"serve/{path}": n for path, n in found["expected"].items()}
    assert set(found["expected"]) == {"forward", "head"}
    assert found["launches"] == ["cudaGraphLaunch"] or "Graph" in found["launches"][0]


def test_a_profiler_started_inside_sees_its_kernels() -> None:
    torch_or_skip()
    found = result_of(
        _TORCH,
        """
        def theirs(prof):
            return sum(str(e.device_type).endswith("CUDA") and not e.is_user_annotation
                       for e in prof.events())
        both = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
        with gpuprof.kernels() as k:
            step()
            torch.cuda.synchronize()
            with profile(activities=both) as prof:
                step()
        with profile(activities=both) as later:
            step()
        with gpuprof.kernels() as again:
            step()
        result = [len(k.records), theirs(prof), theirs(later), len(again.records), k.notes]
        """,
    )
    ours, inside, later, again, notes = found
    assert ours == inside == later == again > 0
    assert notes[0].startswith("ended early by a torch profiler")


def test_a_running_profiler_is_refused_and_keeps_its_kernels() -> None:
    torch_or_skip()
    found = result_of(
        _TORCH,
        """
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as prof:
            try:
                with gpuprof.kernels():
                    pass
                said = ""
            except gpuprof.InvalidStateError as error:
                said = str(error)
            step()
        seen = sum(str(e.device_type).endswith("CUDA") for e in prof.events())
        result = [said, seen]
        """,
    )
    assert "torch.profiler.profile is running" in found[0]
    assert found[1] > 0


def test_many_kernels_are_all_counted() -> None:
    torch_or_skip()
    found = result_of(
        _TORCH,
        """
        x = torch.zeros(64, device="cuda")
        torch.cuda.synchronize()
        with gpuprof.kernels(max_records=10_000) as k:
            for _ in range(200_000):
                x.add_(1)
        result = [len(k.records), k.dropped, sum(e.count for e in k.by_kernel())]
        """,
    )
    assert found == [10_000, 190_000, 200_000]


@needs_the_gpu_alone
def test_cupti_puts_kernels_under_scopes() -> None:
    found = result_of(
        _CUPTI,
        """
        with gpuprof.kernels() as k:
            for _ in range(20):
                with gpuprof.timer("step", stream=stream):
                    with gpuprof.timer("short", stream=stream):
                        short.launch()
                    with gpuprof.timer("long", stream=stream):
                        long.launch()
                gpu.synchronize()
                time.sleep(0.001)
        result = {
            **k.to_dict(),
            "early": sum(r.begin_ns < r.launched_ns for r in k.records),
            "causes": [r.idle_cause for r in k.records],
        }
        """,
    )
    assert found["source"].startswith("CUPTI")
    rows = {row["path"]: row for row in found["rows"]}
    assert set(rows) == {"step", "step/short", "step/long"}
    assert rows["step"]["count"] == 40
    assert rows["step/short"]["count"] == rows["step/long"]["count"] == 20
    assert 0.02 * 20 <= rows["step/short"]["gpu_ms"] < 0.06 * 20
    assert 0.2 * 20 <= rows["step/long"]["gpu_ms"] < 0.3 * 20
    assert found["early"] == 0
    # After each wait for the GPU the host came late with the next kernel.
    assert found["causes"][2::2] == ["host_bound"] * 19


def test_cupti_puts_replays_under_the_scopes_of_the_capture() -> None:
    found = result_of(
        _CUPTI,
        """
        with gpuprof.capture(stream=stream, timers="strip") as cap:
            with gpuprof.timer("first", stream=stream):
                short.launch()
                short.launch()
            with gpuprof.timer("second", stream=stream):
                short.launch()
                long.launch()
        graph = cap.graph
        graph.launch()
        gpu.synchronize()
        with gpuprof.kernels() as k:
            for _ in range(10):
                with gpuprof.timer("serve", stream=stream):
                    graph.launch()
        counts = {}
        for record in k.records:
            path = "/".join(record.scope)
            counts[path] = counts.get(path, 0) + 1
        result = {"counts": counts, "notes": k.notes,
                  "ids": sum(bool(r.node_id or r.graph_id) for r in k.records)}
        """,
    )
    assert found["counts"] == {"serve/first": 20, "serve/second": 20}
    assert found["ids"] == 40


def test_traces_have_the_kernels_inside_their_scopes() -> None:
    torch_or_skip()
    found = result_of(
        _TORCH + _REPLAYS,
        """
        import os, tempfile
        path = os.path.join(tempfile.mkdtemp(), "run.json")
        with gpuprof.trace(path) as writer:
            with gpuprof.kernels() as k:
                for _ in range(3):
                    step()
                    with gpuprof.timer("serve"):
                        graph.launch()
        with open(path) as file:
            events = json.load(file)["traceEvents"]
        result = [len(k.records), writer.stats()["dropped"], events]
        """,
    )
    records, dropped, events = found
    slices = [each for each in events if each["ph"] == "X"]
    kernels = [each for each in slices if each["cat"] in {"kernel", "gpu_memcpy", "gpu_memset"}]
    assert len(kernels) == records
    assert dropped == 0
    assert_tracks_nest(slices, slack_us=0.002)
    # The host called before the GPU ran, on one clock, and inside the scope that it is shown in.
    categories = {"cuda_runtime", "cuda_driver"}
    calls = {e["args"]["correlation"]: e for e in slices if e["cat"] in categories}
    scopes = [each for each in slices if each["cat"] == "scope"]
    for each in kernels:
        call = calls[each["args"]["correlation"]]
        assert call["ts"] <= each["ts"] + 1
        name = each["args"]["scope"].split("/")[0]
        assert any(
            scope["name"] == name
            and scope["ts"] - 5 <= call["ts"] <= scope["ts"] + scope["dur"] + 5
            for scope in scopes
        ), each
