"""What a graphed callable tells of itself: as data, as text and as HTML."""

from __future__ import annotations

import dataclasses
import json
import pickle
from typing import Any

import pytest

import gpuprof
from gpuprof.results import GraphCounts, GraphedCallableStats

ONE = GraphCounts("mlp", "args[0]: float32 (32, 256)", 1200, 7, 3 << 20, 0.25)
OTHER = GraphCounts("mlp (2)", "args[0]: float32 (8, 256)", 4, None, None, 0.05)
SOME = GraphedCallableStats(
    captures=3,
    replays=1204,
    eager_calls=1,
    hits=1204,
    misses=4,
    evictions=1,
    recaptures=2,
    failures=5,
    padded_calls=17,
    numerics=2,
    capture_s=0.4,
    memory_bytes=3 << 20,
    graphs=(ONE, OTHER),
)


def test_it_is_a_value() -> None:
    assert pickle.loads(pickle.dumps(SOME)) == SOME
    with pytest.raises(dataclasses.FrozenInstanceError):
        SOME.hits = 0  # type: ignore[misc]


def test_the_text_has_every_figure_that_is_not_nothing() -> None:
    assert repr(SOME).splitlines() == [
        "1,204 replays, 1 eager call, 17 padded, 2 verified but for rounding "
        "(99.7 % found a graph)",
        "3 captures in 400 ms, 5 failed, 1 evicted, 2 captured again; 2 graphs now, 3.0 MiB",
        "graph    arguments                   replays  nodes   memory  capture",
        "---------------------------------------------------------------------",
        "mlp      args[0]: float32 (32, 256)    1,200      7  3.0 MiB   250 ms",
        "mlp (2)  args[0]: float32 (8, 256)         4                  50.0 ms",
    ]


def test_before_the_first_call_there_is_little_to_say() -> None:
    empty = GraphedCallableStats()
    assert empty.hit_rate is None
    assert repr(empty).splitlines() == [
        "0 replays, 0 eager calls",
        "0 captures in 0 ns; 0 graphs now",
    ]
    assert json.loads(empty.to_json())["graphs"] == []
    assert "<table" not in empty._repr_html_()


def test_one_graph_is_shown_alone() -> None:
    head, _, line = repr(ONE).splitlines()
    assert head.split() == ["graph", "arguments", "replays", "nodes", "memory", "capture"]
    assert line.split()[0] == "mlp"
    assert ONE._repr_html_().count("<tr>") == 2


def test_a_hostile_name_is_neither_markup_nor_broken_text() -> None:
    hostile = dataclasses.replace(ONE, name="<script>\x1b[2J\ud800", arguments="a\nb & c")
    stats = dataclasses.replace(SOME, graphs=(hostile,))
    shown = stats._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    for text in (repr(stats), shown, stats.to_json()):
        text.encode()
        assert "\x1b" not in text
    assert len(repr(stats).splitlines()) == len(repr(SOME).splitlines()) - 1


def test_arguments_are_written_in_short(cupy: Any) -> None:
    def arguments(*call: Any) -> str:
        fast = gpuprof.make_graphed_callable(lambda *arrays: arrays[0], call)
        return fast.stats().graphs[0].arguments

    one, many = cupy.array([1.0]), [cupy.array([1.0] * n) for n in range(1, 10)]
    assert arguments(one, {"x": one}, 3) == "args[0]: float32 (1,), args[1]['x']: float32 (1,)"
    assert arguments(*many).endswith("args[3]: float32 (4,), and 5 more")
