"""Build the fake CUPTI with the system's C++ compiler, as tests/fake_driver builds its driver."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from tests.fake_driver.build import FLAGS, compiler, extra_flags, run

HERE = Path(__file__).resolve().parent

# What versions of CUPTI differ in, for gpuprof.
VARIANTS = {
    "13.0": [],
    "13.5": ["-DFAKECUPTI_WITH_QUESTIONS"],
    "11.0": ["-DFAKECUPTI_WITHOUT_NODE_IDS"],
}


def cached(config: Any, variant: str = "13.0") -> Path:
    """Return the variant's library, built in the cache of a pytest run."""
    cache = getattr(config, "cache", None)  # absent with -p no:cacheprovider
    return build(Path(cache.mkdir("fake_cupti")) if cache else Path("build/fake_cupti"), variant)


def build(out_dir: Path, variant: str = "13.0") -> Path:
    """Build ``libcupti.so.13`` in a folder of `out_dir` for the variant, and return its path.

    A second call with the same source, compiler and flags builds nothing.
    """
    folder = Path(out_dir).resolve() / variant
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "libcupti.so.13"
    flags = [*FLAGS, *extra_flags(), *VARIANTS[variant]]
    sources = sorted(HERE.glob("*.cpp"))
    texts = b"".join(path.read_bytes() for path in [*sources, HERE / "world.hpp"])
    digest = hashlib.sha256(texts + repr([compiler(), flags]).encode()).hexdigest()
    stamp = folder / "fakecupti.stamp"
    if library.is_file() and stamp.is_file() and stamp.read_text() == digest:
        return library
    unfinished = library.with_suffix(f".{os.getpid()}")
    # As one file, for most of a file's time goes to the headers of the standard library.
    together = folder / f"together.{os.getpid()}.cpp"
    together.write_text("".join(f'#include "{path.as_posix()}"\n' for path in sources))
    run([compiler(), *flags, "-shared", str(together), "-o", str(unfinished)])
    together.unlink()
    unfinished.replace(library)
    stamp.write_text(digest)
    return library
