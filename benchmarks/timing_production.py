"""What scopes, a flight recorder and exporters cost a server, alone, together and in a budget.

Microseconds per request, best and median of several rounds in one process. A request is a scope
with eight scopes in it, each around a sum of 10,000 numbers, on the CPU's clock, so that the driver
is in no figure. Spans go through the SDK's batch processor to an exporter that drops them. What
listeners get is waited for in each round. Each round begins with a time that is not measured, in
which a budget finds out how often the scopes are entered.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from time import monotonic, perf_counter_ns

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from prometheus_client import CollectorRegistry

import gpuprof
from support import measure
from support.loops import BenchmarkError
from support.measure import Contender, Rounds
from support.results import Row

_STEPS = 8
_COUNT = 150
_SETTLE_S = 1.0
_SHARE = 0.01
_OFF, _ALL = "switched off", "scopes, recorder, Prometheus and spans"
Part = Callable[[], AbstractContextManager[object]]


class _Dropped(SpanExporter):
    def export(self, spans: object) -> SpanExportResult:  # noqa: ARG002 (the SDK's signature)
        return SpanExportResult.SUCCESS


def _serve(count: int) -> None:
    numbers = range(10_000)
    request, step = (gpuprof.timer(name, backend="cpu") for name in ("request", "step"))
    for _ in range(count):
        with request:
            for _ in range(_STEPS):
                with step:
                    sum(numbers)


@contextmanager
def _off() -> Iterator[None]:
    gpuprof.disable()
    yield
    gpuprof.enable()


@contextmanager
def _budget() -> Iterator[None]:
    gpuprof.set_budget(_SHARE)
    yield
    gpuprof.set_budget(None)


@contextmanager
def _spans() -> Iterator[None]:
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(_Dropped()))
    with gpuprof.exporters.opentelemetry(tracer=provider.get_tracer("benchmark")):
        yield
    provider.shutdown()


def _contender(name: str, *parts: Part) -> Contender:
    def run(count: int) -> int:
        gpuprof.reset()
        with ExitStack() as stack:
            for part in parts:
                stack.enter_context(part())
            until = monotonic() + (_SETTLE_S if _budget in parts else 0)
            _serve(count // 10)
            while monotonic() < until:
                _serve(10)
            gpuprof.flush()
            begun = perf_counter_ns()
            _serve(count)
            gpuprof.flush()
            spent = perf_counter_ns() - begun
            if _off not in parts and gpuprof.stats()["request"].time.count < count:
                raise BenchmarkError(f"{name}: not all requests are counted")
        return spent

    return Contender(name, run, _COUNT)


def _rows(rounds: int, folder: Path) -> list[Row]:
    def recorder() -> gpuprof.TraceWriter:
        return gpuprof.flight_recorder(folder / "last.json")

    def prometheus() -> gpuprof.Listener:
        return gpuprof.exporters.prometheus(CollectorRegistry())

    together = (recorder, prometheus, _spans)
    contenders = [
        _contender(_OFF, _off),
        _contender("scopes"),
        _contender("scopes and a flight recorder", recorder),
        _contender("scopes and Prometheus", prometheus),
        _contender("scopes and spans", _spans),
        _contender(_ALL, *together),
        _contender(f"all of them in a budget of {_SHARE:.0%}", *together, _budget),
    ]
    measured = Rounds()
    measured.measure(contenders, rounds)
    off, *others = (each.name for each in contenders)
    return [measured.row(off), *(measured.row(name, to=off) for name in others)]


def main() -> int:
    """Measure, print the table, and write it with ``--json``."""
    options = measure.arguments(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        rows = _rows(3 if options.quick else 41, Path(folder))
    notes = [f"a request has {1 + _STEPS} scopes", "the best of the rounds"]
    measure.report("timing_production", rows, notes, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
