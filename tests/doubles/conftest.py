"""A fake driver of each module's own, fresh for every test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fake_driver.control import FakeCuda
from tests.fake_driver.own import fresh, own_library


@pytest.fixture(scope="module")
def library(fake_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return own_library(fake_path, tmp_path_factory.mktemp("fake_driver"))


@pytest.fixture
def driver(library: Path) -> Iterator[FakeCuda]:
    with fresh(library) as fake:
        yield fake


@pytest.fixture
def stream(driver: FakeCuda) -> int:
    return driver.stream_create()
