"""`gpuprof.kernels` through torch's profiler, with GPU records added to what torch collects."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

import gpuprof
from tests.fake_driver.control import FakeCuda
from tests.support.gpu_records import Recording

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:CUDA is not available")]


class Event:
    """A record of Kineto's: a call of CUDA's on the host, or work of the GPU."""

    def __init__(self, name: str, begin: int, ns: int, **fields: Any) -> None:
        values = {
            "name": name,
            "start_ns": begin,
            "duration_ns": ns,
            "is_user_annotation": False,
            "metadata_json": "",
            **fields,
        }
        for field, value in values.items():
            setattr(self, field, lambda value=value: value)


class Gpu:
    """What torch's profiler would have from a GPU."""

    def __init__(self, torch: Any) -> None:
        self.events: list[Event] = []
        self.ranges: list[tuple[str, int, int]] = []
        self.wall_ns = time.time_ns() - time.monotonic_ns()
        self.waits = True
        self._types = torch.autograd.DeviceType
        self._correlation = 0

    def call(self, name: str, begin: int, ns: int = 2_000, thread: int | None = None) -> int:
        self._correlation += 1
        self.events.append(
            Event(
                name,
                begin + self.wall_ns,
                ns,
                device_type=self._types.CPU,
                correlation_id=self._correlation,
                device_index=1,
                device_resource_id=threading.get_native_id() if thread is None else thread,
            )
        )
        return self._correlation

    def unrecorded_call(self) -> int:
        """Return the correlation of a call that torch does not record."""
        self._correlation += 1
        return self._correlation

    def work(self, name: str, begin: int, ns: int, correlation: int, **fields: Any) -> None:
        self.events.append(
            Event(
                name,
                begin + self.wall_ns,
                ns,
                device_type=self._types.CUDA,
                correlation_id=correlation,
                device_index=0,
                device_resource_id=7,
                **fields,
            )
        )

    def draw_ranges(self, on_host: list[Any]) -> None:
        """Draw ranges around their work, with the correlations that they have on the host."""
        of = {each.name(): each.correlation_id() for each in on_host if each.is_user_annotation()}
        for name, begin, ns in self.ranges:
            self.work(name, begin, ns, of[name], is_user_annotation=True)

    def run(self, name: str, ns: int = 10_000, **fields: Any) -> None:
        now = time.monotonic_ns()
        self.work(name, now + 5_000, ns, self.call("cudaLaunchKernel", now), **fields)

    def synchronize(self, _device: object = None) -> None:
        if self.waits:
            self.call("cudaDeviceSynchronize", time.monotonic_ns(), 1_000)


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="torch is not installed")


@pytest.fixture
def gpu(torch: Any, monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """Let torch say that it can profile CUDA, and add records to what its profiler returns."""
    made = Gpu(torch)
    activities = torch.profiler.ProfilerActivity
    stop = torch.profiler.profile.stop

    def stop_with_records(profile: Any) -> None:
        stop(profile)
        results = profile.profiler.kineto_results
        if activities.CUDA in profile.activities and results is not None:
            made.draw_ranges(results.events())
            events, made.events = made.events, []
            profile.profiler.kineto_results = SimpleNamespace(
                events=lambda: [*results.events(), *events]
            )

    monkeypatch.setattr(torch.profiler, "supported_activities", lambda: set(_both(activities)))
    monkeypatch.setattr(torch.profiler.profile, "stop", stop_with_records)
    monkeypatch.setattr(torch.cuda, "synchronize", made.synchronize)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    return made


def _both(activities: Any) -> list[Any]:
    return [activities.CPU, activities.CUDA]


def test_torchs_records_are_under_scopes(gpu: Gpu, torch: Any) -> None:
    with gpuprof.kernels() as k:
        with gpuprof.timer("step"):
            with gpuprof.timer("fwd"):
                torch.ones(8).sum()
                gpu.run("void gemm<float>(float*)", 20_000)
            gpu.run("Memcpy DtoH (Device -> Pageable)", 4_000)
        gpu.run("Memset (Device)")

    assert k.source == f"torch.profiler {torch.__version__}"
    assert [(each.kind, each.scope) for each in k.records] == [
        ("kernel", ("step", "fwd")),
        ("memcpy", ("step",)),
        ("memset", ()),
    ]
    gemm = k.records[0]
    assert gemm.end_ns - gemm.begin_ns == 20_000
    assert abs(gemm.begin_ns - gemm.launched_ns - 5_000) < 1_000
    assert (gemm.device, gemm.stream, gemm.launch) == (0, 7, "cudaLaunchKernel")
    assert k.notes == ["1 of 3 were launched in no scope"]


def test_annotations_on_the_gpu_are_no_work(gpu: Gpu) -> None:
    with gpuprof.kernels() as k, gpuprof.timer("step"):
        now = time.monotonic_ns()
        gpu.work("step", now, 50_000, 0, is_user_annotation=True)
        gpu.run("cuComputeGamma")  # a kernel, though it is named as a function of the driver

    assert [each.name for each in k.records] == ["cuComputeGamma"]


def test_work_whose_call_torch_does_not_record_is_under_its_scope(gpu: Gpu, torch: Any) -> None:
    """As copies and memsets through the driver's functions."""
    with gpuprof.kernels() as k:
        with gpuprof.timer("step"):
            with gpuprof.timer('the "set"'):
                now = time.monotonic_ns()
                gpu.work("Memset (Device)", now + 1_000, 500, gpu.unrecorded_call())
                gpu.ranges.append(("the 'set'", now + 1_000, 500))
            with torch.profiler.record_function("of the program"):
                gpu.work("Memcpy DtoD", now + 2_000, 500, gpu.unrecorded_call())
                gpu.ranges.append(("of the program", now + 2_000, 500))
                with gpuprof.timer("inner"):
                    pass
            gpu.work("Memcpy HtoD", now + 3_000, 500, gpu.unrecorded_call())
            with gpuprof.timer("copy"):
                gpu.work("Memcpy DtoH", now + 4_000, 500, gpu.unrecorded_call())
                gpu.ranges.append(("copy", now + 4_000, 500))
            gpu.work("Memcpy HtoD", now + 5_000, 500, gpu.unrecorded_call())
            gpu.ranges.append(("step", now + 3_000, 2_500))
        gpu.work("Memset (Host)", now + 9_000, 500, gpu.unrecorded_call())

    assert [(each.name, each.scope) for each in k.records] == [
        ("Memset (Device)", ("step", 'the "set"')),
        ("Memcpy DtoD", ("step",)),
        ("Memcpy HtoD", ("step",)),
        ("Memcpy DtoH", ("step", "copy")),
        ("Memcpy HtoD", ("step",)),
        ("Memset (Host)", ()),
    ]
    assert "1 have no known launch, so no scope" in k.notes
    assert [each.launch for each in k.records] == [""] * 6


def test_ids_of_graph_nodes_and_bytes_are_read(gpu: Gpu) -> None:
    with gpuprof.kernels() as k:
        ids = '"stream": 7, "graph id": 3, "graph node id": 12884901889'
        now = time.monotonic_ns()
        launch = gpu.call("cudaGraphLaunch", now)
        gpu.work("gemm", now + 5_000, 10_000, launch, metadata_json=ids)
        gpu.run("Memcpy HtoD (Pageable -> Device)", metadata_json='"bytes": 4096, "stream": 7')

    gemm, copy = k.records
    assert (gemm.graph_id, gemm.node_id, copy.nbytes) == (3, 12884901889, 4096)


def test_records_past_the_limit_are_counted(gpu: Gpu) -> None:
    with gpuprof.kernels(max_records=1) as k:
        gpu.run("gemm", 10_000)
        gpu.run("gemm", 30_000)

    assert (len(k.records), k.dropped) == (1, 1)
    assert [(each.count, each.total_ms) for each in k.by_kernel()] == [(2, pytest.approx(0.04))]


def test_a_thread_that_torch_has_no_id_of_is_found(gpu: Gpu) -> None:
    ident = threading.get_ident() & 0xFFFFFFFF
    with gpuprof.kernels() as k, gpuprof.timer("step"):
        now = time.monotonic_ns()
        gpu.work("gemm", now + 5_000, 1_000, gpu.call("cudaLaunchKernel", now, thread=ident))

    assert k.records[0].scope == ("step",)


def test_collecting_that_ended_early_is_said(gpu: Gpu) -> None:
    gpu.waits = False
    with gpuprof.kernels() as k:
        gpu.run("gemm")
    assert any("stopped collecting before the block's end" in note for note in k.notes)


def profiler(torch: Any, **options: Any) -> Any:
    return torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], **options)


def test_a_profiler_that_runs_is_named_and_goes_on(gpu: Gpu, torch: Any) -> None:
    with profiler(torch) as prof:
        with pytest.raises(gpuprof.InvalidStateError, match=r"torch\.profiler\.profile is running"):
            with gpuprof.kernels():
                pass
        torch.ones(3)
    assert "aten::ones" in {event.name for event in prof.events()}
    with gpuprof.kernels() as k:
        gpu.run("gemm")
    assert len(k.records) == 1


def test_a_profiler_in_its_warmup_is_not_disturbed(gpu: Gpu, torch: Any) -> None:
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=1, repeat=1)
    with profiler(torch, schedule=schedule) as prof:
        with pytest.raises(gpuprof.InvalidStateError, match="is running"):
            with gpuprof.kernels():
                pass
        prof.step()
        torch.ones(3)
    assert "aten::ones" in {event.name for event in prof.events()}


def test_a_profiler_started_inside_works_and_ends_the_collection(gpu: Gpu, torch: Any) -> None:
    original = torch.autograd.profiler._prepare_profiler
    with gpuprof.kernels() as k:
        with gpuprof.timer("before"):
            gpu.run("gemm")
        with profiler(torch) as prof:
            torch.ones(3)
    assert "aten::ones" in {event.name for event in prof.events()}
    assert [each.scope for each in k.records] == [("before",)]
    assert k.notes[0] == "ended early by a torch profiler that was started inside the block"
    assert torch.autograd.profiler._prepare_profiler is original


def test_a_profiler_left_open_goes_on_after_the_block(gpu: Gpu, torch: Any) -> None:
    prof = profiler(torch)
    with gpuprof.kernels():
        prof.start()
    torch.ones(3)
    prof.stop()
    assert "aten::ones" in {event.name for event in prof.events()}


def test_a_profiler_of_another_thread_works_too(gpu: Gpu, torch: Any) -> None:
    names: set[str] = set()

    def work() -> None:
        with profiler(torch) as prof:
            torch.ones(3)
        names.update(event.name for event in prof.events())

    with gpuprof.kernels() as k:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert "aten::ones" in names
    assert k.notes[0].startswith("ended early")


def test_without_torchs_gpu_profiler_cupti_collects(
    torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        torch.profiler, "supported_activities", lambda: {torch.profiler.ProfilerActivity.CPU}
    )
    recording = Recording().install(monkeypatch)
    with gpuprof.kernels() as k:
        recording.run("gemm")
    assert k.source.startswith("CUPTI")
    assert len(k.records) == 1


def test_launches_of_graphs_that_torch_has_no_record_of_are_joined(
    gpu: Gpu, fake: FakeCuda, stream: int
) -> None:
    with gpuprof.capture(stream=stream, timers="strip") as cap:
        with gpuprof.timer("fwd", stream=stream):
            fake.kernel(stream, "gemm")
        with gpuprof.timer("head", stream=stream):
            fake.kernel(stream, "relu")
    with gpuprof.kernels() as k:
        for scope in ("first", "second"):
            with gpuprof.timer(scope):
                cap.graph.launch(stream)
                now = time.monotonic_ns()
                replay = gpu.unrecorded_call()
                gpu.work("gemm", now + 9_000, 1_000, replay)
                gpu.work("relu", now + 12_000, 1_000, replay)
                gpu.work("Memset (Device)", now + 20_000, 1_000, gpu.unrecorded_call())
                time.sleep(0.001)

    assert [(each.name, each.scope) for each in k.records] == [
        ("gemm", ("first", "fwd")),
        ("relu", ("first", "head")),
        ("Memset (Device)", ()),
        ("gemm", ("second", "fwd")),
        ("relu", ("second", "head")),
        ("Memset (Device)", ()),
    ]
    assert {each.launch for each in k.records} == {"cuGraphLaunch", ""}
    cap.graph.close()


def test_kernels_of_a_known_graph_need_no_names(gpu: Gpu, fake: FakeCuda, stream: int) -> None:
    graphs = []
    for first, second in (("fwd", "head"), ("encode", "decode")):
        with gpuprof.capture(stream=stream) as cap:
            with gpuprof.timer(first, stream=stream):
                fake.kernel(stream, "gemm")
            with gpuprof.timer(second, stream=stream):
                fake.kernel(stream, "relu")
        graphs.append(cap.graph)
    with gpuprof.kernels() as k:
        for graph in (graphs[1], graphs[0]):
            graph.launch(stream)
            now = time.monotonic_ns()
            replay = gpu.unrecorded_call()
            gpu.work("written otherwise", now + 9_000, 1_000, replay)
            gpu.work("by another demangler", now + 12_000, 1_000, replay)
            time.sleep(0.001)

    assert [each.scope for each in k.records] == [("encode",), ("decode",), ("fwd",), ("head",)]
    for graph in graphs:
        graph.close()
