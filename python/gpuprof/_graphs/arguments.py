"""Checks of the arguments that captures and graphs share. Each returns what it was given."""

from __future__ import annotations

from collections.abc import Iterable

from gpuprof._graphs.pool import CapturePool
from gpuprof._graphs.types import CaptureMode
from gpuprof.errors import InvalidStateError

BACKENDS = ("auto", "driver", "torch")
TIMERS = ("last", "collect", "strip")
COLLECT = TIMERS.index("collect")
_MODES = {mode.name.lower(): mode for mode in CaptureMode}
_MODE_NAMES = tuple(_MODES)
_SHOWN = 80  # characters of a name in a text


def capture_mode(mode: object) -> CaptureMode:
    """Check a ``mode=`` argument.

    Raises
    ------
    TypeError, ValueError
        It is neither a `CaptureMode` nor the name of one.
    """
    if isinstance(mode, CaptureMode):
        return mode
    if not isinstance(mode, str):
        message = f"mode: expected a CaptureMode or one of {_MODE_NAMES}, got {type(mode).__name__}"
        raise TypeError(message)
    found = _MODES.get(mode) or _MODES.get(mode.lower())
    if found is None:
        message = f"mode: expected a CaptureMode or one of {_MODE_NAMES}, got {mode!r}"
        raise ValueError(message)
    return found


def timers_number(timers: object) -> int:
    """Check a ``timers=`` argument and return `_core`'s number for it.

    Raises
    ------
    TypeError, ValueError
        It is none of the three names.
    """
    if not isinstance(timers, str):
        message = f"timers: expected one of {TIMERS}, got {type(timers).__name__}"
        raise TypeError(message)
    if timers not in TIMERS:
        message = f"timers: expected one of {TIMERS}, got {timers!r}"
        raise ValueError(message)
    return TIMERS.index(timers)


def graph_name(name: object) -> str | None:
    """Check a ``name=`` argument.

    Raises
    ------
    TypeError, ValueError
        It is neither None nor a non-empty str that can be written as UTF-8.
    """
    if name is None:
        return None
    if not isinstance(name, str):
        message = f"name: expected a str or None, got {type(name).__name__}"
        raise TypeError(message)
    if not name:
        message = "name: expected a non-empty str or None, got ''"
        raise ValueError(message)
    try:
        name.encode()
    except UnicodeEncodeError as error:
        message = f"name: cannot be written as UTF-8: {error.reason} at character {error.start}"
        raise ValueError(message) from None
    return name


def shown(name: str) -> str:
    """Return a name as a text shows it: quoted, one line, cut if it is very long."""
    return repr(name if len(name) <= _SHOWN else name[: _SHOWN - 3] + "...")


def objects_to_keep(keep_alive: object) -> tuple[object, ...]:
    """Check a ``keep_alive=`` argument: any objects, in an iterable that is none of them itself.

    Raises
    ------
    TypeError
        It is no iterable, or an array or text, whose items are not what has to live.
    """
    if isinstance(keep_alive, (list, tuple)):
        return tuple(keep_alive)
    kind = type(keep_alive)
    is_data = isinstance(keep_alive, (str, bytes, bytearray, memoryview)) or any(
        hasattr(kind, protocol)
        for protocol in ("__cuda_array_interface__", "__dlpack__", "__array_interface__")
    )
    if is_data or not isinstance(keep_alive, Iterable):
        message = (
            f"keep_alive: expected an iterable of objects, got {kind.__name__}; for one object "
            "write [x]"
        )
        raise TypeError(message)
    return tuple(keep_alive)


def check_pool(pool: object) -> CapturePool | None:
    """Check a ``pool=`` argument: a `CapturePool` that is not sealed, or None.

    Raises
    ------
    TypeError
        It is something else.
    InvalidStateError
        It is sealed.
    """
    if pool is None:
        return None
    if not isinstance(pool, CapturePool):
        message = f"pool: expected a CapturePool or None, got {type(pool).__name__}"
        raise TypeError(message)
    if pool.is_sealed:
        message = "pool: it is sealed, so that nothing more is captured with it; unseal() it first"
        raise InvalidStateError(message)
    return pool
