"""The rules of the house: who may include whom, and what is written nowhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src"

# What each component may include besides itself. Arrows point one way, towards the driver.
MAY_INCLUDE = {
    "driver": set(),
    "timing": {"driver"},
    "nvtx": {"driver"},
    "trace": {"driver"},
    "graphs": {"timing", "driver"},
    "cupti": {"driver"},
    "bindings": {"graphs", "timing", "nvtx", "trace", "cupti", "driver"},
}
MAX_LINES = 500

INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]', re.MULTILINE)
PYTHON_HEADER = re.compile(r"^(Python|structmember|frameobject|pybind11/.*|cpython/.*)(\.h)?$")
# At exit these abort the process beside a daemon thread: waits go through without_gil().
GIL_GUARD = re.compile(r"\b(gil_scoped_release|call_guard)\b")
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def cpp_files() -> list[Path]:
    return sorted(p for p in SOURCES.rglob("*") if p.suffix in {".hpp", ".cpp", ".h", ".cc"})


def own_files() -> list[Path]:
    folders = ("src", "python", "tests", "benchmarks")
    suffixes = {".hpp", ".cpp", ".h", ".py"}
    return sorted(
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.suffix in suffixes and path.is_file()
    )


def includes(text: str) -> Iterator[tuple[bool, str]]:
    """Yield (is quoted, what is included)."""
    for mark, name in INCLUDE.findall(text):
        yield mark == '"', name


def component(path: Path) -> str:
    return path.relative_to(SOURCES).parts[0]


def include_violations(of: str, text: str) -> list[str]:
    """Return what `text`, a file of component `of`, includes against the rules."""
    found = []
    for quoted, name in includes(text):
        target = name.split("/")[0]
        if quoted and target not in {of, *MAY_INCLUDE[of]}:
            found.append(f"{of} may not include {name!r}")
        if of != "bindings" and PYTHON_HEADER.match(name):
            found.append(f"{name!r} is a Python header, which only bindings may include")
    return found


def test_src_holds_only_known_components() -> None:
    folders = {path.name for path in SOURCES.iterdir() if path.is_dir()} - {"__pycache__"}
    assert folders <= MAY_INCLUDE.keys()
    assert {"driver", "timing", "bindings"} <= folders


def test_includes_point_towards_the_driver() -> None:
    violations = [
        f"{path.relative_to(ROOT)}: {violation}"
        for path in cpp_files()
        for violation in include_violations(component(path), path.read_text(encoding="utf-8"))
    ]
    assert not violations


@pytest.mark.parametrize(
    ("of", "line"),
    [
        ("driver", '#include "timing/sample.hpp"'),
        ("timing", '#include "nvtx/range.hpp"'),
        ("timing", '#include "graphs/capture.hpp"'),
        ("timing", '#include "trace/writer.hpp"'),
        ("timing", "#include <Python.h>"),
        ("timing", "#  include <pybind11/pybind11.h>"),
        ("graphs", '#include "bindings/errors.hpp"'),
        ("driver", "#include <structmember.h>"),
    ],
)
def test_a_forbidden_include_would_be_found(of: str, line: str) -> None:
    assert include_violations(of, f"#include <vector>\n{line}\n")


def test_gil_is_given_up_in_one_place_only() -> None:
    guards = [
        f"{path.relative_to(ROOT)}: {found.group()}"
        for path in cpp_files()
        for found in GIL_GUARD.finditer(COMMENT.sub("", path.read_text(encoding="utf-8")))
    ]
    savers = {
        str(path.relative_to(SOURCES))
        for path in cpp_files()
        if "PyEval_SaveThread" in path.read_text(encoding="utf-8")
    }
    assert not guards
    assert savers == {"bindings/python/gil.hpp"}


def test_timing_knows_cuda_by_its_cuda_files_only() -> None:
    # A build without CUDA's headers leaves these out and must still compile.
    violations = [
        str(path.relative_to(ROOT))
        for path in cpp_files()
        if component(path) in {"driver", "timing"} and not path.name.startswith("cuda_")
        for _, name in includes(path.read_text(encoding="utf-8"))
        if Path(name).name.startswith("cuda")
    ]
    assert not violations


def test_no_file_is_two_ideas_long() -> None:
    long = {
        str(path.relative_to(ROOT)): count
        for path in own_files()
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > MAX_LINES
    }
    assert not long, f"split these files (at most {MAX_LINES} lines)"


def test_nothing_is_left_for_later() -> None:
    # Spelt in two parts so that this file does not find itself.
    marks = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX)\b")
    left = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in own_files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if marks.search(line)
    ]
    assert not left


def test_the_bindings_name_python_modules_in_one_file_only() -> None:
    named = re.compile(r'"gpuprof\._(?!core\b)|import(?:_|Module)?\w*\(\s*"gpuprof\.(?!_core\b)')
    files = {
        str(path.relative_to(SOURCES))
        for path in cpp_files()
        if named.search(COMMENT.sub("", path.read_text(encoding="utf-8")))
    }
    assert files == {"bindings/python/callbacks.cpp"}
