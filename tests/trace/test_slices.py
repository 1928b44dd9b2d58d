"""Slices that a program gives: where and how long they are in the file, and what may be given."""

from __future__ import annotations

import itertools
import json
import random
import time
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

import gpuprof
from tests.support.processes import check_python
from tests.support.trace_events import events, names

Tree = tuple[int, int, list[Any]]


def tiled(randomly: random.Random, begin: int, end: int, depth: int = 0) -> Tree:
    """Return a slice, filled with others that are."""
    if depth == 5 or randomly.random() < 0.2:
        return begin, end, []
    cuts = sorted(randomly.randint(begin, end) for _ in range(randomly.randint(0, 3)))
    edges = itertools.pairwise([begin, *cuts, end])
    return begin, end, [tiled(randomly, left, right, depth + 1) for left, right in edges]


def in_order(tree: Tree, order: str, inside: str = "") -> Iterator[tuple[str, int, int]]:
    begin, end, parts = tree
    if order == "beginnings":
        yield f"{inside}.", begin, end
    for number, part in enumerate(parts):
        yield from in_order(part, order, f"{inside}.{number}")
    if order == "ends":
        yield f"{inside}.", begin, end


@pytest.mark.parametrize("order", ["ends", "beginnings"])
def test_nested_slices_are_written_as_they_were_given(path: Path, order: str) -> None:
    randomly = random.Random(7)
    zero = time.monotonic_ns()
    given: dict[str, tuple[int, int, int]] = {}
    with gpuprof.TraceWriter(path) as writer:
        for number in range(300):
            tid, length = randomly.randint(1, 3), randomly.choice((3, 5_000, 10_000))
            tree = tiled(randomly, number * 10_000, number * 10_000 + length)
            for name, begin, end in in_order(tree, order, str(number)):
                given[name] = (tid, begin, end - begin)
                writer.span(name, (end - begin) / 1e6, begin_ns=zero + begin, tid=tid)
    exact = json.loads(path.read_text(), parse_float=Decimal)
    found = [event for event in exact["traceEvents"] if event["ph"] == "X"]
    offset = found[0]["ts"] * 1000 - given[found[0]["name"]][1]
    assert {e["name"]: (e["tid"], e["ts"] * 1000 - offset, e["dur"] * 1000) for e in found} == given


def test_the_outer_one_of_equal_slices_comes_first(path: Path) -> None:
    now = time.monotonic_ns()
    with gpuprof.TraceWriter(path) as writer:
        for name, begin, duration in (("inmost", 10, 30), ("inner", 0, 50), ("outer", 0, 50)):
            writer.span(name, duration / 1e6, begin_ns=now + begin, tid=4)
            writer.span("elsewhere", 1e-6, begin_ns=now, tid=5)
        writer.span("outmost", 50e-6, begin_ns=now, tid=4)
    here = [name for name in names(path) if name != "elsewhere"]
    assert here == ["inmost", "outmost", "outer", "inner"]


class Text(str):
    __slots__ = ()


def test_arguments_of_unusual_types_are_written_like_the_usual_ones(path: Path) -> None:
    now = time.monotonic_ns()
    with gpuprof.TraceWriter(path) as writer:
        writer.span(name="usual", duration_ms=5e-6, begin_ns=now, cat="c", tid=3, args={"n": 1})
        args = MappingProxyType({"n": 1})
        writer.span(Text("text"), Fraction(5, 10**6), begin_ns=now, cat=Text("c"), tid=3, args=args)
        writer.span("\ud800", 5e-6, begin_ns=now, cat="", tid=None, args=None)
        writer.span("ends now", 2, begin_ns=None)
        writer.span(Text("ends now"), 0.5, cat="c", tid=7)
    usual, text, lone, whole, half = events(path)
    assert [usual["name"], text["name"], lone["name"]] == ["usual", "text", "\ufffd"]
    for key in ("cat", "tid", "ts", "dur", "args"):
        assert usual[key] == text[key]
    assert "cat" not in lone
    assert "cat" not in whole
    assert (whole["dur"], half["dur"], half["tid"]) == (2000.0, 500.0, 7)


def test_a_call_that_does_not_fit_is_told_by_its_name(path: Path) -> None:
    with gpuprof.TraceWriter(path) as writer:
        for call, message in (
            (lambda: writer.span("a"), r"span\(\) missing .*'duration_ms'"),
            (lambda: writer.span("a", 1, "c"), r"span\(\) takes .* positional"),
            (lambda: writer.span("a", 1, kat="c"), r"span\(\) got .*'kat'"),
            (lambda: writer.span("a", 1, name="b"), r"span\(\) got multiple .*'name'"),
            (lambda: gpuprof.trace_span("a"), r"trace_span\(\) missing .*'duration_ms'"),
            (lambda: gpuprof.trace_span("a", 1, begin_ns=0), r"trace_span\(\) got .*'begin_ns'"),
            (lambda: gpuprof.trace_span("a", 1, args=None), r"trace_span\(\) got .*'args'"),
        ):
            with pytest.raises(TypeError, match=message):
                call()
    assert writer.stats()["events"] == 0


# One's own span into whatever traces are open


def test_a_span_is_in_every_open_trace(tmp_path: Path) -> None:
    first, second, own = (tmp_path / f"{name}.json" for name in ("first", "second", "own"))
    gpuprof.trace_span("before", 1.0, cat="engine")
    with gpuprof.trace(first), gpuprof.TraceWriter(own):
        gpuprof.trace_span("decode", 2.5, cat="engine", tid=9)
        with gpuprof.trace(second):
            gpuprof.trace_span("both", duration_ms=1)
    assert names(first) == ["decode", "both"]
    assert names(second) == ["both"]
    assert names(own) == []
    (decode, both) = events(first)
    assert (decode["cat"], decode["dur"], decode["tid"]) == ("engine", 2500.0, 9)
    assert both["dur"] == 1000.0


@pytest.mark.parametrize("is_open", [False, True])
def test_a_wrong_span_is_told_whether_a_trace_is_open_or_not(path: Path, is_open: bool) -> None:
    writer = gpuprof.trace(path)
    if is_open:
        writer.start()
    for (name, duration_ms, cat, tid), error in (
        ((3, 1.0, "c", None), TypeError),
        (("", 1.0, "c", None), ValueError),
        (("n", 1.0, 5, None), TypeError),
        (("n", float("nan"), "c", None), ValueError),
        (("n", -1, "c", None), ValueError),
        (("n", True, "c", None), TypeError),
        (("n", 1.0, "c", 2**28), ValueError),
    ):
        with pytest.raises(error):
            gpuprof.trace_span(name, duration_ms, cat=cat, tid=tid)  # type: ignore[arg-type]
    writer.close()
    assert not is_open or names(path) == []


def test_a_span_opens_the_trace_of_the_environment(path: Path) -> None:
    check_python("import gpuprof; gpuprof.trace_span('a', 1.0)", GPUPROF_TRACE_OUT=str(path))
    assert names(path) == ["a"]
