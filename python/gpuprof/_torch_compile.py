"""What stands for scopes and annotations where `torch.compile` traces a function.

A compiled region is one graph, in which no Python runs, so nothing in it can be measured or named.
Left alone, torch breaks its graph at every one of gpuprof's C functions. So torch is told what to
trace in their place: Python that does nothing.

Telling it takes `torch._dynamo`, which `torch.compile` imports and which costs seconds to import.
It is never imported from here; where it is not there yet, a finder waits for it and then goes.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_Function = TypeVar("_Function", bound=Callable[..., Any])

_DYNAMO = "torch._dynamo"
_MESSAGE = (
    "gpuprof's scopes and annotations inside a region that torch.compile compiles are traced out: "
    "they measure and show nothing there; put them around the call of the compiled function"
)

_mapped = False
_said = False


class TracedOutSample:
    """What a traced-out scope gives: it says what the sample of a disabled scope says."""

    path = ""
    clock = "cpu"
    state = "disabled"
    ms = float("nan")
    host_ms = float("nan")
    stream = 0
    ready = False
    failed = False
    dropped = False
    cuda_started_inside = False

    def try_ms(self) -> float:
        return self.ms

    def to_dict(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "clock": self.clock,
            "state": self.state,
            "ms": None,
            "host_ms": None,
            "failed": self.failed,
        }


class TracedOutScope:
    """A scope inside a compiled region."""

    last = None
    ms = float("nan")

    def __init__(self, name: str | None) -> None:
        self.name = name

    def __enter__(self) -> TracedOutSample:
        return TracedOutSample()

    def __exit__(self, *_exception: object) -> None:
        return None

    def __call__(self, function: _Function) -> _Function:
        return function


class TracedOutAnnotation:
    """An annotation inside a compiled region."""

    is_active = False

    def __init__(self, name: str | None) -> None:
        self.name = name

    def __enter__(self) -> TracedOutAnnotation:
        return self

    def __exit__(self, *_exception: object) -> None:
        return None

    def __call__(self, function: _Function) -> _Function:
        return function


def in_graph() -> bool:
    """Return False; where a compiled region is traced, torch takes it for True."""
    return False


def _in_graph() -> bool:
    _say_once()
    return True


def _timer(name: Any = None, **_options: Any) -> Any:
    _say_once()
    return name if callable(name) else TracedOutScope(name)


def _annotate(name: Any = None, **_options: Any) -> Any:
    _say_once()
    return name if callable(name) else TracedOutAnnotation(name)


def _mark(*_arguments: Any, **_options: Any) -> None:
    _say_once()


def _say_once() -> bool:
    """Warn; torch calls it while it compiles, and takes what it returns for a constant."""
    global _said  # noqa: PLW0603
    if not _said:
        _said = True
        # As an exception it would end the compilation.
        with contextlib.suppress(RuntimeWarning):
            warnings.warn(_MESSAGE, RuntimeWarning, stacklevel=2)
    return True


def prepare() -> None:
    """Have scopes and annotations traced out, now or when `torch._dynamo` is imported."""
    if _mapped:
        return
    if hasattr(sys.modules.get(_DYNAMO), "substitute_in_graph"):
        _map()
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _map() -> None:
    """Tell torch what to trace. In a torch that cannot be told, before 2.5, graphs break as ever."""
    global _mapped  # noqa: PLW0603
    if _mapped:
        return
    _mapped = True
    from gpuprof import _core

    with contextlib.suppress(Exception):  # torch's own import must not fail for it
        compiler = sys.modules["torch"].compiler
        compiler.assume_constant_result(_say_once)
        for function, traced in (
            (in_graph, _in_graph),
            (_core.timer, _timer),
            (_core.annotate, _annotate),
            (_core.mark, _mark),
        ):
            compiler.substitute_in_graph(function, skip_signature_check=True)(traced)


class _Finder:
    """Lets another finder find `torch._dynamo`, and has `_map` called once it is imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != _DYNAMO:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(name, path, target) if find else None
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader)  # type: ignore[assignment]
                return spec
        return None


class _Loader:
    """A loader that is another one, but for what it does after the module was executed."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]
        _map()
