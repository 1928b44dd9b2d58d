"""`gpuprof.compat` is called as the packages are that it stands for."""

from __future__ import annotations

import functools
import importlib
import inspect
import subprocess
import sys
from typing import Any

import pytest

from tests.compat.signatures import STORED, Signature, signature_of
from tests.support.processes import check_python


def find(where: str) -> Any:
    module, _, path = where.partition(":")
    return functools.reduce(getattr, path.split("."), importlib.import_module(module))


def ours(name: str) -> Any:
    return find(f"gpuprof.compat.{name}")


@pytest.mark.parametrize("name", STORED)
def test_the_signature_is_that_of_the_package(name: str) -> None:
    _, stored = STORED[name]
    assert signature_of(ours(name)) == stored


def installed(where: str) -> Signature | None:
    """Return the signature of an original; None where it has none, as some extensions."""
    try:
        return signature_of(find(where))
    except (AttributeError, ValueError):
        return None


def differences(module: str) -> list[str]:
    """Return which stored signatures of a package are not those of the installed one."""
    found = []
    for name, (where, stored) in STORED.items():
        if where.partition(":")[0].partition(".")[0] != module:
            continue
        there = installed(where)
        # An older release may lack the newest parameters, which are the last ones.
        if there is not None and there != stored[: len(there)] and not hides_arguments(there):
            found.append(f"{name}: {there}")
    return found


def hides_arguments(signature: Signature) -> bool:
    """Return whether all is ``*args, **kwargs``, as in some classes of extensions."""
    return bool(signature) and all(kind.startswith("VAR_") for _, kind, _ in signature)


@pytest.mark.parametrize("module", ["triton", "torch", "nvtx"])
def test_the_stored_signatures_are_those_of_the_installed_package(module: str) -> None:
    pytest.importorskip(module, reason="the original package is not installed")
    assert not differences(module)


def test_a_changed_parameter_would_be_found() -> None:
    def do_bench(fn: object, warmup: int = 20) -> None: ...

    _, stored = STORED["triton:do_bench"]
    assert signature_of(do_bench) != stored[:2]


def test_importing_the_door_imports_no_peer_and_no_module_of_its_own() -> None:
    check_python(
        """
        import sys
        import gpuprof.compat
        loaded = {name for name in sys.modules if name.startswith("gpuprof.compat.")}
        assert not loaded, loaded
        gpuprof.compat.do_bench, gpuprof.compat.Event
        gpuprof.compat.nvtx.annotate
        peers = {"triton", "torch", "nvtx", "matplotlib", "numpy"} & {*sys.modules}
        assert not peers, peers
        """
    )


def test_every_name_of_the_door_is_there_and_another_is_an_error_that_lists_them() -> None:
    import gpuprof.compat

    for name in gpuprof.compat.__all__:
        assert getattr(gpuprof.compat, name) is not None
    assert dir(gpuprof.compat) == gpuprof.compat.__all__
    with pytest.raises(AttributeError, match=r"no attribute 'dobench'; it has .*do_bench"):
        gpuprof.compat.dobench  # noqa: B018


@pytest.mark.parametrize("module", ["triton", "torch", "torch_nvtx", "nvtx"])
def test_each_module_lists_what_it_has_and_documents_it(module: str) -> None:
    found = importlib.import_module(f"gpuprof.compat.{module}")
    for name in found.__all__:
        value = getattr(found, name)
        assert inspect.getdoc(value), name


def test_a_script_that_imports_from_a_module_of_compat_runs() -> None:
    code = "from gpuprof.compat.nvtx import annotate\nwith annotate('x'):\n    print('in it')"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "in it\n", "")
