"""What an annotation costs the host: off, under an NVTX tool, in a trace, compared with peers.

Host nanoseconds per entered and left context manager, each reused, best and median of several
rounds. Off and traced are measured in one process; the tool is one that notes nothing, built from
the tests, and NVTX loads it for a whole process, so what is measured under it is measured in a
second one, all of it together. Peers: PyPI's nvtx, torch's record_function, viztracer's log_event;
those that are not installed are left out and named.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gpuprof
from raw_driver.build import RawDriver
from support import measure
from support.loops import answered, entered, made, null_contexts, ran, timed
from support.measure import Contender, Rounds
from support.results import Row

_COUNT = 200_000
_SLOW_COUNT = 4_000
_TRACED_COUNT = 100_000  # fewer than the events that a trace keeps before it writes
_ROOT = Path(__file__).resolve().parents[1]

_NULL = "with nullcontext()"
_DISABLED = "disabled scope"
_OFF = "annotate, off"
_NVTX_OFF = "PyPI nvtx annotate, no tool"
_CLOCK = "two reads of the clock"
_OFF_AND_CLOCK = "annotate off + two reads of the clock"
_TRACED = "annotate, traced"
_TRACED_PAYLOAD = "annotate with payload and args, traced"
_SCOPE_TRACED = "CPU-clock scope, traced"
_RECORD = "record_function, profiler on"
_LOG_EVENT = "viztracer log_event"
_TOOL = "annotate, under a tool"
_TOOL_SCOPE = "CPU-clock scope, under a tool"
_TOOL_NEW = "with annotate(name, payload=...), under a tool"
_NVTX_TOOL = "PyPI nvtx annotate, under a tool"
_NVTX_NEW = "with PyPI nvtx.annotate(name, payload=...), under a tool"
_FUNCTION = "call of a function"
_COROUTINE = "coroutine, made and run"
_OUR_DECORATORS = ("@timer, disabled", "@annotate, off")
_PEER_DECORATOR = "@PyPI nvtx annotate, no tool"
# What a decorator that is off may add, in microseconds.
_MOST_ADDED = {_FUNCTION: 0.04, _COROUTINE: 0.15}
# What an event costs in addition to the clock, on an optimised interpreter.
_TRACED_NS = 25.0


def _module(name: str, notes: list[str]) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        notes.append(f"{name} is not installed")
        return None


def _contender(name: str, manager: Any, count: int = _COUNT) -> Contender:
    return Contender(name, timed(entered(manager)), count)


@contextmanager
def _torch_profiling(torch: Any) -> Iterator[None]:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        yield


def _viztracer_event(viztracer: Any) -> Contender:
    tracer = viztracer.VizTracer(
        tracer_entries=_SLOW_COUNT + 1000, ignore_c_function=True, verbose=0, max_stack_depth=0
    )
    tracer.start()
    tracer.pause()  # its events alone: no tracing of functions around them
    log = tracer.log_event
    return Contender(_LOG_EVENT, timed(made(lambda: log("x"))), _SLOW_COUNT)


def _traced(annotation: Any, folder: str, name: str, count: int = _TRACED_COUNT) -> Contender:
    run = timed(entered(annotation))

    def traced(count: int) -> int:
        path = Path(folder) / "trace.json"
        with gpuprof.trace(path):
            spent = run(count)
        path.unlink()
        return spent

    return Contender(name, traced, count)


def without_a_tool(rounds: int, notes: list[str]) -> list[Row]:
    """Annotations that are off, and annotations in a trace."""
    measured = Rounds()
    nvtx, torch, viztracer = (_module(name, notes) for name in ("nvtx", "torch", "viztracer"))
    off = gpuprof.annotate(_OFF)
    with tempfile.TemporaryDirectory() as folder:
        contenders = [
            Contender(_NULL, timed(null_contexts), _COUNT),
            _contender(_DISABLED, gpuprof.timer(enabled=False)),
            _contender(_OFF, off),
            Contender(_CLOCK, RawDriver().clock_reads, _COUNT),
            _traced(gpuprof.annotate(_TRACED), folder, _TRACED),
            _traced(
                gpuprof.annotate(_TRACED_PAYLOAD, payload=3, args={"batch": 8}),
                folder,
                _TRACED_PAYLOAD,
            ),
            _traced(gpuprof.timer(_SCOPE_TRACED, backend="cpu"), folder, _SCOPE_TRACED),
        ]
        if nvtx is not None:
            contenders.append(_contender(_NVTX_OFF, nvtx.annotate("x")))
        if viztracer is not None:
            contenders.append(_viztracer_event(viztracer))
        measured.measure(contenders, rounds)
    if torch is not None:
        # Separate, because annotations also enter torch's profiler while it records.
        with _torch_profiling(torch):
            record = made(lambda: torch.profiler.record_function("x"))
            measured.measure([Contender(_RECORD, timed(record), _SLOW_COUNT)], rounds)
    measured.add_sum(_OFF_AND_CLOCK, (_OFF, _CLOCK))
    rows = [
        measured.row(_NULL),
        measured.row(_DISABLED, to=_NULL),
        measured.row(_OFF, to=_DISABLED, target=1.1),
        measured.row(_CLOCK),
        measured.row(_OFF_AND_CLOCK),
    ]
    allowed = (rows[-1].value + _TRACED_NS) / rows[-1].value
    rows += [
        measured.row(_TRACED, to=_OFF_AND_CLOCK, target=allowed),
        measured.row(_TRACED_PAYLOAD, to=_TRACED),
        measured.row(_SCOPE_TRACED, to=_TRACED),
    ]
    if nvtx is not None:
        rows.append(measured.row(_NVTX_OFF, to=_OFF))
    for peer in (_RECORD, _LOG_EVENT):
        if peer in measured:
            rows.append(measured.row(peer))
            rows.append(_compared(measured, _TRACED, peer, 1 / 10))
    return rows


def _function(x: int) -> int:
    return x


async def _coroutine(x: int) -> int:
    return x


def decorated_and_off(rounds: int, notes: list[str]) -> list[Row]:
    """Return what decorated functions add to a call while everything is off."""
    nvtx = _module("nvtx", notes)
    decorators = dict(zip(_OUR_DECORATORS, (gpuprof.timer, gpuprof.annotate), strict=True))
    if nvtx is not None:
        decorators[_PEER_DECORATOR] = nvtx.annotate("x")
    rows = []
    gpuprof.disable()
    try:
        for plain, function, loop in (
            (_FUNCTION, _function, answered),
            (_COROUTINE, _coroutine, ran),
        ):
            names = {name: f"{plain}, {name}" for name in decorators}
            contenders = [Contender(plain, timed(loop(function)), _COUNT)]
            contenders += [
                Contender(names[name], timed(loop(decorate(function))), _COUNT)
                for name, decorate in decorators.items()
            ]
            measured = Rounds()
            measured.measure(contenders, rounds)
            rows.append(measured.row(plain))
            for name, shown in names.items():
                most = _MOST_ADDED[plain] if name in _OUR_DECORATORS else None
                rows.append(measured.row(shown, to=plain))
                rows.append(measured.excess(shown, over=plain, target=most))
    finally:
        gpuprof.enable()
    return rows


def _compared(measured: Rounds, name: str, peer: str, target: float) -> Row:
    row = measured.row(name, to=peer, target=target)
    return Row(f"{name}, beside {peer}", *list(vars(row).values())[1:])


def under_a_tool(rounds: int, notes: list[str]) -> list[Row]:
    """Annotations that a tool receives; runs in the process with the tool."""
    gpuprof.nvtx.enable()
    if not gpuprof.nvtx.is_tool_attached():
        message = "no NVTX tool listens in the process that should have one"
        raise RuntimeError(message)
    nvtx = _module("nvtx", notes)
    new = made(lambda: gpuprof.annotate("x", payload=3))
    contenders = [
        _contender(_TOOL, gpuprof.annotate(_TOOL)),
        _contender(_TOOL_SCOPE, gpuprof.timer(_TOOL_SCOPE, backend="cpu")),
        Contender(_TOOL_NEW, timed(new), _COUNT // 10),
    ]
    if nvtx is not None:
        peer = made(lambda: nvtx.annotate("x", payload=3))
        contenders.append(_contender(_NVTX_TOOL, nvtx.annotate("x")))
        contenders.append(Contender(_NVTX_NEW, timed(peer), _COUNT // 10))
    measured = Rounds()
    measured.measure(contenders, rounds)
    rows = [measured.row(_NVTX_TOOL), measured.row(_NVTX_NEW)] if nvtx is not None else []
    return [
        *rows,
        measured.row(_TOOL, to=_NVTX_TOOL, target=1.0),
        measured.row(_TOOL_SCOPE, to=_TOOL),
        measured.row(_TOOL_NEW, to=_NVTX_NEW),
    ]


def _rows_of_a_process_with_a_tool(quick: bool) -> list[Row]:
    sys.path.insert(0, str(_ROOT))
    from tests.nvtx_injection.build import build

    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, INJECTION_QUIET="1")
        environment["NVTX_INJECTION64_PATH"] = str(build(Path(folder)))
        command = [sys.executable, __file__, "--under-a-tool", *(["--quick"] if quick else [])]
        done = subprocess.run(
            command, env=environment, check=True, stdout=subprocess.PIPE, text=True
        )
    return [Row(**row) for row in json.loads(done.stdout)]


def main() -> None:
    """Measure and report."""
    if "--under-a-tool" in sys.argv:
        parser = argparse.ArgumentParser()
        parser.add_argument("--under-a-tool", action="store_true")
        parser.add_argument("--quick", action="store_true")
        rows = under_a_tool(3 if parser.parse_args().quick else 9, [])
        print(json.dumps([vars(row) for row in rows]))
        return
    options = measure.arguments(__doc__)
    notes = [
        "ratio is best over best; in brackets the median of the rounds' ratios",
        "what is under a tool was measured in a process of its own, with its peers",
    ]
    rows = without_a_tool(3 if options.quick else 9, notes)
    rows += decorated_and_off(3 if options.quick else 9, notes)
    rows += _rows_of_a_process_with_a_tool(options.quick)
    measure.report("nvtx_overhead", rows, notes, options.json)


if __name__ == "__main__":
    main()
