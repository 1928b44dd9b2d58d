"""A server with the GPU's time of each request in the request's own trace.

    python server.py 200       # answers 200 requests at once, and says what was measured
    uvicorn server:app         # serves them; :9000 has the metrics

It needs fastapi, which gives each request a span, httpx, opentelemetry-sdk and prometheus-client.
The work is on torch's GPU where there is one, else on the CPU.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from fastapi import FastAPI
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import start_http_server

import gpuprof

try:
    import torch

    ON_GPU = torch.cuda.is_available()
except ImportError:
    ON_GPU = False


def compute(batch: int) -> float:
    """Stand for a model."""
    with gpuprof.timer("compute", labels={"batch": batch}):
        if ON_GPU:
            values = torch.rand(batch, 512, 512, device="cuda")
            return float((values @ values).sum())
        return float(sum(sorted(number * 7919 % 1009 for number in range(500 * batch))))


@asynccontextmanager
async def measured(_app: FastAPI) -> AsyncIterator[None]:
    """Measure while the server runs. What was pending at the end is waited for."""
    names = ["answer", "compute"]  # a thread begins at the root, so it is not answer/compute
    metrics = gpuprof.exporters.prometheus(labels=["batch"], paths=names)
    tracer = trace.get_tracer("gpuprof")
    with metrics, gpuprof.exporters.opentelemetry(tracer=tracer, paths=names):
        yield
        gpuprof.flush()


app = FastAPI(lifespan=measured)


@app.get("/answer")
async def answer(batch: int = 8) -> dict[str, float]:
    """Answer in a thread, which takes the context of the request along."""
    async with gpuprof.timer("answer", labels={"batch": batch}):
        return {"result": await asyncio.to_thread(compute, batch)}


async def load(count: int) -> None:
    """Send requests of three sizes at once, without a network."""
    transport = httpx.ASGITransport(app)
    async with measured(app), httpx.AsyncClient(transport=transport, base_url="http://a") as client:
        paths = [f"/answer?batch={2 ** (number % 3)}" for number in range(count)]
        for response in await asyncio.gather(*map(client.get, paths)):
            response.raise_for_status()


def trace_to(exporter: SpanExporter) -> TracerProvider:
    """Send all spans of the process there."""
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=65_536))
    trace.set_tracer_provider(provider)
    return provider


if __name__ == "__main__":
    spans = InMemorySpanExporter()
    provider = trace_to(spans)
    asyncio.run(load(int(sys.argv[1])))
    provider.force_flush()
    found = spans.get_finished_spans()
    print(gpuprof.stats())
    own = [each for each in found if each.instrumentation_scope.name == "gpuprof"]
    traces = {each.context.trace_id for each in found}
    print(f"{len(own)} of {len(found)} spans in {len(traces)} traces are of gpuprof")
else:
    start_http_server(9000)
