"""NVIDIA's ``nvtx`` package: its names, its signatures and its domains.

Ranges appear in NVTX tools and in open traces. The names of ``torch.cuda.nvtx`` are here too, so
that one import serves both. NVTX is on where a tool listens, unless ``GPUPROF_NVTX`` says
otherwise; ``NVTX_DISABLE`` switches these functions off, as in the package.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import gpuprof._core as _core
from gpuprof.compat.torch_nvtx import (
    UNNAMED,
    range,
    range_end,
    range_pop,
    range_push,
    range_start,
)
from gpuprof.nvtx import pop, push

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "Domain",
    "EventAttributes",
    "annotate",
    "enabled",
    "end_range",
    "get_domain",
    "mark",
    "pop_range",
    "push_range",
    "range",
    "range_end",
    "range_pop",
    "range_push",
    "range_start",
    "start_range",
]

_Function = TypeVar("_Function", bound=Callable[..., Any])
_ENABLED = not os.environ.get("NVTX_DISABLE")
_IMMUTABLE = (int, float, tuple, bytes)


def enabled() -> bool:
    """Return whether these functions do anything: ``NVTX_DISABLE`` was not set at the import."""
    return _ENABLED


class annotate(contextlib.ContextDecorator):  # the name of the package's
    """A range around a ``with`` block or a function.

    Parameters
    ----------
    message : str, optional
        What tools show. Without it, a decorated function's ``__name__``.
    color : str or int, optional
        A name, ``'#rrggbb'`` or 0xAARRGGBB; a name of matplotlib's where that is installed.
    domain : str, optional
        The NVTX domain; None is the one of ranges that name none.
    category : str or int, optional
        A group of ranges. A number becomes a group of that name.
    payload : int, float, list, tuple, range, bytes or numpy.ndarray, optional
        One number beside the name, or several. What can change is read each time.
    """

    def __init__(
        self,
        message: str | None = None,
        color: str | int | None = None,
        domain: str | None = None,
        category: str | int | None = None,
        payload: Any = None,
    ) -> None:
        self._arguments = (message, color, domain, category, payload)
        self._options = _options(color, domain, category, payload)
        self._message = message
        self._is_mutable = payload is not None and not isinstance(payload, _IMMUTABLE)
        self._annotation: Any = self._made() if message is not None else None
        self._entered = threading.local()

    def _made(self) -> Any:
        return _core.annotate(self._message, **self._options)

    def __enter__(self) -> Self:
        if _ENABLED and self._annotation is not None:
            annotation = self._made() if self._is_mutable else self._annotation
            annotation.__enter__()
            self._entered.__dict__.setdefault("annotations", []).append(annotation)
        return self

    def __exit__(self, exc_type: object, exc_value: object, traceback: object) -> None:
        if _ENABLED and self._annotation is not None:
            self._entered.annotations.pop().__exit__(None, None, None)

    def __call__(self, func: _Function) -> _Function:
        if not _ENABLED:
            return func
        if self._message is None:
            self._message = func.__name__
            self._annotation = self._made()
        decorate = super().__call__ if self._is_mutable else self._annotation
        decorated: _Function = decorate(func)
        return decorated

    def __reduce__(self) -> tuple[Any, ...]:
        return self.__class__, self._arguments


def mark(
    message: str | None = None,
    color: str | int | None = "blue",
    domain: str | None = None,
    category: str | int | None = None,
    payload: Any = None,
) -> None:
    """Note a moment; the arguments are those of `annotate`."""
    if _ENABLED and message is not None:
        _core.mark(message, **_options(color, domain, category, payload))


def push_range(
    message: str | None = None,
    color: str | int | None = "blue",
    domain: str | None = None,
    category: str | int | None = None,
    payload: Any = None,
) -> None:
    """Open a range on this thread; the arguments are those of `annotate`."""
    if _ENABLED:
        push(message or "", **_options(color, domain, category, payload))


def pop_range(domain: str | None = None) -> None:
    """Close the range that this thread pushed last in the domain."""
    if _ENABLED:
        pop(UNNAMED if domain is None else domain)


def start_range(
    message: str | None = None,
    color: str | int | None = None,
    domain: str | None = None,
    category: str | int | None = None,
    payload: Any = None,
) -> tuple[int, int]:
    """Start a range of the process; the arguments are those of `annotate`.

    Returns
    -------
    tuple of int
        What `end_range` takes, on any thread.
    """
    if not _ENABLED or message is None:
        return 0, 0
    return _core.range_start(message, **_options(color, domain, category, payload)), 0


def end_range(range_id: tuple[int, int] | None) -> None:
    """End a range of `start_range`."""
    if _ENABLED and range_id is not None:
        _core.range_end(range_id[0])


@dataclass(eq=False)
class EventAttributes:
    """What a range of a `Domain` shows, to be used again: see `Domain.get_event_attributes`."""

    domain: Domain
    message: str | None = None
    color: str | int | None = None
    category: str | int | None = None
    payload: Any = None


class Domain:
    """The functions of this module for one domain.

    Parameters
    ----------
    name : str, optional
        Its name; None is the domain of ranges that name none.
    """

    def __init__(self, name: str | None = None) -> None:
        self.name = name

    def get_registered_string(self, string: str) -> str:
        """Return `string`: messages are registered when they are first shown."""
        return string

    def get_category_id(self, name: str) -> str:
        """Return `name`: categories are numbered when they are first shown."""
        return name

    def get_event_attributes(
        self,
        message: str | None = None,
        color: str | int | None = None,
        category: str | int | None = None,
        payload: Any = None,
    ) -> EventAttributes:
        """Return what `mark`, `push_range` and `start_range` take, to be used again."""
        return EventAttributes(self, message, color, category, payload)

    def mark(self, attributes: EventAttributes | None = None, **kwargs: Any) -> None:
        """Note a moment."""
        mark(*self._given(attributes, kwargs))

    def push_range(self, attributes: EventAttributes | None = None, **kwargs: Any) -> None:
        """Open a range on this thread."""
        push_range(*self._given(attributes, kwargs))

    def pop_range(self) -> None:
        """Close the range that this thread pushed last in this domain."""
        pop_range(self.name)

    def start_range(self, attributes: EventAttributes | None = None, **kwargs: Any) -> int:
        """Start a range of the process; return what `end_range` takes."""
        return start_range(*self._given(attributes, kwargs))[0]

    def end_range(self, range_id: int) -> None:
        """End a range of `start_range`."""
        end_range((range_id, 0))

    def _given(self, attributes: EventAttributes | None, changes: dict[str, Any]) -> Any:
        given = self.get_event_attributes() if attributes is None else attributes
        for name, value in changes.items():
            if name not in {"message", "color", "category", "payload"}:
                message = f"{name}: no such attribute; message, color, category and payload are"
                raise TypeError(message)
            setattr(given, name, value)
        return given.message, given.color, self.name, given.category, given.payload


@functools.cache
def get_domain(name: str | None = None) -> Domain:
    """Return the `Domain` of a name: the same object each time."""
    return Domain(name)


def _options(
    color: str | int | None, domain: str | None, category: str | int | None, payload: Any
) -> dict[str, Any]:
    return {
        "color": _known_color(color),
        "domain": UNNAMED if domain is None else domain,
        "category": str(category) if isinstance(category, int) else category,
        "payload": payload,
    }


@functools.cache
def _known_color(color: str | int | None) -> str | int | None:
    """Return a colour that gpuprof knows, by matplotlib's table where it has no name for it."""
    if not isinstance(color, str):
        return "blue" if color is None else color
    with contextlib.suppress(ValueError):
        _core.annotate("color", color=color)
        return color
    try:
        from matplotlib import colors

        rgba = colors.to_hex(color, keep_alpha=True)
    except ImportError:
        message = f"color: {color!r} is unknown; pip install matplotlib for more names"
        raise TypeError(message) from None
    except ValueError:
        message = f"color: {color!r} is a name neither of gpuprof nor of matplotlib"
        raise ValueError(message) from None
    return f"#{rgba[7:]}{rgba[1:7]}"
