"""Spans of `gpuprof.exporters.opentelemetry`: which hangs below which, across tasks and threads."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import context, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased

import gpuprof
from gpuprof import exporters
from tests.fake_driver.control import FakeCuda
from tests.support.processes import check_python
from tests.support.scopes import cpu

MS = 1_000_000


class Traced:
    """A tracer, an exporter that it has, and the spans that come out."""

    def __init__(self, sampler: Any = None) -> None:
        self._spans = InMemorySpanExporter()
        self._provider = TracerProvider(sampler=sampler)
        self._provider.add_span_processor(SimpleSpanProcessor(self._spans))
        self.tracer = self._provider.get_tracer("test")

    def export(self, **options: Any) -> gpuprof.Listener:
        return exporters.opentelemetry(tracer=self.tracer, **options)

    def span(self, name: str) -> ReadableSpan:
        (found,) = (each for each in self.spans if each.name == name)
        return found

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self._spans.get_finished_spans()

    def parent(self, name: str) -> str | None:
        """Return the name of the span above, which must be in the same trace."""
        span = self.span(name)
        if span.parent is None:
            return None
        (above,) = (each for each in self.spans if _ids(each) == _ids_of(span.parent))
        return above.name


def _ids_of(context: Any) -> tuple[int, int]:
    return context.trace_id, context.span_id


def _ids(span: ReadableSpan) -> tuple[int, int]:
    return _ids_of(span.get_span_context())


def current() -> Any:
    return trace.get_current_span()


@pytest.fixture
def traced() -> Traced:
    return Traced()


@pytest.fixture(autouse=True)
def no_span_is_left_current() -> Iterator[None]:
    yield
    assert current() is trace.INVALID_SPAN


def test_scopes_hang_below_the_request_and_what_is_inside_below_them(traced: Traced) -> None:
    with traced.export():
        with traced.tracer.start_as_current_span("request"):
            with cpu("step"):
                with cpu("fwd"), traced.tracer.start_as_current_span("query"):
                    pass
                with cpu("bwd"):
                    pass
        with cpu("alone"):
            pass
        gpuprof.flush()
    above = {name: traced.parent(name) for name in ("step", "fwd", "query", "bwd", "alone")}
    assert above == {
        "step": "request",
        "fwd": "step",
        "query": "fwd",
        "bwd": "step",
        "alone": None,
    }
    assert len({_ids(span)[0] for span in traced.spans}) == 2


def test_the_gpus_time_comes_into_the_span_of_its_own_request(
    traced: Traced, fake: FakeCuda, stream: int
) -> None:
    with traced.export():
        for ms in (3, 5):
            with traced.tracer.start_as_current_span(f"request {ms}"):
                with gpuprof.timer(f"gpu {ms}", stream=stream):
                    fake.work(stream, ms * MS)
        with traced.tracer.start_as_current_span("the reader's"):
            gpuprof.flush()
    for ms in (3, 5):
        assert traced.parent(f"gpu {ms}") == f"request {ms}"
        attributes: Any = traced.span(f"gpu {ms}").attributes
        assert attributes["gpuprof.duration"] == pytest.approx(ms / 1e3, abs=1e-5)
        assert attributes["clock"] == "cuda"


def test_tasks_and_threads_take_the_context_as_contextvars_do(traced: Traced) -> None:
    async def answer(number: int) -> None:
        with traced.tracer.start_as_current_span(f"request {number}"):
            async with cpu(f"step {number}"):
                await asyncio.sleep(0)
                await asyncio.gather(child(number), asyncio.to_thread(work, f"thread {number}"))

    async def child(number: int) -> None:
        with cpu(f"task {number}"):
            await asyncio.sleep(0)

    def work(name: str) -> None:
        with cpu(name):
            pass

    async def serve() -> None:
        await asyncio.gather(*map(answer, range(3)))

    with traced.export():
        asyncio.run(serve())
        with cpu("outer"):
            copied = contextvars.copy_context()
            for name, target in (("bare", work), ("carried", lambda n: copied.run(work, n))):
                thread = threading.Thread(target=target, args=(name,))
                thread.start()
                thread.join()
        gpuprof.flush()
    for number in range(3):
        assert traced.parent(f"step {number}") == f"request {number}"
        assert traced.parent(f"task {number}") == f"step {number}"
        assert traced.parent(f"thread {number}") == f"step {number}"
    assert traced.parent("bare") is None
    assert traced.parent("carried") == "outer"


def test_the_context_is_put_back_where_the_body_raises(traced: Traced) -> None:
    with traced.export():
        with pytest.raises(KeyError), cpu("step"):
            assert current().name == "step"
            raise KeyError
        assert current() is trace.INVALID_SPAN
        gpuprof.flush()
    attributes: Any = traced.span("step").attributes
    assert attributes["gpuprof.failed"] is True
    assert "gpuprof.duration" not in attributes


def test_an_interrupt_at_the_entry_puts_the_context_back(traced: Traced) -> None:
    def synchronize() -> None:
        raise KeyboardInterrupt

    with traced.export():
        with pytest.raises(KeyboardInterrupt):
            with gpuprof.timer("step", backend=gpuprof.SyncBackend("tpu", synchronize)):
                pass
        assert current() is trace.INVALID_SPAN


def test_a_decorated_coroutine_and_generators_out_of_order(traced: Traced) -> None:
    @gpuprof.timer("answer", backend="cpu")
    async def answer() -> str:
        await asyncio.sleep(0)
        return str(current().name)

    def numbers(name: str) -> Iterator[int]:
        with cpu(name):
            yield 1

    def interleave() -> None:
        first, second = numbers("first"), numbers("second")
        next(first)
        next(second)
        third = numbers("third")
        next(third)
        assert [*second] == []
        assert [*first] == []
        assert current().name == "third"
        assert [*third] == []
        assert current() is trace.INVALID_SPAN

    with traced.export():
        assert asyncio.run(answer()) == "answer"
        contextvars.copy_context().run(interleave)
        gpuprof.flush()
    assert traced.span("first")
    assert traced.parent("second") == "first"
    assert traced.parent("third") == "second"


def test_a_context_that_the_body_leaves_behind_does_not_stay(traced: Traced) -> None:
    with traced.export(), cpu("step"):
        context.attach(trace.set_span_in_context(traced.tracer.start_span("left")))
    assert current() is trace.INVALID_SPAN


def test_scopes_that_no_listener_gets_make_no_spans(traced: Traced) -> None:
    with traced.export(paths="step/*"):
        with traced.tracer.start_as_current_span("request"):
            with cpu("step"):
                assert current().name == "request"
                with gpuprof.timer(backend="cpu"), cpu("fwd"):
                    assert current().name == "fwd"
        gpuprof.flush()
    assert {span.name for span in traced.spans} == {"request", "fwd"}
    assert traced.parent("fwd") == "request"


def test_a_scope_that_was_skipped_ends_its_span_at_once(
    traced: Traced, fake: FakeCuda, stream: int
) -> None:
    with traced.export():
        fake.begin_capture(stream)
        with pytest.warns(RuntimeWarning, match="skipped"), gpuprof.timer("step", stream=stream):
            pass
        fake.graph_destroy(fake.end_capture(stream))
        span = traced.span("step")
    assert "gpuprof.duration" not in (span.attributes or {})


def test_after_the_end_of_the_exporter_no_scope_makes_a_span(traced: Traced) -> None:
    handle = traced.export()
    with cpu("open"):
        handle.close()
        with cpu("later"):
            assert current().name == "open"
    assert current() is trace.INVALID_SPAN
    assert traced.spans == ()


def test_a_trace_that_is_not_sampled_stays_so_below() -> None:
    traced = Traced(ParentBased(ALWAYS_OFF))
    with traced.export():
        with cpu("step"):
            assert not current().get_span_context().trace_flags.sampled
        gpuprof.flush()
    assert traced.spans == ()


def test_a_tracer_that_raises_ends_the_spans_and_not_the_program() -> None:
    class Broken:
        def start_span(self, *_arguments: object, **_options: object) -> None:
            raise OSError("no tracer")

    with exporters.opentelemetry(tracer=Broken()) as handle:
        for _ in range(2):
            with cpu("step"):
                pass
        with pytest.warns(RuntimeWarning, match="raised OSError: no tracer"):
            gpuprof.flush()
    assert isinstance(handle.error, OSError)


class Raising:
    """A tracer that raises `error`, if there is one, in place of beginning a span."""

    def __init__(self, tracer: Any, error: BaseException | None = None) -> None:
        self._tracer = tracer
        self.error = error

    def start_span(self, *arguments: Any, **options: Any) -> Any:
        if self.error:
            raise self.error
        return self._tracer.start_span(*arguments, **options)


def test_an_error_at_one_entry_costs_that_scope_its_parent(traced: Traced) -> None:
    tracer = Raising(traced.tracer)
    with exporters.opentelemetry(tracer=tracer) as handle:
        for number in range(3):
            tracer.error = OSError("busy") if number == 1 else None
            with traced.tracer.start_as_current_span("request"), cpu(f"step {number}"):
                tracer.error = None
        gpuprof.flush()
        assert not handle.closed
    lost = [traced.span(f"step {number}").parent is None for number in range(3)]
    assert lost == [False, True, False]


def test_an_interrupt_in_one_tracer_puts_the_context_of_another_back(traced: Traced) -> None:
    with (
        traced.export(),
        exporters.opentelemetry(tracer=Raising(traced.tracer, KeyboardInterrupt())),
    ):
        with pytest.raises(KeyboardInterrupt), cpu("step"):
            pass
        assert current() is trace.INVALID_SPAN


def test_nothing_is_called_where_no_exporter_makes_spans() -> None:
    check_python("""
        import gpuprof
        from opentelemetry import trace
        with gpuprof.on_sample(lambda samples: None), gpuprof.exporters.opentelemetry():
            spans = sys.modules["gpuprof._timing.spans"]
            spans.enter = spans.leave = None  # a call would raise
            with gpuprof.timer("step", backend="cpu"):
                assert trace.get_current_span() is trace.INVALID_SPAN
        """)
