"""A GPU's peaks, which rates are shown as a share of: given by the user, or measured once.

``gpuprof info --peaks`` measures them and stores them in a file of the user. Reading them measures
nothing and does not initialise CUDA.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gpuprof._core as _core
from gpuprof._common import checks, machine
from gpuprof._common.files import FileLock, open_regular, replace_file
from gpuprof._common.records import Document, Record, by_name, head, in_results, now, or_none
from gpuprof._common.text import shown_text

HEAD = head("gpuprof-peaks")
MEASURED, GIVEN = "measured", "given"

_MAX_BYTES = 1 << 20
_MOST = 1e21  # per second; thousands of times what any device does
_LOCK_S = 10.0
_DTYPE = re.compile(r"[a-z][a-z0-9_]{0,39}")
_ALIASES = {
    "bf16": "bfloat16",
    "double": "float64",
    "float": "float32",
    "fp16": "float16",
    "fp32": "float32",
    "fp64": "float64",
    "half": "float16",
}

_rate = partial(checks.number, least=0, most=_MOST, above=True)
_given: dict[int | None, Peaks] = {}  # by the index of the device; None is every device
_warned: set[Path] = set()


@in_results
@dataclass(frozen=True)
class Peaks(Record):
    """The most that a device does.

    Attributes
    ----------
    flops : mapping of str to float
        FLOP/s of a matrix product, by the name of the data type, such as ``"bfloat16"``. ``"tf32"``
        is that of float32 where its products may be rounded to TensorFloat-32.
    bytes_per_s : float or None
        Bytes that its memory moves in a second, read and written ones together.
    source : str
        ``"measured"`` or ``"given"``.
    date : str
        When they were measured or given, as ISO 8601 text in UTC.
    device : str
        The name of the GPU; empty if given for any.
    key : str
        The GPU's model, memory and driver, by which they are stored; empty if they were given.
    """

    flops: Mapping[str, float] = field(default_factory=dict)
    bytes_per_s: float | None = None
    source: str = MEASURED
    date: str = ""
    device: str = ""
    key: str = ""

    _CHECKS = MappingProxyType(
        {
            "flops": lambda name, value: {
                dtype_name(key): each for key, each in by_name(_rate)(name, value).items()
            },
            "bytes_per_s": or_none(_rate),
            "source": lambda name, value: checks.choice(name, value, (MEASURED, GIVEN)),
            "date": checks.text,
            "device": checks.text,
            "key": checks.text,
        }
    )

    def flops_of(self, dtype: object = None) -> tuple[str, float] | None:
        """Return a data type and its FLOP/s, by default the fastest; None if it has none here."""
        if dtype is not None:
            name = dtype_name(dtype)
            return (name, self.flops[name]) if name in self.flops else None
        return max(self.flops.items(), key=lambda each: each[1], default=None)


@dataclass(frozen=True)
class _File(Document):
    """The file of the user: peaks by their key."""

    peaks: Mapping[str, Peaks]

    _HEAD = HEAD


def set_peaks(
    flops: Mapping[str, float] | None = None,
    bytes_per_s: float | None = None,
    *,
    device: int | None = None,
) -> None:
    """Say what the device's peaks are, for the shares of them that tables show.

    They count in this process, before those that ``gpuprof info --peaks`` has stored. Without any,
    what was given is forgotten.

    Parameters
    ----------
    flops : mapping of str to float, optional
        FLOP/s by the name of the data type: ``{"bfloat16": 989e12, "float32": 67e12}``.
    bytes_per_s : float, optional
        Bytes that the memory moves in a second: ``4.8e12``.
    device : int, optional
        The index of the GPU; None is every GPU that is not named in a call of its own.

    Raises
    ------
    ValueError
        If a peak is no number above 0, or a data type or the device is no name or index.
    """
    if device is not None:
        checks.whole("device", device, least=0)
    if not flops and bytes_per_s is None:
        _given.pop(device, None)
        return
    _given[device] = Peaks(flops or {}, bytes_per_s, GIVEN, now())


def device_peaks(device: int | None = None) -> Peaks | None:
    """Return a GPU's peaks: those given with `set_peaks`, else those stored for it, else None.

    It measures nothing: ``gpuprof info --peaks`` does. A file that cannot be used is one warning.

    Parameters
    ----------
    device : int, optional
        The index of the GPU; None is the current one.

    Returns
    -------
    Peaks or None
        None also where the process does not use CUDA and none were given.

    Raises
    ------
    ValueError
        If `device` is no index.
    """
    if device is not None:
        checks.whole("device", device, least=0)
    given = _given_for(device)
    if given is not None:
        return given
    found = machine.describe(device)
    return peaks_of(found) if found.get("gpu") else None


def peaks_of(described: Mapping[str, Any]) -> Peaks | None:
    """Return the peaks stored for a machine as `machine.describe` returns it."""
    path = store_path()
    if path is None:
        return None
    try:
        return _load(path).get(key_of(described))
    except (OSError, ValueError) as error:
        if path not in _warned:
            _warned.add(path)
            warnings.warn(
                f"gpuprof: {path} cannot be used, so no share of the device's peak is shown: "
                f"{shown_text(getattr(error, 'strerror', None) or str(error))}; remove it and run "
                "`gpuprof info --peaks`",
                RuntimeWarning,
                stacklevel=checks.level_outside(),
            )
        return None


def key_of(described: Mapping[str, Any]) -> str:
    """Return the key of a machine's GPU: its model, memory and driver."""
    memory = described.get("gpu_memory")
    parts = [machine.key(described), f"{memory >> 20}MiB" if memory else "unknown-memory"]
    return "_".join([*parts, str(described.get("driver") or "unknown-driver")])


def store_path() -> Path | None:
    """Return the file that the peaks are stored in; None where the user has no home folder."""
    folder = os.environ.get("XDG_CACHE_HOME", "")
    if Path(folder).is_absolute():  # its rule says that a relative one does not count
        return Path(folder) / "gpuprof" / "peaks.json"
    try:
        return Path.home() / ".cache" / "gpuprof" / "peaks.json"
    except RuntimeError:
        return None


def store(peaks: Peaks) -> Path:
    """Add measured peaks to the file and return its path; a foreign file stays: ValueError."""
    path = store_path()
    if path is None:
        message = "there is no home folder to store the peaks in: set XDG_CACHE_HOME"
        raise OSError(message)
    path.parent.mkdir(parents=True, exist_ok=True)
    path = path.resolve()
    with FileLock(path.with_name(".lock")) as lock:
        if not lock.acquire(_LOCK_S):
            message = f"{path} is locked by another process"
            raise OSError(message)
        known = {**_load(path), peaks.key: peaks}
        content = _File(dict(sorted(known.items()))).to_json(indent=2)
        replace_file(path, f"{content}\n".encode("ascii"))
    return path


def dtype_name(dtype: object) -> str:
    """Return the name of a data type: of ``torch.bfloat16``, a NumPy type or text."""
    name = str(getattr(dtype, "__name__", dtype)) if isinstance(dtype, type) else str(dtype)
    name = name.removeprefix("torch.").lower()
    if not _DTYPE.fullmatch(name):
        raise checks.value_error(dtype, "the data type", "a name such as 'bfloat16'")
    return _ALIASES.get(name, name)


def _given_for(device: int | None) -> Peaks | None:
    if not _given:
        return None
    if device is None and len(_given) > (None in _given):
        device = _core.cuda_device() if _core.cuda_in_use() else None
    return _given.get(device, _given.get(None))


def _load(path: Path) -> dict[str, Peaks]:
    """Return what a file holds; OSError or ValueError if it is damaged."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            raw = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        return {}
    if len(raw) > _MAX_BYTES:
        message = f"it is larger than {_MAX_BYTES >> 20} MiB"
        raise ValueError(message)
    data = checks.json_object(raw)
    if data.get("format") != HEAD["format"]:
        message = "it holds no peaks of gpuprof"
        raise ValueError(message)
    return dict(_File._read("the file", data).peaks)
