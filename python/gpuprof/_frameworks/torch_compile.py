"""What `torch.compile` traces in place of scopes and annotations.

A compiled region is one graph, in which no Python runs, so nothing in it can be measured or named.
By default torch breaks its graph at each of gpuprof's C functions. So torch is told to trace Python
functions that do nothing in their place.

Telling it takes `torch._dynamo`, which `torch.compile` imports and which costs seconds to import.
gpuprof does not import it, but waits until something else does.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import gpuprof._core as _core
from gpuprof._common.imports import when_imported
from gpuprof._frameworks import loaded

if TYPE_CHECKING:
    from typing_extensions import Self

_PROFILER = "torch.autograd.profiler"
_Function = TypeVar("_Function", bound=Callable[..., Any])

_MESSAGE = (
    "gpuprof's scopes and annotations inside a region that torch.compile compiles are traced out: "
    "they measure and show nothing there; put them around the call of the compiled function"
)

_said = False


_off = _core.Scope(
    "", stream=None, backend="cpu", enabled=False, verify_stream=False, record_in_capture=False
)
with _off as _disabled:
    _AS_DICT = _disabled.to_dict()


class TracedOutSample:
    """The sample of a scope in a compiled region, with all that a disabled scope's has."""

    def try_ms(self) -> float:
        return float("nan")

    def to_dict(self) -> dict[str, Any]:
        return dict(_AS_DICT)


for _name in dir(_disabled):
    if not _name.startswith("_") and not hasattr(TracedOutSample, _name):
        setattr(TracedOutSample, _name, getattr(_disabled, _name))


class _TracedOut:
    def __init__(self, name: str | None) -> None:
        self.name = name

    def __exit__(self, *_exception: object) -> None:
        return None

    def __call__(self, function: _Function) -> _Function:
        return function


class TracedOutScope(_TracedOut):
    last = None
    ms = float("nan")

    def __enter__(self) -> TracedOutSample:
        return TracedOutSample()


class TracedOutAnnotation(_TracedOut):
    is_active = False

    def __enter__(self) -> Self:
        return self


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
    """Have scopes and annotations traced out, and shown in the profiler, once torch is imported."""
    when_imported("torch._dynamo", _map)
    when_imported(_PROFILER, _follow_profiler)


def _follow_profiler() -> None:
    _core._follow_profiler(vars(sys.modules[_PROFILER]))


def _map() -> None:
    """Tell torch what to trace. Torch before 2.5 cannot be told, and breaks its graphs."""
    with contextlib.suppress(Exception):  # torch's own import must not fail for it
        compiler = loaded.torch().compiler
        compiler.assume_constant_result(_say_once)
        for function, traced in (
            (in_graph, _in_graph),
            (_core.timer, _timer),
            (_core.annotate, _annotate),
            (_core.mark, _mark),
        ):
            compiler.substitute_in_graph(function, skip_signature_check=True)(traced)


def keep_from_compiler(*functions: Callable[..., Any]) -> None:
    """Have torch.compile not compile what runs of these between the graphs of a region.

    It would ask whether it is compiling while it does so, and leave the scopes out; what replaces
    a function of torch's would call itself without end.
    """
    frames: Any = getattr(getattr(loaded.torch()._C, "_dynamo", None), "eval_frame", None)
    for function in functions:
        if hasattr(frames, "set_code_exec_strategy"):
            action = frames._FrameAction
            once = frames._FrameExecStrategy(action.SKIP, action.DEFAULT)
            frames.set_code_exec_strategy(function.__code__, once)
        elif hasattr(frames, "skip_code"):  # before torch 2.8
            frames.skip_code(function.__code__)
