"""Build the conformance program with the system's C++ compiler; CUDA's headers are not needed."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.fake_driver.build import compiler, extra_flags, run

HERE = Path(__file__).resolve().parent
FLAGS = ["-std=c++17", "-O1", "-g", "-Wall", "-Wextra", "-pthread"]


def build(out_dir: Path) -> Path:
    """Compile and link the program in `out_dir` and return its path."""
    out_dir = Path(out_dir).resolve()
    out_dir.mkdir(parents=True, exist_ok=True)

    def compile_one(source: Path) -> str:
        target = out_dir / f"{source.stem}.o"
        run([compiler(), *FLAGS, *extra_flags(), "-c", str(source), "-o", str(target)])
        return str(target)

    with ThreadPoolExecutor(max_workers=2) as pool:
        objects = list(pool.map(compile_one, sorted(HERE.glob("*.cpp"))))
    program = out_dir / "conformance"
    run([compiler(), *FLAGS, *extra_flags(), *objects, "-o", str(program), "-ldl"])
    return program


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: build.py OUT_DIR")
    print(build(Path(sys.argv[1])))
