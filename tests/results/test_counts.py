"""What a call launches, as data and in words."""

from __future__ import annotations

from typing import Any

import pytest

from gpuprof.results import Launches

TORCH_KERNEL = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::{0}<float>, "
    "std::array<char*, 3ul> >(int, at::native::{0}<float>, std::array<char*, 3ul>)"
)
ADD, MUL = (TORCH_KERNEL.replace("{0}", f"CUDAFunctor_{name}") for name in ("add", "mul"))


def launches(copies: int = 0, memsets: int = 0, **kernels: int) -> Launches:
    return Launches(kernels, copies, memsets)


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
    base, new = Launches(), Launches({f"k{place}": 1 for place in range(11)})
    words = base.diff(new)
    assert words.endswith("and 3 more names, 0 -> 11 kernels")
    assert words.count("+1 ") == 8


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
