"""Whether a call takes more instructions: how much is more, and what it does to the verdict."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from gpuprof._common.instructions import Instructions, amount, reason_of
from gpuprof._results.count_verdicts import (
    THRESHOLD,
    UNCHANGED,
    fewest,
    judge_instructions,
    missing_reason,
    with_instructions,
)
from gpuprof._results.decision import Decision, Verdict
from gpuprof._results.result import BenchResult
from gpuprof._results.verdict import judge_all
from tests.support.benchmark_results import bench

M = 1e6
NO_INSTRUCTIONS = "instructions were not compared: no baseline run has them; save new runs"
HERE = {"cpu": "Test CPU", "python": "3.12.1", "gpu": None}
NO_COUNTER = Instructions(reason="ENOENT: there is no hardware counter of instructions")
SLOW = Decision(Verdict.SLOW, 1.0, 2.0, 2.0, rule="takes 100 % more time")


def run(
    count: float | Instructions | None,
    machine: dict[str, Any] | None = None,
    *,
    spread: float = 0.0,
    ms: float = 1.0,
) -> BenchResult:
    if isinstance(count, (int, float)):
        steps = [(place - 10) / 10 for place in range(21)]
        count = Instructions(tuple(count * (1 + 2 * spread * step) for step in steps))
    samples = [ms + place / 1000 for place in range(30)]
    options = {"mode": "cpu", "clock": "cpu", "l2": "n/a", "machine": machine or HERE}
    return bench("step", samples, instructions=count, **options)


def judged(base: list[Any], *new: Any) -> Decision:
    found = judge_instructions([run(each) for each in base], [run(each) for each in new])
    assert found is not None
    return found


# How much is more


def test_more_instructions_are_said_in_words() -> None:
    found = judged([M] * 3, 1.1 * M)
    assert (found.verdict, found.grew, found.runs) == (Verdict.INSTRUCTIONS, True, 3)
    assert found.rule == "takes 10.0 % more instructions, 1 M -> 1.1 M: more than 3 %"
    assert (found.base, found.new) == (M, 1.1 * M)
    assert (found.ratio, found.floor) == (pytest.approx(1.1), THRESHOLD)


@pytest.mark.parametrize(
    ("base", "new", "verdict"),
    [
        ([M], M, Verdict.SAME),
        ([M], 1.029 * M, Verdict.SAME),
        ([M], 1.031 * M, Verdict.INSTRUCTIONS),
        ([M], 0.5 * M, Verdict.SAME),
        ([M, M, M, 1.2 * M], 1.1 * M, Verdict.SAME),
        ([M, M, M, M, 1.04 * M], 1.05 * M, Verdict.SAME),
        ([M, M, M, M, 1.04 * M], 1.06 * M, Verdict.INSTRUCTIONS),
    ],
)
def test_the_limits(base: list[float], new: float, verdict: Verdict) -> None:
    found = judged(base, new)
    assert found.verdict is verdict, found.rule


def test_samples_that_spread_raise_the_floor() -> None:
    found = judge_instructions([run(M, spread=0.2)], [run(1.1 * M)])
    assert found is not None
    assert found.verdict is Verdict.SAME
    assert found.floor == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("machine", "why"),
    [
        ({**HERE, "cpu": "Other CPU"}, "CPU Other CPU, now it is Test CPU"),
        ({**HERE, "cpu": None}, "CPU ?, now it is Test CPU"),
        ({**HERE, "python": "3.13.0"}, "Python 3.13.0, now it is 3.12.1"),
    ],
)
def test_another_cpu_or_python_is_not_compared(machine: dict[str, Any], why: str) -> None:
    found = judge_instructions([run(M, machine)], [run(2 * M)])
    assert found is not None
    assert found.verdict is Verdict.INCOMPARABLE
    assert found.rule.endswith(f"the baseline has {why}")
    alike = judge_instructions([run(M, machine), run(M)], [run(2 * M)])
    assert alike is not None
    assert (alike.verdict, alike.runs) == (Verdict.INSTRUCTIONS, 1)


def test_without_counts_there_is_no_verdict() -> None:
    assert judge_instructions([run(None)], [run(NO_COUNTER)]) is None
    assert judged([None], M).rule == NO_INSTRUCTIONS
    assert judged([M], NO_COUNTER).rule == (
        f"instructions were not compared: they were not counted: {NO_COUNTER.reason}"
    )


def test_of_two_measurements_the_one_with_fewer_counts() -> None:
    runs = [run(2 * M), run(M), run(NO_COUNTER)]
    assert fewest(runs) is runs[1]
    assert fewest(runs[2:]) is runs[2]


# Beside the time


def test_a_slow_time_with_unchanged_instructions_stays_slow_and_is_noted() -> None:
    found = with_instructions(SLOW, judged([M], M))
    assert found.verdict is Verdict.SLOW
    assert found.warnings == (UNCHANGED,)


def test_a_slow_time_with_more_instructions_has_no_note() -> None:
    found = with_instructions(SLOW, judged([M], 2 * M))
    assert found.warnings == ()
    assert [each.verdict for each in found.grown] == [Verdict.INSTRUCTIONS]
    assert with_instructions(SLOW, judged([M], 2 * M), decides=True).verdict is Verdict.SLOW


def test_where_they_decide_a_slow_time_with_unchanged_instructions_is_the_same() -> None:
    found = with_instructions(SLOW, judged([M], M), decides=True)
    assert found.verdict is Verdict.SAME
    assert found.rule.startswith("takes 0.0 % more instructions")
    assert found.warnings == (f"by its time it is slow: {SLOW.rule}; {UNCHANGED}",)
    assert (found.base, found.ratio) == (1.0, 2.0)


def test_fewer_instructions_do_not_excuse_a_slow_time() -> None:
    found = with_instructions(SLOW, judged([M], 0.5 * M), decides=True)
    assert (found.verdict, found.warnings) == (Verdict.SLOW, ())


@pytest.mark.parametrize("verdict", [Verdict.SAME, Verdict.FAST, Verdict.AMBIGUOUS])
def test_other_verdicts_on_the_time_stay(verdict: Verdict) -> None:
    decision = Decision(verdict, 1.0, 1.0, 1.0)
    assert with_instructions(decision, judged([M], M), decides=True).verdict is verdict


def test_where_they_should_decide_and_cannot_the_time_does_and_it_is_said() -> None:
    why = missing_reason(run(NO_COUNTER))
    found = with_instructions(SLOW, None, decides=True, missing=why)
    assert found.verdict is Verdict.SLOW
    assert found.warnings == (
        f"the time decides, not the instructions: they were not counted: {NO_COUNTER.reason}",
    )
    found = with_instructions(SLOW, judged([None], M), decides=True)
    assert found.warnings[0].endswith(NO_INSTRUCTIONS)
    assert with_instructions(SLOW, None) == SLOW


def test_decisions_of_files_have_them() -> None:
    pytest.importorskip("scipy")
    found = judge_all({"step": ([run(M)], [run(2 * M)])})["step"]
    assert found.instructions is not None
    assert found.instructions.grew
    assert Decision.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    assert "\nINSTRUCTIONS: takes 100 % more instructions" in str(found)


# The data, and why there is none


def test_they_are_plain_data() -> None:
    found = Instructions((1e6, 2e6, 3e6))
    assert (found.median, found.spread) == (2e6, 0.25)
    assert str(found) == "2 M (± 25 %)"
    assert Instructions.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    assert (NO_COUNTER.median, NO_COUNTER.spread) == (None, None)
    assert str(NO_COUNTER).startswith("not counted: ENOENT")


@pytest.mark.parametrize(
    ("count", "text"), [(12.0, "12"), (1234, "1.234 k"), (5.5e6, "5.5 M"), (2e9, "2 G")]
)
def test_amounts_are_short(count: float, text: str) -> None:
    assert amount(count) == text


@pytest.mark.parametrize(
    ("error", "part"),
    [
        (errno.ENOSYS, "ENOSYS: this system has no perf_event_open"),
        (errno.ENOENT, "ENOENT: there is no hardware counter of instructions; a virtual machine"),
        (errno.EOPNOTSUPP, "there is no hardware counter of instructions"),
        (errno.ENODEV, "ENODEV: there is no hardware counter"),
        (errno.EMFILE, "EMFILE: the process has too many open files"),
        (errno.EINVAL, "EINVAL: perf_event_open failed: Invalid argument"),
        (99999, "error 99999: perf_event_open failed"),
    ],
)
def test_each_error_says_what_it_means(error: int, part: str) -> None:
    assert part in reason_of(error)


@pytest.mark.parametrize("error", [errno.EPERM, errno.EACCES])
def test_what_is_not_permitted_says_what_to_do(error: int, tmp_path: Path) -> None:
    paranoid = tmp_path / "perf_event_paranoid"
    paranoid.write_text("4\n")
    name = errno.errorcode[error]
    assert reason_of(error, paranoid) == (
        f"{name}: perf_event_paranoid is 4, and counting in user space takes 2 or less: "
        "sudo sysctl kernel.perf_event_paranoid=2"
    )
    paranoid.write_text("2\n")
    text = reason_of(error, paranoid)
    assert text.startswith(f"{name}: perf_event_open is not permitted although")
    assert "--cap-add PERFMON" in text
    assert "although" not in reason_of(error, tmp_path / "none")
