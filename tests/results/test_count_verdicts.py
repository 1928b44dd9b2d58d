"""Verdicts on what is counted besides time: memory and launches."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from gpuprof import BenchResult, Verdict
from gpuprof._results.count_verdicts import (
    beside_time,
    judge_launches,
    judge_memory,
    notes_of,
)
from gpuprof._results.verdict import judge_all
from gpuprof.results import Decision, Launches
from tests.support.benchmark_results import bench

MIB = 1 << 20
GIB = 1 << 30
SAME, NODATA, INCOMPARABLE = Verdict.SAME, Verdict.NODATA, Verdict.INCOMPARABLE
MEMORY, LAUNCHES = Verdict.MEMORY, Verdict.LAUNCHES
UNMOVED = {"change_bytes": 0}
MACHINE = {"cpu": "Test CPU", "python": "3.12.1", "gpu": "NVIDIA H200"}
SLOW = Decision(Verdict.SLOW, 1.0, 2.0, 2.0, rule="takes 100 % more time")
VARIES = Launches({"a": 2}, varies="+1 b, 2 -> 3 kernels")
JUDGES = {"memory": judge_memory, "launches": judge_launches}


def run(kind: str, count: Any, machine: Mapping[str, Any] = MACHINE, **more: Any) -> BenchResult:
    """Return a result with a peak in bytes, or with kernels by name."""
    samples = [1.0 + place / 1000 for place in range(30)]
    found = bench("step", samples, machine=machine)
    if kind == "memory":
        return replace(found, memory={} if count is None else {"peak_bytes": count, **UNMOVED})
    return replace(found, launches=Launches(count, **more) if type(count) is dict else count)


def decided(kind: str, base: list[BenchResult], new: list[BenchResult], **options: Any) -> Decision:
    found = JUDGES[kind](base, new, **options)
    assert found is not None
    return found


def judged(kind: str, base: list[Any], *new: Any, **options: Any) -> Decision:
    sides = ([run(kind, each) for each in side] for side in (base, new))
    return decided(kind, *sides, **options)


@pytest.mark.parametrize(
    ("kind", "base", "new", "rule", "figures"),
    [
        (
            "memory",
            1239 * MIB,
            1536 * MIB,
            "peak memory 1.21 GiB -> 1.50 GiB, +24 %, more than 5 %",
            (1239 * MIB, 1536 * MIB),
        ),
        (
            "launches",
            {"a": 14},
            {"a": 14, "b": 1},
            "launches more: +1 b, 14 -> 15 kernels",
            (14, 15),
        ),
    ],
)
def test_growth_is_said_in_words(
    kind: str, base: Any, new: Any, rule: str, figures: tuple[float, float]
) -> None:
    found = judged(kind, [base] * 3, new)
    assert (found.verdict.value, found.grew, found.runs, found.kind) == (kind, True, 3, kind)
    assert (found.rule, (found.base, found.new)) == (rule, figures)
    assert str(found) == f"{kind.upper()}: {rule}"


@pytest.mark.parametrize(
    ("kind", "base", "new", "verdict", "rule"),
    [
        ("memory", [100 * MIB], 105 * MIB, SAME, "+5 %, not more than 5 %"),
        ("memory", [100 * MIB], 105 * MIB + 512, MEMORY, "+5 %, more than 5 %"),
        ("memory", [2 * MIB], 3 * MIB, SAME, "+50 %, not more than 1.0 MiB"),
        ("memory", [2 * MIB], 3 * MIB + 512, MEMORY, "+50 %, more than 5 %"),
        ("memory", [GIB], GIB, SAME, "1.00 GiB -> 1.00 GiB"),
        ("memory", [GIB], GIB // 2, SAME, "1.00 GiB -> 512 MiB, -50 %"),
        ("memory", [0], 0, SAME, "0 B -> 0 B"),
        ("memory", [0], 512, SAME, "0 B -> 512 B, not more than 1.0 MiB"),
        ("memory", [0], 2 * MIB, MEMORY, "0 B -> 2.00 MiB, more than 1.0 MiB"),
        ("memory", [2 * MIB], 0, SAME, "2.00 MiB -> 0 B, -100 %"),
        # A peak that a baseline run had is no growth.
        ("memory", [GIB] * 3 + [2 * GIB], 2 * GIB, SAME, "+100 %, but a baseline run had 2.00 GiB"),
        ("memory", [GIB] * 3 + [2 * GIB], 2 * GIB + 1, MEMORY, ""),
        ("launches", [{"a": 2}], {"a": 2}, SAME, ""),
        ("launches", [{"a": 2}], {"a": 1}, SAME, ""),
        ("launches", [{"a": 3}], {"fused": 1}, SAME, ""),
        ("launches", [{"a": 2}], {"a": 1, "b": 1}, LAUNCHES, ""),
        ("launches", [{"a": 2}], Launches({"a": 2}, 1), LAUNCHES, ""),
        ("launches", [{"a": 2}], Launches({"a": 1}, memsets=1), LAUNCHES, ""),
        ("launches", [{"a": 2}], Launches(memsets=1), SAME, ""),
        ("launches", [{}], {"a": 1}, LAUNCHES, ""),
        ("launches", [{}], {}, SAME, ""),
        # What any run of the baseline launched is the same; others are compared with the last.
        ("launches", [{"a": 2}, {"b": 2}, {"a": 2}], {"b": 2}, SAME, ""),
        ("launches", [{"b": 9}, {"a": 2}], {"a": 3}, LAUNCHES, "more: +1 a, 2 -> 3 kernels"),
        # Calls that differ are not compared.
        (
            "launches",
            [{"a": 1}],
            VARIES,
            NODATA,
            "calls differ in what they launch: +1 b, 2 -> 3 kernels",
        ),
        ("launches", [VARIES], {"a": 3}, NODATA, ""),
        ("launches", [VARIES, {"a": 1}], {"a": 3}, LAUNCHES, ""),
    ],
)
def test_the_limits(kind: str, base: list[Any], new: Any, verdict: Verdict, rule: str) -> None:
    found = judged(kind, base, new)
    assert (found.verdict, found.rule.endswith(rule)) == (verdict, True), found.rule


def test_the_threshold_of_the_memory_is_the_callers() -> None:
    assert judged("memory", [GIB], GIB + 20 * MIB, threshold=0.01).grew
    assert not judged("memory", [GIB], GIB + 400 * MIB, threshold=0.5).grew
    assert judged("memory", [GIB], GIB + 2 * MIB, threshold=0).grew


def test_several_new_runs_count_with_their_median_and_must_launch_the_same() -> None:
    assert not judged("memory", [GIB], GIB, GIB, 2 * GIB).grew
    assert judged("memory", [GIB], GIB, 2 * GIB, 2 * GIB).grew
    assert judged("launches", [{"a": 1}], {"a": 3}, {"a": 2}).verdict is NODATA


@pytest.mark.parametrize(
    ("kind", "count", "what", "them"),
    [
        ("memory", GIB, "peak memory", "it"),
        ("launches", {"a": 1}, "launches", "them"),
    ],
)
def test_without_counts_there_is_no_verdict(kind: str, count: Any, what: str, them: str) -> None:
    nothing = run(kind, None)
    assert JUDGES[kind]([nothing], [nothing]) is JUDGES[kind]([], [nothing]) is None
    start = f"{what} {'was' if them == 'it' else 'were'} not compared: "
    for base in ([None, None], [None], []):
        found = judged(kind, base, count)
        assert found.verdict is NODATA
        assert found.rule == f"{start}no baseline run has {them}; save new runs"
    found = judged(kind, [count], None)
    assert (found.verdict, found.rule) == (NODATA, f"{start}the new run has none")
    assert judged(kind, [None, count], count).runs == 1


@pytest.mark.parametrize(
    ("gpu", "why"),
    [
        ("NVIDIA A100", "GPU NVIDIA A100, now it is NVIDIA H200"),
        ("", "GPU ?, now it is NVIDIA H200"),
    ],
)
def test_the_memory_of_another_gpu_is_not_compared(gpu: str, why: str) -> None:
    other, new = run("memory", GIB, {**MACHINE, "gpu": gpu}), run("memory", 2 * GIB)
    found = decided("memory", [other], [new])
    assert found.verdict is INCOMPARABLE
    assert found.rule.endswith(f"the baseline has {why}")
    alike = decided("memory", [other, run("memory", GIB)], [new])
    assert (alike.grew, alike.runs) == (True, 1)


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("gpu", "GPU"),
        ("cc", "compute capability"),
        ("torch", "torch"),
        ("cublas", "cuBLAS"),
        ("cudnn", "cuDNN"),
        ("cupy", "CuPy"),
        ("triton", "Triton"),
    ],
)
def test_what_chooses_kernels_must_be_the_same(key: str, name: str) -> None:
    def of(count: int, version: str | None) -> BenchResult:
        return run("launches", {"a": count}, versions={key: version} if version else {})

    base, new = of(1, "1.0"), of(2, "2.0")
    found = decided("launches", [base], [new])
    assert found.verdict is INCOMPARABLE
    assert found.rule.endswith(f"the baseline has {name} 1.0, now it is 2.0")
    unknown = decided("launches", [of(1, None)], [new])
    assert unknown.grew, "a library that was not loaded has chosen nothing"
    alike = decided("launches", [of(1, "2.0"), base], [new])
    assert (alike.verdict, alike.runs) == (LAUNCHES, 1)


def test_the_driver_need_not_be_the_same_but_the_source_of_counts_must() -> None:
    def found(base: dict[str, Any], new: dict[str, Any]) -> Decision:
        sides = ([run("launches", {"a": 1}, **base)], [run("launches", {"a": 2}, **new)])
        return decided("launches", *sides)

    assert found({"versions": {"driver": "1"}}, {"versions": {"driver": "2"}}).grew
    other = found({}, {"source": "torch.profiler"})
    assert other.verdict is INCOMPARABLE
    assert other.rule.endswith("the baseline has counts from graph, now it is torch.profiler")


def test_notes_tell_what_is_no_failure() -> None:
    def notes(base: Any, new: Any, verdict: Verdict = SAME) -> list[str]:
        return notes_of(Decision(verdict, launches=judged("launches", [base], new)))

    assert notes({"a": 1}, {"a": 1}) == notes({"a": 1}, {"a": 2}) == []
    assert notes({"a": 2}, {"a": 1}) == ["launches less: -1 a, 2 -> 1 kernels"]
    assert notes(None, {"a": 1}) == [
        "launches were not compared: no baseline run has them; save new runs"
    ]
    assert notes({"a": 1}, None) == ["launches were not compared: the new run has none"]
    assert notes({"a": 2}, {"a": 1}, INCOMPARABLE) == []
    assert notes_of(Decision(SAME)) == []


# Beside the time


@pytest.mark.parametrize(
    ("kind", "counts", "rule"),
    [
        ("memory", (GIB, 2 * GIB), "MEMORY: peak memory 1.00 GiB -> 2.00 GiB"),
        ("launches", ({"a": 1}, {"a": 2}), "LAUNCHES: launches more: +1 a, 1 -> 2 kernels"),
    ],
)
def test_a_decision_on_time_has_the_others_and_comes_back_from_plain_data(
    kind: str, counts: tuple[Any, Any], rule: str
) -> None:
    base, new = (run(kind, each) for each in counts)
    found = judge_all({"grown": ([base], [new]), "same": ([base], [base])})
    assert [each.verdict for each in found.values()] == [SAME, SAME]
    assert [each.kind for each in found["grown"].grown] == [kind]
    assert found["same"].grown == []
    assert f"\n{rule}" in str(found["grown"])
    assert kind.upper() not in str(found["same"])
    data = json.loads(json.dumps(found["grown"].to_dict()))
    assert Decision.from_dict(data) == found["grown"]
    for each in JUDGES:  # an older file has none of them
        del data[each]
    older = Decision.from_dict(data)
    assert older.verdict is SAME
    assert older.beside == []
    with pytest.raises(ValueError, match=r"^Decision: expected verdict, .*; wrong: .'more'"):
        Decision.from_dict({**found["grown"].grown[0].to_dict(), "more": 1})
    for other in set(JUDGES) - {kind}:  # in the place of another kind
        with pytest.raises(ValueError, match=rf"^Decision.{other}: expected verdict, "):
            Decision.from_dict({**data, other: found["grown"].grown[0].to_dict()})
    with pytest.raises(ValueError, match=rf"^Decision.{kind}: expected verdict, "):
        Decision.from_dict({**data, kind: data})


def test_the_threshold_of_the_memory_reaches_it() -> None:
    pair = ([run("memory", GIB)], [run("memory", 2 * GIB)])
    assert judge_all({"a": pair}, memory_threshold=1.0)["a"].grown == []


def test_of_two_measurements_the_one_with_the_smaller_peak_counts() -> None:
    base, *new = (run("memory", each) for each in (GIB, GIB, 2 * GIB, 2 * GIB))
    for repeated, verdict in ((True, SAME), (False, MEMORY)):
        found = beside_time(SLOW, [base], new, repeated=repeated).memory
        assert found is not None
        assert found.verdict is verdict
