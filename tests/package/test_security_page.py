"""SECURITY.md names whatever the code reads of the environment."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "SECURITY.md"
CPP_READS = re.compile(r'\b(?:getenv|secure_getenv|secure_environment)\("(\w+)"\)')
CPP_NAMES = re.compile(r'"(GPUPROF_[A-Z_]+|CUDA_[A-Z]+)"')


def is_environment(node: ast.expr) -> bool:
    return ast.unparse(node) in {"os.environ", "environ", "os.getenv"}


def python_reads(source: str) -> set[str]:
    """Return the variables that are read by name, and texts that look like gpuprof's."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Constant(value=str(text)) if re.fullmatch(r"GPUPROF_[A-Z_]+", text):
                found.add(text)
            case ast.Call(func=ast.Attribute(value=of, attr="get" | "pop"), args=[key, *_]) | (
                ast.Subscript(value=of, slice=key)
            ) if is_environment(of) and isinstance(key, ast.Constant):
                found.add(str(key.value))
            case ast.Call(func=of, args=[ast.Constant(value=str(text)), *_]) if is_environment(of):
                found.add(text)
            case _:
                pass
    return found


def cpp_reads(source: str) -> set[str]:
    if not re.search("getenv|secure_environment|is_set", source):
        return set()
    return {*CPP_READS.findall(source), *CPP_NAMES.findall(source)}


def test_reads_are_found() -> None:
    source = "import os\nos.environ.get('A')\nos.environ['B']\nos.getenv('C')\n_D = 'GPUPROF_D'\n"
    assert python_reads(source) == {"A", "B", "C", "GPUPROF_D"}
    assert cpp_reads('x = getenv("A"); for (n : {"CUDA_HOME"})') == {"A", "CUDA_HOME"}
    assert not cpp_reads('#define X "CUDA_HOME"')


def test_the_page_names_every_variable_that_is_read() -> None:
    read: dict[str, str] = {}
    for path in (ROOT / "python/gpuprof").rglob("*.py"):
        read |= dict.fromkeys(python_reads(path.read_text(encoding="utf-8")), path.name)
    for path in (ROOT / "src").rglob("*.cpp"):
        read |= dict.fromkeys(cpp_reads(path.read_text(encoding="utf-8")), path.name)
    assert {"GPUPROF_CUDA_DRIVER", "CUDA_HOME", "TERM"} <= read.keys()
    page = PAGE.read_text(encoding="utf-8")
    assert not {name: where for name, where in read.items() if name not in page}
