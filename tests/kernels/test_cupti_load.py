"""Which CUPTI is opened, and what is said where there is none that can be used.

CUPTI is chosen once for a process, so each test has one of its own.
"""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.fake_cupti.build import cached
from tests.support.processes import check_python

_PREAMBLE = """
import json, os, sys
import gpuprof
from gpuprof import _core
from tests.fake_cupti.control import DRIVER_CALLS, RUNTIME_CALLS, FakeCupti
from tests.fake_cupti import control
from tests.support.cupti import collected
paths = json.loads(os.environ["PATHS"])

def refused(*arguments):
    try:
        _core._cupti_load(*arguments)
    except gpuprof.CudaUnavailableError as error:
        return str(error)
    raise AssertionError("it was taken")
"""


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder that hides this machine's toolkit: what the loader finds first is no library."""
    folder = tmp_path / "loader"
    folder.mkdir()
    for name in ("libcupti.so.13", "libcupti.so.12", "libcupti.so"):
        (folder / name).write_text("no library")
    (tmp_path / "toolkit").mkdir()
    return tmp_path


def check(folder: Path, body: str, *paths: Path | str, **variables: str) -> str:
    """Run `body` where no CUPTI is found but at `paths` and what `variables` say."""
    options: dict[str, Any] = {
        "PATHS": json.dumps([str(path) for path in paths]),
        "LD_LIBRARY_PATH": str(folder / "loader"),
        "CUDA_HOME": str(folder / "toolkit"),
        "CUDA_PATH": "",
        **variables,
    }
    return check_python(_PREAMBLE + textwrap.dedent(body), **options)


def test_where_there_is_none_it_says_what_was_tried_and_what_to_do(elsewhere: Path) -> None:
    text = """
    said = refused(paths)
    assert "pip install nvidia-cuda-cupti" in said, said
    assert paths[0] in said, said
    for part in ("toolkit/extras/CUPTI/lib64", "libcupti.so.12"):
        assert part in said, said
    assert not _core._cupti_is_collecting()
    try:
        _core._cupti_start(10, paths)
    except gpuprof.CudaUnavailableError as error:
        assert "pip install" in str(error)
    else:
        raise AssertionError("it started")
    """
    check(elsewhere, text, elsewhere / "absent" / "libcupti.so.13")


def test_the_first_candidate_that_can_be_used_is_taken(
    elsewhere: Path, pytestconfig: pytest.Config
) -> None:
    good = cached(pytestconfig)
    text = """
    found = _core._cupti_load(paths)
    assert found == {"version": 130001, "path": paths[2]}, found
    assert _core._cupti_load([]) == found
    with collected(paths=[]) as seen:
        pass
    assert seen.plain["path"] == paths[2]
    """
    check(elsewhere, text, elsewhere / "absent.so", elsewhere / "loader" / "libcupti.so", good)


@pytest.mark.parametrize("variable", ["CUDA_HOME", "CUDA_PATH"])
def test_the_toolkit_is_found(elsewhere: Path, pytestconfig: pytest.Config, variable: str) -> None:
    folder = elsewhere / "own" / "extras" / "CUPTI" / "lib64"
    folder.mkdir(parents=True)
    (folder / "libcupti.so.13").symlink_to(cached(pytestconfig))
    text = "assert 'extras/CUPTI/lib64' in _core._cupti_load([])['path']"
    check(elsewhere, text, **{variable: str(elsewhere / "own")})


def test_the_loaders_own_search_comes_last(elsewhere: Path, pytestconfig: pytest.Config) -> None:
    folder = cached(pytestconfig).parent
    text = "assert _core._cupti_load([])['path'] == 'libcupti.so.13'"
    check(elsewhere, text, LD_LIBRARY_PATH=str(folder))


def test_one_that_is_in_the_process_is_taken(elsewhere: Path, pytestconfig: pytest.Config) -> None:
    text = """
    import ctypes
    ctypes.CDLL(paths[0])
    assert _core._cupti_load([paths[1]])["path"] == paths[0]
    """
    check(elsewhere, text, cached(pytestconfig), cached(pytestconfig, "13.5"))


def test_beside_one_that_cannot_be_used_no_other_is_opened(
    elsewhere: Path, pytestconfig: pytest.Config
) -> None:
    text = """
    import ctypes
    ctypes.CDLL(paths[0])
    said = refused([paths[1]])
    assert "loaded in this process cannot be used" in said and "too old" in said, said
    """
    check(elsewhere, text, cached(pytestconfig, "11.0"), cached(pytestconfig))


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("17", "is too old: version 17; gpuprof needs CUPTI of CUDA 12.0 (version 18) or later"),
        ("140000", "is too new: it is CUPTI 14.0 (version 140000)"),
        ("139999", None),
        ("28", None),
        ("18", None),
    ],
)
def test_versions(
    elsewhere: Path, pytestconfig: pytest.Config, version: str, said: str | None
) -> None:
    text = "print(refused(paths))" if said else "print(_core._cupti_load(paths)['version'])"
    printed = check(elsewhere, text, cached(pytestconfig), FAKECUPTI_VERSION=version)
    assert (said or version) in printed


def test_a_library_without_a_function_is_too_old(
    elsewhere: Path, pytestconfig: pytest.Config
) -> None:
    printed = check(elsewhere, "print(refused(paths))", cached(pytestconfig, "11.0"))
    assert "has no cuptiGetGraphNodeId; gpuprof needs CUPTI of CUDA 12.0" in printed


def test_another_library_is_no_cupti(elsewhere: Path, fake_path: Path) -> None:
    printed = check(elsewhere, "print(refused(paths))", fake_path)
    assert "is no CUPTI: it has no cuptiGetVersion" in printed


def test_a_driver_for_cuda_12_needs_a_cupti_for_it(
    elsewhere: Path, pytestconfig: pytest.Config, fake_path: Path
) -> None:
    text = """
    from tests.fake_driver.control import FakeCuda
    FakeCuda(os.environ["GPUPROF_CUDA_DRIVER"]).configure(driver_version=12040)
    said = refused(paths)
    assert "needs a driver for CUDA 13, and this one supports CUDA 12.4" in said, said
    assert "nvidia-cuda-cupti-cu12" in said, said
    """
    check(elsewhere, text, cached(pytestconfig), GPUPROF_CUDA_DRIVER=str(fake_path))


def test_one_that_can_tell_says_that_another_tool_collects(
    elsewhere: Path, pytestconfig: pytest.Config
) -> None:
    text = """
    cupti = FakeCupti(paths[0])
    cupti.other_tool(True)
    cupti.kernel("theirs")
    try:
        _core._cupti_start(10, paths)
    except gpuprof.CudaUnavailableError as error:
        assert "another tool of this process collects through CUPTI now" in str(error), error
    else:
        raise AssertionError("it started")
    cupti.kernel("theirs")
    cupti.other_tool(False)
    assert cupti.get("other_records") == 2
    with collected(paths=paths) as seen:
        cupti.kernel("ours")
    assert len(seen.activities) == 1
    """
    check(elsewhere, text, cached(pytestconfig, "13.5"))


def test_records_that_are_too_short_are_refused(
    elsewhere: Path, pytestconfig: pytest.Config
) -> None:
    text = """
    cupti = FakeCupti(paths[0])
    cupti.set("struct_bytes", 100)
    try:
        _core._cupti_start(10, paths)
    except gpuprof.CudaUnavailableError as error:
        assert "records that this gpuprof does not know: kind 10 has 100 bytes" in str(error), error
    else:
        raise AssertionError("it started")
    assert cupti.get("kinds") == 0
    """
    check(elsewhere, text, cached(pytestconfig, "13.5"))


def test_an_open_collection_does_not_keep_a_process_from_ending(
    elsewhere: Path, pytestconfig: pytest.Config
) -> None:
    text = """
    cupti = FakeCupti(paths[0])
    cupti.set("own_thread", 1)
    _core._cupti_start(10, paths)
    cupti.kernel("a", times=6000)
    import atexit, ctypes
    atexit.register(cupti.flush)
    """
    check(elsewhere, text, cached(pytestconfig))
