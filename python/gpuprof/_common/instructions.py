"""How many instructions a call takes on the CPU, as plain data, or why that is not known.

They are those that the CPU's counter saw retired in user space, by the calling thread and by the
threads and processes that it starts meanwhile. Threads that were there before, as in the pools of
torch and of BLAS libraries, are not in it.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType

from gpuprof._common import checks
from gpuprof._common.quantiles import quantile
from gpuprof._common.records import Record, each_of, in_results
from gpuprof._common.units import percent

PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
ALLOWED_PARANOID = 2  # up to which the system lets anybody count in user space
_MOST = 1e18


@in_results
@dataclass(frozen=True)
class Instructions(Record):
    """The instructions that a call takes on the CPU.

    Attributes
    ----------
    per_call : tuple of float
        How many a call took, sample by sample. Empty if they were not counted.
    reason : str
        Why they were not counted; empty if they were.
    """

    per_call: tuple[float, ...] = ()
    reason: str = ""

    _CHECKS = MappingProxyType(
        {
            "per_call": each_of(partial(checks.number, least=0, most=_MOST)),
            "reason": checks.text,
        }
    )

    @cached_property
    def median(self) -> float | None:
        """The median; None if they were not counted."""
        return quantile(self.per_call, 0.5) if self.per_call else None

    @cached_property
    def spread(self) -> float | None:
        """Half the distance of the quartiles over the median; None if they were not counted."""
        if not self.median:
            return None
        low, high = (quantile(self.per_call, share) for share in (0.25, 0.75))
        return (high - low) / 2 / self.median

    def __str__(self) -> str:
        if self.median is None:
            return f"not counted: {self.reason}"
        return f"{amount(self.median)} (± {percent(self.spread or 0.0, 2)})"


def amount(count: float) -> str:
    """Write a number of instructions, such as ``1.23 M``."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count:.4g}"


def reason_of(error: int, paranoid: Path = PARANOID) -> str:
    """Say why a counter could not be opened, and what to do, from the error's number."""
    name = errno.errorcode.get(error, f"error {error}")
    if error == errno.ENOSYS:
        return f"{name}: this system has no perf_event_open, as in a sandbox such as gVisor"
    if error in {errno.EPERM, errno.EACCES}:
        return f"{name}: {_not_permitted(paranoid)}"
    if error in {errno.ENOENT, errno.EOPNOTSUPP, errno.ENODEV}:
        return (
            f"{name}: there is no hardware counter of instructions; a virtual machine has one only "
            "if its host passes it on"
        )
    if error == errno.EMFILE:
        return f"{name}: the process has too many open files"
    return f"{name}: perf_event_open failed: {os.strerror(error)}"


def _not_permitted(paranoid: Path) -> str:
    try:
        level: int | None = int(paranoid.read_text(encoding="ascii"))
    except (OSError, ValueError):
        level = None
    if level is not None and level > ALLOWED_PARANOID:
        return (
            f"perf_event_paranoid is {level}, and counting in user space takes {ALLOWED_PARANOID} "
            f"or less: sudo sysctl kernel.perf_event_paranoid={ALLOWED_PARANOID}"
        )
    known = "" if level is None else f" although perf_event_paranoid is {level}"
    return (
        f"perf_event_open is not permitted{known}: a container's seccomp profile forbids it; start "
        "it with --cap-add PERFMON, or a profile that allows perf_event_open"
    )
