"""GPU work and idle lines in a report."""

from __future__ import annotations

from pathlib import Path

import pytest

import gpuprof
from tests.fake_driver.control import FakeCuda
from tests.support.gpu_records import Recording


def page_of(path: Path, gpu_work: object) -> str:
    gpuprof.write_report(path, gpu_work=gpu_work)
    return path.read_text(encoding="utf-8")


def test_all_that_was_found_of_the_gpu_has_its_section(
    fake: FakeCuda, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gpu = Recording().install(monkeypatch)
    with gpuprof.idle() as idle, gpuprof.kernels() as kernels:
        gpu.run("gemm<&>")
    page = page_of(tmp_path / "r.html", {"work": kernels, "names": kernels.by_kernel(), "i": idle})
    for heading in ("GPU work: work", "GPU work: names", "GPU work: i"):
        assert heading in page
    assert "gemm&lt;&amp;&gt;" in page
    assert "GPU work" in page_of(tmp_path / "r.html", kernels.by_kernel())
    assert "Scopes" not in page_of(tmp_path / "r.html", [kernels])


def test_what_is_no_such_result_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="gpu_work: expected a Kernels"):
        gpuprof.write_report(tmp_path / "r.html", gpu_work="kernels")
