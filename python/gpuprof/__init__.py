"""Time GPU code from Python.

>>> import gpuprof
>>> with gpuprof.timer("load", backend="cpu"):
...     data = list(range(1000))
>>> gpuprof.stats()["load"].host.count >= 1
True

Importing this package calls no driver, starts no thread and reads no file of its own; the parts
are imported when their names are first used.

PYTEST_DONT_REWRITE: pytest loads a plugin from here, and no test is in it.
"""

# Modules that Python itself has imported: any other would cost each program that imports gpuprof.
import _thread
import os
import sys
import time

__version__ = "0.1.0"

# The public names of each module, of which .ci/stubs.py makes a type stub. Those before the bar are
# the everyday ones, shown by `dir()`.
_NAMES = {
    "": "errors exporters nvtx | compat distributed integrations results",
    "_core": (
        "annotate mark range_end range_start timer trace_span | Annotation GraphNode Sample Scope"
    ),
    "errors": (
        "| BaselineError CaptureError CaptureImplicitError CaptureInvalidatedError "
        "CaptureIsolationError CaptureMergeError CaptureUnjoinedError CaptureUnmatchedError "
        "CaptureUnsupportedError CaptureWrongThreadError CapturedEventError CudaError "
        "CudaUnavailableError DriverGoneError EmptyGraphError ForkedProcessError GpuprofError "
        "GraphMismatchError GraphUpdateError InvalidStateError NotReplayedError "
        "StreamMismatchError TraceError"
    ),
    "_common.peaks": "| device_peaks set_peaks",
    "_probes": "| finish_probe_timer finish_probe_timer_traced start_probe_timer_if",
    "_timing.backends": "SyncBackend backends cuda_available | Backend",
    "_timing.calibration": "calibrate",
    "_timing.scope": "disable enable flush reset set_budget stats",
    "_timing.listeners": "on_sample | Listener",
    "_timing.stats": "| Stats",
    "_timing.timer": "Timer",
    "_trace.events": "counter | Counter name_stream",
    "_trace_tools.diff": "trace_diff",
    "_trace_tools.results": "| TraceDiff",
    "_trace.flight_recorder": "flight_recorder",
    "_trace.window": "trace_windows",
    "_trace.writer": "TraceWriter trace",
    "_graphs.capture": (
        "capture | begin_capture capture_info capture_status end_capture is_stream_capturing"
    ),
    "_graphs.diff": "| GraphDiff",
    "_graphs.graph": "CapturedGraph",
    "_graphs.guard": "| GraphCaptureGuard",
    "_graphs.timings": "| GraphTimings",
    "_graphs.types": "| CaptureMode CaptureStatus",
    "_graphs.device_scalar": "DeviceScalar",
    "_graphs.pool": (
        "CapturePool | GraphPoolHandle capture_pool_for_handle graph_pool_handle "
        "release_graph_pool_handle"
    ),
    "_callable.api": "make_graphed_callable | GraphedCallable",
    "_idle.api": "idle | Idle",
    "_kernels.api": "kernels | Kernels",
    "_watch.api": "watch | ModuleWatch",
    "_watch.tree": "| ModuleTimes",
    "_benchmark.api": "benchmark",
    "_benchmark.compare": "compare",
    "_benchmark.sweep": "sweep | SweepResult",
    "_report.html": "write_report",
    "_results.comparison": "| CompareResult",
    "_results.decision": "| Verdict",
    "_results.history": "history | History",
    "_results.result": "| BenchResult",
    "_pytest.fixture": "| GpuBenchmark",
    "_cli.ipython": "| load_ipython_extension unload_ipython_extension",
}
_MODULE_OF = {
    name: module or name
    for module, names in _NAMES.items()
    for name in names.replace("|", "").split()
}
__all__ = [name for names in _NAMES.values() for name in names.split("|")[0].split()]


def __getattr__(name: str) -> object:
    module = _MODULE_OF.get(name)
    if module is None:
        message = f"module 'gpuprof' has no attribute {name!r}"
        raise AttributeError(message)
    try:
        if module != "errors":
            core = _load_core()
            if module == "_core" and _thread.get_ident() in _importing:
                return getattr(core, name)  # to a signal handler in the middle of an import
            _load("_startup")
            if os.environ.get("GPUPROF_NVTX"):
                _load("nvtx")  # which gives a tool the names of gpuprof's own ranges
        if module == "_core":
            _load("_timing.scope")  # which C++ would import later, without the guard of `_load`
        loaded = _load(module)
        value = loaded if name == module else getattr(loaded, name)
        globals()[name] = value  # the next look-up is a plain one
    except BaseException:
        globals().pop(name, None)
        raise
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


def _load_core():
    """Import the compiled part without the import system's locks.

    One call into C makes it, and makes no second one: so a signal handler before or after that, or
    a child forked there, imports it for itself.
    """
    name = "gpuprof._core"
    core = sys.modules.get(name)
    if core is not None:
        return core
    found = (finder.find_spec(name, __path__) for finder in sys.meta_path)
    spec = next((spec for spec in found if spec is not None), None)
    core = spec and spec.loader and spec.loader.create_module(spec)
    if core is None:
        return _load("_core")
    core.__spec__, core.__loader__, core.__package__ = spec, spec.loader, __name__
    core.__file__ = spec.origin
    core = globals()["_core"] = sys.modules.setdefault(name, core)
    return core


# A child that is forked while another thread imports would have locks that nobody gives back, so a
# fork waits for the imports.
_FORK_WAITS_S = 5.0
_importing: list[int] = []  # the threads that import a part now
_no_new_import = _thread.RLock()


def _load(module: str):
    thread = _thread.get_ident()
    try:
        with _no_new_import:
            _importing.append(thread)
        __import__(f"gpuprof.{module}")
        return sys.modules[f"gpuprof.{module}"]
    finally:
        if thread in _importing:  # what a signal handler raised may have come before it
            _importing.remove(thread)


def _before_fork() -> None:
    _no_new_import.acquire()
    until = time.monotonic() + _FORK_WAITS_S
    while set(_importing) - {_thread.get_ident()} and time.monotonic() < until:
        time.sleep(0.001)


def _after_fork_in_child() -> None:
    _no_new_import.release()
    _importing[:] = [thread for thread in _importing if thread == _thread.get_ident()]


os.register_at_fork(
    before=_before_fork,
    after_in_parent=_no_new_import.release,
    after_in_child=_after_fork_in_child,
)
