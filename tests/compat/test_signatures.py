"""`gpuprof.compat` is called as the packages are that it stands for."""

from __future__ import annotations

import functools
import importlib
import inspect
from typing import Any

import pytest

from tests.compat.signatures import ORIGINALS, STORED, Parameters, parameters_of, stored
from tests.support.processes import check_python


def find(where: str) -> Any:
    module, _, path = where.partition(":")
    return functools.reduce(getattr, path.split("."), importlib.import_module(module))


def ours(name: str) -> Any:
    return find(f"gpuprof.compat.{name}")


@pytest.mark.parametrize("name", STORED)
def test_the_signature_is_that_of_the_package(name: str) -> None:
    assert parameters_of(ours(name)) == stored(name)


def installed(name: str) -> Parameters | None:
    """Return the parameters of an original; None where it tells none, as some extensions."""
    module, _, path = name.partition(":")
    try:
        return parameters_of(find(f"{ORIGINALS[module]}:{path}"))
    except (AttributeError, ValueError):
        return None


def hides_arguments(parameters: Parameters) -> bool:
    """Return whether all is ``*args, **kwargs``, as in some classes of extensions."""
    return bool(parameters) and all(kind.startswith("VAR_") for _, kind, _ in parameters)


@pytest.mark.parametrize("name", STORED)
def test_the_stored_signature_is_that_of_the_installed_package(name: str) -> None:
    package = ORIGINALS[name.partition(":")[0]].partition(".")[0]
    pytest.importorskip(package, reason="the original package is not installed")
    there = installed(name)
    if there is not None and not hides_arguments(there):
        # An older release may lack the newest parameters, which are the last ones.
        assert there == stored(name)[: len(there)]


def test_importing_the_door_imports_no_peer_and_no_module_of_its_own() -> None:
    check_python("""
        import sys
        import gpuprof.compat
        loaded = {name for name in sys.modules if name.startswith("gpuprof.compat.")}
        assert not loaded, loaded
        gpuprof.compat.do_bench, gpuprof.compat.Event
        gpuprof.compat.nvtx.annotate
        peers = {"triton", "torch", "nvtx", "matplotlib", "numpy"} & {*sys.modules}
        assert not peers, peers
        """)


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
    assert check_python(code, PYTHONWARNINGS="error") == "in it\n"
