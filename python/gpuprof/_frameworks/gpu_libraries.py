"""What chooses kernels: the GPU, and the versions of the libraries that the process has loaded.

A library is asked itself, and only if it is loaded: none is loaded for it. What is not known is
left out.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from gpuprof._common import machine

_MAPS = Path("/proc/self/maps")
_LIBRARY = re.compile(r"^lib(cublas|cudnn)\.so\.[\d.]+$")
_MODULES = ("torch", "cupy", "triton")


def versions(device: int | None) -> dict[str, str]:
    """Return the name and the compute capability of a GPU, and the versions of libraries."""
    here = machine.describe(device)
    found = {key: str(here[key]) for key in ("gpu", "cc") if here.get(key)}
    for name in _MODULES:
        version = getattr(sys.modules.get(name), "__version__", None)
        if version:
            found[name] = str(version)
    for name, path in _loaded().items():
        with suppress(Exception):  # a foreign library must not end a measurement
            found[name] = _ASK[name](ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY))
    return found


def _loaded(maps: Path = _MAPS) -> dict[str, str]:
    """Return the paths of the libraries that are loaded, by name."""
    found: dict[str, str] = {}
    with suppress(OSError), maps.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            path = line.partition("/")[2].rstrip()
            library = _LIBRARY.match(path.rpartition("/")[2]) if path else None
            if library:
                found.setdefault(library[1], f"/{path}")
    return found


def _cublas(library: ctypes.CDLL) -> str:
    numbers = []
    for part in range(3):  # major, minor, patch
        value = ctypes.c_int()
        if library.cublasGetProperty(part, ctypes.byref(value)) != 0:
            message = "cublasGetProperty failed"
            raise OSError(message)
        numbers.append(str(value.value))
    return ".".join(numbers)


def _cudnn(library: ctypes.CDLL) -> str:
    library.cudnnGetVersion.restype = ctypes.c_size_t
    number = int(library.cudnnGetVersion())
    major = 10_000 if number >= 90_000 else 1000  # as cuDNN writes it, from version 9 and before
    return f"{number // major}.{number % major // 100}.{number % 100}"


_ASK: dict[str, Callable[[ctypes.CDLL], str]] = {"cublas": _cublas, "cudnn": _cudnn}
