"""Streams and memory of the fake driver, for the tests of graphs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fake_driver.control import FakeCuda
from tests.support.captures import usable_stream


@pytest.fixture
def stream(fake: FakeCuda) -> Iterator[int]:
    """A stream that must be usable afterwards."""
    with usable_stream(fake) as made:
        yield made


@pytest.fixture
def other(fake: FakeCuda) -> Iterator[int]:
    """Another stream that must be usable afterwards."""
    with usable_stream(fake) as made:
        yield made


@pytest.fixture
def buffer(fake: FakeCuda) -> Iterator[int]:
    """Device memory for what a kernel would read."""
    address = fake.memory_allocate(256)
    yield address
    fake.memory_free(address)
