"""The extension's border: objects never initialised, no memory left, bytes that are no text."""

from __future__ import annotations

import gc
import importlib
import os
import pkgutil
import shutil
from pathlib import Path

import pytest

import gpuprof
from gpuprof import _core
from tests.fake_driver.build import compiler, run
from tests.support.processes import check_python

CLASSES = sorted(
    name
    for name, value in vars(_core).items()
    if isinstance(value, type) and value.__module__ in {"gpuprof", "gpuprof._core"}
)

# A process for each class, because a crash ends it.
TRY_ALL = """
import gc, importlib, os
from gpuprof import _core
for module in ("_graphs.graph", "_graphs.device_scalar", "_callable.api"):  # they have subclasses
    importlib.import_module(f"gpuprof.{module}")
calls = [(), (1,), (None, None, None), ("x", {})]

def use(new, kind):
    tried = 0
    for attempt in (repr, hash, str, len, iter, bool, lambda o: o == o, lambda o: o.nothing):
        try:
            attempt(new)
        except Exception:
            pass
    for name in dir(kind):
        if name in {"__class__", "__init_subclass__", "__init__", "__new__"}:
            continue
        tried += 1
        try:
            value = getattr(new, name)
        except Exception:
            continue
        for arguments in calls if callable(value) else ():
            try:
                value(*arguments)
            except Exception:
                pass
    for other in (new, kind.__new__(kind)):
        gc.collect()
        del other
    return tried

def use_all(name):
    classes = [_core.__dict__[name]]
    for each in classes:
        classes += each.__subclasses__()
    tried = refused = 0
    for each in classes:
        try:
            new = each.__new__(each)
        except TypeError:
            refused += 1
            continue
        tried += use(new, each)
        del new
    gc.collect()
    return tried > 10 or refused == len(classes)

for name in NAMES:
    child = os.fork()
    if child == 0:
        sys.exit(0 if use_all(name) else 1)
    if status := os.waitpid(child, 0)[1]:
        print(name, os.waitstatus_to_exitcode(status))
"""


def test_objects_that_were_never_initialised_refuse_and_do_not_crash() -> None:
    assert len(CLASSES) > 20
    assert check_python(TRY_ALL.replace("NAMES", repr(CLASSES)), timeout=120) == ""


@pytest.mark.parametrize("name", ["Annotation", "GraphNode", "Scope", "Timer", "_DeviceScalar"])
def test_an_object_that_was_never_initialised_says_so(name: str) -> None:
    new = _core.__dict__[name].__new__(_core.__dict__[name])
    with pytest.raises(TypeError, match="never initialised"):
        repr(new)


def classes_with_destructors() -> list[type]:
    found: dict[type, None] = {}
    for module in pkgutil.walk_packages(gpuprof.__path__, "gpuprof."):
        if module.name.endswith(("__main__", "._pytest.plugin")):
            continue
        for value in vars(importlib.import_module(module.name)).values():
            if not isinstance(value, type) or value.__module__ not in {"gpuprof", module.name}:
                continue
            if any("__del__" in vars(base) for base in value.__mro__):
                found[value] = None
    return list(found)


# An exception in a destructor is a warning, and warnings fail a test.
@pytest.mark.parametrize("kind", classes_with_destructors(), ids=lambda kind: kind.__name__)
def test_the_destructor_of_an_object_that_was_never_initialised_is_silent(kind: type) -> None:
    new = kind.__new__(kind)
    del new
    gc.collect()


def test_a_pool_with_a_wrong_argument_is_refused_and_no_more() -> None:
    with pytest.raises(TypeError, match="argument"):
        gpuprof.CapturePool(5)  # type: ignore[call-arg]
    gc.collect()


MAKERS = {
    "Timer": "_core.Timer('cpu', None)",
    "Scope": "_core.timer(backend='cpu')",
    "named Scope": "_core.timer(f'step {number}')",
    "Annotation": "_core.annotate(f'range {number}')",
    "GraphNode": "_core.GraphNode(0, 'kernel')",
}


@pytest.fixture(scope="module")
def failing_new(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a library whose ``operator new`` can be made to fail."""
    library = tmp_path_factory.mktemp("failing_new") / "failing_new.so"
    source = Path(__file__).parents[1] / "fixtures" / "failing_new.cpp"
    run([compiler(), "-std=c++17", "-O1", "-shared", "-fPIC", str(source), "-o", str(library)])
    return library


@pytest.mark.parametrize("maker", MAKERS.values(), ids=list(MAKERS))
def test_memory_that_runs_out_as_an_object_is_made_is_a_memory_error(
    maker: str, failing_new: Path
) -> None:
    out = check_python(
        f"""
        import ctypes, gc
        from gpuprof import _core
        fail_at = ctypes.CDLL({str(failing_new)!r}).fail_at
        failed = 0
        for number in range(1, 60):
            fail_at(number)
            try:
                made = {maker}
            except MemoryError:
                failed += 1
            fail_at(0)
            made = None
            gc.collect()
        made = {maker}
        print(0 < failed < 59)
        """,
        LD_PRELOAD=str(failing_new),
    )
    assert out == "True\n"


def test_a_driver_whose_path_is_not_utf_8_is_shown_with_what_can_be_read(
    fake_path: Path, tmp_path: Path
) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    driver = shutil.copy(fake_path, folder / "libcuda.so.1")
    out = check_python(
        """
        import gpuprof
        from gpuprof import _core
        print(gpuprof.cuda_available(), ascii(_core.driver_info()["path"])[-23:])
        print("caf" in gpuprof.backends()["cuda"].reason)
        """,
        driver=driver,
    )
    assert out.splitlines() == ["True caf\\ufffd/libcuda.so.1'", "True"]


def test_a_refusal_that_names_a_path_that_is_not_utf_8_is_a_typed_error(tmp_path: Path) -> None:
    driver = tmp_path / os.fsdecode(b"caf\xe9.so")
    driver.write_bytes(b"no library")
    out = check_python(
        """
        import gpuprof, os, warnings
        try:
            gpuprof.Timer("cuda")
        except gpuprof.errors.CudaUnavailableError as error:
            print("caf\\ufffd.so" in str(error))
        """,
        driver=driver,
    )
    assert out == "True\n"


def test_a_warning_that_names_a_path_that_is_not_utf_8_is_shown(tmp_path: Path) -> None:
    out = check_python(
        """
        import gpuprof, warnings
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            gpuprof.cuda_available()
        print("caf\\ufffd.so is ignored" in str(caught[0].message))
        """,
        driver=tmp_path / os.fsdecode(b"caf\xe9.so"),
    )
    assert out == "True\n"
