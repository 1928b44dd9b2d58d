"""`gpuprof.kernels` where torch is loaded: its profilers have CUPTI for themselves."""

from __future__ import annotations

import gc
import threading
import time
from typing import Any

import pytest

import gpuprof
from tests.support.gpu_records import Recording

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:CUDA is not available")]


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="torch is not installed")


def profiler(torch: Any, **options: Any) -> Any:
    return torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], **options)


def names(prof: Any) -> set[str]:
    return {event.name for event in prof.events()}


def test_kernels_are_found_without_torchs_profiler(gpu: Recording, torch: Any) -> None:
    with gpuprof.kernels() as k, gpuprof.timer("step"):
        assert not torch.autograd._profiler_enabled()
        gpu.run("gemm")
    assert k.source.startswith("CUPTI")
    assert [each.scope for each in k.records] == [("step",)]


def test_a_profiler_that_runs_is_named_and_goes_on(gpu: Recording, torch: Any) -> None:
    with profiler(torch) as prof:
        with pytest.raises(gpuprof.InvalidStateError, match=r"torch\.profiler\.profile is running"):
            with gpuprof.kernels():
                pass
        torch.ones(3)
    assert "aten::ones" in names(prof)
    assert gpu.starts == []
    with gpuprof.kernels() as k:
        gpu.run("gemm")
    assert len(k.records) == 1


def test_a_profiler_in_its_warmup_is_not_disturbed(gpu: Recording, torch: Any) -> None:
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=1, repeat=1)
    with profiler(torch, schedule=schedule) as prof:
        with pytest.raises(gpuprof.InvalidStateError, match="is running"), gpuprof.kernels():
            pass
        prof.step()
        torch.ones(3)
    assert "aten::ones" in names(prof)
    assert gpu.starts == []


def test_a_profiler_started_inside_works_and_ends_the_collection(
    gpu: Recording, torch: Any
) -> None:
    original = torch.autograd.profiler._prepare_profiler
    with gpuprof.kernels() as k:
        with gpuprof.timer("before"):
            gpu.run("gemm")
        with profiler(torch) as prof:
            assert gpu.stops == 1
            torch.ones(3)
            gpu.run("theirs")
    assert gpu.stops == 1
    assert "aten::ones" in names(prof)
    assert [each.scope for each in k.records] == [("before",)]
    assert k.notes[0] == "ended early by a torch profiler that was started inside the block"
    assert torch.autograd.profiler._prepare_profiler is original


def test_a_profiler_works_where_the_collection_cannot_be_ended(
    gpu: Recording, torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        message = "CUPTI is gone"
        raise gpuprof.GpuprofError(message)

    monkeypatch.setattr("gpuprof._core._cupti_stop", fail)
    with gpuprof.kernels() as k:
        with profiler(torch) as prof:
            torch.ones(3)
    assert "aten::ones" in names(prof)
    assert any("the collection failed: CUPTI is gone" in note for note in k.notes)


def test_a_profiler_of_another_thread_waits_while_the_block_ends(
    gpu: Recording, torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    ending, seen = threading.Event(), threading.Event()
    prepare = torch.autograd.profiler._prepare_profiler

    def stop() -> Any:
        ending.set()
        assert seen.wait(10)
        time.sleep(0.05)  # the other thread is in its start, or past it
        order.append("ended")
        return gpu.stop()

    def prepare_profiler(*arguments: Any, **options: Any) -> Any:
        order.append("started")
        return prepare(*arguments, **options)

    def work() -> None:
        ending.wait(10)
        seen.set()
        with profiler(torch) as prof:
            torch.ones(3)
        order.extend(names(prof) & {"aten::ones"})

    monkeypatch.setattr("gpuprof._core._cupti_stop", stop)
    monkeypatch.setattr(torch.autograd.profiler, "_prepare_profiler", prepare_profiler)
    thread = threading.Thread(target=work)
    thread.start()
    with gpuprof.kernels() as k:
        gpu.run("gemm")
    thread.join()
    assert order == ["ended", "started", "aten::ones"]
    assert len(k.records) == 1
    assert torch.autograd.profiler._prepare_profiler is prepare_profiler


def test_an_interrupt_leaves_no_collection_behind(
    gpu: Recording, torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_arguments: object) -> Any:
        raise KeyboardInterrupt

    def start(*arguments: Any) -> None:
        gpu.start(*arguments)
        interrupt()

    original = torch.autograd.profiler._prepare_profiler
    for place, instead in (
        ("_frameworks.torch_hooks.before_profiler", interrupt),
        ("_core._cupti_start", start),
        ("_core._open_scopes", interrupt),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(f"gpuprof.{place}", instead)
            with pytest.raises(KeyboardInterrupt), gpuprof.kernels():
                pass
        assert gpu.stops == len(gpu.starts)
        with gpuprof.kernels() as k:
            gpu.run("gemm")
        assert k.records
    assert len(gpu.starts) == 5
    assert torch.autograd.profiler._prepare_profiler is original


def test_a_profiler_that_is_prepared_is_not_disturbed(gpu: Recording, torch: Any) -> None:
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=1)
    with profiler(torch, schedule=schedule, acc_events=True) as again:
        for _ in range(2):
            again.step()  # in the second warm-up there is the result of the first cycle
        with pytest.raises(gpuprof.InvalidStateError, match="is running"), gpuprof.kernels():
            pass
    del again
    gc.collect()
    by_hand = torch.profiler._KinetoProfile()
    by_hand.prepare_trace()
    with pytest.raises(gpuprof.InvalidStateError, match="_KinetoProfile is running"):
        with gpuprof.kernels():
            pass
    by_hand.start_trace()
    by_hand.stop_trace()
    with gpuprof.kernels() as k:
        gpu.run("gemm")
    assert k.records
    assert len(gpu.starts) == 1


def test_a_profiler_left_open_goes_on_after_the_block(gpu: Recording, torch: Any) -> None:
    prof = profiler(torch)
    with gpuprof.kernels():
        prof.start()
    torch.ones(3)
    prof.stop()
    assert gpu.stops == 1
    assert "aten::ones" in names(prof)


def test_the_block_waits_for_the_end_that_a_profiler_of_another_thread_has_begun(
    gpu: Recording, torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: set[str] = set()
    ending, may_end = threading.Event(), threading.Event()

    def stop() -> Any:
        ending.set()
        may_end.wait(10)
        return gpu.stop()

    monkeypatch.setattr("gpuprof._core._cupti_stop", stop)

    def work() -> None:
        with profiler(torch) as prof:
            torch.ones(3)
        found.update(names(prof))

    thread = threading.Thread(target=work)
    with gpuprof.kernels() as k:
        gpu.run("gemm")
        thread.start()
        assert ending.wait(10)
        threading.Timer(0.1, may_end.set).start()
    thread.join()
    assert "aten::ones" in found
    assert len(k.records) == 1
    assert k.notes[0].startswith("ended early")
