"""Which clocks there are, and why not."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import gpuprof._core as _core
from gpuprof._common import checks
from gpuprof._common.records import Record
from gpuprof._common.text import clean_text
from gpuprof._display.shown import Shown
from gpuprof._frameworks import loaded
from gpuprof.errors import GpuprofError

if TYPE_CHECKING:
    from gpuprof._display.table import Table

NAMES = ("auto", "cuda", "cpu", "metal")
_OTHER_WORDS = {"gpu": "cuda", "nvidia": "cuda", "host": "cpu", "mps": "metal", "apple": "metal"}


@dataclass(frozen=True)
class Backend(Record):
    """Whether a clock can be used here.

    Attributes
    ----------
    available : bool
    reason : str
        What it is, or why it is not available.
    """

    __module__ = "gpuprof"

    available: bool
    reason: str


class SyncBackend:
    """A clock for any device that can be waited for: synchronise, read the clock, body, the same.

    Parameters
    ----------
    name : str
        Names the clock in samples and statistics.
    synchronize : callable
        Takes no arguments and returns when the device has done all work given to it.

    Raises
    ------
    TypeError, ValueError
        `name` is no text or taken by another clock, or `synchronize` is no function.

    Notes
    -----
    Unlike CUDA events this makes the program wait at every enter and exit.

    Examples
    --------
    >>> backend = SyncBackend("tpu", lambda: None)
    >>> with gpuprof.timer("step", backend=backend) as sample:
    ...     pass
    >>> sample.clock
    'tpu'
    """

    __module__ = "gpuprof"

    def __init__(self, name: str, synchronize: Callable[[], object]) -> None:
        if checks.text("name", name, empty=False) in {"auto", "cuda", "cpu"}:
            raise checks.value_error(name, "name", "a str other than 'auto', 'cuda' and 'cpu'")
        self.name = clean_text(name)
        self.synchronize = checks.function("synchronize", synchronize)

    def __repr__(self) -> str:
        return f"SyncBackend({self.name!r}, {self.synchronize!r})"


BackendLike: TypeAlias = "str | SyncBackend"


def resolve(backend: object) -> str | SyncBackend:
    """Check a ``backend=`` argument and return what `_core` takes; raises where it is missing."""
    if isinstance(backend, SyncBackend):
        return backend
    expected = f"one of {NAMES} or a SyncBackend"
    if not isinstance(backend, str):
        raise checks.type_error(backend, "backend", expected)
    if backend == "cuda":
        _core.require_cuda()
    if backend == "metal":
        if reason := _metal_reason():
            message = f"backend 'metal' is not available: {reason}"
            raise GpuprofError(message)
        import torch

        return SyncBackend("metal", torch.mps.synchronize)
    if backend not in NAMES:
        other = _OTHER_WORDS.get(backend.lower())
        near = [other] if other else difflib.get_close_matches(backend, NAMES, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        message = f"{checks.value_error(backend, 'backend', expected)}{hint}"
        raise ValueError(message)
    return backend


def _metal_reason() -> str:
    """Return why Metal cannot be used, or an empty text. Imports torch only where it may help."""
    if sys.platform != "darwin" and loaded.torch() is None:
        return "Metal needs macOS"
    try:
        import torch

        available = torch.backends.mps.is_available()
    except ImportError:
        return "Metal is reached through torch, and torch is not installed"
    except Exception as error:  # a stub in its place, or a torch that is imported half
        return f"torch cannot be asked for Metal: {type(error).__name__}: {error}"
    if available is not True:
        return "torch.backends.mps.is_available() is False"
    return ""


class _Backends(Shown, Mapping[str, Backend]):
    def __init__(self, found: dict[str, Backend]) -> None:
        self._found = found

    def __getitem__(self, name: str) -> Backend:
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def _table(self) -> Table:
        from gpuprof._display.table import Table

        lines = [
            {"clock": name, "available": "yes" if each.available else "no", "reason": each.reason}
            for name, each in self.items()
        ]
        return Table.of(lines, left={"clock", "available", "reason"})


def backends() -> Mapping[str, Backend]:
    """Return the clocks by name, each with whether and why it is available, shown as a table.

    Initialises CUDA if there is a driver.
    """
    driver = _core.driver_info()
    available = bool(driver["available"])
    version = driver["version"] or 0
    loaded = f"{driver['path']}, CUDA {version // 1000}.{version % 1000 // 10}"
    metal = _metal_reason()
    return _Backends(
        {
            "cuda": Backend(available, loaded if available else driver["reason"]),
            "cpu": Backend(True, "the monotonic clock"),
            "metal": Backend(not metal, metal or "torch.mps"),
        }
    )


def cuda_available() -> bool:
    """Return whether there is a CUDA driver with a device. Initialises CUDA if so."""
    return bool(_core.driver_info()["available"])
