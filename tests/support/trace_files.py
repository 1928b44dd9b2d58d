"""Small traces for tests, and a strict reader of what the tools write."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Event = dict[str, Any]


def _no_constant(text: str) -> float:
    message = f"{text} is not JSON"
    raise ValueError(message)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    assert len(result) == len(pairs), f"a key twice: {[key for key, _ in pairs]}"
    return result


def strict(data: bytes) -> Any:
    """Parse JSON that nothing may be wrong with."""
    text = data.decode("utf-8", "strict")
    return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_no_duplicates)


def written(path: Path, data: bytes) -> Path:
    """Write a file, compressed if its name says so, and return its path."""
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def load(path: Path) -> dict[str, Any]:
    """Read a closed trace strictly."""
    data = path.read_bytes()
    result = strict(gzip.decompress(data) if path.suffix == ".gz" else data)
    assert isinstance(result, dict)
    return result


def slice_event(name: str, ts: float, dur: float, tid: int = 7, **more: Any) -> Event:
    return {"ph": "X", "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, **more}


def named(*tids: int) -> list[Event]:
    """The metadata that leaves a validator without notes."""

    def metadata(name: str, tid: int, value: str) -> Event:
        return {"ph": "M", "name": name, "pid": 1, "tid": tid, "args": {"name": value}}

    threads = [metadata("thread_name", tid, f"thread {tid}") for tid in tids]
    return [metadata("process_name", 0, "python"), *threads]


def object_form(events: Iterable[Event], **members: Any) -> bytes:
    return json.dumps({**members, "traceEvents": list(events)}).encode()


def array_form(events: Iterable[Event]) -> bytes:
    """The form of a trace that is being written: one event a line, without an end."""
    return b"[\n" + b"".join(json.dumps(event).encode() + b",\n" for event in events)


def own_metadata(base: int, rank: int = 0, pid: int = 1) -> Event:
    args = {"baseTimeNanoseconds": base, "rank": rank}
    return {"ph": "M", "name": "gpuprof", "pid": pid, "tid": 7, "args": args}
