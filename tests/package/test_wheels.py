"""The script that builds wheels, the bill of materials, and the notices of what is compiled in."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.benchmark_results import answer

ROOT = Path(__file__).resolve().parents[2]
NOTICES = ROOT / "THIRD_PARTY_LICENSES.txt"


def script(name: str) -> ModuleType:
    """Import one of the scripts that are in no package."""
    path = ROOT / name
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def wheels() -> ModuleType:
    return script(".ci/wheels.py")


@pytest.fixture(scope="module")
def installed() -> metadata.Distribution:
    return metadata.distribution("gpuprof")


def program(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


# Interpreters and containers

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
OWN = f'exec "{sys.executable}" "$@"'


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on PATH, and that of pyenv."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    return tmp_path


def test_this_interpreter_is_found_on_path(wheels: ModuleType, programs: Path) -> None:
    own = program(programs, f"python{VERSION}", OWN)
    assert wheels.find_python(VERSION) == own
    assert wheels.find_python("2.7") is None


def test_pyenv_is_asked_where_its_command_does_not_run(wheels: ModuleType, programs: Path) -> None:
    program(programs, f"python{VERSION}", "exit 127")
    folder = programs / "versions" / f"{VERSION}.99" / "bin"
    folder.mkdir(parents=True)
    kept = program(folder, "python", OWN)
    assert wheels.find_python(VERSION) == kept


def test_an_interpreter_of_another_kind_is_not_taken(wheels: ModuleType, tmp_path: Path) -> None:
    assert not wheels.is_version(program(tmp_path, "python3.14t", "echo 3.14"), "3.14t")
    assert not wheels.is_version(tmp_path / "absent", "3.14t")


@pytest.mark.parametrize(
    ("status", "expected"), [(0, "podman"), (1, None)], ids=["runs", "without a service"]
)
def test_a_container_engine_counts_if_its_service_answers(
    wheels: ModuleType, programs: Path, status: int, expected: str | None
) -> None:
    program(programs, "docker", "exit 1")
    program(programs, "podman", f"exit {status}")
    assert wheels.container_engine() == expected


def test_a_version_that_is_not_here_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / ".ci/wheels.py", "wheels", "--python", "2.99", "--out", tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "no Python 2.99 is here: put it on PATH, or into pyenv" in done.stderr


def test_all_that_is_built_has_the_time_of_its_source(
    wheels: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "pyproject.toml"
    project.touch()
    os.utime(project, (1_700_000_000, 1_700_000_000))
    monkeypatch.setattr(wheels, "ROOT", tmp_path)
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    assert wheels.source_date() == "1700000000"
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    assert wheels.source_date() == "1700000000"  # nothing is committed yet
    who = {f"GIT_{role}_{of}": "a" for role in ("AUTHOR", "COMMITTER") for of in ("NAME", "EMAIL")}
    subprocess.run(
        ["git", "-C", tmp_path, "commit", "-q", "--allow-empty", "-m", "a"],
        env={**os.environ, **who, "GIT_COMMITTER_DATE": "1600000000 +0000"},
        check=True,
    )
    assert wheels.source_date() == "1600000000"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1500000000")
    assert wheels.source_date() == "1500000000"


# The bill of materials


def bill_of(folder: Path, extension: Path, include: Path, *compiler: str) -> Any:
    output = folder / "gpuprof.cdx.json"
    command = [sys.executable, ROOT / "src/sbom.py", "--output", output, "--extension", extension]
    command += ["--version", "1.2.3", "--pybind11", "9.8.7", "--include", include]
    subprocess.run([*command, "--", *compiler], check=True)
    return json.loads(output.read_text(encoding="utf-8"))


def versions(bill: Any) -> dict[str, str]:
    return {each["name"]: each["version"] for each in bill["components"]}


def include_folder() -> Path:
    files = metadata.files("nvidia-cuda-runtime") or []
    header = next(each for each in files if each.as_posix().endswith("/include/cuda.h"))
    return Path(str(header.locate())).parent


def extension() -> Path:
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    return Path(str(metadata.distribution("gpuprof").locate_file(f"gpuprof/_core{suffix}")))


def test_a_bill_names_the_headers_by_the_wheels_they_came_from(tmp_path: Path) -> None:
    bill = bill_of(tmp_path, extension(), include_folder(), "c++")
    found = versions(bill)
    assert found["pybind11"] == "9.8.7"
    assert found["cpython"] == ".".join(map(str, sys.version_info[:3]))
    for name in ("nvidia-cuda-runtime", "nvidia-nvtx"):
        assert found[name] == metadata.version(name)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["purl"] == "pkg:pypi/gpuprof@1.2.3"
    references = {each["bom-ref"] for each in bill["components"]}
    assert set(bill["dependencies"][0]["dependsOn"]) == references


def test_headers_of_another_place_have_the_version_that_is_in_them(tmp_path: Path) -> None:
    (tmp_path / "nvtx3").mkdir()
    (tmp_path / "cuda.h").write_text("#define CUDA_VERSION 12090\n", encoding="ascii")
    (tmp_path / "nvtx3/nvToolsExt.h").write_text("#define NVTX_VERSION 3\n", encoding="ascii")
    found = versions(bill_of(tmp_path, extension(), tmp_path, "c++"))
    assert (found["cuda.h"], found["nvToolsExt.h"]) == ("12090", "3")


def test_a_cpp_library_that_is_linked_in_is_listed(tmp_path: Path) -> None:
    looked_up, linked_in = tmp_path / "a.so", tmp_path / "b.so"
    looked_up.write_bytes(b"\x7fELF\0libstdc++.so.6\0")
    linked_in.write_bytes(b"\x7fELF\0libc.so.6\0")
    compiler = program(tmp_path, "compiler", 'echo "#define _LIBCPP_VERSION 210106"')
    assert "libcxx" not in versions(bill_of(tmp_path, looked_up, include_folder(), str(compiler)))
    found = versions(bill_of(tmp_path, linked_in, include_folder(), str(compiler)))
    assert found["libcxx"] == "21.1.6"


def test_the_same_build_writes_the_same_bill(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    first = bill_of(tmp_path, extension(), include_folder(), "c++")
    again = bill_of(tmp_path / "other", extension(), include_folder(), "c++")
    assert first == again
    assert str(tmp_path) not in json.dumps(first)


def test_the_installed_bill_is_of_this_version(
    installed: metadata.Distribution, capsys: pytest.CaptureFixture[str]
) -> None:
    built = json.loads(answer(capsys, "info", "--format", "json")[1])["gpuprof"]
    (path,) = [each for each in installed.files or [] if each.name == "gpuprof.cdx.json"]
    assert path.parent.name == "sboms"
    bill = json.loads(path.locate().read_text(encoding="utf-8"))
    assert bill["metadata"]["component"]["version"] == built["version"]
    found = versions(bill)
    assert found["pybind11"] == built["pybind11"]
    assert found["nvidia-cuda-runtime"].startswith(f"{built['cuda_headers']}.")
    assert {"cpython", "nvidia-nvtx"} <= found.keys()


def write_wheel(path: Path, bill: Any) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("gpuprof-1.dist-info/sboms/gpuprof.cdx.json", json.dumps(bill))
    return path


def test_a_wheel_whose_bill_is_wrong_is_refused(wheels: ModuleType, tmp_path: Path) -> None:
    given = {"pybind11": "3.1.0", "nvidia_cuda_runtime": "13.0.96", "nvidia_nvtx": "13.0.85"}
    for name, version in given.items():
        (tmp_path / f"{name}-{version}-py3-none-any.whl").touch()
    parts = [{"name": name.replace("_", "-"), "version": v} for name, v in given.items()]
    wheels.check_bill(write_wheel(tmp_path / "good.zip", {"components": parts}), tmp_path)
    parts[2]["version"] = "13.0.84"
    with pytest.raises(SystemExit, match=re.escape("says nvidia-nvtx 13.0.84, built with 13.0.85")):
        wheels.check_bill(write_wheel(tmp_path / "bad.zip", {"components": parts}), tmp_path)


def test_two_builds_that_differ_are_refused(wheels: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a.whl").write_bytes(b"one")
    (tmp_path / "b.whl").write_bytes(b"one")
    wheels.same(tmp_path / "a.whl", tmp_path / "b.whl")
    (tmp_path / "b.whl").write_bytes(b"two")
    with pytest.raises(SystemExit, match=r"a\.whl differs from .*b\.whl, the same build again"):
        wheels.same(tmp_path / "a.whl", tmp_path / "b.whl")


# Licences


def test_the_notices_come_with_the_package(installed: metadata.Distribution) -> None:
    licences = {
        path.name: path.locate().read_text(encoding="utf-8")
        for path in installed.files or []
        if path.parent.name == "licenses"
    }
    assert licences == {
        name: (ROOT / name).read_text(encoding="utf-8")
        for name in ("LICENSE", "THIRD_PARTY_LICENSES.txt")
    }


def words(text: str) -> list[str]:
    return re.sub(r"^ ?\*+/?", "", text, flags=re.MULTILINE).split()


def holds(text: list[str], part: list[str]) -> bool:
    return f" {' '.join(part)} " in f" {' '.join(text)} "


@pytest.mark.parametrize("name", ["pybind11", "nvidia-nvtx"])
def test_the_notices_are_those_of_what_is_compiled_in(name: str) -> None:
    texts = [
        path.locate().read_text(encoding="utf-8")
        for path in metadata.files(name) or []
        if path.name.lower() in {"license", "license.txt"} and "dist-info" in path.parts[0]
    ]
    assert len(texts) == 1
    assert holds(words(NOTICES.read_text(encoding="utf-8")), words(texts[0]))


def test_the_notice_of_cuda_is_that_of_its_header() -> None:
    header = (include_folder() / "cuda.h").read_text(encoding="utf-8")
    notice = re.match(r"/\*(.*?)\*/", header, re.DOTALL)
    assert notice is not None
    assert "NOTICE TO LICENSEE" in notice[1]
    assert holds(words(NOTICES.read_text(encoding="utf-8")), words(notice[1]))


# The pins


def test_the_pins_hold_what_the_build_asks_for(wheels: ModuleType) -> None:
    text = (ROOT / ".ci/constraints.txt").read_text(encoding="utf-8")
    pinned = dict(re.findall(r"^([\w-]+)==([\w.]+)$", text, re.MULTILINE))
    needed = {re.sub(r"\[.*", "", name) for name in (*wheels.TOOLS, "cibuildwheel")}
    assert needed <= pinned.keys()
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for name in ("scikit-build-core", "pybind11", "cuda-toolkit"):
        assert name in needed
        assert f'"{name}' in project.partition("[project]")[0]


def test_the_extension_does_not_say_where_it_was_built() -> None:
    content = extension().read_bytes()
    for place in (ROOT, Path.home(), Path(os.path.realpath(sys.prefix))):
        assert os.fsencode(place) + b"/" not in content
