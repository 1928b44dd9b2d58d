"""A GPU's peaks, which rates are shown as a share of. The user gives them; none are measured."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any

import gpuprof._core as _core
from gpuprof._common import checks
from gpuprof._common.records import Checked, by_name, in_results, or_none

_MOST = 1e21  # per second; thousands of times what any device does
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


def _by_dtype(name: str, value: Any) -> dict[str, float]:
    return {dtype_name(key): each for key, each in by_name(_rate)(name, value).items()}


@in_results
@dataclass(frozen=True)
class Peaks(Checked):
    """The most that a device does.

    Attributes
    ----------
    flops : mapping of str to float
        FLOP/s of a matrix product, by the name of the data type, such as ``"bfloat16"``. ``"tf32"``
        is that of float32 where its products may be rounded to TensorFloat-32.
    bytes_per_s : float or None
        Bytes that its memory moves in a second, read and written ones together.
    """

    flops: Annotated[Mapping[str, float], _by_dtype] = field(default_factory=dict)
    bytes_per_s: Annotated[float | None, or_none(_rate)] = None

    def flops_of(self, dtype: object = None) -> tuple[str, float] | None:
        """Return a data type and its FLOP/s, by default the fastest; None if it has none here."""
        if dtype is not None:
            name = dtype_name(dtype)
            return (name, self.flops[name]) if name in self.flops else None
        return max(self.flops.items(), key=lambda each: each[1], default=None)


def set_peaks(
    flops: Mapping[str, float] | None = None,
    bytes_per_s: float | None = None,
    *,
    device: int | None = None,
) -> None:
    """Say what the device's peaks are, for the shares of them that tables show.

    They count in this process. Without any, what was given is forgotten.

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
    _given[device] = Peaks(flops or {}, bytes_per_s)


def device_peaks(device: int | None = None) -> Peaks | None:
    """Return the peaks that were given for a GPU with `set_peaks`, else None.

    Parameters
    ----------
    device : int, optional
        The index of the GPU; None is the current one.

    Returns
    -------
    Peaks or None

    Raises
    ------
    ValueError
        If `device` is no index.
    """
    if device is not None:
        checks.whole("device", device, least=0)
    if not _given:
        return None
    if device is None and len(_given) > (None in _given):
        device = _core.cuda_device() if _core.cuda_in_use() else None
    return _given.get(device, _given.get(None))


def dtype_name(dtype: object) -> str:
    """Return the name of a data type: of ``torch.bfloat16``, a NumPy type or text."""
    name = str(getattr(dtype, "__name__", dtype)) if isinstance(dtype, type) else str(dtype)
    name = name.removeprefix("torch.").lower()
    if not _DTYPE.fullmatch(name):
        raise checks.value_error(dtype, "the data type", "a name such as 'bfloat16'")
    return _ALIASES.get(name, name)
