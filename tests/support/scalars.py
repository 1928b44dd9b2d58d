"""What the tests of device scalars know of them."""

from __future__ import annotations

from tests.fake_driver.control import FakeCuda

MS = 1_000_000
WRITES = {
    "int8": "cuMemsetD8Async",
    "float16": "cuMemsetD16Async",
    "float32": "cuMemsetD32Async",
    "float64": "cuStreamWriteValue64_v2",
}
SLOTS = 512  # how many scalars one piece of device memory holds


def number(fake: FakeCuda, address: int, nbytes: int = 4) -> int:
    """Return the integer at an address."""
    return int.from_bytes(fake.read(address, nbytes), "little")
