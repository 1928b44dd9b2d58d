"""The committed stubs say what the built module and the table of public names are."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STUB = ROOT / "python" / "gpuprof" / "_core.pyi"


def test_stub_is_that_of_the_built_module() -> None:
    made = subprocess.run(
        [sys.executable, ROOT / ".ci" / "stubs.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT / "tests",  # not the root: the installed package is meant, not a folder
        timeout=120,
    )
    hint = "run `python .ci/stubs.py`"
    assert made.returncode == 0, f"{hint}\n{made.stdout}{made.stderr}"


def test_stub_of_the_package_is_that_of_its_table() -> None:
    made = subprocess.run(
        [sys.executable, ROOT / ".ci" / "door_stub.py", "--check"], check=False, timeout=60
    )
    assert made.returncode == 0, "run `python .ci/door_stub.py`"


def test_stub_leaves_nothing_untyped() -> None:
    untyped = []
    for node in ast.walk(ast.parse(STUB.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.FunctionDef):
            continue
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        typed = all(a.annotation for a in arguments if a.arg != "self")
        if node.returns is None or not typed:
            untyped.append(f"{node.name}, line {node.lineno}")
    assert not untyped
