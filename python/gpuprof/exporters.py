"""Finished samples for monitoring: OpenTelemetry, Prometheus and `logging`.

Each function is `gpuprof.on_sample` with a listener of its own, and returns its handle. The clients
are the user's, imported when an exporter is made: ``pip install opentelemetry-api`` and
``pip install prometheus-client``. Durations are seconds: the GPU's, where the clock is ``cuda``. A
failed sample has no duration there and is counted apart. Where a budget leaves visits out, counters
add for each sample the visits that it stands for; histograms and lines are of the measured ones.
"""

from __future__ import annotations

import logging
import math
import weakref
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import gpuprof._core as _core
import gpuprof._startup  # noqa: F401 (a program may import nothing but this module)
from gpuprof._common.checks import sequence, type_error, value_error, whole
from gpuprof._common.imports import need
from gpuprof._common.labels import checked_key, taken_apart
from gpuprof._common.units import duration, one_in
from gpuprof._timing.listeners import Listener, on_sample
from gpuprof._timing.spans import SpanMaker

__all__ = ["log_every", "opentelemetry", "prometheus"]

Paths: TypeAlias = "str | Iterable[str] | None"
Samples: TypeAlias = "list[_core.Sample]"

# In seconds. The clients' own begin at 5 ms, which is longer than most of what runs on a GPU.
BUCKETS = (
    *(1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3),
    *(1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
DURATION = "gpuprof.scope.duration"
FAILURES = "gpuprof.scope.failures"
VISITS = "gpuprof.scope.visits"
_SECONDS = "gpuprof_scope_duration_seconds"
_DURATION = "Time from a scope's begin to its end, on its clock"
_VISITS = "Scopes that did not fail; more than were timed where a budget leaves visits out"
_FAILURES = "Scopes whose body raised, or that were not timed"


def opentelemetry(
    *,
    meter: Any = None,
    tracer: Any = None,
    buckets: Sequence[float] = BUCKETS,
    paths: Paths = None,
) -> Listener:
    """Record samples in an OpenTelemetry histogram, and as spans if a tracer is given.

    The histogram is ``gpuprof.scope.duration`` in seconds, with the attributes ``path`` and
    ``clock``; the counters ``gpuprof.scope.visits`` and ``gpuprof.scope.failures`` have the visits
    that did not fail and those that did. Returns the `gpuprof.Listener`.

    Parameters
    ----------
    meter : opentelemetry.metrics.Meter, optional
        None is the global meter provider's meter ``gpuprof``.
    tracer : opentelemetry.trace.Tracer, optional
        Each sample becomes a span from the host's entry of the scope to its exit, with
        ``gpuprof.duration`` as a further attribute. It is a child of the span that is current at
        the entry, and the current one inside of the scope. None makes no spans.
    buckets : sequence of float
        Boundaries of the histogram in seconds, as advice: a view of the SDK wins.
    paths : str or iterable of str, optional
        As for `gpuprof.on_sample`.

    Raises
    ------
    ModuleNotFoundError
        Without the client, opentelemetry-api.
    """
    what = "gpuprof.exporters.opentelemetry()"
    metrics = need("opentelemetry.metrics", what, "opentelemetry-api")
    if meter is None:
        meter = metrics.get_meter("gpuprof")
    _require(meter, "create_histogram", "meter", "a Meter of OpenTelemetry")
    if tracer is not None:
        _require(tracer, "start_span", "tracer", "a Tracer of OpenTelemetry")
    bounds = _checked_buckets(buckets)
    spans = None if tracer is None else SpanMaker(tracer)
    handle = on_sample(_OpenTelemetry(meter, spans, bounds), paths)
    if spans is not None:
        spans.follow(handle)
    return handle


def prometheus(
    registry: Any = None,
    *,
    buckets: Sequence[float] = BUCKETS,
    paths: Paths = None,
    labels: Sequence[str] = (),
) -> Listener:
    """Count samples in metrics of Prometheus' client.

    The histogram is ``gpuprof_scope_duration_seconds``, with the labels ``path`` and ``clock``; the
    counters ``gpuprof_scope_visits_total`` and ``gpuprof_scope_failures_total`` have the visits
    that did not fail and those that did. They stay in the registry after the handle was closed, and
    the next call for the registry goes on with them. Returns that handle, a `gpuprof.Listener`.

    Parameters
    ----------
    registry : prometheus_client.CollectorRegistry, optional
        None is the client's default one.
    buckets : sequence of float
        Upper bounds of the histogram's buckets in seconds.
    paths : str or iterable of str, optional
        As for `gpuprof.on_sample`.
    labels : sequence of str
        Labels of scopes that become further labels, empty where a scope and those around it have
        none; others are left out.

    Raises
    ------
    ModuleNotFoundError
        Without the client, prometheus-client.
    ValueError
        The registry has such metrics of somebody else's, or with other buckets, or an earlier
        handle for it is still open, which would count every sample twice.
    """
    client = need("prometheus_client", "gpuprof.exporters.prometheus()", "prometheus-client")
    if registry is None:
        registry = client.REGISTRY
    _require(registry, "register", "registry", "a CollectorRegistry of prometheus_client")
    bounds = _checked_buckets(buckets)
    keys = tuple(checked_key("labels", key) for key in sequence("labels", labels))
    metrics = _metrics.get(registry)
    if metrics is None:
        metrics = _Prometheus(client, registry, bounds, keys)
    elif metrics.handle is not None and not metrics.handle.closed:
        message = "registry: gpuprof exports to it already; close that handle first"
        raise ValueError(message)
    elif metrics.bounds != bounds:
        raise value_error(buckets, "buckets", f"those that the registry has: {metrics.bounds}")
    elif metrics.keys != keys:
        raise value_error(labels, "labels", f"those that the registry has: {metrics.keys}")
    _metrics[registry] = metrics
    metrics.handle = on_sample(metrics, paths)
    return metrics.handle


def log_every(
    n: int,
    logger: logging.Logger | logging.LoggerAdapter[Any] | str | None = None,
    *,
    level: int = logging.INFO,
    paths: Paths = None,
) -> Listener:
    """Log a line for every `n` samples of a path: count, mean, 99th percentile and maximum.

    Each line is about the samples since the one before. Its record has the numbers in
    ``record.gpuprof``, a dict, with times in milliseconds. Returns the `gpuprof.Listener`.

    Parameters
    ----------
    n : int
        How many samples of a path make a line. Eight bytes are kept for each.
    logger : logging.Logger, LoggerAdapter or str, optional
        Where to, or its name. None is the logger ``gpuprof``.
    level : int
        The level of the lines.
    paths : str or iterable of str, optional
        As for `gpuprof.on_sample`.

    Raises
    ------
    ValueError, TypeError
        An argument is not what is listed above.

    Examples
    --------
    >>> import logging, sys
    >>> import gpuprof
    >>> logger = logging.getLogger("steps")
    >>> logger.addHandler(logging.StreamHandler(sys.stdout))
    >>> logger.setLevel(logging.INFO)
    >>> with gpuprof.exporters.log_every(2, logger):
    ...     for _ in range(5):
    ...         with gpuprof.timer("step", backend="cpu"):
    ...             pass  # doctest: +ELLIPSIS
    step (cpu): 2 samples, mean ..., p99 ..., max ...
    step (cpu): 2 samples, mean ..., p99 ..., max ...
    """
    if logger is None or isinstance(logger, str):
        logger = logging.getLogger(logger or "gpuprof")
    _require(logger, "log", "logger", "a logger of logging, or its name")
    return on_sample(_Lines(whole("n", n), logger, whole("level", level, 0)), paths)


class _OpenTelemetry:
    __qualname__ = "opentelemetry"

    def __init__(self, meter: Any, spans: SpanMaker | None, bounds: Sequence[float]) -> None:
        self._spans = spans
        self._durations = meter.create_histogram(
            DURATION,
            unit="s",
            description=_DURATION,
            explicit_bucket_boundaries_advisory=bounds,
        )
        self._failures = meter.create_counter(FAILURES, unit="{scope}", description=_FAILURES)
        self._visits = meter.create_counter(VISITS, unit="{scope}", description=_VISITS)

    def __call__(self, samples: Samples) -> None:
        for sample in samples:
            names, labels = taken_apart(sample.names)
            attributes = {"path": "/".join(names), "clock": sample.clock, **labels}
            more = {**attributes, "thread.id": sample.thread_id, "gpuprof.failed": sample.failed}
            if sample.failed:
                self._failures.add(sample.one_in, attributes)
            else:
                more["gpuprof.duration"] = sample.ms / 1e3
                self._durations.record(sample.ms / 1e3, attributes)
                self._visits.add(sample.one_in, attributes)
            if sample.one_in > 1:
                more["gpuprof.one_in"] = sample.one_in
            if self._spans is not None:
                self._spans.end(sample, more)


class _Prometheus:
    """The listener of `prometheus`, with the metrics that it has put into a registry."""

    __qualname__ = "prometheus"

    def __init__(
        self, client: Any, registry: Any, bounds: Sequence[float], keys: tuple[str, ...]
    ) -> None:
        self.bounds, self.keys = bounds, keys
        self.handle: Listener | None = None
        options = {"labelnames": ["path", "clock", *keys], "registry": registry}
        made = []
        try:
            made += [client.Histogram(_SECONDS, _DURATION, buckets=bounds, **options)]
            made += [client.Counter("gpuprof_scope_failures", _FAILURES, **options)]
            made += [client.Counter("gpuprof_scope_visits", _VISITS, **options)]
        except ValueError:
            for each in made:
                registry.unregister(each)
            raise
        self._durations, self._failures, self._visits = made

    def __call__(self, samples: Samples) -> None:
        for sample in samples:
            names, own = taken_apart(sample.names)
            labels = "/".join(names), sample.clock, *(own.get(key, "") for key in self.keys)
            if sample.failed:
                self._failures.labels(*labels).inc(sample.one_in)
            else:
                self._durations.labels(*labels).observe(sample.ms / 1e3)
                self._visits.labels(*labels).inc(sample.one_in)


# What `prometheus` has put into each registry.
_metrics: weakref.WeakKeyDictionary[Any, _Prometheus] = weakref.WeakKeyDictionary()


class _Lines:
    __qualname__ = "log_every"

    def __init__(self, n: int, logger: Any, level: int) -> None:
        self._n = n
        self._logger = logger
        self._level = level
        self._since: dict[tuple[tuple[str, ...], str], array[float]] = {}  # NaN for a failed one
        self._visits = Counter[tuple[tuple[str, ...], str]]()

    def __call__(self, samples: Samples) -> None:
        for sample in samples:
            key = sample.names, sample.clock
            times = self._since.setdefault(key, array("d"))
            times.append(math.nan if sample.failed else sample.ms)
            self._visits[key] += sample.one_in
            if len(times) >= self._n:
                self._log(sample, self._since.pop(key), self._visits.pop(key))

    def _log(self, sample: _core.Sample, times: Sequence[float], visits: int) -> None:
        ordered = sorted(ms for ms in times if not math.isnan(ms))
        count, failed = len(ordered), len(times) - len(ordered)
        mean = sum(ordered) / count if count else None
        p99 = ordered[math.ceil(0.99 * count) - 1] if count else None
        largest = ordered[-1] if count else None
        facts = {
            "path": sample.path,
            "clock": sample.clock,
            "count": count,
            "failed": failed,
            "one_in": visits / len(times),
            "mean_ms": mean,
            "p99_ms": p99,
            "max_ms": largest,
        }
        self._logger.log(
            self._level,
            "%s (%s): %d samples, mean %s, p99 %s, max %s%s%s",
            *(sample.path, sample.clock, count),
            *map(duration, (mean, p99, largest)),
            f", {failed} failed" if failed else "",
            f", {one_in(visits / len(times))} measured" if visits > len(times) else "",
            extra={"gpuprof": facts},
        )


def _require(given: Any, method: str, name: str, expected: str) -> None:
    if not callable(getattr(given, method, None)):
        raise type_error(given, name, expected)


def _checked_buckets(buckets: Any) -> tuple[float, ...]:
    is_list = isinstance(buckets, Sequence) and not isinstance(buckets, str) and len(buckets) > 0
    if (
        not is_list
        or any(isinstance(each, bool) or not isinstance(each, (int, float)) for each in buckets)
        or any(math.isnan(each) for each in buckets)
        or any(low >= high for low, high in pairwise(buckets))
    ):
        expected = "numbers of seconds that increase, such as (0.001, 0.01, 0.1)"
        raise value_error(buckets, "buckets", expected)
    return tuple(map(float, buckets))
