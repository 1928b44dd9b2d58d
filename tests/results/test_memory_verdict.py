"""Whether the peak of a benchmark's memory grew, by how much, and what is no growth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gpuprof._results.count_verdicts import judge_memory
from gpuprof._results.decision import Decision, Verdict
from gpuprof._results.result import BenchResult
from gpuprof._results.verdict import judge_all
from tests.support.benchmark_results import bench

MIB = 1 << 20
GIB = 1 << 30


def run(peak: int | None, gpu: str | None = "NVIDIA H200") -> BenchResult:
    memory = {} if peak is None else {"peak_bytes": peak, "change_bytes": 0}
    samples = [1.0 + place / 1000 for place in range(30)]
    return bench("step", samples, memory=memory, machine={"gpu": gpu})


def judged(base: Sequence[int | None], *new: int | None, **options: Any) -> Decision:
    return decided([run(each) for each in base], [run(each) for each in new], **options)


def decided(base: Sequence[BenchResult], new: Sequence[BenchResult], **options: Any) -> Decision:
    found = judge_memory(base, new, **options)
    assert found is not None
    return found


def test_growth_beyond_the_threshold_is_said_in_words() -> None:
    found = judged([1239 * MIB] * 3, 1536 * MIB)
    assert (found.verdict, found.grew) == (Verdict.MEMORY, True)
    assert found.rule == "peak memory 1.21 GiB -> 1.50 GiB, +24 %, more than 5 %"
    assert (found.base, found.new, found.runs) == (1239 * MIB, 1536 * MIB, 3)
    assert str(found) == f"MEMORY: {found.rule}"


@pytest.mark.parametrize(
    ("base", "new", "verdict", "rule"),
    [
        (100 * MIB, 105 * MIB, Verdict.SAME, "+5 %, not more than 5 %"),
        (100 * MIB, 105 * MIB + 512, Verdict.MEMORY, "+5 %, more than 5 %"),
        (2 * MIB, 3 * MIB, Verdict.SAME, "+50 %, not more than 1.0 MiB"),
        (2 * MIB, 3 * MIB + 512, Verdict.MEMORY, "+50 %, more than 5 %"),
        (GIB, GIB, Verdict.SAME, "1.00 GiB -> 1.00 GiB"),
        (GIB, GIB // 2, Verdict.SAME, "1.00 GiB -> 512 MiB, -50 %"),
        (0, 0, Verdict.SAME, "0 B -> 0 B"),
        (0, 512, Verdict.SAME, "0 B -> 512 B, not more than 1.0 MiB"),
        (0, 2 * MIB, Verdict.MEMORY, "0 B -> 2.00 MiB, more than 1.0 MiB"),
        (2 * MIB, 0, Verdict.SAME, "2.00 MiB -> 0 B, -100 %"),
    ],
)
def test_the_limits(base: int, new: int, verdict: Verdict, rule: str) -> None:
    found = judged([base], new)
    assert (found.verdict, found.rule.endswith(rule)) == (verdict, True), found.rule


def test_the_threshold_is_the_callers() -> None:
    assert judged([GIB], GIB + 20 * MIB, threshold=0.01).grew
    assert not judged([GIB], GIB + 400 * MIB, threshold=0.5).grew
    assert judged([GIB], GIB + 2 * MIB, threshold=0).grew
    with pytest.raises(ValueError, match=r"threshold: expected a fraction .*, got 5"):
        judged([GIB], GIB, threshold=5)


def test_a_peak_that_a_baseline_run_had_is_no_growth() -> None:
    found = judged([GIB, GIB, GIB, 2 * GIB], 2 * GIB)
    assert found.verdict is Verdict.SAME
    assert found.rule.endswith("+100 %, but a baseline run had 2.00 GiB")
    assert judged([GIB, GIB, GIB, 2 * GIB], 2 * GIB + 1).grew


def test_several_new_runs_count_with_their_median() -> None:
    assert not judged([GIB], GIB, GIB, 2 * GIB).grew
    assert judged([GIB], GIB, 2 * GIB, 2 * GIB).grew


def test_runs_without_a_peak_are_no_data() -> None:
    found = judged([None, None], GIB)
    assert (found.verdict, found.rule) == (
        Verdict.NODATA,
        "peak memory was not compared: no baseline run has it; save new runs",
    )
    assert judged([], GIB).verdict is Verdict.NODATA
    found = judged([GIB], None)
    assert found.verdict is Verdict.NODATA
    assert found.rule == "peak memory was not compared: the new run has none"
    assert judge_memory([run(None)], [run(None)]) is None
    assert judged([None, GIB], 2 * GIB).runs == 1


def test_another_gpu_is_not_compared() -> None:
    found = decided([run(GIB, "NVIDIA A100")], [run(2 * GIB)])
    assert found.verdict is Verdict.INCOMPARABLE
    assert found.rule == (
        "peak memory was not compared: the baseline has GPU NVIDIA A100, now it is NVIDIA H200"
    )
    assert decided([run(GIB, "NVIDIA A100"), run(GIB)], [run(2 * GIB)]).runs == 1
    assert decided([run(GIB, "")], [run(2 * GIB)]).verdict is Verdict.INCOMPARABLE


def test_a_decision_on_time_has_the_one_on_memory() -> None:
    pytest.importorskip("scipy")
    pairs = {"a": ([run(GIB)], [run(2 * GIB)]), "b": ([run(GIB)], [run(GIB)])}
    found = judge_all(pairs)
    assert {name: each.verdict for name, each in found.items()} == dict.fromkeys("ab", Verdict.SAME)
    memory = {name: each.memory.grew for name, each in found.items() if each.memory}
    assert memory == {"a": True, "b": False}
    assert "\nMEMORY: peak memory 1.00 GiB -> 2.00 GiB" in str(found["a"])
    assert "peak memory" not in str(found["b"])
    allowed = judge_all(pairs, memory_threshold=1.0)["a"].memory
    assert allowed is not None
    assert not allowed.grew


def test_decisions_come_back_from_plain_data_older_ones_too() -> None:
    memory = Decision(Verdict.MEMORY, 1, 2, floor=0.05, runs=3, rule="rule", kind="memory")
    decision = Decision(Verdict.SAME, memory=memory)
    data = decision.to_dict()
    assert data["memory"]["verdict"] == "memory"
    assert Decision.from_dict(data) == decision
    del data["memory"]
    assert Decision.from_dict(data) == Decision(Verdict.SAME)
    with pytest.raises(ValueError, match=r"^Decision: expected verdict, .*; wrong: .'more'"):
        Decision.from_dict({**memory.to_dict(), "more": 1})
