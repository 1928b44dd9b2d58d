"""The CPU's counter of retired instructions, through Linux' perf_event_open.

It counts user space alone: of the thread that opens it, and of the threads and processes that it
starts from then on. The kernel counts; between two readings there is no code of ours. Elsewhere
than on Linux, and where the system does not allow it, opening fails with an error's number.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys

_CALLS = {"x86_64": 298, "aarch64": 241}  # the numbers of perf_event_open
_ATTRIBUTES = struct.Struct("=IIQQQQQIIQ")  # perf_event_attr, as far as its first version goes
_READING = struct.Struct("=QQQ")
_INSTRUCTIONS = (0, 1)  # type and number of the event: PERF_TYPE_HARDWARE
_TASK_CLOCK = (1, 1)  # PERF_TYPE_SOFTWARE
_ENABLED_AND_RUNNING = 1 | 2  # PERF_FORMAT_TOTAL_TIME_ENABLED, _RUNNING
_INHERIT, _EXCLUDE_KERNEL, _EXCLUDE_HYPERVISOR = 1 << 1, 1 << 5, 1 << 6
_THIS_THREAD, _ANY_CPU, _NO_GROUP, _CLOSE_ON_EXEC = 0, -1, -1, 8


class InstructionCounter:
    """A counter, open from the start; `error` is 0, or the number of the error that prevented it.

    `task_clock` counts the thread's time instead, which each machine can: for tests.
    """

    error = errno.ENOSYS
    _file = -1

    def __init__(self, *, task_clock: bool = False) -> None:
        if sys.platform != "linux" or os.uname().machine not in _CALLS:
            return
        kind, event = _TASK_CLOCK if task_clock else _INSTRUCTIONS
        flags = _INHERIT | _EXCLUDE_KERNEL | _EXCLUDE_HYPERVISOR
        attributes = _ATTRIBUTES.pack(
            kind, _ATTRIBUTES.size, event, 0, 0, _ENABLED_AND_RUNNING, flags, 0, 0, 0
        )
        call = ctypes.CDLL(None, use_errno=True).syscall
        place = (_THIS_THREAD, _ANY_CPU, _NO_GROUP, _CLOSE_ON_EXEC)
        self._file = call(_CALLS[os.uname().machine], attributes, *place)
        self.error = ctypes.get_errno() if self._file < 0 else 0

    def read(self) -> tuple[int, int, int]:
        """Return the instructions, nanoseconds since it was opened, and those in which it counted.

        The last are fewer where counters take turns, or on a core that lacks this one.
        """
        count, enabled_ns, running_ns = _READING.unpack(os.read(self._file, _READING.size))
        return count, enabled_ns, running_ns

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    __del__ = close
