"""Labels of scopes: rows of the statistics, labels in Prometheus, attributes of spans; bounded."""

from __future__ import annotations

import pickle
from typing import Any

import prometheus_client
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

import gpuprof
from gpuprof import exporters
from tests.exporters.test_spans import Traced
from tests.support.processes import check_python

COUNT = "gpuprof_scope_duration_seconds_count"


def labelled(name: str, **labels: Any) -> gpuprof.Scope:
    return gpuprof.timer(name, backend="cpu", labels=labels)


def measure(scope: gpuprof.Scope) -> gpuprof.Sample:
    with scope as sample:
        pass
    return sample


def test_each_combination_has_a_row() -> None:
    for _ in range(3):
        measure(labelled("step", batch=8, model="a"))
    measure(labelled("step", model="a", batch=16))
    measure(labelled("step"))
    counts = {row.path: row.host.count for row in gpuprof.stats().rows}
    assert counts == {'step{batch="8",model="a"}': 3, 'step{batch="16",model="a"}': 1, "step": 1}


def test_a_labelled_scope_decorates_and_pickles() -> None:
    scope = pickle.loads(pickle.dumps(labelled("step", batch=8)))
    assert scope.name == 'step{batch="8"}'

    @labelled("call", batch=2)
    def call() -> int:
        return 1

    assert call() == 1
    assert gpuprof.stats()['call{batch="2"}'].host.count == 1


def test_prometheus_has_the_labels_that_it_was_told() -> None:
    registry = prometheus_client.CollectorRegistry()
    with exporters.prometheus(registry, labels=["batch", "model"], paths=["request", "request/*"]):
        for batch in (8, 8, 16):
            with labelled("request", batch=batch, user="not asked for"):
                measure(labelled("step", model='a"\\\n'))
        measure(labelled("elsewhere", batch=1))

    def count(path: str, batch: str, model: str) -> float | None:
        labels = {"path": path, "clock": "cpu", "batch": batch, "model": model}
        return registry.get_sample_value(COUNT, labels)

    assert count("request", "8", "") == 2
    assert count("request", "16", "") == 1
    assert count("request/step", "8", 'a"\\\n') == 2
    assert count("elsewhere", "1", "") is None
    with pytest.raises(ValueError, match="labels: expected those that the registry has"):
        exporters.prometheus(registry, labels=["batch"])


def test_opentelemetry_has_them_as_attributes_of_points_and_spans() -> None:
    reader, traced = InMemoryMetricReader(), Traced()
    meter = MeterProvider(metric_readers=[reader]).get_meter("test")
    with traced.export(meter=meter, paths="step"):
        measure(labelled("step", batch=8))
        measure(gpuprof.timer('step{clock="a",path="b"}', backend="cpu"))
        gpuprof.flush()
    span, by_hand = traced.spans
    assert by_hand.attributes is not None
    assert (by_hand.attributes["path"], by_hand.attributes["clock"]) == ("step", "cpu")
    attributes: Any = span.attributes
    assert (span.name, attributes["path"], attributes["batch"]) == ("step", "step", "8")
    data: Any = reader.get_metrics_data()
    found = {
        metric.name: dict(metric.data.data_points[0].attributes)
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
    }
    assert found[exporters.VISITS] == {"path": "step", "clock": "cpu", "batch": "8"}


def test_paths_mean_scopes_with_any_labels() -> None:
    found: list[str] = []
    with gpuprof.on_sample(lambda samples: found.extend(each.path for each in samples), "a/b"):
        with labelled("a", x=1):
            measure(labelled("b", y=2))
            measure(labelled("bb", y=2))
    with gpuprof.on_sample(lambda samples: found.extend(each.path for each in samples), "a/*"):
        with labelled("a", x=2):
            measure(labelled("b"))
        with labelled("ab", x=2):
            measure(labelled("b"))
    assert found == ['a{x="1"}/b{y="2"}', 'a{x="2"}/b']


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ('f{x}{b="1"}', "f{x}"),
        ('f{a="1"}{b="1"}', 'f{a="1"}'),
        ('f{a="}{",b="\\""}', "f"),
        ('{a="1"}', '{a="1"}'),
        ('{{a="1"}', "{"),
        ("}", "}"),
        *[(name, name) for name in ("f{x}", "{}", "g{a=1}", 'h{a="1"', 'f{1a="1"}', 'f{="1"}')],
        *[(name, name) for name in ('f{a="1",}', 'f{a="1\\"}', 'f{a-b="1"}', 'f{a="1"}}')],
    ],
)
def test_paths_leave_out_what_exporters_take_for_labels(name: str, plain: str) -> None:
    for paths in ("f", plain):
        registry = prometheus_client.CollectorRegistry()
        with exporters.prometheus(registry, paths=paths):
            measure(gpuprof.timer(name, backend="cpu"))
        found = {each.labels["path"] for metric in registry.collect() for each in metric.samples}
        assert found == ({plain} if paths == plain else set())


def test_a_value_without_a_utf_8_form_is_replaced() -> None:
    assert labelled("step", user="\ud800\0").name == 'step{user="\ufffd\ufffd"}'


def test_a_key_has_200_values_and_one_warning() -> None:
    check_python("""
        import gpuprof
        def scope(**labels):
            return gpuprof.timer("step", backend="cpu", labels=labels)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            names = [scope(user=number, kind="a").name for number in range(300)]
            again = scope(user=7, kind="b").name
        assert len(set(names)) == 201
        assert names[199] == 'step{kind="a",user="199"}', names[199]
        assert set(names[200:]) == {'step{kind="a",user="other"}'}
        assert again == 'step{kind="b",user="7"}'
        (warning,) = caught
        assert "the label 'user' has more than 200 values" in str(warning.message)
        assert warning.filename == "<string>"
        """)


@pytest.mark.parametrize(
    ("name", "labels", "error", "text"),
    [
        ("step", {"a b": 1}, ValueError, "labels: expected keys such as 'batch'"),
        ("step", {"path": 1}, ValueError, "labels: expected keys such as 'batch'"),
        ("step", {"__a": 1}, ValueError, "labels: expected keys such as 'batch'"),
        ("step", {1: 1}, TypeError, "labels: expected a mapping"),
        ("step", ["a"], TypeError, "labels: expected a mapping"),
        ("step", {"a": None}, TypeError, r"labels\['a'\]: expected a str or a number"),
        (None, {"a": 1}, ValueError, "labels: a scope without a name"),
    ],
)
def test_wrong_labels_are_named(name: Any, labels: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        gpuprof.timer(name, labels=labels)
