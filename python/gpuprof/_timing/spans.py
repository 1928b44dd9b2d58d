"""Spans of OpenTelemetry: each begins where a scope is entered and ends where its sample is done.

A span is begun in the context of its scope's entry, and is the current one until the exit. So it
hangs below the span that was current, what is begun inside hangs below it, and its ids are known
long before the GPU is done. The context goes with tasks and threads as that of the client does.
"""

from __future__ import annotations

import importlib
import time
from contextlib import suppress
from contextvars import Token
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gpuprof._core as _core
from gpuprof._common.labels import taken_apart

if TYPE_CHECKING:
    from gpuprof._timing.listeners import Listener

# More than can wait to be measured and to be handed on: what is older was dropped somewhere.
_MOST_OPEN = 32_768
_NEVER_HANDED_ON = {"dropped", "skipped", "captured"}

# Those whose listener was open when a scope was last entered.
_makers: list[SpanMaker] = []


@dataclass(eq=False)
class _Change:
    """A context that a scope has set, and what comes back at its exit."""

    token: Token[Any]
    context: Any
    before: Any


# Of each open scope.
_changes: dict[_core.Sample, list[_Change]] = {}


class SpanMaker:
    """The spans of one exporter. `follow` begins; the end of its listener ends it."""

    def __init__(self, tracer: Any) -> None:
        self._tracer = tracer
        self._context = importlib.import_module("opentelemetry.context")
        self._trace = importlib.import_module("opentelemetry.trace")
        # By sample: the span, and what the wall clock is ahead of the monotonic one.
        self._open: dict[_core.Sample, tuple[Any, int]] = {}
        self.listener: Listener | None = None

    def follow(self, listener: Listener) -> None:
        """Make spans of what the listener gets, from now on until it is closed."""
        self.listener = listener
        _makers.append(self)
        _core._set_spans(True)

    def enter(self, sample: _core.Sample) -> None:
        span = self._begun(sample, None, time.monotonic_ns())
        before = self._context.get_current()
        context = self._trace.set_span_in_context(span)
        change = _Change(self._context.attach(context), context, before)
        _changes.setdefault(sample, []).append(change)
        while len(self._open) > _MOST_OPEN:
            self._open.pop(next(iter(self._open)))[0].end()

    def leave(self, sample: _core.Sample) -> None:
        if sample.state in _NEVER_HANDED_ON and sample in self._open:
            self._open.pop(sample)[0].end()

    def end(self, sample: _core.Sample, attributes: dict[str, Any]) -> None:
        """End the span of a finished sample, or make one without a parent where there is none.

        There is none of scopes inside a graph's replay, of those entered before, and of those at
        whose entry the client raised an exception.
        """
        if sample not in self._open:
            self._begun(sample, self._context.Context(), sample.host_begin_ns)
        span, ahead = self._open.pop(sample)
        span.set_attributes(attributes)
        span.end(end_time=sample.host_end_ns + ahead)

    def _begun(self, sample: _core.Sample, context: Any, begin_ns: int) -> Any:
        ahead = time.time_ns() - time.monotonic_ns()
        names, labels = taken_apart(sample.names)
        span = self._tracer.start_span(
            names[-1],
            context=context,
            attributes={"path": "/".join(names), **labels},
            start_time=begin_ns + ahead,
        )
        self._open[sample] = span, ahead
        return span


def enter(sample: _core.Sample) -> bool:
    """Begin the spans of a scope; whether there are any. Called by C++."""
    for maker in [*_makers]:
        listener = maker.listener
        if listener is None or listener.closed:
            if maker in _makers:
                _makers.remove(maker)
            _core._set_spans(bool(_makers))
        elif listener._queue.wants(sample):
            try:
                maker.enter(sample)
            except Exception:  # the client's: what lasts is met again at the end, and reported
                pass
            except BaseException:
                leave(sample)
                raise
    return sample in _changes


def leave(sample: _core.Sample) -> bool:
    """Put the context back that `enter` has changed; whether it has. Called by C++."""
    changes = _changes.pop(sample, None)
    for change in reversed(changes or []):
        _undo(change)
    for maker in [*_makers]:
        maker.leave(sample)
    return changes is not None


def _undo(change: _Change) -> None:
    current = change.token.var
    if current.get(None) is change.context:
        current.set(change.before)
        return
    opened = [each for found in [*_changes.values()] for each in found]
    inside = [each for each in opened if each.before is change.context]
    for each in inside:  # still open, as generators' may be
        each.before = change.before
    if not inside:
        # In another context it was not set; the client's own `detach` would log that as an error.
        with suppress(ValueError):
            current.reset(change.token)
