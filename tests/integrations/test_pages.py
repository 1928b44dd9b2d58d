"""The scripts of the pages on integrations run and print what the pages show."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.docs.test_docs import PAGES, check_scripts, name_of
from tests.support.processes import check_python

MODULES = {"jax": "JAX", "ray": "Ray"}


def scripts() -> list[tuple[str, Path]]:
    return [
        (module, page)
        for module in MODULES
        for page in PAGES
        if mark(module) in page.read_text(encoding="utf-8")
    ]


def mark(module: str) -> str:
    return f"<!-- example: run with {module} -->\n"


@pytest.mark.parametrize(("module", "page"), scripts(), ids=lambda value: str(value).split("/")[-1])
def test_marked_scripts_run_and_print_what_the_page_shows(
    module: str, page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # else Ray writes a token into the home folder
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{MODULES[module]} is not installed")
    check_scripts(page, mark(module))


def test_there_are_scripts() -> None:
    assert {module for module, _ in scripts()} == MODULES.keys()
    assert name_of(scripts()[0][1]) == "docs/integrations/jax.md"


def test_importing_an_integration_imports_no_library() -> None:
    check_python("""
import sys
import gpuprof.integrations.decode, gpuprof.integrations.jax, gpuprof.integrations.ray
assert not {"cupy", "jax", "numba", "ray", "torch"} & {*sys.modules}
""")
