"""The peaks that ``gpuprof info --peaks`` measures on a real GPU with torch.

They need the GPU alone, as the command does: run this file without pytest-xdist, and with nothing
else on the GPU. With several workers, whose other tests share it, the tests are skipped.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gpuprof
from tests.gpu.support.alone import needs_the_gpu_alone
from tests.support.processes import environment

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:::torch"),
    needs_the_gpu_alone,
]

MIB = 1 << 20
SIDE = 4096


def measure(function: Callable[..., object], *arguments: Any, **options: Any) -> Any:
    return gpuprof.benchmark(function, arguments, max_time_s=1.0, progress=False, **options)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A cache folder with the peaks of this GPU, and what the command printed of them."""
    folder = tmp_path_factory.mktemp("cache")
    done = subprocess.run(
        [sys.executable, "-m", "gpuprof", "info", "--peaks", "--json"],
        env=environment(None, XDG_CACHE_HOME=str(folder)),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    (peaks,) = found["peaks"].values()
    return folder, {**peaks, "notes": found["notes"]}


@pytest.fixture
def peaks(cache: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache[0]))
    return cache[1]


def test_a_copy_reaches_the_measured_bandwidth(torch: Any, peaks: dict[str, Any]) -> None:
    x = torch.empty(128 * MIB, dtype=torch.float32, device="cuda")
    result = measure(torch.clone, x, nbytes=2 * x.nbytes)
    assert result.peaks["bytes_per_s"] == peaks["bytes_per_s"]
    assert 0.5 < result.bytes_share < 1.05
    assert "% of peak)" in str(result)


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16"])
def test_a_large_product_reaches_the_measured_peak_of_its_type(
    torch: Any, peaks: dict[str, Any], name: str
) -> None:
    a, b = (torch.randn(SIDE, SIDE, device="cuda", dtype=getattr(torch, name)) for _ in range(2))
    result = measure(torch.mm, a, b, flops=2 * SIDE**3)
    assert result.peaks["dtype"] == name
    assert result.peaks["flops_per_s"] == peaks["flops"][name]
    assert 0.5 < result.flops_share < 1.15  # its clocks depend on how warm it is


def test_the_peaks_are_in_the_order_that_the_hardware_has(
    torch: Any, peaks: dict[str, Any]
) -> None:
    assert torch.cuda.get_device_name() == peaks["device"]
    flops = peaks["flops"]
    assert set(flops) == {"float32", "tf32", "bfloat16", "float16"}, peaks["notes"]
    assert not any("not steady" in note for note in peaks["notes"]), peaks["notes"]
    if torch.cuda.get_device_capability() >= (8, 0):
        assert flops["float32"] < flops["tf32"] < flops["bfloat16"]
        assert 0.7 < flops["bfloat16"] / flops["float16"] < 1.4


def test_without_torch_there_is_the_bandwidth(peaks: dict[str, Any], tmp_path: Path) -> None:
    code = (
        "import runpy, sys\n"
        "sys.modules.update(torch=None)\n"
        "sys.argv = ['gpuprof', 'info', '--peaks', '--json']\n"
        "runpy.run_module('gpuprof', run_name='__main__')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(None, XDG_CACHE_HOME=str(tmp_path)),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    (alone,) = found["peaks"].values()
    assert alone["flops"] == {}
    assert any("torch, which is not installed" in note for note in found["notes"])
    assert alone["bytes_per_s"] == pytest.approx(peaks["bytes_per_s"], rel=0.1)
