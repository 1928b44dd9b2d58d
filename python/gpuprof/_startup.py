"""What the environment asks for, done once, before the first public name is given out.

- ``GPUPROF_TRACE_OUT``: the first event opens a trace, which is closed at exit.
- ``GPUPROF_FLIGHT_RECORDER``: a flight recorder is opened now, which a signal asks for a dump.
- ``GPUPROF_NVTX``: ranges are sent to NVTX; with ``auto`` if a tool listens.
- ``GPUPROF_BUDGET``: measuring may take this share of the time, such as ``1%`` or ``0.01``.
- In IPython, unnamed scopes show their time under the cell.
- ``GPUPROF_DISABLE`` and ``GPUPROF_RELEASE_GIL`` are read by `gpuprof._core` as it is loaded.

`torch.compile` is told how to trace scopes once it is imported, and to keep where kernels of
backward passes come from. `gpuprof.nvtx` imports this module too, because ``import gpuprof.nvtx``
looks up no name in the package.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import gpuprof._core as _core
from gpuprof._common.imports import when_imported
from gpuprof._frameworks import torch_compile

_ON = {"1", "true", "on", "yes"}
_OFF = {"", "0", "false", "off", "no"}
_NO_TOOL = (
    "gpuprof: NVTX is on, but no tool listens, so ranges go nowhere: run the program under a tool "
    "(nsys profile python ..., ncu --nvtx ...), which sets NVTX_INJECTION64_PATH before NVTX is "
    "first used; GPUPROF_NVTX=auto is on only under a tool"
)

# In tracebacks and pickles the classes of the extension show the name that users know.
for _class in (_core.Annotation, _core.GraphNode, _core.Sample, _core.Scope):
    _class.__module__ = "gpuprof"


def enable_nvtx() -> bool:
    """Send ranges to NVTX, and warn once if no tool listens; False with ``GPUPROF_DISABLE``."""
    _core.nvtx_set_enabled(True)
    if not _core.nvtx_is_enabled():
        return False
    if not _core.nvtx_tool_listens():
        _core.nvtx_warn_no_tool(_NO_TOOL)
    return True


def _follow_trace_out() -> None:
    if os.environ.get("GPUPROF_TRACE_OUT") and not _core._is_set("GPUPROF_DISABLE"):
        from gpuprof._trace import registry

        _core._trace_wanted(True)
        registry.close_at_exit()


def _follow_flight_recorder() -> None:
    path = os.environ.get("GPUPROF_FLIGHT_RECORDER")
    if not path or _core._is_set("GPUPROF_DISABLE"):
        return
    import signal

    from gpuprof._trace.flight_recorder import flight_recorder

    name = os.environ.get("GPUPROF_FLIGHT_RECORDER_SIGNAL") or "SIGUSR1"
    try:
        number: Any = signal.Signals.__members__.get(name, name)  # what is none is refused in words
        flight_recorder(path, dump_on=[number]).start()
    except Exception as error:  # whatever it is, the first use of gpuprof must not raise it
        _warn(f"GPUPROF_FLIGHT_RECORDER was ignored: {error}")


def _follow_budget() -> None:
    wish = os.environ.get("GPUPROF_BUDGET", "").strip()
    if not wish:
        return
    from gpuprof._common import checks

    try:
        _core._set_budget(checks.number("share", checks.share(wish), 0, 1, above=True))
    except ValueError:
        _warn(f"GPUPROF_BUDGET is a share such as 1% or 0.01, not {wish!r}; there is none")


def _follow_nvtx() -> None:
    wish = os.environ.get("GPUPROF_NVTX", "").strip().lower()
    if wish in _ON or (wish == "auto" and _core.nvtx_tool_listens()):
        enable_nvtx()
    elif wish not in _OFF and wish != "auto":
        _warn(f"GPUPROF_NVTX is 1, 0 or auto, not {wish!r}; NVTX is off")


def _follow_ipython() -> None:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is not None:
        from gpuprof._display import notebook

        notebook.follow_cells(shell)


def _warn(text: str) -> None:
    import warnings

    warnings.warn(f"gpuprof: {text}", RuntimeWarning, stacklevel=3)


def _keep_origins() -> None:
    from gpuprof._frameworks import torch_inductor  # which costs 10 ms, and needs torch

    torch_inductor.keep_origins()


torch_compile.prepare()
when_imported("torch._functorch.aot_autograd", _keep_origins)
_follow_trace_out()
_follow_flight_recorder()
_follow_budget()
_follow_nvtx()
_follow_ipython()
