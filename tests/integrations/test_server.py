"""The example server: the time of each request is in its own trace, under load."""

from __future__ import annotations

import importlib.util
import re

import pytest

from tests.support.processes import ROOT, check_python

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("fastapi", "httpx")),
    reason="FastAPI is not installed",
)
SERVER = ROOT / "docs" / "examples" / "server.py"
COUNT = 150

LOAD = f"""
import asyncio, collections, importlib.util, prometheus_client
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
prometheus_client.start_http_server = lambda port: None
spec = importlib.util.spec_from_file_location("server", {str(SERVER)!r})
server = importlib.util.module_from_spec(spec)
spec.loader.exec_module(server)
exported = InMemorySpanExporter()
provider = server.trace_to(exported)
asyncio.run(server.load({COUNT}))
provider.force_flush()
spans = exported.get_finished_spans()
"""


def test_each_request_has_its_own_times_in_its_own_trace() -> None:
    check_python(
        f"""{LOAD}
by_id = {{(span.context.trace_id, span.context.span_id): span for span in spans}}
def lineage(span):
    above = span.parent and by_id[span.parent.trace_id, span.parent.span_id]
    return [span.name, *(lineage(above) if above else ())]
own = [span for span in spans if span.instrumentation_scope.name == "gpuprof"]
assert collections.Counter(span.name for span in own) == {{"answer": {COUNT}, "compute": {COUNT}}}
for span in own:
    names = lineage(span)
    assert names[:-1].count("answer") == 1, names
    assert names[0] == span.name, names
    assert names[-1] == "GET /answer", names
    assert span.attributes["gpuprof.duration"] > 0
assert len({{span.context.trace_id for span in own}}) == {COUNT}
assert collections.Counter(
    span.attributes["batch"] for span in spans if span.name == "answer"
) == {{"1": 50, "2": 50, "4": 50}}
"""
    )


def test_the_metrics_count_each_request_by_its_labels() -> None:
    check_python(
        f"""{LOAD}
for path in ("answer", "compute"):
    for batch in ("1", "2", "4"):
        labels = {{"path": path, "clock": "cpu", "batch": batch}}
        count = prometheus_client.REGISTRY.get_sample_value("gpuprof_scope_visits_total", labels)
        assert count == 50, (labels, count)
"""
    )


def test_it_says_what_was_measured() -> None:
    out = check_python(
        f"""
import runpy
sys.argv = ["server.py", "30"]
runpy.run_path({str(SERVER)!r}, run_name="__main__")
"""
    )
    assert 'answer{batch="4"}' in out
    assert re.search(r"^60 of \d+ spans in 30 traces are of gpuprof$", out, re.MULTILINE)
