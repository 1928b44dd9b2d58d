"""The C++ library as other projects take it: installed, as a folder, and through FetchContent."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fake_driver.build import compiler, cuda_include_dir

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "docs" / "cpp"
TIMEOUT = 280

FIND_PACKAGE = "find_package(gpuprof REQUIRED)"
# How a project takes gpuprof, in place of that line.
WAYS = {
    "find_package": FIND_PACKAGE,
    "add_subdirectory": f'add_subdirectory("{ROOT.as_posix()}" gpuprof)',
    "FetchContent": f"""include(FetchContent)
FetchContent_Declare(gpuprof SOURCE_DIR "{ROOT.as_posix()}")
FetchContent_MakeAvailable(gpuprof)""",
}


def cmake(*arguments: str | Path) -> str:
    """Run CMake: the one beside this Python if there is one, else that of the PATH."""
    beside = Path(sys.executable).parent / "cmake"
    program = str(beside) if beside.exists() else shutil.which("cmake")
    assert program, "CMake is not there: pip install cmake"
    done = subprocess.run(
        [program, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def configure(source: Path, build: Path, *options: str) -> str:
    """Configure without optimisation, which these builds do not need, and without Python."""
    return cmake(
        *("-S", source, "-B", build, f"-DCMAKE_CXX_COMPILER={compiler()}"),
        *("-DCMAKE_BUILD_TYPE=None", "-DCMAKE_CXX_FLAGS=-O0"),
        *("-DCMAKE_DISABLE_FIND_PACKAGE_Python=ON", f"-DGPUPROF_CUDA_INCLUDE={cuda_include_dir()}"),
        *options,
    )


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where the library is installed: built here, or where `GPUPROF_CPP_BUILD` says."""
    folder = tmp_path_factory.mktemp("install")
    build = os.environ.get("GPUPROF_CPP_BUILD")
    if not build:
        build = str(folder / "build")
        configure(ROOT, Path(build), "-DGPUPROF_PYTHON=OFF")
        cmake("--build", build, "--parallel", "2")
    cmake("--install", build, "--prefix", folder / "prefix")
    return folder / "prefix"


def project(way: str, folder: Path) -> Path:
    """Copy the example to `folder`; it takes gpuprof in this way."""
    shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True)
    lists = folder / "CMakeLists.txt"
    text = lists.read_text(encoding="utf-8")
    assert FIND_PACKAGE in text
    lists.write_text(text.replace(FIND_PACKAGE, WAYS[way]), encoding="utf-8")
    return folder


def run(program: Path) -> str:
    return subprocess.run(
        [program], capture_output=True, text=True, timeout=60, check=True
    ).stdout


def test_the_example_of_graphs_captures_and_replays(prefix: Path, tmp_path: Path) -> None:
    configure(
        EXAMPLE / "graphs",
        tmp_path,
        f"-DCMAKE_PREFIX_PATH={prefix}",
        f"-DCUDA_DRIVER_INCLUDE={cuda_include_dir()}",
        f"-DCUDA_DRIVER_LIBRARY={os.environ['GPUPROF_CUDA_DRIVER']}",
    )
    cmake("--build", tmp_path)
    output = run(tmp_path / "graphs")
    assert "node 2 memset 4.0 MiB value 0x0 in step/clear\n" in output
    for number in (1, 2, 3):
        assert f"replay {number} copied {number}\n" in output
    assert "step/clear      1  0.0668  0.0668\n" in output  # on the fake driver's clock


@pytest.mark.parametrize("way", WAYS)
def test_a_project_outside_the_checkout_builds_and_runs(
    way: str, prefix: Path, tmp_path: Path
) -> None:
    source = project(way, tmp_path / "project")
    configure(source, tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    cmake("--build", tmp_path / "build", "--parallel", "2")
    assert "step/forward on the clock cpu was measured" in run(tmp_path / "build" / "example")


def test_only_public_headers_are_installed(prefix: Path) -> None:
    installed = {path.name for path in (prefix / "include").rglob("*") if path.is_file()}
    sources = {path.name.removesuffix(".in") for path in (ROOT / "include").rglob("*.hpp*")}
    assert installed == sources
    assert {path.name for path in (prefix / "include").iterdir()} == {"gpuprof"}
