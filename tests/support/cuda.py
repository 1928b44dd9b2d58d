"""What tests on the fake driver share: a context as a framework leaves it, and the books."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gpuprof
from tests.fake_driver.control import FakeCuda
from tests.support.held import release_idle

# gpuprof looks once a millisecond for a driver that somebody else initialised.
_LOOK_EVERY_S = 0.002


class Spared:
    """The driver for calls that are not to be counted, nor to fail."""

    def __init__(self, fake: FakeCuda) -> None:
        self._fake = fake

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._fake, name)

        def spared(*arguments: Any, **options: Any) -> Any:
            with self._fake.spared():
                return method(*arguments, **options)

        return spared


def kinds_alive(fake: FakeCuda) -> dict[str, object]:
    """Return what is alive in the fake driver, by kind, without what is not there."""
    live = fake.report()["live"]
    return {kind: handles for kind, handles in live.items() if handles}


@contextmanager
def primary_context(path: Path) -> Iterator[FakeCuda]:
    """Make a primary context current, and check on the way out that gpuprof left nothing behind."""
    fake = FakeCuda(path)
    fake.script("")
    fake.configure("mode=auto;record_ns=1280;call_ns=1000")
    fake.use_primary()
    time.sleep(_LOOK_EVERY_S)
    try:
        yield fake
        fake.script("")
        gpuprof.flush()
        assert fake.exchange_mode(0) == 0, "the thread's capture mode was not put back"
        assert fake.report()["context_depth"] == 1, "a context was left pushed"
    finally:
        fake.script("")
        release_idle()
        fake.set_current(0)
        fake.primary_release()


def assert_nothing_alive(fake: FakeCuda) -> None:
    """Check that every handle was given back, once the context has been let go."""
    assert kinds_alive(fake) == {}
