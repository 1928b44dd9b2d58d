"""Build the NVTX tool of the tests with the system's C compiler."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

from tests.fake_driver.build import compiler, run

HERE = Path(__file__).resolve().parent
SOURCE = HERE / "injection.c"
FLAGS = ["-std=gnu11", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-fvisibility=hidden"]
# What the header asks of every tool that stores its callbacks.
FLAGS += ["-Wno-cast-function-type", "-pthread"]
VARIANTS = {
    "plain": [],
    "extension": ["-DWITH_EXTENSION"],
    "refuses": ["-DREFUSES"],
    "no_entry": ["-DNO_ENTRY"],
}


def include_dir() -> Path:
    """Return the folder of NVIDIA's header wheels that has nvtx3/nvToolsExt.h."""
    for place in sys.path:
        for include in Path(place).glob("nvidia/*/include"):
            if (include / "nvtx3" / "nvToolsExt.h").is_file():
                return include
    message = "nvtx3/nvToolsExt.h not found; pip install 'cuda-toolkit[nvtx]==13.0.*'"
    raise RuntimeError(message)


def build(folder: Path, variant: str = "plain") -> Path:
    """Build a variant in `folder`, if that was not done before, and return the library's path."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [compiler("CC", "cc", "gcc", "clang"), *FLAGS, *VARIANTS[variant]]
    command += ["-isystem", str(include_dir()), str(SOURCE)]
    digest = hashlib.sha256(SOURCE.read_bytes() + repr(command).encode()).hexdigest()[:16]
    library = folder / f"libnvtx_{variant}_{digest}.so"
    if library.is_file():
        return library
    unfinished = library.with_suffix(f".{os.getpid()}")
    run([*command, "-o", str(unfinished)])
    unfinished.replace(library)
    return library
