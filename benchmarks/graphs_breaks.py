"""The error messages of captures that break, for each usual cause.

If torch has CUDA, the causes are those of torch programs. Torch's own message then stands beside
gpuprof's. It comes from a capture by `torch.cuda.graph` in a separate process, because torch does
not survive all of them. gpuprof's captures all run in one process. Without torch the same causes
are driver calls, on the library that GPUPROF_CUDA_DRIVER names or on libcuda.so.1.

`--json FILE` writes the messages; `render.py breaks` shows it in docs/when_a_capture_breaks.md.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import importlib
import io
import json
import linecache
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from support import environment

_FILE = "train.py"
_NON_BLOCKING = 1


@dataclass(frozen=True)
class Cause:
    """One cause, as lines of a captured body for torch and for the driver alone."""

    title: str
    torch: str
    driver: str | None = None
    mode: str | None = None


# By name, as the driver's header has them. Typed, so that a call is the program's own line and no
# line of this file.
_POINTER, _HANDLE, _NUMBER = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cuInit": (_NUMBER,),
    "cuDevicePrimaryCtxRetain": (_POINTER, ctypes.c_int),
    "cuCtxSetCurrent": (_HANDLE,),
    "cuCtxSynchronize": (),
    "cuStreamCreate": (_POINTER, _NUMBER),
    "cuStreamSynchronize": (_HANDLE,),
    "cuStreamWaitEvent": (_HANDLE, _HANDLE, _NUMBER),
    "cuEventCreate": (_POINTER, _NUMBER),
    "cuEventRecord": (_HANDLE, _HANDLE),
    "cuEventQuery": (_HANDLE,),
    "cuMemAlloc_v2": (_POINTER, ctypes.c_size_t),
}

_UNKNOWN_ALLOCATION = "driver.cuMemAlloc_v2(pointer, 1024)"
_BY_ANOTHER_THREAD = "worker.submit(driver.cuMemAlloc_v2, pointer, 1024).result()"

CAUSES = (
    Cause(
        "Reading a value: `.item()`",
        "y = x * 2\nif y.sum().item() > 0:\n    y += 1",
        "scale.update(2.0, stream, record=True)\ndriver.cuStreamSynchronize(stream)",
    ),
    Cause("Printing a tensor", "y = x * 2\nprint(y)"),
    Cause(
        "Waiting for the device: `torch.cuda.synchronize()`",
        "y = x * 2\ntorch.cuda.synchronize()",
        "scale.update(2.0, stream, record=True)\ndriver.cuCtxSynchronize()",
    ),
    Cause(
        "Asking an event: `event.query()`",
        "y = x * 2\nevent = torch.cuda.Event()\nevent.record()\nevent.query()",
        "scale.update(2.0, stream, record=True)\n"
        "driver.cuEventRecord(event, stream)\ndriver.cuEventQuery(event)",
    ),
    Cause(
        "An allocation that is not the framework's: `cuMemAlloc`",
        f"y = x * 2\n{_UNKNOWN_ALLOCATION}",
        f"scale.update(2.0, stream, record=True)\n{_UNKNOWN_ALLOCATION}",
    ),
    Cause(
        "A fork that is not joined",
        "side.wait_stream(torch.cuda.current_stream())\n"
        "with torch.cuda.stream(side):\n    y = x * 2",
        "driver.cuEventRecord(event, stream)\ndriver.cuStreamWaitEvent(side, event, 0)\n"
        "scale.update(2.0, side, record=True)",
    ),
    Cause(
        "Another thread, in global mode",
        f"y = x * 2\n{_BY_ANOTHER_THREAD}",
        f"scale.update(2.0, stream, record=True)\n{_BY_ANOTHER_THREAD}",
        mode="global",
    ),
    Cause(
        "Work on the default stream, which stays outside",
        "y = x * 2\nwith torch.cuda.stream(torch.cuda.default_stream()):\n    y = y + 1",
    ),
    Cause(
        "Nothing on the capture's stream",
        "with torch.cuda.stream(torch.cuda.default_stream()):\n    y = x * 2",
        "scale.update(2.0, side)",
    ),
)


def code(cause: Cause, how: str) -> str:
    """Return a cause's program: captured by ``torch``, ``gpuprof``, ``debug`` or ``driver``."""
    options = [f'mode="{cause.mode}"'] if cause.mode else []
    if how == "torch":
        modes = [f', capture_error_mode="{cause.mode}"'] if cause.mode else []
        head = f"with torch.cuda.graph(graph{''.join(modes)}):"
    else:
        first = ["stream"] if how == "driver" else []
        last = ["debug=True"] if how == "debug" else []
        given = ", ".join([*first, 'name="step"', *options, *last])
        head = f"with gpuprof.capture({given}) as cap:"
    body = cause.driver if how == "driver" else cause.torch
    assert body is not None
    return "\n".join([head, *(f"    {line}" for line in body.splitlines())]) + "\n"


class Driver:
    """The driver's functions by name, on device 0's primary context; they return codes."""

    def __init__(self, path: str) -> None:
        library = ctypes.CDLL(path)
        self._functions = {name: getattr(library, name) for name in _FUNCTIONS}
        for name, arguments in _FUNCTIONS.items():
            self._functions[name].argtypes = arguments
        self._context = ctypes.c_void_p()
        codes = (self.cuInit(0), self.cuDevicePrimaryCtxRetain(ctypes.byref(self._context), 0))
        if any(codes):
            message = f"the driver answered {codes} to cuInit and cuDevicePrimaryCtxRetain"
            raise OSError(message)

    def use(self) -> None:
        """Make the primary context current on the calling thread."""
        self.cuCtxSetCurrent(self._context)

    def made(self, function: str, *given: object) -> int:
        """Return the handle that a function makes."""
        handle = ctypes.c_void_p()
        answer = getattr(self, function)(ctypes.byref(handle), *given)
        if answer != 0 or handle.value is None:
            message = f"{function} answered {answer}"
            raise OSError(message)
        return handle.value

    def __getattr__(self, name: str) -> Callable[..., int]:
        function: Callable[..., int] = self._functions[name]
        return function


def worker(driver: Driver) -> ThreadPoolExecutor:
    """Return a running thread that uses the GPU, as a worker of the program would."""
    pool = ThreadPoolExecutor(1, initializer=driver.use)
    pool.submit(driver.use).result()
    return pool


def outcome(source: str, names: dict[str, Any]) -> str:
    """Run a program and return its error with notes, or its warnings."""
    linecache.cache[_FILE] = (len(source), None, source.splitlines(keepends=True), _FILE)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(source, _FILE, "exec"), names)
        except Exception as error:
            first = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            return "\n".join([first, *getattr(error, "__notes__", ())])
    said = [f"{type(each.message).__name__}: {each.message}" for each in heard]
    if said:
        return "\n".join(said)
    graph = getattr(names.get("cap"), "graph", None)
    if graph is None:
        return "no error"
    nodes = graph.num_nodes
    return f"no error; the graph has {nodes} node{'' if nodes == 1 else 's'}"


def torch_names() -> dict[str, Any] | None:
    """Return what torch's programs use, with every kernel loaded; None without torch on CUDA."""
    try:
        torch = importlib.import_module("torch")
        if os.environ.get("GPUPROF_CUDA_DRIVER") or not torch.cuda.is_available():
            return None
    except ImportError:
        return None
    x = torch.ones(1024, device="cuda")
    str(x * 2 + 1)
    float((x * 2).sum())
    torch.cuda.synchronize()
    return {
        "torch": torch,
        "x": x,
        "side": torch.cuda.Stream(),
        "graph": torch.cuda.CUDAGraph(),
        "driver": Driver("libcuda.so.1"),
    }


def driver_names() -> dict[str, Any]:
    """Return what the driver's programs use."""
    gpuprof = importlib.import_module("gpuprof")
    driver = Driver(os.environ.get("GPUPROF_CUDA_DRIVER") or "libcuda.so.1")
    driver.use()
    stream, side = (driver.made("cuStreamCreate", _NON_BLOCKING) for _ in range(2))
    return {
        "driver": driver,
        "stream": stream,
        "side": side,
        "event": driver.made("cuEventCreate", 0),
        "scale": gpuprof.DeviceScalar(1.0, "float32", stream),
    }


def run(cause: Cause, how: str, names: Mapping[str, Any]) -> str:
    """Return the messages of one cause."""
    own = {
        **names,
        "__name__": "__main__",
        "gpuprof": importlib.import_module("gpuprof"),
        "pointer": ctypes.byref(ctypes.c_void_p()),
    }
    with worker(names["driver"]) as own["worker"]:
        return outcome(code(cause, how), own)


def _by_torch_alone(index: int) -> str:
    command = [sys.executable, __file__, "--torch-alone", str(index)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, timeout=120)
    return str(json.loads(done.stdout)) if done.stdout else f"exit status {done.returncode}"


def measure() -> dict[str, Any]:
    """Run every cause that this machine can run and return the messages."""
    names = torch_names()
    by_torch = names is not None
    if names is None:
        names = driver_names()
    cases = []
    with ThreadPoolExecutor(3) as pool:
        alone = [
            pool.submit(_by_torch_alone, index) if by_torch else None
            for index in range(len(CAUSES))
        ]
        for cause, theirs in zip(CAUSES, alone, strict=True):
            how = "gpuprof" if by_torch else "driver"
            if not by_torch and cause.driver is None:
                continue
            cases.append(
                {
                    "title": cause.title,
                    "code": code(cause, how),
                    "torch": None if theirs is None else theirs.result(),
                    "gpuprof": run(cause, how, names),
                    "debug": run(cause, "debug", names) if by_torch else None,
                }
            )
    machine = environment.machine()
    if os.environ.get("GPUPROF_CUDA_DRIVER"):
        machine |= {"gpu": None, "driver": None}
    return {
        "format": "gpuprof-breaks",
        "version": 1,
        "date": datetime.now(timezone.utc).date().isoformat(),
        "machine": machine,
        "versions": environment.versions(),
        "cases": cases,
    }


def main() -> None:
    """Run, print, and write the result if a path is given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there")
    parser.add_argument("--torch-alone", type=int, metavar="INDEX", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.torch_alone is not None:
        names = torch_names()
        assert names is not None
        print(json.dumps(run(CAUSES[options.torch_alone], "torch", names)), flush=True)
        os._exit(0)  # what torch is left with may abort its way out
    try:
        found = measure()
    except OSError as error:
        sys.exit(f"graphs_breaks needs a GPU: {error}")
    for case in found["cases"]:
        print(f"## {case['title']}\n{case['code']}")
        for who in ("torch", "gpuprof", "debug"):
            if case[who] is not None:
                print(f"[{who}] {case[who]}")
        print()
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(f"written: {options.json}")


if __name__ == "__main__":
    main()
