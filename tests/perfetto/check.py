"""The checks that any trace of gpuprof must pass, in Perfetto and by a strict parser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.perfetto import engine as engines
from tests.perfetto.engine import TraceProcessor
from tests.perfetto.tables import Tables, differences, shown
from tests.perfetto.written import Event, complete_events, strict, written


@contextmanager
def engine_or_skip() -> Iterator[TraceProcessor]:
    """Start Perfetto's engine, or skip the test and say what is missing."""
    if reason := engines.missing():
        pytest.skip(reason)
    with TraceProcessor() as engine:
        yield engine


def check_events(engine: TraceProcessor, data: bytes, events: list[Event]) -> Tables:
    """Check that Perfetto shows of `data` what `events` say, and nothing else."""
    tables = shown(engine, data)
    problems = differences(written(events), tables)
    assert not problems, "\n".join(problems)
    return tables


def check_closed(engine: TraceProcessor, path: Path) -> Tables:
    """Check a finished trace: strict JSON, complete in Perfetto, no `.part` left. Return it."""
    assert not Path(f"{path}.part").exists(), f"{path}.part is still there"
    data = path.read_bytes()
    return check_events(engine, data, strict(data)["traceEvents"])


def check_unfinished(engine: TraceProcessor, data: bytes) -> Tables:
    """Check what there is of an unfinished trace: every whole event, and nothing else."""
    return check_events(engine, data, complete_events(data))
