"""Write ``python/gpuprof/__init__.pyi`` from the table of names in ``python/gpuprof/__init__.py``.

python .ci/door_stub.py            # write the stub
python .ci/door_stub.py --check    # exit status 1 if the stub is another one
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "python" / "gpuprof"
HEADER = """\
# Made by `python .ci/door_stub.py` from __init__.py: do not edit, run it again.
# ruff: noqa: I001
"""


def render(source: str) -> str:
    """Return the stub of the package whose ``__init__.py`` is `source`."""
    table: dict[str, str] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_NAMES":
            table = ast.literal_eval(node.value)
    lines = [HEADER]
    everyday: list[str] = []
    for module, names in table.items():
        everyday += names.partition("|")[0].split()
        path = f"gpuprof.{module}" if module else "gpuprof"
        public = sorted(names.replace("|", "").split())
        lines += [f"from {path} import {name} as {name}" for name in public]
    lines += ["", "__version__: str", "__all__ = ["]
    lines += [f'    "{name}",' for name in sorted(everyday)]
    lines += ["]", "", "def __dir__() -> list[str]: ...", ""]
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Write or check the stub; return the exit status."""
    stub = PACKAGE / "__init__.pyi"
    made = render((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    if "--check" in arguments:
        return int(stub.read_text(encoding="utf-8") != made)
    stub.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
