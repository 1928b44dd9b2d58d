"""Verdicts on what is counted besides time: memory, launches and instructions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from gpuprof import BenchResult, Verdict
from gpuprof._results.count_verdicts import (
    THRESHOLD,
    UNCHANGED,
    beside_time,
    judge_instructions,
    judge_launches,
    judge_memory,
    notes_of,
)
from gpuprof._results.verdict import judge_all
from gpuprof.results import Decision, Instructions, Launches
from tests.support.benchmark_results import bench

MIB = 1 << 20
GIB = 1 << 30
M = 1e6
SAME, NODATA, INCOMPARABLE = Verdict.SAME, Verdict.NODATA, Verdict.INCOMPARABLE
MEMORY, LAUNCHES, INSTRUCTIONS = Verdict.MEMORY, Verdict.LAUNCHES, Verdict.INSTRUCTIONS
UNMOVED = {"change_bytes": 0}
MACHINE = {"cpu": "Test CPU", "python": "3.12.1", "gpu": "NVIDIA H200"}
NO_COUNTER = Instructions(reason="ENOENT: there is no hardware counter of instructions")
SLOW = Decision(Verdict.SLOW, 1.0, 2.0, 2.0, rule="takes 100 % more time")
VARIES = Launches({"a": 2}, varies="+1 b, 2 -> 3 kernels")
JUDGES = {
    "memory": judge_memory,
    "launches": judge_launches,
    "instructions": judge_instructions,
}


def run(kind: str, count: Any, machine: Mapping[str, Any] = MACHINE, **more: Any) -> BenchResult:
    """Return a result with a peak in bytes, with kernels by name, or with instructions."""
    samples = [1.0 + place / 1000 for place in range(30)]
    found = bench("step", samples, machine=machine)
    if kind == "memory":
        return replace(found, memory={} if count is None else {"peak_bytes": count, **UNMOVED})
    if kind == "launches":
        return replace(found, launches=Launches(count, **more) if type(count) is dict else count)
    if isinstance(count, float):
        spread, steps = more.get("spread", 0.0), [(place - 10) / 10 for place in range(21)]
        count = Instructions(tuple(count * (1 + 2 * spread * step) for step in steps))
    return replace(found, clock="cpu", mode="cpu", l2="n/a", instructions=count)


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
        (
            "instructions",
            M,
            1.1 * M,
            "takes 10.0 % more instructions, 1 M -> 1.1 M: more than 3 %",
            (M, 1.1 * M),
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
        ("instructions", [M], M, SAME, ""),
        ("instructions", [M], 1.029 * M, SAME, ""),
        ("instructions", [M], 1.031 * M, INSTRUCTIONS, ""),
        ("instructions", [M], 0.5 * M, SAME, ""),
        ("instructions", [M, M, M, 1.2 * M], 1.1 * M, SAME, ""),
        ("instructions", [M] * 20 + [1.2 * M], 1.15 * M, SAME, "but a baseline run took 1.2 M"),
        ("instructions", [M, M, M, M, 1.04 * M], 1.05 * M, SAME, ""),
        ("instructions", [M, M, M, M, 1.04 * M], 1.06 * M, INSTRUCTIONS, ""),
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


def test_samples_that_spread_raise_the_floor_of_the_instructions() -> None:
    found = decided(
        "instructions", [run("instructions", M, spread=0.2)], [run("instructions", 1.1 * M)]
    )
    assert found.verdict is SAME
    assert found.floor == pytest.approx(0.2)
    assert judged("instructions", [M], M).floor == THRESHOLD


@pytest.mark.parametrize(
    ("kind", "count", "missing", "what", "them"),
    [
        ("memory", GIB, None, "peak memory", "it"),
        ("launches", {"a": 1}, None, "launches", "them"),
        ("instructions", M, NO_COUNTER, "instructions", "them"),
    ],
)
def test_without_counts_there_is_no_verdict(
    kind: str, count: Any, missing: Any, what: str, them: str
) -> None:
    nothing = run(kind, missing)
    assert JUDGES[kind]([nothing], [nothing]) is JUDGES[kind]([], [nothing]) is None
    start = f"{what} {'was' if them == 'it' else 'were'} not compared: "
    for base in ([None, None], [None], []):
        found = judged(kind, base, count)
        assert found.verdict is NODATA
        assert found.rule == f"{start}no baseline run has {them}; save new runs"
    found = judged(kind, [count], missing)
    why = f"they were not counted: {missing.reason}" if missing else "the new run has none"
    assert (found.verdict, found.rule) == (NODATA, f"{start}{why}")
    assert judged(kind, [None, count], count).runs == 1


@pytest.mark.parametrize(
    ("kind", "counts", "change", "why"),
    [
        (
            "memory",
            (GIB, 2 * GIB),
            {"gpu": "NVIDIA A100"},
            "GPU NVIDIA A100, now it is NVIDIA H200",
        ),
        ("memory", (GIB, 2 * GIB), {"gpu": ""}, "GPU ?, now it is NVIDIA H200"),
        ("instructions", (M, 2 * M), {"cpu": "Other CPU"}, "CPU Other CPU, now it is Test CPU"),
        ("instructions", (M, 2 * M), {"cpu": None}, "CPU ?, now it is Test CPU"),
        ("instructions", (M, 2 * M), {"python": "3.13.0"}, "Python 3.13.0, now it is 3.12.1"),
    ],
)
def test_another_machine_is_not_compared(
    kind: str, counts: tuple[Any, Any], change: dict[str, Any], why: str
) -> None:
    other, new = run(kind, counts[0], {**MACHINE, **change}), run(kind, counts[1])
    found = decided(kind, [other], [new])
    assert found.verdict is INCOMPARABLE
    assert found.rule.endswith(f"the baseline has {why}")
    alike = decided(kind, [other, run(kind, counts[0])], [new])
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
        ("instructions", (M, 2 * M), "INSTRUCTIONS: takes 100 % more instructions"),
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


def test_the_threshold_of_the_memory_reaches_it() -> None:
    pair = ([run("memory", GIB)], [run("memory", 2 * GIB)])
    assert judge_all({"a": pair}, memory_threshold=1.0)["a"].grown == []


def test_of_two_measurements_the_one_with_fewer_instructions_counts() -> None:
    base, *new = (run("instructions", each) for each in (M, 2 * M, M, NO_COUNTER))
    for repeated, verdict in ((True, SAME), (False, INSTRUCTIONS)):
        found = beside_time(SLOW, [base], new, repeated=repeated).instructions
        assert found is not None
        assert found.verdict is verdict


def counted(decision: Decision, base: Any, new: Any, *, decides: bool = False) -> Decision:
    sides = ([run("instructions", each)] for each in (base, new))
    return beside_time(decision, *sides, decides=decides)


@pytest.mark.parametrize("decides", [False, True])
@pytest.mark.parametrize("times", [0.5, 1.0, 2.0])
def test_unchanged_instructions_excuse_a_slow_time_where_they_decide(
    decides: bool, times: float
) -> None:
    count = judged("instructions", [M], times * M)
    found = counted(SLOW, M, times * M, decides=decides)
    unchanged = times == 1.0
    assert found.verdict is (SAME if decides and unchanged else Verdict.SLOW)
    note = f"by its time it is slow: {SLOW.rule}; {UNCHANGED}" if decides else UNCHANGED
    assert found.warnings == ((note,) if unchanged else ())
    assert found.rule == (count.rule if decides and unchanged else SLOW.rule)
    assert [each.verdict for each in found.grown] == ([INSTRUCTIONS] if times > 1 else [])
    assert (found.base, found.ratio) == (1.0, 2.0)


@pytest.mark.parametrize("verdict", [SAME, Verdict.FAST, Verdict.AMBIGUOUS])
def test_other_verdicts_on_the_time_stay(verdict: Verdict) -> None:
    decision = Decision(verdict, 1.0, 1.0, 1.0)
    assert counted(decision, M, M, decides=True).verdict is verdict


def test_where_they_should_decide_and_cannot_the_time_does_and_it_is_said() -> None:
    found = counted(SLOW, NO_COUNTER, NO_COUNTER, decides=True)
    assert found.verdict is Verdict.SLOW
    assert found.warnings == (
        f"the time decides, not the instructions: they were not counted: {NO_COUNTER.reason}",
    )
    found = counted(SLOW, NO_COUNTER, M, decides=True)
    assert found.warnings[0].endswith("no baseline run has them; save new runs")
    assert counted(SLOW, None, None) == SLOW
    nothing = Decision(NODATA)
    assert counted(nothing, None, None, decides=True) == nothing
