"""A fake driver of a test's own: what the test resets, nobody else in the process has in use."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.fake_driver.control import FakeCuda


def own_library(built: Path, folder: Path) -> Path:
    """Return a copy in `folder`, which the loader takes for another library."""
    return Path(shutil.copy2(built, folder / built.name))


@contextmanager
def fresh(library: Path) -> Iterator[FakeCuda]:
    """Reset the driver, let its records take no time, and make the primary context current."""
    fake = FakeCuda(library)
    fake.reset()
    fake.configure(record_ns=0)
    fake.use_primary()
    try:
        yield fake
    finally:
        fake.reset()
