"""Traces: names and values that want to break the file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import gpuprof
from tests.support.processes import check_python
from tests.support.trace_events import events, measured, names

HOSTILE = [
    'quote " here',
    "back\\slash",
    "ends in \\",
    "line\nbreak",
    "tab\t",
    "\x00\x01\x1f\x7f",
    "é\u2028🚀",
    "a" * 5000,
    "a\ud800b",
]


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_any_name_is_strict_json_and_itself(path: Path, name: str) -> None:
    with gpuprof.TraceWriter(path) as writer:
        writer.span(name, 0.1, cat=name)
    (slice_,) = events(path)
    if len(name) > 4096:
        assert slice_["name"].startswith("a" * 4000)
        assert slice_["name"].endswith("…")
    else:
        shown = name.replace("\ud800", "\ufffd")
        shown = shown.replace("\0", "\ufffd")  # where Perfetto would cut it
        assert slice_["name"].rstrip("\u200b") == shown
        assert slice_["cat"].rstrip("\u200b") == shown
    assert not slice_["name"].endswith("\\")


def test_a_name_of_ten_megabytes_is_cut(path: Path) -> None:
    with gpuprof.trace(path) as writer:
        writer.span("x" * 10_000_000, 0.1, cat="y" * 10_000_000)
        measured("z" * 10_000_000)
    assert path.stat().st_size < 100_000
    assert len(events(path)) == 2


def test_any_argument_is_strict_json(path: Path) -> None:
    class Loud:
        def __repr__(self) -> str:
            raise RuntimeError

    deep: list[Any] = []
    for _ in range(100):
        deep = [deep]
    args = {
        "nan": math.nan,
        "inf": math.inf,
        "minus": -math.inf,
        "big": 2**64,
        "exact": 2**53,
        "long": 10**5000,
        "loud": Loud(),
        "deep": deep,
        "set": {1},
        "text": "\ud800",
        3: None,
        "list": [1, (2.5, True), {"k": "v"}],
    }
    with gpuprof.TraceWriter(path) as writer:
        writer.instant("here", args=args)
    found = events(path, "i")[0]["args"]
    assert (found["nan"], found["inf"], found["minus"]) == ("NaN", "Infinity", "-Infinity")
    assert (found["exact"], int(found["big"], 0)) == (2**53, 2**64)
    assert found["list"] == [1, [2.5, True], {"k": "v"}]
    assert "Loud" in found["loud"]
    assert found["set"] == "{1}"
    assert "3" in found


# What fills the tables of a process has one of its own.


def test_more_names_than_are_kept_are_all_written_and_more_categories_share_one(path: Path) -> None:
    other = path.with_name("categories.json")
    check_python(
        f"""
        import gpuprof
        with gpuprof.TraceWriter({str(path)!r}) as writer:
            for number in range(11_000):
                writer.instant(f"name {{number}}")
        with gpuprof.TraceWriter({str(other)!r}) as writer:
            for number in range(1_500):
                writer.instant("moment", cat=f"category {{number}}")
            writer.instant("known", cat="category 0")
        """
    )
    assert names(path, "i") == [f"name {number}" for number in range(11_000)]
    categories = [event["cat"] for event in events(other, "i")]
    assert len(categories) == 1_501
    assert categories[-1] == "category 0"
    assert categories[1_499] == "(other)"


def test_numbers_of_numpy_are_numbers(path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    with gpuprof.trace(path):
        gpuprof.counter("queue").set(numpy.int64(3))
        gpuprof.counter("load").set(numpy.float32(0.5))
        with pytest.raises(TypeError, match="expected numbers, got"):
            gpuprof.counter("queue").set(numpy.zeros(1))
        with pytest.raises(TypeError, match="expected numbers, got"):
            gpuprof.counter("queue").set(numpy.bool_(True))
    values = {event["name"]: event["args"]["value"] for event in events(path, "C")}
    assert values == {"queue": 3, "load": 0.5}


def test_a_writer_takes_numbers_of_numpy_too(path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    with gpuprof.TraceWriter(path) as writer:
        writer.span("slice", numpy.float32(0.5), cat="c", tid=numpy.int64(7))
        writer.counter("queue", {"a": numpy.int32(4)}, at_ns=numpy.int64(10**9))
    (slice_,) = events(path)
    assert (slice_["dur"], slice_["tid"]) == (500, 7)
    (counter,) = events(path, "C")
    assert counter["args"] == {"a": 4}
