"""Build the conformance program with the system's C++ compiler; CUDA's headers are not needed."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.fake_driver.build import compile_together, compiler, extra_flags, run

HERE = Path(__file__).resolve().parent
FLAGS = ["-std=c++17", "-O1", "-g1", "-Wall", "-Wextra", "-pthread"]


def build(out_dir: Path) -> Path:
    """Compile and link the program in `out_dir` and return its path."""
    out_dir = Path(out_dir).resolve()
    out_dir.mkdir(parents=True, exist_ok=True)
    objects = compile_together(sorted(HERE.glob("*.cpp")), out_dir, FLAGS)
    program = out_dir / "conformance"
    run([compiler(), *FLAGS, *extra_flags(), *objects, "-o", str(program), "-ldl"])
    return program


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: build.py OUT_DIR")
    print(build(Path(sys.argv[1])))
