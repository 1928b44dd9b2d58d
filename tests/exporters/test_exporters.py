"""`gpuprof.exporters`: what reaches the real clients, and what is said without them."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import prometheus_client
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

import gpuprof
from gpuprof import exporters
from tests.exporters.test_spans import Traced
from tests.fake_driver.control import FakeCuda
from tests.support.processes import check_python
from tests.support.scopes import cpu

MS = 1_000_000
DURATION = "gpuprof_scope_duration_seconds"


def measure(name: str, count: int = 1) -> None:
    for _ in range(count):
        with cpu(name):
            pass


def fail(name: str) -> None:
    with pytest.raises(KeyError), cpu(name):
        raise KeyError


def measure_few(name: str) -> tuple[int, int]:
    """Measure and fail within a budget; return for how many visits the samples stand."""
    counts = [0, 0]
    wanted = {False, True}  # whether a sample that stands for several visits has failed
    scope: Any = cpu(name)
    gpuprof.set_budget(0.01)
    while wanted:
        for fails in (False, True):
            sample = scope.__enter__()
            scope.__exit__(*((KeyError, KeyError(), None) if fails else (None, None, None)))
            if sample.state == "left out":
                continue
            counts[fails] += sample.one_in
            if sample.one_in > 1:
                wanted.discard(fails)
    gpuprof.set_budget(None)
    return counts[False], counts[True]


# OpenTelemetry


def points(reader: InMemoryMetricReader, name: str) -> dict[tuple[str, str], Any]:
    """Return the data points of a metric by path and clock."""
    data: Any = reader.get_metrics_data()
    return {
        (point.attributes["path"], point.attributes["clock"]): point
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == name
        for point in metric.data.data_points
    }


def test_opentelemetry_gets_seconds_by_path_and_clock(fake: FakeCuda, stream: int) -> None:
    reader = InMemoryMetricReader()
    meter = MeterProvider(metric_readers=[reader]).get_meter("test")
    with exporters.opentelemetry(meter=meter):
        measure("load", 3)
        with cpu("step"):
            for _ in range(2):
                with gpuprof.timer("gpu", stream=stream):
                    fake.work(stream, 20 * MS)
        fail("load")
        gpuprof.flush()
    found = points(reader, exporters.DURATION)
    assert {key: point.count for key, point in found.items()} == {
        ("load", "cpu"): 3,
        ("step", "cpu"): 1,
        ("step/gpu", "cuda"): 2,
    }
    gpu = found["step/gpu", "cuda"]
    assert gpu.sum == pytest.approx(0.040, abs=1e-4)
    assert tuple(gpu.explicit_bounds) == exporters.BUCKETS
    assert gpu.bucket_counts[exporters.BUCKETS.index(2.5e-2)] == 2
    assert {key: point.value for key, point in points(reader, exporters.FAILURES).items()} == {
        ("load", "cpu"): 1
    }


def test_opentelemetry_makes_spans_where_a_tracer_is_given() -> None:
    traced = Traced()
    before = time.time_ns()
    with traced.export(paths="step/*"):
        with cpu("step"), cpu("fwd"):
            pass
        with traced.tracer.start_as_current_span("the reader's"):
            gpuprof.flush()
    after = time.time_ns()
    span = traced.span("fwd")
    assert span.parent is None
    assert span.attributes is not None
    assert (span.attributes["path"], span.attributes["clock"]) == ("step/fwd", "cpu")
    assert span.start_time is not None
    assert span.end_time is not None
    slack = 5 * MS  # the wall clock may be adjusted meanwhile
    assert before - slack <= span.start_time <= span.end_time <= after + slack
    # It begins outside of the sample, which must not pay for it.
    assert 0 < span.attributes["gpuprof.duration"] <= (span.end_time - span.start_time) / 1e9


def test_opentelemetry_counts_the_visits_that_samples_stand_for() -> None:
    reader, traced = InMemoryMetricReader(), Traced()
    meter = MeterProvider(metric_readers=[reader]).get_meter("test")
    with traced.export(meter=meter):
        fine, failed = measure_few("hot")
    counts = {"visits": fine, "failures": failed}
    for name, count in counts.items():
        assert points(reader, f"gpuprof.scope.{name}")["hot", "cpu"].value == count
    told = [(each.attributes or {}).get("gpuprof.one_in", 1) for each in traced.spans]
    assert sum(told) == fine + failed


def test_opentelemetry_without_an_sdk_writes_nowhere_and_breaks_nothing() -> None:
    with exporters.opentelemetry() as handle:
        measure("step")
        gpuprof.flush()
    assert handle.error is None


# Prometheus


def value(registry: Any, name: str, path: str, **labels: str) -> float | None:
    found: float | None = registry.get_sample_value(name, {"path": path, "clock": "cpu", **labels})
    return found


def test_prometheus_gets_seconds_by_path_and_clock() -> None:
    registry = prometheus_client.CollectorRegistry()
    samples = []
    with exporters.prometheus(registry, buckets=(1e-9, 100.0)):
        for _ in range(4):
            with cpu("step") as sample:
                pass
            samples.append(sample)
        fail("step")
    assert value(registry, f"{DURATION}_count", "step") == 4
    total = sum(sample.ms for sample in samples) / 1e3
    assert value(registry, f"{DURATION}_sum", "step") == pytest.approx(total)
    assert value(registry, f"{DURATION}_bucket", "step", le="1e-09") == 0
    assert value(registry, f"{DURATION}_bucket", "step", le="100.0") == 4
    assert value(registry, "gpuprof_scope_failures_total", "step") == 1
    text = prometheus_client.generate_latest(registry).decode()
    assert f"# TYPE {DURATION} histogram" in text


def test_prometheus_counts_the_visits_that_samples_stand_for() -> None:
    registry = prometheus_client.CollectorRegistry()
    with exporters.prometheus(registry):
        fine, failed = measure_few("hot")
    assert value(registry, "gpuprof_scope_visits_total", "hot") == fine
    assert value(registry, "gpuprof_scope_failures_total", "hot") == failed


def test_prometheus_goes_on_with_a_registry_that_it_knows() -> None:
    registry = prometheus_client.CollectorRegistry()
    for _ in range(2):
        with pytest.raises(ValueError, match="no path"):
            exporters.prometheus(registry, paths="")
        with exporters.prometheus(registry, paths="step"):
            measure("step")
            with pytest.raises(ValueError, match="close that handle first"):
                exporters.prometheus(registry)
    assert value(registry, f"{DURATION}_count", "step") == 2
    with pytest.raises(ValueError, match="those that the registry has"):
        exporters.prometheus(registry, buckets=(1.0, 2.0))


@pytest.mark.parametrize("taken", ["gpuprof_scope_failures", "gpuprof_scope_visits"])
def test_prometheus_leaves_a_registry_alone_in_which_the_names_are_taken(taken: str) -> None:
    registry = prometheus_client.CollectorRegistry()
    mine = prometheus_client.Counter(taken, "mine", registry=registry)
    with pytest.raises(ValueError, match="Duplicated"):
        exporters.prometheus(registry)
    registry.unregister(mine)
    assert prometheus_client.generate_latest(registry) == b""


def test_prometheus_uses_the_default_registry() -> None:
    with exporters.prometheus():
        measure("by default")
    assert value(prometheus_client.REGISTRY, f"{DURATION}_count", "by default") == 1


# logging


def test_log_every_writes_a_line_for_each_n_samples_of_a_path(
    caplog: pytest.LogCaptureFixture, fake: FakeCuda, stream: int
) -> None:
    caplog.set_level(logging.DEBUG, "steps")
    with exporters.log_every(3, "steps", level=logging.DEBUG):
        for ms in (1, 2, 9, 5):
            with gpuprof.timer("gpu", stream=stream):
                fake.work(stream, ms * MS)
        measure("rare", 2)
        gpuprof.flush()
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("steps", logging.DEBUG)
    assert record.getMessage() == "gpu (cuda): 3 samples, mean 4.00 ms, p99 9.00 ms, max 9.00 ms"
    facts = record.__dict__["gpuprof"]
    assert (facts["path"], facts["clock"], facts["count"]) == ("gpu", "cuda", 3)
    assert facts["mean_ms"] == pytest.approx(4, abs=0.01)


def test_log_every_counts_from_line_to_line_with_failures(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "gpuprof")
    with exporters.log_every(2, paths={"a", "b"}):
        measure("a", 4)
        measure("not wanted", 4)
        measure("b")
        fail("b")
        fail("b")
        fail("b")
    told = [record.__dict__["gpuprof"] for record in caplog.records]
    assert [(each["path"], each["count"], each["failed"]) for each in told] == [
        ("a", 2, 0),
        ("a", 2, 0),
        ("b", 1, 1),
        ("b", 0, 2),
    ]
    assert caplog.records[2].getMessage().endswith(", 1 failed")
    assert "mean -" in caplog.records[3].getMessage()


def test_log_every_says_one_in_how_many_were_measured(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gpuprof")
    with exporters.log_every(2):
        measure_few("hot")
    first, *_, last = caplog.records
    assert first.__dict__["gpuprof"]["one_in"] == 1
    assert "measured" not in first.getMessage()
    assert last.__dict__["gpuprof"]["one_in"] > 1
    assert ", 1 in " in last.getMessage()


def test_log_every_tells_the_99th_percentile_from_the_maximum(
    caplog: pytest.LogCaptureFixture, fake: FakeCuda, stream: int
) -> None:
    caplog.set_level(logging.INFO, "gpuprof")
    with exporters.log_every(100):
        for number in range(100):
            with gpuprof.timer("gpu", stream=stream):
                fake.work(stream, (50 if number == 7 else 2 if number == 8 else 1) * MS)
        gpuprof.flush()
    facts = caplog.records[0].__dict__["gpuprof"]
    assert facts["p99_ms"] == pytest.approx(2, abs=0.01)
    assert facts["max_ms"] == pytest.approx(50, abs=0.01)


# Wrong calls, and clients that are not there


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: exporters.log_every(0), ValueError, "n: .*, got 0"),
        (lambda: exporters.log_every(2.5), TypeError, "n: .*, got 2.5"),  # type: ignore[arg-type]
        (lambda: exporters.log_every(2, 7), TypeError, "logger: expected"),  # type: ignore[arg-type]
        (lambda: exporters.log_every(2, level="x"), TypeError, "level"),  # type: ignore[arg-type]
        (lambda: exporters.log_every(2, paths=""), ValueError, "paths"),
        (lambda: exporters.prometheus(7), TypeError, "registry: expected a CollectorRegistry"),
        (lambda: exporters.prometheus(buckets=()), ValueError, "buckets"),
        (lambda: exporters.prometheus(buckets=(2.0, 1.0)), ValueError, "increase"),
        (lambda: exporters.opentelemetry(meter=7), TypeError, "meter: expected a Meter"),
        (lambda: exporters.opentelemetry(tracer=7), TypeError, "tracer: expected a Tracer"),
    ],
)
def test_a_wrong_call_says_what_is_expected(
    call: Callable[[], object], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize(
    ("name", "package", "install"),
    [
        ("opentelemetry", "opentelemetry", "opentelemetry-api"),
        ("prometheus", "prometheus_client", "prometheus-client"),
    ],
)
def test_a_missing_client_names_the_pip_command(
    monkeypatch: pytest.MonkeyPatch, name: str, package: str, install: str
) -> None:
    for module in list(sys.modules):
        if module.partition(".")[0] == package:
            monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModuleNotFoundError, match=f"pip install {install}") as caught:
        getattr(exporters, name)()
    assert caught.value.name == package


def test_a_client_that_fails_ends_the_export_and_nothing_else() -> None:
    def gone(*given: object) -> None:
        raise OSError("the collector is gone")

    instrument = SimpleNamespace(record=gone)
    meter = SimpleNamespace(
        create_histogram=lambda *_, **__: instrument, create_counter=lambda *_, **__: instrument
    )
    with exporters.opentelemetry(meter=meter) as handle:
        measure("step")
        with pytest.warns(RuntimeWarning, match=r"exporters\.opentelemetry raised OSError"):
            gpuprof.flush()
    assert handle.closed


def test_no_client_is_imported_before_it_is_asked_for() -> None:
    out = check_python("""
        import sys
        import gpuprof.exporters
        handle = gpuprof.exporters.log_every(10)
        print({"opentelemetry", "prometheus_client"} & set(sys.modules))
        """)
    assert out.strip() == "set()"
