"""The C++ examples, built against the installed library and run on a GPU."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

import gpuprof
from tests.support.processes import ROOT, run_command

TIMEOUT = 900
TOOLKIT = Path("/usr/local/cuda")


def nvcc() -> Path:
    """Return the path of nvcc: that of the PATH, else that of the usual place."""
    found = shutil.which("nvcc") or shutil.which("nvcc", path=str(TOOLKIT / "bin"))
    if found is None:
        pytest.skip("the NVIDIA command-line tool nvcc is not there")
    return Path(found).resolve()


def cmake_program() -> str:
    beside = Path(sys.executable).parent / "cmake"
    found = str(beside) if beside.exists() else shutil.which("cmake")
    if found is None:
        pytest.skip("CMake is not there, which builds what the NVIDIA command-line tool nvcc needs")
    return found


def run(*command: str | Path) -> str:
    done = run_command(*command, timeout=TIMEOUT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(source: Path, folder: Path, *options: str) -> None:
    generator = ("-G", "Ninja") if shutil.which("ninja") else ()
    run(
        *(cmake_program(), "-S", source, "-B", folder, *generator),
        *("-DCMAKE_BUILD_TYPE=Release", *options),
    )
    run(cmake_program(), "--build", folder, "--parallel", "8")


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where the library is installed, built with the toolkit's headers."""
    include = nvcc().parents[1] / "include"
    folder = tmp_path_factory.mktemp("library")
    build(ROOT, folder / "build", "-DGPUPROF_PYTHON=OFF", f"-DGPUPROF_CUDA_INCLUDE={include}")
    run(cmake_program(), "--install", folder / "build", "--prefix", folder / "prefix")
    return folder / "prefix"


def times_of(path: str, output: str) -> float:
    """Return the milliseconds of a row of the table of a graph's times."""
    found = re.search(rf"^{path} +1 +(\d+\.\d+) ", output, re.MULTILINE)
    assert found, output
    return float(found[1])


def test_kernels_are_timed_captured_and_replayed_with_another_factor(
    prefix: Path, tmp_path: Path
) -> None:
    build(
        ROOT / "docs" / "cpp" / "saxpy",
        tmp_path,
        f"-DCMAKE_PREFIX_PATH={prefix}",
        f"-DCMAKE_CUDA_COMPILER={nvcc()}",
        "-DCMAKE_CUDA_ARCHITECTURES=native",
    )
    output = run(tmp_path / "saxpy")
    print(output)  # shown with -s, for the page
    assert re.search(r"^ +saxpy .* 100 ", output, re.MULTILINE)
    assert re.search(r"node 5 saxpy grid \(4096,1,1\) block \(256,1,1\) in step/saxpy", output)
    assert "factor 0.5: y is 2\n" in output
    assert "factor 3: y is 7\n" in output
    parts = times_of("step/fill", output) + times_of("step/saxpy", output)
    assert 0.0 < parts <= times_of("step", output)


def test_copies_are_captured_and_replayed_through_the_drivers_interface(
    prefix: Path, tmp_path: Path
) -> None:
    build(
        ROOT / "docs" / "cpp" / "graphs",
        tmp_path,
        f"-DCMAKE_PREFIX_PATH={prefix}",
        f"-DCUDAToolkit_ROOT={nvcc().parents[1]}",
    )
    output = run(tmp_path / "graphs")
    print(output)
    for number in (1, 2, 3):
        assert f"replay {number} copied {number}\n" in output
    assert 0.0 < times_of("step/clear", output) < times_of("step", output)


def test_benchmarks_are_written_for_python_to_judge(prefix: Path, tmp_path: Path) -> None:
    build(
        ROOT / "docs" / "cpp" / "benchmark",
        tmp_path / "build",
        f"-DCMAKE_PREFIX_PATH={prefix}",
        f"-DCUDAToolkit_ROOT={nvcc().parents[1]}",
    )
    files = [tmp_path / f"{name}.json" for name in ("base", "slower")]
    program = tmp_path / "build" / "benchmark"
    for file, memsets in zip(files, ("1", "8"), strict=True):
        print(run(program, file, memsets))
    written = json.loads(files[0].read_text(encoding="utf-8"))["benchmarks"]
    results = [gpuprof.BenchResult.from_dict(each["gpuprof"]["result"]) for each in written]
    assert all((result.mode, result.gate) == ("graph", "gated") for result in results)
    assert all(0.2 < result.median_ms * 1e3 < 50.0 for result in results)
    done = run_command(sys.executable, "-m", "gpuprof", "compare", *files)
    assert (done.returncode, done.stdout.count(" SLOW")) == (1, 2), done.stdout + done.stderr
