"""The GPU's time of scopes in `gpuprof trace diff`: as measured, not as drawn around kernels."""

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


def gpu_rows(path: Path) -> dict[str, tuple[float, float]]:
    """Calls and total milliseconds, by name, of a trace that is compared with itself."""
    found = gpuprof.trace_diff(path, path)
    return {
        row.name: (row.calls_b, round(row.total_b_ms, 9)) for row in found.rows if row.kind == "gpu"
    }


def test_a_scope_that_was_measured_and_drawn_around_its_kernels_counts_once(tmp_path: Path) -> None:
    trace = TorchTrace()
    trace.gpu_scope("step", 100, 50)
    trace.gpu_scope("inner", 110, 10)
    measured = slice_event("step", 100, 55, tid=(1 << 28) + 1, cat="gpu")
    path = written(tmp_path / "t.json", object_form([*trace.events, measured]))
    found = gpu_rows(path)
    assert found == {"step": (1, 0.055)}


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
