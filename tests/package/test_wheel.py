"""What a built wheel holds and what it needs, with CUDA's headers and without."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(1500)  # a build takes minutes on two cores without a cache

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 700
EXTENSION = f"gpuprof/_core{sysconfig.get_config_var('EXT_SUFFIX')}"

# What a C++ program without any special library needs on Linux.
ALLOWED_LIBRARIES = re.compile(
    r"^(libstdc\+\+|libm|libgcc_s|libc|libpthread|libdl|ld-linux[-_a-z0-9]*)\.so\.\d+$"
)

USE_WITHOUT_CUDA = """
import gpuprof
with gpuprof.timer("work") as sample:
    sum(range(1000))
print(sample.clock, sample.ms > 0.0, gpuprof.stats()["work"].host.count)
print(gpuprof.cuda_available())
print(gpuprof.backends()["cuda"].reason)
try:
    gpuprof.timer(backend="cuda")
except gpuprof.errors.CudaUnavailableError as error:
    print(error)
"""


def run(*command: str | Path, **variables: str) -> str:
    """Run a command in a neutral folder, with no driver chosen, and return what it prints."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("GPUPROF_", "FAKECUDA_"))}
    done = subprocess.run(
        command,
        env={**kept, **variables},
        cwd=ROOT / "tests",
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def build_wheel(folder: Path, *settings: str) -> Path:
    """Build a wheel as pip does, with the tools that are installed here."""
    tools = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    options = [f"--config-settings={setting}" for setting in settings]
    build = f"--config-settings=build-dir={folder / 'build'}"
    pip = (sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation")
    run(*pip, "--wheel-dir", folder, build, *options, ROOT, PATH=tools)
    (wheel,) = folder.glob("*.whl")
    return wheel


def unpack(wheel: Path, folder: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def site(wheel: Path) -> Path:
    return unpack(wheel, wheel.parent / "site")


def test_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    package = {
        f"gpuprof/{path.relative_to(ROOT / 'python' / 'gpuprof')}"
        for path in (ROOT / "python" / "gpuprof").rglob("*")
        if path.suffix in {".py", ".pyi"} or path.name == "py.typed"
    }
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    info = f"{'-'.join(wheel.name.split('-')[:2])}.dist-info"
    described = {f"{info}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt")}
    assert names == package | described | {EXTENSION, f"{info}/licenses/LICENSE"}
    assert {"gpuprof/py.typed", "gpuprof/_core.pyi", "gpuprof/__init__.py"} <= names


def test_wheel_is_for_this_version_of_python(wheel: Path) -> None:
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert f"-{version}-{version}" in wheel.name


def test_base_install_needs_nothing_but_python(site: Path) -> None:
    (metadata,) = site.glob("*.dist-info/METADATA")
    required = [
        line
        for line in metadata.read_text(encoding="utf-8").splitlines()
        if line.startswith("Requires-Dist:") and "extra ==" not in line
    ]
    assert required == []


def test_extension_needs_no_cuda_library(site: Path) -> None:
    dynamic = run("readelf", "-d", site / EXTENSION, LC_ALL="C")
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
    assert needed, dynamic
    assert [name for name in needed if not ALLOWED_LIBRARIES.match(name)] == []


def test_extension_searches_no_folder_of_its_own(site: Path) -> None:
    dynamic = run("readelf", "-d", site / EXTENSION, LC_ALL="C")
    assert "RPATH" not in dynamic
    assert "RUNPATH" not in dynamic


def test_extension_shows_its_entry_point_only(site: Path) -> None:
    symbols = run("readelf", "--dyn-syms", "--wide", site / EXTENSION, LC_ALL="C")
    defined = [
        line.split()[7]
        for line in symbols.splitlines()
        if re.match(r"\s*\d+: [0-9a-f]+ +\d+ FUNC +(GLOBAL|WEAK) +DEFAULT +\d+ ", line)
    ]
    ours = [name for name in defined if "gpuprof" in name]
    assert "PyInit__core" in defined
    assert ours == []


def test_build_without_cuda_headers_times_on_the_cpu_clock(tmp_path: Path) -> None:
    # Not optimised, because it is there to be tried only.
    wheel = build_wheel(tmp_path, "cmake.define.GPUPROF_CUDA_INCLUDE=OFF", "cmake.build-type=Debug")
    site = unpack(wheel, tmp_path / "site")
    printed = run(sys.executable, "-c", USE_WITHOUT_CUDA, PYTHONPATH=str(site)).splitlines()
    assert printed[:2] == ["cpu True 1", "False"]
    assert "no CUDA support" in printed[2]
    assert "no CUDA support" in printed[3]
