"""What the installed package holds and what it needs."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import gpuprof
from tests.support.benchmark_results import answer

ROOT = Path(__file__).resolve().parents[2]
EXTENSION = f"gpuprof/_core{sysconfig.get_config_var('EXT_SUFFIX')}"

# What a C++ program without any special library needs on Linux.
ALLOWED_LIBRARIES = re.compile(
    r"^(libstdc\+\+|libm|libgcc_s|libc|libpthread|libdl|ld-linux[-_a-z0-9]*)\.so\.\d+$"
)


@pytest.fixture(scope="module")
def installed() -> importlib.metadata.Distribution:
    return importlib.metadata.distribution("gpuprof")


def readelf(*options: str) -> str:
    extension = importlib.metadata.distribution("gpuprof").locate_file(EXTENSION)
    done = subprocess.run(
        ["readelf", *options, str(extension)],
        env={**os.environ, "LC_ALL": "C"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_it_holds_the_package_and_nothing_else(installed: importlib.metadata.Distribution) -> None:
    package = {
        f"gpuprof/{path.relative_to(ROOT / 'python' / 'gpuprof').as_posix()}"
        for path in (ROOT / "python" / "gpuprof").rglob("*")
        if path.suffix == ".py" or path.name == "py.typed"
    }
    files = {
        path.as_posix()
        for path in installed.files or []
        if path.suffix != ".pyc" and ".dist-info" not in path.parts[0] and path.parts[0] != ".."
    }
    assert files == package | {EXTENSION, "gpuprof/_core.pyi", "gpuprof/__init__.pyi"}
    assert {"gpuprof/py.typed", "gpuprof/__init__.py"} <= files


def test_it_is_for_this_version_of_python(installed: importlib.metadata.Distribution) -> None:
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert f"Tag: {version}-{version}-" in (installed.read_text("WHEEL") or "")


def test_its_parts_are_of_one_version(
    installed: importlib.metadata.Distribution, capsys: pytest.CaptureFixture[str]
) -> None:
    assert installed.version == gpuprof.__version__
    assert answer(capsys, "--version")[1] == f"gpuprof {installed.version}\n"  # the extension's


def test_the_base_install_needs_nothing_but_python(
    installed: importlib.metadata.Distribution,
) -> None:
    assert [need for need in installed.requires or [] if "extra ==" not in need] == []


def test_the_extension_needs_no_cuda_library() -> None:
    dynamic = readelf("-d")
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
    assert needed, dynamic
    assert [name for name in needed if not ALLOWED_LIBRARIES.match(name)] == []


def test_the_extension_searches_no_folder_of_its_own() -> None:
    dynamic = readelf("-d")
    assert "RPATH" not in dynamic
    assert "RUNPATH" not in dynamic


def test_the_extension_shows_its_entry_point_only() -> None:
    defined = [
        line.split()[7]
        for line in readelf("--dyn-syms", "--wide").splitlines()
        if re.match(r"\s*\d+: [0-9a-f]+ +\d+ FUNC +(GLOBAL|WEAK) +DEFAULT +\d+ ", line)
    ]
    assert "PyInit__core" in defined
    assert [name for name in defined if "gpuprof" in name] == []
