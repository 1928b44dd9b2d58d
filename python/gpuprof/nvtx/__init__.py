"""NVTX, NVIDIA's annotations for tools like Nsight Systems and Nsight Compute.

It is off until `enable` is called or ``GPUPROF_NVTX=1`` is set; then annotations, marks and timer
scopes appear in the tool under which the program runs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import gpuprof._core as _core
from gpuprof._common import checks
from gpuprof._startup import enable_nvtx
from gpuprof.nvtx.stack import name_thread, pop, push

__all__ = [
    "CATALOG",
    "RangeCatalog",
    "RangeSpec",
    "catalogs",
    "disable",
    "enable",
    "is_enabled",
    "is_tool_attached",
    "last_push_result",
    "name_thread",
    "pop",
    "push",
    "valid_label",
]


def enable() -> None:
    """Send ranges to NVTX from now on; warns once per process if no tool listens.

    Also ``GPUPROF_NVTX=1``; ``GPUPROF_NVTX=auto`` does it where a tool listens.
    ``GPUPROF_DISABLE=1`` wins over it.
    """
    if enable_nvtx():
        for catalog in catalogs():
            catalog.register()


def disable() -> None:
    """Send no more ranges to NVTX; open ranges are still closed."""
    _core.nvtx_set_enabled(False)


def is_enabled() -> bool:
    """Return whether ranges are sent to NVTX, with or without a tool."""
    return _core.nvtx_is_enabled()


def is_tool_attached() -> bool:
    """Return whether a tool listens to gpuprof's domain, asked of NVTX itself."""
    return _core.nvtx_tool_listens()


def last_push_result() -> int:
    """Return what the tool returned for the last push.

    It is -2 without a tool and always -1 under Nsight Systems, so it does not say whether a range
    is shown; use `gpuprof.Annotation.is_active` or `is_tool_attached`.
    """
    return _core.nvtx_last_push_result()


def valid_label(label: bytes) -> bool:
    """Return whether `label` is a C string that NVTX shows whole.

    Parameters
    ----------
    label : bytes
        The label with its final NUL.

    Returns
    -------
    bool
        True for at least two bytes of which only the last is a NUL.

    Raises
    ------
    TypeError
        `label` is not bytes.
    """
    if not isinstance(label, bytes):
        raise checks.type_error(label, "label", "bytes that end in a NUL")
    return len(label) > 1 and label.find(b"\0") == len(label) - 1


@dataclass(frozen=True)
class RangeSpec:
    """The name of a range, and what it means.

    Parameters
    ----------
    name : str
        The label, in the namespace of its catalog: ``'engine.decode'``.
    description : str
        What happens inside, for whoever reads the profile.

    Raises
    ------
    TypeError, ValueError
        The name is no label (empty, a NUL or a lone surrogate in it), or there is no description.
    """

    __module__ = "gpuprof.nvtx"

    name: str
    description: str

    def __post_init__(self) -> None:
        checks.text("name", self.name)
        checks.text("description", self.description)
        try:
            label = self.label
        except UnicodeEncodeError:
            message = f"name: {self.name!r} has a lone surrogate, which has no UTF-8 form"
            raise ValueError(message) from None
        if not valid_label(label):
            raise checks.value_error(self.name, "name", "non-empty text without NUL")
        if not self.description.strip():
            message = f"description: say what the range {self.name!r} is, in a few words"
            raise ValueError(message)

    @property
    def label(self) -> bytes:
        """The name as NVTX takes it: UTF-8 with a final NUL."""
        return self.name.encode() + b"\0"


class RangeCatalog(Mapping[str, _core.Annotation]):
    """The ranges of a program, declared once: ``with CATALOG["decode"]:``.

    It maps each name, with or without the namespace before it, to an annotation. The names are
    checked when the catalog is made, and registered with NVTX when that is on.

    Parameters
    ----------
    namespace : str
        What all names begin with: ``'engine'`` for ``'engine.decode'``.
    specs : iterable of RangeSpec
        The ranges.
    domain : str, optional
        The NVTX domain of all ranges; None is ``'gpuprof'``.

    Raises
    ------
    TypeError, ValueError
        A name occurs twice or is outside the namespace, there are none, or another module has
        declared other ranges in the namespace.

    Examples
    --------
    >>> from gpuprof.nvtx import RangeCatalog, RangeSpec
    >>> ENGINE = RangeCatalog("engine", [RangeSpec("engine.decode", "one step of decoding")])
    >>> with ENGINE["decode"]:
    ...     pass
    """

    __module__ = "gpuprof.nvtx"

    def __init__(
        self, namespace: str, specs: Iterable[RangeSpec], domain: str | None = None
    ) -> None:
        checks.text("namespace", namespace)
        if not namespace or namespace != namespace.strip("."):
            raise checks.value_error(namespace, "namespace", "text like 'engine'")
        self.namespace = namespace
        self.specs = tuple(specs)
        self.domain = domain
        self._module: str = sys._getframe(1).f_globals.get("__name__", "")
        self._by_name: dict[str, _core.Annotation] = {}
        for spec in self.specs:
            self._check(spec)
            self._by_name[spec.name] = _core.annotate(spec.name, category=namespace, domain=domain)
        if not self._by_name:
            message = f"specs: the catalog {namespace!r} has no ranges"
            raise ValueError(message)
        self._declare()

    def _check(self, spec: RangeSpec) -> None:
        if not isinstance(spec, RangeSpec):
            raise checks.type_error(spec, "specs", "RangeSpec objects")
        head = f"{self.namespace}."
        if not spec.name.startswith(head) or spec.name == head:
            message = f"specs: {spec.name!r} is not in the namespace; write '{head}...'"
            raise ValueError(message)
        if spec.name in self._by_name:
            message = f"specs: {spec.name!r} is there twice"
            raise ValueError(message)

    def _declare(self) -> None:
        other = _catalogs.get(self.namespace)
        # A module that is reloaded, or a cell run again, declares its own anew.
        if other is not None and other._module != self._module and other.specs != self.specs:
            message = (
                f"namespace: the module {other._module!r} has declared other ranges in "
                f"{self.namespace!r}; choose another name"
            )
            raise ValueError(message)
        _catalogs[self.namespace] = self
        self.register()

    def register(self) -> None:
        """Register all names with the tool, if NVTX is on; idempotent."""
        for annotation in self._by_name.values():
            annotation._register()

    def describe(self) -> str:
        """Return the names and descriptions as a table."""
        width = max(len(spec.name) for spec in self.specs)
        return "\n".join(f"{spec.name:<{width}}  {spec.description}" for spec in self.specs)

    def __getitem__(self, name: str) -> _core.Annotation:
        for each in (name, f"{self.namespace}.{name}"):
            if each in self._by_name:
                return self._by_name[each]
        message = f"{name!r}; the catalog {self.namespace!r} has {', '.join(self._by_name)}"
        raise KeyError(message)

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    __eq__ = object.__eq__  # a mapping's would compare the ranges
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"<RangeCatalog {self.namespace!r}: {len(self)} ranges>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _remake_catalog, (self.namespace, self.specs, self.domain)


_catalogs: dict[str, RangeCatalog] = {}


def catalogs() -> tuple[RangeCatalog, ...]:
    """Return the catalogs that this process has declared, gpuprof's own among them."""
    return tuple(_catalogs.values())


def remake_annotation(name: str | None, options: Mapping[str, Any]) -> _core.Annotation:
    """Make an annotation again from what its pickle holds."""
    given = {key: value for key, value in options.items() if value is not None}
    annotation: _core.Annotation = _core.annotate(name, **given)
    return annotation


def _remake_catalog(
    namespace: str, specs: tuple[RangeSpec, ...], domain: str | None
) -> RangeCatalog:
    known = _catalogs.get(namespace)
    if known is not None and known.specs == specs and known.domain == domain:
        return known
    return RangeCatalog(namespace, specs, domain)


CATALOG = RangeCatalog(
    "gpuprof",
    [
        RangeSpec("gpuprof.capture", "a stream capture that gpuprof opened"),
        RangeSpec("gpuprof.instantiate", "a captured graph is made ready to be launched"),
        RangeSpec("gpuprof.replay", "the launch of a captured graph"),
        RangeSpec("gpuprof.flush", "a wait for pending samples, asked for by flush() or stats()"),
        RangeSpec("gpuprof.drain", "finished samples are read and counted"),
    ],
)
