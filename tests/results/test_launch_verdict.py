"""What a call launches, as data: differences in words, and when there is more than there was."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from gpuprof._common.launches import MAX_SHOWN, UNNAMED, Launches, counted
from gpuprof._results.count_verdicts import judge_launches, notes_of
from gpuprof._results.decision import Decision, Verdict
from gpuprof._results.result import BenchResult
from gpuprof._results.verdict import judge_all
from tests.support.benchmark_results import bench

TORCH_KERNEL = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::{0}<float>, "
    "std::array<char*, 3ul> >(int, at::native::{0}<float>, std::array<char*, 3ul>)"
)
ADD, MUL = (TORCH_KERNEL.replace("{0}", f"CUDAFunctor_{name}") for name in ("add", "mul"))
NO_LAUNCHES = "launches were not compared: no baseline run has them; save new runs"
NONE_NEW = "launches were not compared: the new run has none"
HOSTILE = "evil\x1b[31m\n\0k"


def launches(copies: int = 0, memsets: int = 0, **kernels: int) -> Launches:
    return Launches(kernels, copies, memsets)


# In words


@pytest.mark.parametrize(
    ("base", "new", "words"),
    [
        (launches(a=14), launches(a=14, b=1), "+1 b, 14 -> 15 kernels"),
        (
            launches(gemm=1, add=13),
            launches(add=15),
            "+2 add, -1 gemm, 14 -> 15 kernels",
        ),
        (launches(a=1), launches(b=1), "+1 b, -1 a, 1 kernel"),
        (launches(a=2), launches(), "-2 a, 2 -> 0 kernels"),
        (launches(a=1), launches(copies=1, a=1), "+1 memory copy, 0 -> 1 memory copies"),
        (launches(memsets=2), launches(memsets=1), "-1 memset, 2 -> 1 memsets"),
        (
            launches(a=14),
            launches(memsets=1, a=13),
            "+1 memset, -1 a, 14 -> 13 kernels, 0 -> 1 memsets",
        ),
        (launches(a=1_000), launches(a=3_000), "+2,000 a, 1,000 -> 3,000 kernels"),
    ],
)
def test_a_difference_is_said_in_words(base: Launches, new: Launches, words: str) -> None:
    assert base.diff(new) == words
    assert base.diff(base) == new.diff(new) == ""
    assert not base.same(new)


def test_long_names_are_short_for_people_and_whole_for_comparisons() -> None:
    assert Launches({ADD: 1}).diff(Launches({ADD: 3})) == (
        "+2 vectorized_elementwise_kernel, 1 -> 3 kernels"
    )
    assert Launches({ADD: 1}).diff(Launches({MUL: 1})) == (
        "+1 vectorized_elementwise_kernel (CUDAFunctor_mul<float>), "
        "-1 vectorized_elementwise_kernel (CUDAFunctor_add<float>), 1 kernel"
    )


def test_many_differences_are_cut() -> None:
    base, new = Launches(), Launches({f"k{place}": 1 for place in range(MAX_SHOWN + 3)})
    words = base.diff(new)
    assert words.endswith("and 3 more names, 0 -> 11 kernels")
    assert words.count("+1 ") == MAX_SHOWN


def test_names_of_any_characters_are_shown_on_a_line_and_survive_json() -> None:
    found = Launches(counted([HOSTILE, "", "ü", "ü"]))
    assert found.kernels[UNNAMED] == 1
    words = Launches().diff(found)
    assert "\x1b" not in words
    assert "\n" not in words
    assert Launches.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_very_long_names_stay_apart() -> None:
    long = "k" * 5_000
    found = counted([f"{long}a", f"{long}b", f"{long}b"])
    assert sorted(found.values()) == [1, 2]
    assert all(len(name) < 600 for name in found)


def test_a_kernel_that_is_called_memset_is_a_kernel() -> None:
    assert Launches({"memset": 1}).diff(Launches(memsets=1)) == (
        "+1 memset, -1 memset, 1 -> 0 kernels, 0 -> 1 memsets"
    )


def test_its_text_counts_and_its_repr_lists() -> None:
    found = launches(copies=2, a=3, b=1)
    assert str(found) == "4 kernels, 2 memory copies"
    assert repr(found).splitlines()[1].split() == ["3", "a"]
    assert (found.num_kernels, found.total) == (4, 6)


@pytest.mark.parametrize(
    "data",
    [
        None,
        {},
        {**launches().to_dict(), "more": 1},
        {**launches().to_dict(), "kernels": {"k": 1.5}},
        {**launches().to_dict(), "versions": {"torch": 2}},
    ],
)
def test_data_that_is_something_else_is_refused(data: Any) -> None:
    with pytest.raises(ValueError, match=r"^Launches(\.\w+.*)?: "):
        Launches.from_dict(data)


def test_a_difference_to_something_else_is_refused() -> None:
    with pytest.raises(TypeError, match="other: expected a Launches, got '3f2a'"):
        Launches().diff("3f2a")  # type: ignore[arg-type]


# The verdict


def run(
    counts: Launches | Mapping[str, int] | None, versions: dict[str, str] | None = None, **more: Any
) -> BenchResult:
    if counts is not None and not isinstance(counts, Launches):
        counts = Launches(dict(counts), versions=versions or {}, **more)
    samples = [1.0 + place / 1000 for place in range(30)]
    return bench("step", samples, launches=counts, machine={"gpu": "NVIDIA H200"})


def judged(base: list[Any], *new: Any) -> Decision:
    found = judge_launches([run(each) for each in base], [run(each) for each in new])
    assert found is not None
    return found


def test_more_launches_are_said_in_words() -> None:
    found = judged([{"a": 14}] * 3, {"a": 14, "b": 1})
    assert (found.verdict, found.grew, found.runs) == (Verdict.LAUNCHES, True, 3)
    assert found.rule == "launches more: +1 b, 14 -> 15 kernels"
    assert (found.base, found.new) == (14, 15)
    assert str(found) == f"LAUNCHES: {found.rule}"


@pytest.mark.parametrize(
    ("base", "new", "verdict"),
    [
        ({"a": 2}, {"a": 2}, Verdict.SAME),
        ({"a": 2}, {"a": 1}, Verdict.SAME),
        ({"a": 3}, {"fused": 1}, Verdict.SAME),
        ({"a": 2}, {"a": 1, "b": 1}, Verdict.LAUNCHES),
        ({"a": 2}, launches(a=2, copies=1), Verdict.LAUNCHES),
        ({"a": 2}, launches(a=1, memsets=1), Verdict.LAUNCHES),
        ({"a": 2}, launches(memsets=1), Verdict.SAME),
        ({}, {"a": 1}, Verdict.LAUNCHES),
        ({}, {}, Verdict.SAME),
    ],
)
def test_the_limits(base: Any, new: Any, verdict: Verdict) -> None:
    assert judged([base], new).verdict is verdict


def test_what_any_run_of_the_baseline_launched_is_the_same() -> None:
    assert judged([{"a": 2}, {"b": 2}, {"a": 2}], {"b": 2}).verdict is Verdict.SAME
    found = judged([{"b": 9}, {"a": 2}], {"a": 3})
    assert found.rule == "launches more: +1 a, 2 -> 3 kernels", "compared with the last"


def test_calls_that_differ_are_not_compared() -> None:
    varies = Launches({"a": 2}, varies="+1 b, 2 -> 3 kernels")
    found = judged([{"a": 1}], varies)
    assert found.verdict is Verdict.NODATA
    assert found.rule.endswith("calls differ in what they launch: +1 b, 2 -> 3 kernels")
    assert judged([varies], {"a": 3}).verdict is Verdict.NODATA
    assert judged([varies, {"a": 1}], {"a": 3}).verdict is Verdict.LAUNCHES
    assert judged([{"a": 1}], {"a": 3}, {"a": 2}).verdict is Verdict.NODATA, "two measurements"


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
    base, new = run({"a": 1}, {key: "1.0"}), run({"a": 2}, {key: "2.0"})
    found = judge_launches([base], [new])
    assert found is not None
    assert found.verdict is Verdict.INCOMPARABLE
    assert found.rule.endswith(f"the baseline has {name} 1.0, now it is 2.0")
    unknown = judge_launches([run({"a": 1})], [new])
    assert unknown is not None
    assert unknown.grew, "a library that was not loaded has chosen nothing"
    alike = judge_launches([run({"a": 1}, {key: "2.0"}), base], [new])
    assert alike is not None
    assert (alike.verdict, alike.runs) == (Verdict.LAUNCHES, 1)


def test_the_driver_need_not_be_the_same() -> None:
    found = judge_launches([run({"a": 1}, {"driver": "1"})], [run({"a": 2}, {"driver": "2"})])
    assert found is not None
    assert found.grew


def test_counts_of_two_sources_are_not_compared() -> None:
    other = run({"a": 2}, source="torch.profiler")
    found = judge_launches([run({"a": 1})], [other])
    assert found is not None
    assert found.verdict is Verdict.INCOMPARABLE
    assert found.rule.endswith("the baseline has counts from graph, now it is torch.profiler")


def test_without_counts_there_is_no_verdict() -> None:
    assert judge_launches([run(None)], [run(None)]) is None
    assert judge_launches([], [run(None)]) is None
    assert judged([None], {"a": 1}).rule == NO_LAUNCHES
    assert judged([{"a": 1}], None).rule == NONE_NEW


def test_notes_tell_what_is_no_failure() -> None:
    def notes(base: Any, new: Any, verdict: Verdict = Verdict.SAME) -> list[str]:
        return notes_of(Decision(verdict, launches=judged([base], new)))

    assert notes({"a": 1}, {"a": 1}) == notes({"a": 1}, {"a": 2}) == []
    assert notes({"a": 2}, {"a": 1}) == ["launches less: -1 a, 2 -> 1 kernels"]
    assert notes(None, {"a": 1}) == [NO_LAUNCHES]
    assert notes({"a": 1}, None) == [NONE_NEW]
    assert notes({"a": 2}, {"a": 1}, Verdict.INCOMPARABLE) == []
    assert notes_of(Decision(Verdict.SAME)) == []


def test_decisions_come_back_from_plain_data_older_ones_too() -> None:
    pytest.importorskip("scipy")
    found = judge_all({"step": ([run({"a": 1})], [run({"a": 2})])})["step"]
    assert found.launches is not None
    assert [each.verdict for each in found.grown] == [Verdict.LAUNCHES]
    data = json.loads(json.dumps(found.to_dict()))
    assert Decision.from_dict(data) == found
    assert "\nLAUNCHES: launches more: +1 a, 1 -> 2 kernels" in str(found)
    del data["launches"], data["instructions"]
    assert Decision.from_dict(data).launches is None
