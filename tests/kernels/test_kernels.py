"""`gpuprof.kernels`: rows, records and errors, from records as CUPTI would give them."""

from __future__ import annotations

import io
import json
import random
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import pytest

import gpuprof
from tests.support.benchmark_results import csv_lines
from tests.support.gpu_records import COPY, MEMSET, Recording
from tests.support.processes import run_python

COPY_NAME = "Memcpy HtoD (Pageable -> Device)"


def row(k: gpuprof.Kernels, path: str) -> gpuprof.results.KernelRow:
    return next(each for each in k.rows if each.path == path)


def stays_in(
    scope: AbstractContextManager[object], work: Callable[[], object]
) -> Callable[[], None]:
    """Have a thread do `work` in a scope, where it stays until what is returned is called."""
    ready, done = threading.Event(), threading.Event()

    def run() -> None:
        with scope:
            work()
            ready.set()
            done.wait(10)

    def end() -> None:
        done.set()
        thread.join()

    thread = threading.Thread(target=run)
    thread.start()
    ready.wait(10)
    return end


def test_kernels_are_under_the_scopes_that_launched_them(gpu: Recording) -> None:
    with gpuprof.kernels() as k:
        for _ in range(3):
            with gpuprof.timer("step"):
                with gpuprof.timer("fwd"):
                    gpu.run("gemm", 20_000)
                gpu.run("add", 5_000)
        gpu.run("late", 1_000)

    assert [each.path for each in k.rows] == ["step", "step/fwd", "(no scope)"]
    step, fwd = row(k, "step"), row(k, "step/fwd")
    assert (step.count, fwd.count) == (6, 3)
    assert step.gpu_ms == pytest.approx(0.075)
    assert step.self_ms == pytest.approx(0.015)
    assert fwd.gpu_ms == fwd.self_ms == pytest.approx(0.06)
    assert fwd.share == pytest.approx(60 / 76)
    assert [each.scope for each in k.records][:2] == [("step", "fwd"), ("step",)]
    assert k.source == "CUPTI 13.0"
    assert gpu.stops == 1


def test_copies_and_memsets_are_counted_as_such(gpu: Recording) -> None:
    with gpuprof.kernels() as k, gpuprof.timer("step"):
        gpu.run("gemm")
        gpu.run(COPY_NAME, kind=COPY, nbytes=4096)
        gpu.run("Memset (Device)", kind=MEMSET, nbytes=128)

    step = row(k, "step")
    assert (step.kernels, step.copies, step.memsets, step.count) == (1, 1, 1, 3)
    by_name = {each.name: each for each in k.by_kernel()}
    assert by_name[COPY_NAME].kind == "memcpy"
    assert by_name[COPY_NAME].nbytes == 4096
    assert by_name["Memset (Device)"].kind == "memset"


def test_communication_is_exposed_where_its_gpu_does_nothing_else(gpu: Recording) -> None:
    """Two all-reduces: one half under a product, one that runs at once with another of NCCL's."""
    with gpuprof.kernels() as k:
        with gpuprof.timer("step"):
            with gpuprof.timer("backward"):
                call, at = gpu.call(), 1_000_000
                gpu.work("gemm", call, at, 10_000)
                gpu.work("gemm", call, at + 12_000, 1_000)
                gpu.work(
                    "ncclDevKernel_AllReduce_Sum_f32_RING_LL", call, at + 5_000, 10_000, stream=9
                )
                gpu.work("gemm", call, at + 7_000, 100_000, device=1)  # hides nothing of GPU 0
            call = gpu.call()
            gpu.work("ncclDevKernel_AllGather_RING_LL", call, at + 50_000, 10_000, stream=9)
            gpu.work("ncclDevKernel_AllGather_RING_LL", call, at + 55_000, 10_000, stream=11)
            gpu.work("Memcpy DtoD", call, at + 62_000, 50_000, kind=COPY)
        with gpuprof.timer("step"):
            gpu.run("gemm")

    step, backward = row(k, "step"), row(k, "step/backward")
    assert backward.communication_ms == pytest.approx(0.010)
    assert backward.exposed_ms == pytest.approx(
        0.004
    )  # 5 under the first product, 1 under the other
    assert step.communication_ms == pytest.approx(0.010 + 0.015)
    assert step.exposed_ms == pytest.approx(0.004 + 0.012)
    assert (step.entries, backward.entries) == (2, 1)
    head = k.table().splitlines()[1]
    assert "communication" in head
    assert "exposed" in head


def test_without_nccl_the_table_has_no_columns_of_communication(gpu: Recording) -> None:
    with gpuprof.kernels() as k, gpuprof.timer("step"):
        gpu.run("gemm")
    assert "exposed" not in k.table()


def test_exposed_communication_is_what_is_left_of_each_nanosecond(gpu: Recording) -> None:
    """Random kernels on three streams of two GPUs, counted nanosecond by nanosecond."""
    own = random.Random(0)
    took, exposed, busy = [0, 0], [0, 0], [set[int](), set[int]()]
    communicates = [set[int](), set[int]()]
    with gpuprof.kernels() as k, gpuprof.timer("step"):
        for _ in range(300):
            at, ns, device = own.randrange(2_000), own.randrange(1, 60), own.randrange(2)
            is_nccl = own.random() < 0.3
            name = "ncclDevKernel_ReduceScatter" if is_nccl else "gemm"
            gpu.work(name, gpu.call(), 1_000_000 + at, ns, device=device, stream=own.randrange(3))
            (communicates if is_nccl else busy)[device].update(range(at, at + ns))
    for device in range(2):
        took[device] = len(communicates[device])
        exposed[device] = len(communicates[device] - busy[device])
    step = row(k, "step")
    assert round(step.communication_ms * 1e6) == sum(took)
    assert round(step.exposed_ms * 1e6) == sum(exposed)


def test_entries_after_the_records_have_ended_are_not_counted(gpu: Recording) -> None:
    """Else what one entry communicates would come out too small."""
    gpu.extra = {"displaced": True}  # another tool took CUPTI meanwhile
    with gpuprof.kernels() as k:
        for number in range(4):
            time.sleep(0.001)
            with gpuprof.timer("step"):
                gpu.run("ncclDevKernel_AllReduce") if number < 2 else None
    assert row(k, "step").entries == 2


def test_a_scope_that_was_open_all_the_time_counts(gpu: Recording) -> None:
    with gpuprof.timer("outer"):
        with gpuprof.kernels() as k:
            gpu.run("gemm")
            with gpuprof.timer("inner"):
                gpu.run("relu")

    assert [each.scope for each in k.records] == [("outer",), ("outer", "inner")]


def test_a_scope_that_opens_or_closes_inside_counts(gpu: Recording) -> None:
    before, after = gpuprof.timer("before"), gpuprof.timer("after")
    before.__enter__()
    with gpuprof.kernels() as k:
        gpu.run("first")
        before.__exit__(None, None, None)
        gpu.run("second")
        after.__enter__()
        gpu.run("third")
    after.__exit__(None, None, None)

    assert [each.scope for each in k.records] == [("before",), (), ("after",)]


def test_a_scope_open_on_another_thread_counts_there_only(gpu: Recording) -> None:
    with gpuprof.kernels() as k:
        end = stays_in(gpuprof.timer("other"), lambda: gpu.run("theirs"))
        gpu.run("ours")
    end()

    assert {each.name: each.scope for each in k.records} == {"theirs": ("other",), "ours": ()}


def test_a_thread_that_python_did_not_start_works_for_the_one_with_a_scope(gpu: Recording) -> None:
    with gpuprof.kernels() as k:
        with gpuprof.timer("backward"):
            correlation = gpu.call(thread=999_999)
            gpu.work("grad", correlation, time.monotonic_ns(), 1_000)
            time.sleep(0.001)
        correlation = gpu.call(thread=999_999)
        gpu.work("orphan", correlation, time.monotonic_ns(), 1_000)

    assert {each.name: each.scope for each in k.records} == {"grad": ("backward",), "orphan": ()}


def test_beside_two_threads_with_scopes_it_works_for_none(gpu: Recording) -> None:
    with gpuprof.kernels() as k:
        end = stays_in(gpuprof.timer("other"), lambda: None)
        with gpuprof.timer("backward"):
            gpu.work("grad", gpu.call(thread=999_999), time.monotonic_ns(), 1_000)
            time.sleep(0.001)
        end()

    assert [each.scope for each in k.records] == [()]


def test_a_python_thread_without_scopes_has_none(gpu: Recording) -> None:
    with gpuprof.kernels() as k, gpuprof.timer("step"):
        end = stays_in(nullcontext(), lambda: gpu.run("theirs"))
        # The thread is there at the block's end, as a loader's is.
        gpu.run("ours")
        time.sleep(0.001)
        k.__exit__(None, None, None)
        end()

    assert {each.name: each.scope for each in k.records} == {"theirs": (), "ours": ("step",)}


def test_the_first_call_of_a_correlation_is_the_launch(gpu: Recording) -> None:
    with gpuprof.kernels() as k:
        now = time.monotonic_ns()
        correlation = gpu.call("cudaLaunchKernel", begin=now)
        gpu.launches.append(
            {**gpu.launches[-1], "name": gpu.name("cuLaunchKernel"), "begin_ns": now + 500}
        )
        gpu.work("gemm", correlation, now + 9_000, 1_000)

    assert (k.records[0].launch, k.records[0].launched_ns) == ("cudaLaunchKernel", now)


def test_work_without_a_launch_is_kept_and_said(gpu: Recording) -> None:
    with gpuprof.kernels() as k, gpuprof.timer("step"):
        gpu.work("lost", 77, time.monotonic_ns(), 1_000)

    assert k.records[0].launch == ""
    assert k.records[0].scope == ()
    assert any("1 have no known launch" in note for note in k.notes)


def test_records_past_the_limit_are_counted_by_name(gpu: Recording) -> None:
    with gpuprof.kernels(max_records=2) as k, gpuprof.timer("step"):
        for name in ("gemm", "gemm", "gemm", "relu"):
            gpu.run(name, 10_000)

    assert gpu.starts == [2]
    assert len(k.records) == 2
    assert k.dropped == 2
    totals = {each.name: (each.count, each.total_ms) for each in k.by_kernel()}
    assert totals == {"gemm": (3, pytest.approx(0.03)), "relu": (1, pytest.approx(0.01))}
    assert row(k, "step").share == pytest.approx(0.5)
    assert "(past max_records)" in k.table()
    assert any("2 pieces of work past max_records=2" in note for note in k.notes)


def test_by_kernel_of_a_scope_has_what_is_inside_it(gpu: Recording) -> None:
    with gpuprof.kernels() as k:
        with gpuprof.timer("step"):
            gpu.run("gemm", 10_000)
            gpu.run("gemm", 30_000)
            with gpuprof.timer("fwd"):
                gpu.run("relu", 10_000)
        gpu.run("late")

    totals = k.by_kernel("step")
    assert [each.name for each in totals] == ["gemm", "relu"]
    gemm = totals[0]
    assert (gemm.count, gemm.min_ms, gemm.max_ms) == (2, 0.01, pytest.approx(0.03))
    assert gemm.mean_ms == pytest.approx(0.02)
    assert gemm.share == pytest.approx(0.8)
    assert [each.name for each in k.by_kernel(("step", "fwd"))] == ["relu"]
    assert [each.name for each in k.by_kernel("(no scope)")] == ["late"]
    with pytest.raises(KeyError, match="launched nothing; there are 'step', 'step/fwd'"):
        k.by_kernel("bwd")


def test_its_tables_are_also_markdown_and_are_printed_to_a_file(gpu: Recording) -> None:
    with gpuprof.kernels() as k, gpuprof.timer("step"):
        gpu.run("gemm", 10_000)

    for shown, name in ((k, "step"), (k.by_kernel(), "gemm")):
        assert f"| {name} |" in shown.to_markdown()
        out = io.StringIO()
        shown.print(out, style="plain")
        assert out.getvalue() == f"{shown!r}\n"


def test_a_slash_in_a_name_makes_no_parent(gpu: Recording) -> None:
    with gpuprof.kernels() as k, gpuprof.timer("a/b"):
        gpu.run("gemm")

    assert [each.names for each in k.rows] == [("a/b",)]


def test_the_table_shows_the_tree_and_the_notes(gpu: Recording) -> None:
    with gpuprof.kernels() as k:
        with gpuprof.timer("step"), gpuprof.timer("fwd"):
            gpu.run("gemm", 2_000_000)
        gpu.run("late")

    text = k.table()
    assert text == repr(k) == str(k)
    title, head, _, step, fwd, *_ = text.splitlines()
    assert "collected by CUPTI 13.0" in title
    assert head.split("  ")[0] == "scope"
    assert step.split()[:3] == ["step", "2.00", "ms"]
    assert fwd.startswith("  fwd")
    assert "1 of 2 were launched in no scope" in text
    assert "<table>" in k._repr_html_()


def test_the_plain_data_is_json(gpu: Recording) -> None:
    with gpuprof.kernels() as k, gpuprof.timer("step"):
        gpu.run("gemm")

    plain = json.loads(json.dumps(k.to_dict()))
    assert plain["rows"][0]["path"] == "step"
    assert plain["kernels"][0]["name"] == "gemm"
    assert plain["clock_error_ns"] == 120
    assert k.by_kernel().to_dict()["kernels"] == plain["kernels"]
    assert json.loads(k.to_json()) == plain
    line = csv_lines(k.to_csv())[0]
    assert (line["path"], line["kernels"]) == ("step", "1")
    assert float(line["gpu_ms"]) == k.rows[0].gpu_ms
    assert "| step |" in k.to_markdown()


def test_records_are_a_sequence(gpu: Recording) -> None:
    with gpuprof.kernels() as k:
        for name in "abc":
            gpu.run(name)

    assert [each.name for each in k.records[1:]] == ["b", "c"]
    assert k.records[-1].name == "c"
    with pytest.raises(IndexError):
        k.records[3]


# --- states and errors -----------------------------------------------------------------------


def test_a_result_is_read_after_the_block(gpu: Recording) -> None:
    with gpuprof.kernels() as k:
        assert repr(k) == "<gpuprof.Kernels, open>"
        with pytest.raises(gpuprof.InvalidStateError, match=r"after `with gpuprof\.kernels"):
            k.table()
    assert k.rows == []
    assert "none" in k.table()


def test_there_is_one_block_at_a_time(gpu: Recording) -> None:
    with gpuprof.kernels():
        with pytest.raises(gpuprof.InvalidStateError, match="a process has one profiler"):
            with gpuprof.kernels():
                pass
    with gpuprof.kernels() as k:
        pass
    with pytest.raises(gpuprof.InvalidStateError, match="this Kernels is ended"):
        k.__enter__()


def test_an_error_at_the_start_leaves_nothing_behind(gpu: Recording) -> None:
    gpu.on_start = gpuprof.CudaUnavailableError("CUPTI is held by another tool")
    with pytest.raises(gpuprof.CudaUnavailableError, match="held"), gpuprof.kernels():
        pass
    gpu.on_start = None
    with gpuprof.kernels() as k:
        gpu.run("gemm")
    assert len(k.records) == 1


def test_the_bodys_exception_wins(gpu: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    error = ValueError("the body's")
    with pytest.raises(ValueError, match="the body's") as caught:
        with gpuprof.kernels() as k:
            gpu.run("gemm")
            raise error
    assert caught.value is error
    assert len(k.records) == 1

    def stop() -> None:
        raise gpuprof.GpuprofError("CUPTI is gone")

    monkeypatch.setattr("gpuprof._core._cupti_stop", stop)
    with pytest.raises(ValueError, match="the body's"):
        with gpuprof.kernels() as k:
            raise error
    assert k.notes == ["the collection failed: CUPTI is gone"]
    with pytest.raises(gpuprof.GpuprofError, match="CUPTI is gone"), gpuprof.kernels():
        pass
    monkeypatch.undo()


def test_wrong_limits_are_refused() -> None:
    with pytest.raises(ValueError, match="max_records"):
        gpuprof.kernels(max_records=-1)
    with pytest.raises(TypeError, match="max_records"):
        gpuprof.kernels(max_records="many")  # type: ignore[arg-type]


def test_records_that_another_tool_took_are_said(gpu: Recording) -> None:
    gpu.extra = {"displaced": True, "cupti_dropped": 7, "incomplete": 1}
    with gpuprof.kernels() as k:
        pass
    text = k.table()
    assert "another tool took CUPTI" in text
    assert "7 records lost by CUPTI" in text
    assert "1 records without times" in text


def test_without_a_driver_it_says_so() -> None:
    code = """
        import gpuprof
        try:
            with gpuprof.kernels():
                pass
        except gpuprof.CudaUnavailableError as error:
            print("unavailable:", error)
    """
    done = run_python(code, GPUPROF_CUDA_DRIVER="")
    assert done.stdout.startswith("unavailable:"), done.stderr


def test_without_cupti_the_error_is_that_of_the_loader(gpu: Recording) -> None:
    gpu.error = gpuprof.CudaUnavailableError("no CUPTI: pip install nvidia-cuda-cupti")
    with pytest.raises(gpuprof.CudaUnavailableError, match="pip install nvidia-cuda-cupti"):
        with gpuprof.kernels():
            pass
    assert gpu.starts == []


def test_disabled_it_collects_nothing() -> None:
    code = """
        import gpuprof
        with gpuprof.kernels() as k:
            pass
        print(k, k.rows, list(k.records), k.to_dict()["records"])
    """
    done = run_python(code, GPUPROF_DISABLE="1")
    assert "GPUPROF_DISABLE is set [] [] 0" in done.stdout.replace("\n", " "), done.stderr


def test_a_dropped_result_frees_its_records(gpu: Recording) -> None:
    with gpuprof.kernels() as k:
        gpu.run("gemm")
    alive = weakref.ref(k)
    del k
    assert alive() is None


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="needs another Python version")
def test_an_older_python_is_told(gpu: Recording) -> None:
    with pytest.raises(ValueError, match=r"callers: expected False on a Python before 3\.12"):
        gpuprof.kernels(callers=True)


def test_callers_are_a_flag(gpu: Recording) -> None:
    with pytest.raises(TypeError, match="callers"):
        gpuprof.kernels(callers="yes")  # type: ignore[arg-type]


def test_callers_that_were_not_kept_are_none(gpu: Recording) -> None:
    with gpuprof.kernels() as k:
        gpu.run("gemm")
    assert k.records[0].caller == ""
    with pytest.raises(gpuprof.InvalidStateError, match="callers=True"):
        k.by_caller()
