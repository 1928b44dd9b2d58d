"""Memory of the fake driver, for the tests of graphs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fake_driver.control import FakeCuda


@pytest.fixture
def buffer(fake: FakeCuda) -> Iterator[int]:
    """Device memory for what a kernel would read."""
    address = fake.memory_allocate(256)
    yield address
    fake.memory_free(address)
