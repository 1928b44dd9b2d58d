"""Build the fake CUDA driver with the system's C++ compiler.

``build(folder)`` returns the path of ``libfakecuda.so``; a second call with the same sources,
compiler and flags builds nothing. ``CXX`` names the compiler, ``FAKECUDA_CXXFLAGS`` adds flags.
Where there is a cuda.h, the fake's types and values are checked against it.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
# With line numbers, for what sanitizers report.
FLAGS = ["-std=c++17", "-O1", "-g1", "-fPIC", "-Wall", "-Wextra", "-fvisibility=hidden", "-pthread"]
COMPILE_TIMEOUT = 300


def compiler(variable: str = "CXX", *names: str) -> str:
    """Return the compiler that a variable names, or the first one of some names that there is."""
    named = os.environ.get(variable)
    for name in [named] if named else names or ("g++", "clang++", "c++"):
        if shutil.which(name):
            return name
    message = f"no compiler found ({variable}={named!r}); install g++ or set {variable}"
    raise RuntimeError(message)


def extra_flags() -> list[str]:
    return shlex.split(os.environ.get("FAKECUDA_CXXFLAGS", ""))


def run(command: list[str]) -> None:
    """Run a compiler; its messages become the error."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT, check=False
    )
    if done.returncode != 0:
        message = f"{shlex.join(command)} failed:\n{done.stderr}"
        raise RuntimeError(message)


def cuda_include_dir() -> str | None:
    """Return a folder with cuda.h, to check the fake against, or None if there is none.

    ``FAKECUDA_CUDA_INCLUDE`` names it; else it is that of NVIDIA's header wheels, if installed.
    """
    named = os.environ.get("FAKECUDA_CUDA_INCLUDE")
    wheels = [include for place in sys.path for include in Path(place).glob("nvidia/*/include")]
    for folder in [Path(named)] if named else wheels:
        if (folder / "cuda.h").is_file():
            return str(folder)
    return None


def _fingerprint(include_dir: str | None) -> str:
    digest = hashlib.sha256()
    files = sorted(p for p in HERE.iterdir() if p.suffix in {".cpp", ".h", ".hpp", ".map"})
    for path in files:
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    digest.update(repr([compiler(), FLAGS, extra_flags(), include_dir]).encode())
    return digest.hexdigest()


def compile_together(sources: list[Path], out_dir: Path, flags: list[str]) -> list[str]:
    """Compile half of the sources as one file and half as another, and return the two objects.

    Most of a file's time goes to the headers of the standard library.
    """

    def compile_half(half: int) -> str:
        source, target = out_dir / f"half{half}.cpp", out_dir / f"half{half}.o"
        lines = [f'#include "{path.as_posix()}"\n' for path in sources[half::2]]
        source.write_text("".join(lines), encoding="utf-8")
        run([compiler(), *flags, *extra_flags(), "-c", str(source), "-o", str(target)])
        return str(target)

    with ThreadPoolExecutor(max_workers=2) as pool:
        return list(pool.map(compile_half, range(2)))


def build(out_dir: Path) -> Path:
    """Build the library in `out_dir`, which is made if it does not exist, and return its path."""
    out_dir = Path(out_dir).resolve()
    out_dir.mkdir(parents=True, exist_ok=True)
    library = out_dir / "libfakecuda.so"
    include_dir = cuda_include_dir()
    stamp = out_dir / "fakecuda.stamp"
    fingerprint = _fingerprint(include_dir)
    if library.is_file() and stamp.is_file() and stamp.read_text() == fingerprint:
        return library
    if include_dir is not None:
        source = HERE / "abi_check.cpp"
        run([compiler(), *FLAGS, "-fsyntax-only", "-I", include_dir, str(source)])
    sources = [source for source in sorted(HERE.glob("*.cpp")) if source.stem != "abi_check"]
    objects = compile_together(sources, out_dir, FLAGS)
    version_script = f"-Wl,--version-script={HERE / 'exports.map'}"
    unfinished = library.with_suffix(f".{os.getpid()}")
    command = [compiler(), *FLAGS, *extra_flags(), "-shared", version_script, *objects]
    run([*command, "-o", str(unfinished), "-ldl"])
    # A library that others could write would not be accepted as a driver.
    unfinished.chmod(0o755)
    unfinished.replace(library)
    stamp.write_text(fingerprint)
    return library


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: build.py OUT_DIR")
    print(build(Path(sys.argv[1])))
