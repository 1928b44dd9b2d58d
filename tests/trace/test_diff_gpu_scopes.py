"""The GPU's time of scopes in `gpuprof trace diff`: measured, and drawn around kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

import gpuprof
from tests.fake_driver.control import FakeCuda
from tests.support.gpu_records import Recording
from tests.support.torch_traces import TorchTrace
from tests.support.trace_events import events
from tests.support.trace_files import object_form, slice_event, written

MS = 1_000_000
PID_STEP = 1 << 22  # from the pids of one process to those of the next in a merged trace


def gpu_rows(path: Path) -> dict[str, tuple[float, float]]:
    """Calls and total milliseconds, by name, of a trace that is compared with itself."""
    found = gpuprof.trace_diff(path, path)
    return {
        row.name: (row.calls_b, round(row.total_b_ms, 9)) for row in found.rows if row.kind == "gpu"
    }


def test_gpu_annotations_of_torch_get_the_path_of_the_host(tmp_path: Path) -> None:
    trace = TorchTrace()
    trace.scope("step", 0, 100, **{"External id": 1})
    trace.scope("fwd", 10, 40, **{"External id": 2})
    trace.gpu_scope("fwd", 500, 60, stream=20, **{"External id": 2})
    trace.gpu_scope("step", 400, 300, **{"External id": 1})
    trace.gpu_scope("alone", 1000, 20)
    trace.gpu_scope("inner", 1005, 5)
    path = written(tmp_path / "t.json", object_form(trace.events))
    found = gpu_rows(path)
    assert {name: row[1] for name, row in found.items()} == {
        "step": 0.3,
        "step/fwd": 0.06,
        "alone": 0.02,
        "alone/inner": 0.005,
    }


def test_an_annotation_reaches_over_those_inside_of_it_on_the_gpu(tmp_path: Path) -> None:
    # Torch draws the innermost annotation around each kernel, and no other.
    trace = TorchTrace()
    for number in range(2):
        links = [{"External id": 10 * number + each} for each in (1, 2, 3, 4)]
        host, gpu = number * 100, 1000 + number * 1000
        trace.scope("step", host, 90, **links[0])
        trace.scope("mm", host + 10, 20, **links[1])
        trace.scope("add", host + 40, 40, **links[2])
        trace.scope("no kernels", host + 50, 10, **links[3])
        trace.gpu_scope("mm", gpu, 100, **links[1])
        trace.gpu_scope("add", gpu + 150, 50, stream=20, **links[2])
        trace.gpu_scope("add", gpu + 160, 60, **links[2])
    path = written(tmp_path / "t.json", object_form(trace.events))
    assert gpu_rows(path) == {
        "step": (2, 0.44),
        "step/mm": (2, 0.2),
        "step/add": (2, 0.14),
    }


def test_an_annotation_with_kernels_of_its_own_reaches_over_those_inside_too(
    tmp_path: Path,
) -> None:
    trace = TorchTrace()
    trace.scope("step", 0, 90, **{"External id": 1})
    trace.scope("mm", 10, 20, **{"External id": 2})
    trace.gpu_scope("step", 500, 10, **{"External id": 1})
    trace.gpu_scope("mm", 520, 100, **{"External id": 2})
    path = written(tmp_path / "t.json", object_form(trace.events))
    found = gpu_rows(path)
    assert found == {"step": (1, 0.12), "step/mm": (1, 0.1)}


def test_annotations_of_merged_ranks_are_not_mixed_up(tmp_path: Path) -> None:
    merged = []
    for rank, outer in enumerate(("train", "serve")):
        trace = TorchTrace()
        trace.scope(outer, 0, 90, **{"External id": 1})
        trace.scope("mm", 10, 20, **{"External id": 2})
        trace.gpu_scope("mm", 520, 100 + rank, **{"External id": 2})
        merged += [{**event, "pid": event["pid"] + rank * PID_STEP} for event in trace.events]
    path = written(tmp_path / "t.json", object_form(merged))
    assert gpu_rows(path) == {
        "train": (1, 0.1),
        "train/mm": (1, 0.1),
        "serve": (1, 0.101),
        "serve/mm": (1, 0.101),
    }


def test_a_scope_that_was_measured_and_drawn_around_its_kernels_counts_once(tmp_path: Path) -> None:
    trace = TorchTrace()
    trace.gpu_scope("step", 100, 50)
    trace.gpu_scope("inner", 110, 10)
    measured = slice_event("step", 100, 55, tid=(1 << 28) + 1, cat="gpu")
    path = written(tmp_path / "t.json", object_form([*trace.events, measured]))
    found = gpu_rows(path)
    assert found == {"step": (1, 0.055), "step/inner": (1, 0.01)}


def test_what_one_rank_measured_does_not_hide_what_another_one_drew(tmp_path: Path) -> None:
    trace = TorchTrace()
    trace.gpu_scope("step", 100, 50)
    second = [{**event, "pid": event["pid"] + PID_STEP} for event in trace.events]
    measured = slice_event("step", 100, 55, tid=(1 << 28) + 1, cat="gpu")
    path = written(tmp_path / "t.json", object_form([*trace.events, *second, measured]))
    found = gpu_rows(path)
    assert found == {"step": (2, 0.105)}


def test_kernels_inside_of_measured_scopes_do_not_count_these_again(
    tmp_path: Path, fake: FakeCuda, stream: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = Recording().install(monkeypatch)
    path = tmp_path / "t.json"
    with gpuprof.trace(path):
        with gpuprof.kernels():
            for _ in range(3):
                with gpuprof.timer("step", stream=stream), gpuprof.timer("fwd", stream=stream):
                    fake.work(stream, MS)
                    gpu.run("k")
        gpuprof.flush()
    drawn = [each["name"] for each in events(path) if each.get("cat") == "gpu_user_annotation"]
    assert {*drawn} == {"step", "fwd"}
    assert {name: row[0] for name, row in gpu_rows(path).items()} == {"step": 3, "step/fwd": 3}
    assert gpu_rows(path)["step/fwd"][1] == pytest.approx(3, abs=0.1)
