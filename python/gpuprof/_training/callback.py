"""What the callbacks of training frameworks have in common: their options, result and base class.

The base class is the framework's, which is found when a callback is made: a framework may have more
than one name, and none is imported earlier.
"""

from __future__ import annotations

import functools
import os
import sys
from importlib.util import find_spec
from typing import Any, ClassVar

from gpuprof._common.imports import need
from gpuprof._training.loop import Schedule, TrainingLoop


@functools.cache
def _kind_of(kind: Any, *bases: Any) -> Any:
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "_kind": kind}
    return type(kind.__name__, (kind, *bases), names)


class TrainingCallback:
    """A callback with scopes; a ``with`` block or `close` ends one that nobody has told the end."""

    # Of the framework: the base class, the modules that may have it, and what installs one.
    _base: ClassVar[tuple[str, tuple[str, ...], str]]
    _kind: ClassVar[type]

    def __new__(cls, *_arguments: Any, **_options: Any) -> Any:
        base, modules, install = cls._base
        names = [name for name in modules if name in sys.modules] or [
            next((name for name in modules if find_spec(name.partition(".")[0])), modules[0])
        ]
        found = [need(name, cls.__module__, install) for name in names]
        kinds: list[Any] = [cls, *(getattr(module, base) for module in found)]
        return object.__new__(_kind_of(*kinds))

    def __init__(
        self,
        trace: str | os.PathLike[str] | None = None,
        *,
        schedule: Schedule | None = None,
        table: bool = True,
    ) -> None:
        self._options: dict[str, Any] = {"trace": trace, "schedule": schedule, "table": table}
        self._loop = TrainingLoop(f"the callback of {type(self).__module__}", **self._options)

    @property
    def stats(self) -> Any:
        """What was measured, once a training is over.

        `gpuprof.Stats`, or `gpuprof.distributed.RankStats` of several ranks; None before that, and
        on ranks other than the first.
        """
        return self._loop.stats

    def close(self) -> None:
        """End what is being measured, as the end of the training does. Idempotent."""
        self._loop.end()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        self._loop.end(error)

    def __reduce__(self) -> Any:
        return functools.partial(self._kind, **self._options), ()
