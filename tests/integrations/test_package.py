"""What the package imports, and what it says of what is not installed."""

from __future__ import annotations

import re

import pytest

from gpuprof import integrations
from tests.support.processes import check_python

FRAMEWORKS = "lightning pytorch_lightning torch transformers"


def test_importing_all_of_it_imports_no_framework() -> None:
    code = f"""
    import sys
    import gpuprof
    assert "gpuprof.integrations" not in sys.modules
    for name in dir(gpuprof.integrations):
        getattr(gpuprof.integrations, name)
    print(*(name for name in {FRAMEWORKS.split()!r} if name in sys.modules))
    """
    assert not check_python(code).strip()


def test_the_package_says_what_each_module_is_for() -> None:
    assert re.findall(r"^- `(\w+)`: ", integrations.__doc__ or "", re.M) == dir(integrations)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'keras'; it has dataloader, "):
        integrations.keras  # noqa: B018


@pytest.mark.parametrize(
    ("call", "framework", "install"),
    [
        ("lightning.GpuprofCallback()", "lightning", "lightning"),
        ("transformers.GpuprofCallback()", "transformers", "'transformers[torch]'"),
        ("dataloader.waits()", "torch", "torch"),
    ],
)
def test_what_is_not_installed_is_named_with_its_installation(
    call: str, framework: str, install: str
) -> None:
    code = f"""
    import sys
    from importlib.machinery import PathFinder

    class Without(PathFinder):
        @classmethod
        def find_spec(cls, name, path=None, target=None):
            if name.partition(".")[0] in {FRAMEWORKS.split()!r}:
                return None
            return PathFinder.find_spec(name, path, target)
    sys.meta_path[:] = [each if each is not PathFinder else Without for each in sys.meta_path]
    import gpuprof.integrations
    try:
        gpuprof.integrations.{call}
    except ModuleNotFoundError as error:
        print(error.name, "|", error)
    """
    out = check_python(code).strip()
    assert out.startswith(f"{framework}")
    assert out.endswith(f"which is not installed: pip install {install}")
