"""Streams and memory of the fake driver, for the tests of graphs that make none of their own."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tests.fake_driver.control import FakeCuda


@pytest.fixture
def stream(fake: FakeCuda) -> Iterator[int]:
    handle = fake.stream_create()
    yield handle
    gc.collect()
    fake.stream_destroy(handle)


@pytest.fixture
def other(fake: FakeCuda) -> Iterator[int]:
    handle = fake.stream_create()
    yield handle
    gc.collect()
    fake.stream_destroy(handle)


@pytest.fixture
def buffer(fake: FakeCuda) -> Iterator[int]:
    """Device memory for what a kernel would read."""
    address = fake.memory_allocate(256)
    yield address
    fake.memory_free(address)
