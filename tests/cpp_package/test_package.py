"""The C++ library as other projects take it: installed, and as a folder, as FetchContent does."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import gpuprof
from tests.fake_driver.build import compiler, cuda_include_dir

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "docs" / "cpp"
TIMEOUT = 800  # the first builds the whole library

pytestmark = pytest.mark.timeout(900)

FIND_PACKAGE = "find_package(gpuprof REQUIRED)"
# What other projects have in place of that line.
FETCH_CONTENT = f"""include(FetchContent)
FetchContent_Declare(gpuprof SOURCE_DIR "{ROOT.as_posix()}")
FetchContent_MakeAvailable(gpuprof)"""
# The programs that find the installed library, configured and built at once.
PROGRAMS = """cmake_minimum_required(VERSION 3.25)
project(programs LANGUAGES CXX)
add_subdirectory(cpp example)
add_subdirectory(cpp/graphs graphs)
add_subdirectory(cpp/benchmark benchmark)
add_subdirectory(two)
"""

# One object, compiled once, in two libraries; each shows its function by a name of its own.
TWO_LIBRARIES = """cmake_minimum_required(VERSION 3.25)
project(two LANGUAGES CXX)
find_package(gpuprof REQUIRED)
add_library(work OBJECT work.cpp)
set_target_properties(work PROPERTIES POSITION_INDEPENDENT_CODE ON)
target_link_libraries(work PRIVATE gpuprof::gpuprof)
foreach(name one two)
  add_library(${name} SHARED $<TARGET_OBJECTS:work>)
  target_link_options(${name} PRIVATE -Wl,--defsym=${name}=work)
  target_link_libraries(${name} PRIVATE gpuprof::gpuprof)
endforeach()
add_executable(both main.cpp)
target_link_libraries(both PRIVATE one two)
"""
WORK = """#include <gpuprof/gpuprof.hpp>
#include <iostream>
#include <optional>
extern "C" void work(const char* name) {
  for (int i = 0; i < 100; ++i) {
    gpuprof::timer scope{name};
    std::optional<gpuprof::Timer> timer{std::in_place};
  }
  for (const gpuprof::Row& row : gpuprof::stats()) {
    std::cout << name << " has " << row.path << " " << row.time().count << std::endl;
  }
}
"""
MAIN = """extern "C" void one(const char*);
extern "C" void two(const char*);
int main() {
  one("one");
  two("two");
}
"""


def row(names: tuple[str, ...], gpu: float, host: float, count: int, dropped: int = 0) -> Any:
    """Return the plain form of a row whose samples all took as long."""
    figures = [f"{name}_ms" for name in ("mean", "min", "p50", "p90", "p99", "max", "first")]
    gpu_ms, host_ms = (
        {"count": count, "total_ms": ms * count, **dict.fromkeys(figures, ms)} for ms in (gpu, host)
    )
    counts = {"dropped": dropped, "pending": 0, "failed": 0, "skipped": 0}
    times = {"gpu": gpu_ms, "host": host_ms, "work": None, "memory": None}
    return {"path": "/".join(names), "names": [*names], "clock": "cuda", **counts, **times}


ROWS = [
    row(("step",), 12.25, 0.5, 1000),
    row(("step", "fwd"), 4.0, 3.99, 1000),
    row(("step", "fwd", "gap", "deep"), 0.00025, 0.0000421, 7),
    row(("odd\n\u00e9",), 0.0, 0.0, 0, 1234),
]


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


def write(folder: Path, **files: str) -> Path:
    """Write files into a new folder, CMakeLists.txt and C++ sources."""
    folder.mkdir(parents=True)
    for name, text in files.items():
        full_name = "CMakeLists.txt" if name == "lists" else f"{name}.cpp"
        (folder / full_name).write_text(text, encoding="utf-8")
    return folder


def fetching_project(folder: Path) -> Path:
    """Copy the example to `folder`; it takes gpuprof as a folder."""
    shutil.copytree(EXAMPLE, folder)
    lists = folder / "CMakeLists.txt"
    text = lists.read_text(encoding="utf-8")
    assert FIND_PACKAGE in text
    lists.write_text(text.replace(FIND_PACKAGE, FETCH_CONTENT), encoding="utf-8")
    return folder


def finding_project(folder: Path) -> Path:
    """Write a project of the programs that find gpuprof to `folder`."""
    write(folder, lists=PROGRAMS)
    shutil.copytree(EXAMPLE, folder / "cpp")
    write(folder / "two", lists=TWO_LIBRARIES, work=WORK, main=MAIN)
    return folder


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two builds, `fetching` and `finding`, and the installed `prefix`.

    Workers of pytest-xdist share it: the library is built once for all tests.
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cpp_package"
    folder.mkdir(exist_ok=True)
    fetching, finding, prefix = (folder / name for name in ("fetching", "finding", "prefix"))
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            configure(fetching_project(folder / "project"), fetching, "-DGPUPROF_INSTALL=ON")
            cmake("--build", fetching, "--parallel", "2")
            cmake("--install", fetching, "--prefix", prefix)
            configure(
                finding_project(folder / "programs"),
                finding,
                f"-DCMAKE_PREFIX_PATH={prefix}",
                f"-DCUDA_DRIVER_INCLUDE={cuda_include_dir()}",
                f"-DCUDA_DRIVER_LIBRARY={os.environ['GPUPROF_CUDA_DRIVER']}",
            )
            cmake("--build", finding, "--parallel", "2")
            (folder / "done").touch()
    return folder


@pytest.fixture(scope="module")
def prefix(built: Path) -> Path:
    """Return where the library is installed."""
    return built / "prefix"


def run(program: Path, *arguments: Path) -> str:
    done = subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_example_of_graphs_captures_and_replays(built: Path) -> None:
    output = run(built / "finding" / "graphs" / "graphs")
    assert "node 2 memset 4.0 MiB value 0x0 in step/clear\n" in output
    for number in (1, 2, 3):
        assert f"replay {number} copied {number}\n" in output
    assert "step/clear      1  0.0668  0.0668\n" in output  # on the fake driver's clock


def gpuprof_says(*arguments: str | Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "gpuprof", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_python_judges_what_the_example_of_benchmarks_writes(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program = built / "finding" / "benchmark" / "benchmark"
    base, same, slower = (Path(f"{name}.json") for name in ("base", "same", "slower"))
    assert run(program, base).startswith("clear[n=16384]: ")
    run(program, same)
    run(program, slower, Path("2"))

    # Each result is one that Python has made itself.
    written = json.loads(base.read_text(encoding="utf-8"))["benchmarks"]
    results = [gpuprof.BenchResult.from_dict(each["gpuprof"]["result"]) for each in written]
    names = ["clear[n=16384]", "clear[n=65536]"]
    assert [each["fullname"] for each in written] == names
    assert [result.name for result in results] == names
    assert [result.params for result in results] == [{"n": "16384"}, {"n": "65536"}]
    assert all(
        (result.mode, result.gate, result.warnings) == ("graph", "gated", ()) for result in results
    )
    assert all(result.count >= 30 and result.tick_ms < result.median_ms for result in results)
    facts = gpuprof.benchmark(int, warmup_s=0.0, min_time_s=0.0).machine
    assert facts["gpuprof"] == results[0].machine["gpuprof"]
    assert {*results[0].machine} <= {*facts}

    code, said = gpuprof_says("compare", base, same)
    assert (code, said.count(" SAME")) == (0, 2), said
    code, said = gpuprof_says("compare", base, slower)
    assert (code, said.count(" SLOW")) == (1, 2), said
    # Of files that are there, because a run of the program takes seconds on the fake driver.
    code, said = gpuprof_says(
        *("ab", f"cp {base} {{out}}", f"cp {slower} {{out}}", "--runs", "8", "--warmup", "0")
    )
    assert code == 1, said
    assert all(re.search(rf"^{re.escape(name)} .* SLOW$", said, re.M) for name in names), said

    for number, file in enumerate((base, same, slower), 1):
        code, said = gpuprof_says("save", "main", file, "--commit", f"{number}" * 40)
        assert code == 0, said
        assert said.startswith("saved 2 benchmarks of ")
    code, said = gpuprof_says("history", "clear[[]n=65536[]]", "--format", "json")
    assert code == 0, said
    (series,) = json.loads(said)["series"]
    assert [point["commit"] for point in series["points"]] == ["1" * 40, "2" * 40, "3" * 40]


@pytest.mark.parametrize("program", ["finding/example/example", "fetching/example"])
def test_a_project_outside_the_checkout_builds_and_runs(
    program: str, built: Path, tmp_path: Path
) -> None:
    trace = tmp_path / "run.json"
    lines = run(built / program, trace).splitlines()
    assert lines[0] == "clock: cuda (GPU time, from events in the stream)"
    assert lines[1].split("  ")[0] == "scope"
    assert [line.split()[0] for line in lines[3:]] == ["step", "forward", "backward"]
    assert [line.startswith("  ") for line in lines[3:]] == [False, True, True]
    assert all(" 100 " in line for line in lines[3:]), "each scope was entered 100 times"
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    assert sum(event.get("cat") == "gpu" for event in events) == 300


def test_a_build_of_the_checkout_without_python_installs_the_library(tmp_path: Path) -> None:
    configure(ROOT, tmp_path, "-DGPUPROF_PYTHON=OFF")
    assert "libgpuprof.a" in (tmp_path / "cmake_install.cmake").read_text(encoding="utf-8")


def both(folder: Path, work: str, *flags: list[str]) -> Path:
    """Build a program of two shared objects with these flags by hand, as without CMake."""
    build = [compiler(), "-std=c++17", "-O0", "-fPIC"]
    for name, text in {"work.cpp": work, "main.cpp": MAIN}.items():
        (folder / name).write_text(text, encoding="utf-8")
    libraries = [folder / f"lib{name}.so" for name in ("one", "two")]
    for name, library, of_name in zip(("one", "two"), libraries, flags, strict=True):
        compiled = folder / f"work{flags.index(of_name)}.o"
        if not compiled.exists():
            subprocess.run(
                [*build, "-c", folder / "work.cpp", "-o", compiled, *of_name], check=True
            )
        linked = ["-shared", f"-Wl,--defsym={name}=work", compiled, "-o", library]
        subprocess.run([*build, *linked, *of_name], check=True)
    program = folder / "both"
    subprocess.run([*build, folder / "main.cpp", *libraries, "-o", program], check=True)
    return program


def without_link_options(prefix: Path) -> list[str]:
    (library,) = prefix.rglob("libgpuprof.a")
    return [f"-I{prefix / 'include'}", str(library), "-ldl", "-pthread"]


def test_two_shared_objects_have_statistics_of_their_own(built: Path) -> None:
    assert run(built / "finding" / "two" / "both").splitlines() == [
        "one has one 100",
        "two has two 100",
    ]


def test_pkg_config_is_enough_for_two_shared_objects_that_keep_apart(
    prefix: Path, tmp_path: Path
) -> None:
    (found,) = prefix.rglob("pkgconfig")
    done = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "gpuprof"],
        env={**os.environ, "PKG_CONFIG_PATH": str(found)},
        capture_output=True,
        text=True,
        check=True,
    )
    flags = done.stdout.split()
    assert run(both(tmp_path, WORK, flags, flags)).splitlines() == [
        "one has one 100",
        "two has two 100",
    ]


def next_version(prefix: Path, folder: Path) -> Path:
    """Copy the library as another version, in which one inline function does something else."""
    shutil.copytree(prefix, folder)
    major, minor, _ = gpuprof.__version__.split(".", 2)
    now, then = f"v{major}_{minor}", f"v{major}_{int(minor) + 1}"
    (library,) = folder.rglob("libgpuprof.a")  # the names of symbols are as long as before
    library.write_bytes(library.read_bytes().replace(now.encode(), then.encode()))
    bound = "return gpu.count > 0 && host.p50 >= 0.9 * gpu.p50"
    for name, old, new in (("version", now, then), ("stats", bound, "return true")):
        header = folder / "include" / "gpuprof" / f"{name}.hpp"
        text = header.read_text(encoding="utf-8")
        assert text.count(old) == 1
        header.write_text(text.replace(old, new), encoding="utf-8")
    return folder


def test_two_versions_in_one_process_share_nothing(prefix: Path, tmp_path: Path) -> None:
    other = next_version(prefix, tmp_path / "next")
    work = WORK.replace("row.time().count", "row.time().count << row.host_bound()")
    flags = [without_link_options(folder) for folder in (prefix, other)]
    assert run(both(tmp_path, work, *flags)).splitlines() == [
        "one has one 1000",
        "two has two 1001",
    ]


def test_two_shared_objects_keep_their_scopes_apart_without_link_options(
    prefix: Path, tmp_path: Path
) -> None:
    flags = without_link_options(prefix)
    work = WORK.replace("std::optional<gpuprof::Timer> timer{std::in_place};", "")
    assert run(both(tmp_path, work, flags, flags)).splitlines() == [
        "one has one 100",
        "two has two 100",
    ]


def test_python_makes_the_same_table() -> None:
    # The C++ test compares its table of the same rows with the same file.
    expected = (ROOT / "tests" / "cpp" / "api" / "table.txt").read_text(encoding="utf-8")
    snapshot = {**gpuprof.stats().to_dict(), "rows": ROWS, "dropped": 1234}
    assert f"{gpuprof.Stats.from_dict(snapshot).table()}\n" == expected.replace("::", ".")


def test_the_page_has_every_header() -> None:
    page = (ROOT / "docs" / "cpp.md").read_text(encoding="utf-8")
    headers = {path.name for path in (ROOT / "include" / "gpuprof").iterdir()} - {"gpuprof.hpp"}
    shown = re.findall(r"literalinclude\} \.\./include/gpuprof/(\S+)", page)
    assert sorted(shown) == sorted(headers)


def test_only_public_headers_are_installed(prefix: Path) -> None:
    installed = {path.name for path in (prefix / "include").rglob("*") if path.is_file()}
    sources = {path.name.removesuffix(".in") for path in (ROOT / "include").rglob("*.hpp*")}
    assert installed == sources
    assert {path.name for path in (prefix / "include").iterdir()} == {"gpuprof"}
