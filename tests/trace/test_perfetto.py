"""Real traces in Perfetto's engine: it shows what the program did, all of it and nothing else."""

from __future__ import annotations

import asyncio
import os
import random
import re
import threading
import time
from pathlib import Path

import pytest

import gpuprof
from tests.fake_driver.control import FakeCuda
from tests.perfetto.check import check_closed, check_unfinished
from tests.perfetto.engine import TraceProcessor
from tests.perfetto.tables import Slice, Tables
from tests.support.benchmark_results import command
from tests.support.processes import check_cuda
from tests.support.trace_events import cpu_scope as cpu

MS = 1_000_000
US = 1_000
CUTS = 100
FIRST_GPU_TRACK = 1 << 28
LONGEST_TEXT = 4096  # bytes

HOSTILE = [
    'a "quoted" name',
    "ends in a backslash\\",
    'ends in a quote"',
    "back\\slash\\\\es",
    "tab\t, line\n, return\r, escape \x1b[0m, delete \x7f",
    "\x00\x01\x1f",
    'a NUL \x00 and a "quote"',
    "emoji 😀 and family 👩‍👩‍👧",
    "lone \ud83d surrogate",
    "line separator \u2028",
    '{"a":[1]}',
    "</script>",
    "null",
    " ",
    "n" * 10_000_000,
]


def meant(text: str) -> str:
    """Return what Perfetto is to show for a text of the program's."""
    clean = re.sub("[\0\ud800-\udfff]", "\ufffd", text)
    if len(clean.encode()) > LONGEST_TEXT:
        return clean.encode()[: LONGEST_TEXT - len("…".encode())].decode(errors="ignore") + "…"
    return clean + "\u200b" if clean.endswith("\\") else clean


def brief(text: object) -> str:
    return ascii(text)[:30]


def this_thread() -> int:
    return threading.get_native_id()


def on_this_thread(tables: Tables) -> list[Slice]:
    return [each for each in tables.slices if each.track[1] == this_thread()]


# What a program writes itself


@pytest.mark.parametrize("suffix", ["json", "json.gz"])
def test_a_writers_events_are_shown_as_given(
    engine: TraceProcessor, tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"trace.{suffix}"
    now = time.monotonic_ns()
    with gpuprof.TraceWriter(path) as writer:
        writer.span("inner", 50 * US / 1e6, begin_ns=now + 10 * US)
        writer.span(
            "outer",
            100 * US / 1e6,
            begin_ns=now,
            cat="mine",
            args={"n": 1, "text": "x", "list": [1]},
        )
        writer.span("elsewhere", 3 / 1e6, begin_ns=now + 7, tid=77)
        writer.instant("moment", at_ns=now + 20 * US, args={"why": "now"})
        writer.counter("memory", {"used": 5, "free": 2.5}, at_ns=now)
        writer.counter("queue", 7, at_ns=now)
        writer.flow("start", 5, at_ns=now + 10 * US)
        writer.flow("end", 5, at_ns=now + 7, tid=77)
        writer.flow("start", 6, at_ns=now)
        writer.flow("step", 6, at_ns=now + 8, tid=77)
        writer.flow("end", 6, at_ns=now + 20 * US)
        writer.span("pushed", 0.001, cat="io")
    found = check_closed(engine, path)
    outer, inner = found.one("outer"), found.one("inner")
    assert (outer.duration, outer.category, outer.inside) == (100 * US, "mine", ())
    assert outer.args == {"n": 1, "text": "x", "list[0]": 1}
    assert (inner.begin - outer.begin, inner.duration) == (10 * US, 50 * US)
    assert inner.inside == ("outer",)
    assert found.one("elsewhere").track == (outer.track[0], 77)
    assert found.one("moment").inside == ("outer", "inner")
    assert found.one("moment").args == {"why": "now"}
    assert found.one("pushed").duration == US
    assert {(name, value) for name, _, value in found.counters} == {
        ("memory used", 5.0),
        ("memory free", 2.5),
        ("queue value", 7.0),
    }
    names = sorted((a[1], b[1]) for a, b in found.flows)
    assert names == [("elsewhere", "moment"), ("outer", "elsewhere")]


def test_slices_that_cross_are_all_shown(engine: TraceProcessor, path: Path) -> None:
    generator = random.Random(7)
    start = time.monotonic_ns()
    with gpuprof.TraceWriter(path) as writer:
        for i in range(300):
            begin = start + generator.randrange(2000)
            writer.span(
                f"n{i}", generator.choice([0, 1, generator.randrange(500)]) / 1e6, begin_ns=begin
            )
    found = check_closed(engine, path)
    assert {each.name for each in found.slices} == {f"n{i}" for i in range(300)}


@pytest.mark.parametrize("text", HOSTILE, ids=brief)
def test_hostile_texts_are_shown_everywhere(engine: TraceProcessor, path: Path, text: str) -> None:
    now = time.monotonic_ns()
    with gpuprof.TraceWriter(path) as writer:
        writer.span("inner", 1 / 1e6, begin_ns=now)
        writer.span(text, 10 / 1e6, begin_ns=now, cat=text, args={"key": text, text: 1, "after": 2})
        writer.instant(text, cat=text, at_ns=now + 20)
        writer.counter(text, {text: 1})
    found = check_closed(engine, path)
    (slice_, instant) = found.named(meant(text))
    assert (slice_.category, instant.category) == (meant(text), meant(text))
    assert slice_.args == {"key": meant(text), meant(text): 1, "after": 2}
    assert found.counters[0][0] == f"{meant(text)} {meant(text)}"
    assert found.one("inner").inside == (meant(text),)


def test_hostile_values_are_shown(engine: TraceProcessor, path: Path) -> None:
    given = {
        "nan": float("nan"),
        "infinity": float("inf"),
        "large": 2**64 - 1,
        "small": -(2**63),
        "inexact in a browser": 2**53 + 1,
        "exact": 2**53 - 1,
        "deep": {"a": [{"b": 1}]},
        "flag": True,
    }
    with gpuprof.TraceWriter(path) as writer:
        writer.instant("moment", args=given)
        writer.counter("c", {"good": 1, "bad": float("nan")})
        writer.counter("d", float("inf"))
    found = check_closed(engine, path)
    args = found.one("moment").args
    assert int(str(args["large"]), 0) == 2**64 - 1
    assert args["small"] == str(-(2**63))
    assert args["inexact in a browser"] == str(2**53 + 1)
    assert (args["exact"], args["flag"]) == (2**53 - 1, 1)
    assert args["deep.a[0].b"] == 1
    assert [name for name, _, _ in found.counters] == ["c good"]


# What gpuprof writes by itself


def test_annotations_marks_and_counters_are_shown(engine: TraceProcessor, path: Path) -> None:
    with gpuprof.trace(path):
        with gpuprof.annotate("fwd", category="train", payload=7):
            gpuprof.mark("here", payload=2.5)
            with cpu("inner"):
                gpuprof.counter("memory").set(used=1, free=2)
            gpuprof.counter("queue").set(3)
    found = check_closed(engine, path)
    assert found.one("fwd").category == "train"
    assert 7 in found.one("fwd").args.values()
    assert found.one("here").inside == ("fwd",)
    assert 2.5 in found.one("here").args.values()
    assert found.one("inner").inside == ("fwd",)
    assert [(name, value) for name, _, value in found.counters] == [
        ("memory used", 1.0),
        ("memory free", 2.0),
        ("queue value", 3.0),
    ]


@pytest.mark.parametrize("text", HOSTILE, ids=brief)
def test_scopes_and_annotations_with_hostile_names_are_shown(
    engine: TraceProcessor, path: Path, text: str
) -> None:
    with gpuprof.trace(path):
        with cpu("outer"), cpu(text):
            if "\0" not in text:  # which no annotation can have
                with gpuprof.annotate(text, category=text, payload=1):
                    gpuprof.mark(text)
    found = check_closed(engine, path)
    assert len(on_this_thread(found)) == (2 if "\0" in text else 4)
    assert found.one("outer").inside == ()
    annotated = {each.name for each in found.slices if each.category != "scope"}
    assert annotated == (set() if "\0" in text else {meant(text)})


def test_every_thread_has_a_track_with_its_name(engine: TraceProcessor, path: Path) -> None:
    tids: dict[str, int] = {}
    everybody = threading.Barrier(4)

    def work() -> None:
        tids[threading.current_thread().name] = this_thread()
        everybody.wait()
        for _ in range(50):
            with cpu("outer"), cpu("inner"):
                pass
        everybody.wait()

    with gpuprof.trace(path):
        threads = [threading.Thread(target=work, name=f"worker {i}") for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = check_closed(engine, path)
    for name, tid in tids.items():
        (track,) = {each.track for each in found.slices if each.track[1] == tid}
        assert found.threads[track] == name
        assert len(found.on(track)) == 100
    assert all(each.inside == ("outer",) for each in found.named("inner"))


def test_scopes_that_tasks_interleave_are_all_shown(engine: TraceProcessor, path: Path) -> None:
    async def task(name: str) -> None:
        with cpu(name):
            await asyncio.sleep(0.001)
            with cpu(f"{name} inner"):
                await asyncio.sleep(0.002)
            await asyncio.sleep(0.001)

    async def all_tasks() -> None:
        await asyncio.gather(*(task(f"task {i}") for i in range(5)))

    with gpuprof.trace(path):
        asyncio.run(all_tasks())
    found = check_closed(engine, path)
    for i in range(5):
        assert found.one(f"task {i}").duration >= found.one(f"task {i} inner").duration > MS
    assert {each.track[0] for each in found.slices} == {os.getpid()}


def test_an_arrow_leads_from_the_launch_to_the_streams_track(
    engine: TraceProcessor, fake: FakeCuda, path: Path
) -> None:
    stream, other = fake.stream_create(), fake.stream_create()
    with gpuprof.trace(path):
        for _ in range(3):
            with gpuprof.timer("step", stream=stream):
                with gpuprof.timer("fwd", stream=stream):
                    fake.work(stream, 2 * MS)
            with gpuprof.timer("copy", stream=other):
                fake.work(other, 1 * MS)
    found = check_closed(engine, path)
    fake.stream_destroy(stream)
    fake.stream_destroy(other)
    for name in ("step", "fwd", "copy"):
        on_gpu = [each for each in found.named(name) if each.category == "gpu"]
        on_host = [each for each in found.named(name) if each.category == "scope"]
        assert len(on_gpu) == len(on_host) == 3
        for gpu, host in zip(on_gpu, on_host, strict=True):
            assert gpu.begin >= host.begin
            assert int(gpu.track[1]) >= FIRST_GPU_TRACK
            assert (host.point, gpu.point) in found.flows
    assert len(found.flows) == 9
    streams = {}
    for each in (each for each in found.slices if each.category == "gpu"):
        title = found.threads[each.track]
        streams.setdefault(title.split(" (")[0], set()).add(each.name)
    assert all(title.startswith("GPU 0") for title in streams)
    assert sorted(map(sorted, streams.values())) == [["copy"], ["fwd", "step"]]


def test_merged_traces_are_shown_with_all_of_both(
    engine: TraceProcessor, fake_path: Path, tmp_path: Path
) -> None:
    merged = tmp_path / "merged.json.gz"
    paths = [tmp_path / f"rank{rank}.json" for rank in range(2)]
    body = """
        for i in range(5):
            with gpuprof.timer("step", stream=stream), gpuprof.annotate("fwd", payload=i):
                fake.work(stream, 1_000_000)
    """
    for rank, path in enumerate(paths):
        check_cuda(fake_path, body, GPUPROF_TRACE_OUT=str(path), RANK=str(rank), WORLD_SIZE="2")
    assert command("trace", "merge", *paths, "-o", merged) == 0
    parts = [check_closed(engine, path) for path in paths]
    found = check_closed(engine, merged)
    assert len(found.processes) == 2
    for names in ("slices", "flows", "threads"):
        assert len(getattr(found, names)) == sum(len(getattr(each, names)) for each in parts)
    for launched, ran in found.flows:
        assert launched[0][0] == ran[0][0], "an arrow from one process to another"


# What is cut off


def test_a_trace_cut_anywhere_shows_every_whole_event(
    engine: TraceProcessor, fake: FakeCuda, stream: int, tmp_path: Path
) -> None:
    path = tmp_path / "trace.json.gz"
    with gpuprof.trace(path) as writer:
        for i in range(20):
            with cpu("step"), gpuprof.timer('w"ork\\', stream=stream):
                fake.work(stream, 1 * MS)
            writer.counter("c", i)
            writer.instant("emoji 😀", args={"i": i})
        gpuprof.flush()
        writer.flush()
        data = Path(f"{path}.part").read_bytes()
    generator = random.Random(11)
    for end in [len(data), *(generator.randrange(2, len(data)) for _ in range(CUTS - 1))]:
        check_unfinished(engine, data[:end])
