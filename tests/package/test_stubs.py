"""The installed type stubs say what the built module and the table of public names are."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import gpuprof

ROOT = Path(__file__).resolve().parents[2]
INSTALLED = Path(str(gpuprof.__file__)).parent
STUBS = ("_core.pyi", "__init__.pyi")


def test_the_stubs_are_those_of_the_installed_module(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, ROOT / ".ci" / "stubs.py", "--output", tmp_path],
        check=True,
        cwd=ROOT / "tests",  # not the root: the installed package is meant, not a folder
        timeout=120,
    )
    for name in STUBS:
        made = (tmp_path / name).read_text(encoding="utf-8")
        assert (INSTALLED / name).read_text(encoding="utf-8") == made, name


def test_the_stub_of_the_package_names_what_is_public() -> None:
    tree = ast.parse((INSTALLED / "__init__.pyi").read_text(encoding="utf-8"))
    imported = {
        alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert imported == set(gpuprof._MODULE_OF)
    (everyday,) = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    assert everyday == sorted(gpuprof.__all__)


def test_stub_leaves_nothing_untyped() -> None:
    untyped = []
    for node in ast.walk(ast.parse((INSTALLED / "_core.pyi").read_text(encoding="utf-8"))):
        if not isinstance(node, ast.FunctionDef):
            continue
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        typed = all(a.annotation for a in arguments if a.arg != "self")
        if node.returns is None or not typed:
            untyped.append(f"{node.name}, line {node.lineno}")
    assert not untyped
