"""Arguments of graphed calls in torch's memory: layouts, offsets, aliases, what is written to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import gpuprof
from tests.gpu.support.callables import assert_replays

ROWS, COLUMNS = 16, 24

# Each makes a matrix of these sizes of 384 or more numbers.
LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "contiguous": lambda line: line[: ROWS * COLUMNS].view(ROWS, COLUMNS),
    "transposed": lambda line: line[: ROWS * COLUMNS].view(COLUMNS, ROWS).t(),
    "every second column": lambda line: line[: 2 * ROWS * COLUMNS].view(ROWS, -1)[:, ::2],
    "rows with a gap": lambda line: line[: ROWS * (COLUMNS + 8)].view(ROWS, -1)[:, 5:-3],
    "expanded": lambda line: line[:COLUMNS].expand(ROWS, COLUMNS),
    "at an odd offset": lambda line: line[1 : 1 + ROWS * COLUMNS].view(ROWS, COLUMNS),
    "at offset three": lambda line: line[3 : 3 + ROWS * COLUMNS].view(ROWS, COLUMNS),
}
layouts = pytest.mark.parametrize("layout", LAYOUTS)
OTHER_STRIDES = {"transposed", "every second column", "rows with a gap"}  # than a dense matrix


def line(torch: Any, seed: int) -> Any:
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return torch.randn(1024, device="cuda", generator=generator)


@layouts
def test_a_sample_of_any_layout_can_be_captured(torch: Any, layout: str) -> None:
    weight = torch.randn(COLUMNS, 8, device="cuda")
    fast = gpuprof.make_graphed_callable(
        lambda values: values @ weight, (LAYOUTS[layout](line(torch, 0)),)
    )
    for seed, other in enumerate(LAYOUTS.values()):
        values = other(line(torch, seed))
        torch.testing.assert_close(fast(values), values @ weight, rtol=1e-5, atol=1e-5)
    # One that was expanded serves no other layout.
    assert_replays(fast, len(LAYOUTS), captures=2 if layout == "expanded" else 1)


def test_layouts_that_take_turns_never_mix(torch: Any) -> None:
    fast = gpuprof.make_graphed_callable(
        lambda left, right: left - right,
        tuple(torch.ones(ROWS, COLUMNS, device="cuda") for _ in range(2)),
    )
    found = []
    makers = list(LAYOUTS.values())
    for step in range(60):
        left = makers[step % 7](line(torch, step))
        right = makers[step % 5](line(torch, step + 1000))
        found.append((left - right, fast(left, right)))
    for wanted, result in found:
        assert torch.equal(result, wanted)
    assert_replays(fast, 60)


def test_a_large_argument_of_another_layout_is_copied_in_order(torch: Any) -> None:
    values = torch.randn(2048, 2048, device="cuda")
    fast = gpuprof.make_graphed_callable(lambda given: given.sum(dim=0), (values,))
    for step in range(10):
        given = (values + step).t()
        wanted = (values + step).t().contiguous().sum(dim=0)
        found = fast(given)
        given.fill_(float("nan"))  # comes after the call, as it does eagerly
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-3)
    assert_replays(fast, 10)


def add_in_place(values: Any) -> Any:
    values.add_(1)
    return values * 2


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "expanded"])
def test_what_the_function_writes_to_is_the_callers_array(torch: Any, layout: str) -> None:
    fast = gpuprof.make_graphed_callable(add_in_place, (torch.zeros(ROWS, COLUMNS, device="cuda"),))
    for seed in range(3):
        mine, eager = line(torch, seed), line(torch, seed)
        wanted = add_in_place(LAYOUTS[layout](eager))
        found = fast(LAYOUTS[layout](mine))
        assert torch.equal(found, wanted)
        assert torch.equal(mine, eager)  # what is beside the argument too
    # The strides of what is written to are part of the key.
    assert_replays(fast, 3, captures=2 if layout in OTHER_STRIDES else 1)


def test_a_write_to_what_may_be_a_copy_follows_the_strides(torch: Any) -> None:
    def write_flat(values: Any) -> Any:
        values.reshape(-1).add_(1)  # a view of a dense matrix, a copy of a transposed one
        return values * 2

    fast = gpuprof.make_graphed_callable(write_flat, (torch.zeros(ROWS, COLUMNS, device="cuda"),))
    for layout in ("contiguous", "transposed", "every second column") * 2:
        mine, eager = line(torch, 0), line(torch, 0)
        wanted = write_flat(LAYOUTS[layout](eager))
        assert torch.equal(fast(LAYOUTS[layout](mine)), wanted)
        assert torch.equal(mine, eager)
    assert_replays(fast, 6, captures=3)


def test_an_argument_is_let_go_of_by_its_call(torch: Any) -> None:
    size = 64 << 20
    fast = gpuprof.make_graphed_callable(
        lambda values: values[:4] * 2, (torch.ones(size // 4, device="cuda"),)
    )
    fast(torch.ones(size // 4, device="cuda"))
    before = torch.cuda.memory_allocated()
    for step in range(3):
        values = torch.full((size // 4,), float(step), device="cuda")
        assert fast(values).tolist() == [2.0 * step] * 4
        del values
        assert torch.cuda.memory_allocated() <= before + (1 << 20)
    assert_replays(fast, 4)


def test_arrays_of_the_library_beside_torchs(torch: Any) -> None:
    scale = gpuprof.DeviceScalar(2.0, "float32")
    values = torch.randn(8, device="cuda")

    def scaled(values: Any, by: Any) -> Any:
        return values * torch.as_tensor(by, device="cuda")

    fast = gpuprof.make_graphed_callable(scaled, (values, scale))
    for by in (2.0, -3.0):
        scale.update(by)
        assert torch.equal(fast(values, scale), values * by)
    assert_replays(fast, 2)


def test_an_argument_that_the_function_also_writes_to_by_itself(torch: Any) -> None:
    class Counting(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(4, device="cuda"))

        def forward(self, values: Any) -> Any:
            self.count.add_(1)
            return values * 2

    module = Counting().eval()
    other = torch.ones(4, device="cuda")
    fast = gpuprof.make_graphed_callable(module, (other,), warmup=1)
    module.count.zero_()
    assert torch.equal(fast(module.count), torch.full((4,), 2.0, device="cuda"))
    assert torch.equal(fast(module.count), torch.full((4,), 4.0, device="cuda"))
    assert torch.equal(fast(other), other * 2)
    assert torch.equal(module.count, torch.full((4,), 3.0, device="cuda"))
    assert fast.stats().eager_calls == 2
