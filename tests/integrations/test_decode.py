"""Decode loops behind graphs: what is captured ahead, what is padded, and what runs by itself."""

from __future__ import annotations

import runpy
import warnings
from pathlib import Path
from typing import Any

import pytest

import gpuprof
from gpuprof.integrations.decode import DecodeGraphs
from tests.docs.test_docs import ROOT, blocks
from tests.support.callables import Counted

PAGE = ROOT / "docs" / "integrations" / "decode.md"
SIZES = (1, 2, 4)


class Step:
    """A decode step on the stand-in, which copies alone: its rows of the cache get the batch."""

    def __init__(self, cupy: Any) -> None:
        self.cupy, self.runs = cupy, Counted()
        self.batches: list[int] = []
        self.cache = cupy.array([0.0] * 8)

    def __call__(self, x: Any, y: Any) -> tuple[Any, Any]:
        self.runs.note()
        self.batches.append(x.shape[0])
        self.cache[: x.shape[0]] = x
        self.cupy.launch("step")
        return x.copy(), y.copy()


def samples(cupy: Any) -> tuple[Any, Any]:
    return cupy.array([0.0] * 4), cupy.array([0.0] * 4)


def made(cupy: Any, sizes: Any = SIZES, **options: Any) -> tuple[Step, DecodeGraphs]:
    step = Step(cupy)
    return step, DecodeGraphs(step, samples(cupy), sizes, **{"writes": (), **options})


def test_all_is_captured_ahead_the_largest_first(cupy: Any) -> None:
    step, decode = made(cupy)
    full = [batch for batch in step.batches if batch in SIZES]
    assert full == sorted(full, reverse=True)
    before = decode.stats()
    assert {graph.arguments for graph in before.graphs} == {
        f"args[0]: float32 ({size},), args[1]: float32 ({size},)" for size in SIZES
    }
    ran = step.runs()
    for batch in (1, 2, 3, 4, 3, 1, 4, 2):
        x, y = ([float(10 * batch + row + more) for row in range(batch)] for more in (0, 100))
        found = decode(cupy.array(x), cupy.array(y))
        assert [each.tolist() for each in found] == [x, y]
        assert step.cache[:batch].tolist() == x
    assert step.runs() == ran  # nothing was captured, and nothing ran by itself
    stats = decode.stats()
    assert (stats.captures, stats.misses) == (before.captures, before.misses)
    assert (stats.eager_calls, stats.evictions) == (before.eager_calls, 0)
    assert stats.padded_calls == before.padded_calls + 2


def test_padding_is_zeros(cupy: Any) -> None:
    step, decode = made(cupy)
    step.cache[...] = cupy.array([7.0] * 8)
    decode(cupy.array([1.0, 2.0, 3.0]), cupy.array([4.0, 5.0, 6.0]))
    assert step.cache.tolist() == [1, 2, 3, 0, 7, 7, 7, 7]


def test_a_batch_larger_than_all_sizes_runs_the_step_and_says_so_once(cupy: Any) -> None:
    step, decode = made(cupy)
    ran, captures = step.runs(), decode.stats().captures
    x = [float(row) for row in range(6)]
    with pytest.warns(RuntimeWarning, match="a batch of 6 is larger than 4, and has no") as caught:
        found = decode(cupy.array(x), cupy.array(x))
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(4):
            decode(cupy.array(x), cupy.array(x))
    assert found[0].tolist() == x
    assert step.runs() == ran + 5
    empty = cupy.empty((0,))
    assert decode(empty, empty)[0].shape == (0,)
    stats = decode.stats()
    assert (stats.captures, stats.evictions) == (captures, 0)


def test_arguments_that_share_memory_are_decoded_as_they_are_by_the_step(cupy: Any) -> None:
    step, decode = made(cupy)
    x = cupy.array([1.0, 2.0, 3.0])
    assert [each.tolist() for each in decode(x, x)] == [[1, 2, 3]] * 2
    both = cupy.array([1.0, 2.0, 3.0, 4.0])
    assert [each.tolist() for each in decode(both[:3], both[1:])] == [[1, 2, 3], [2, 3, 4]]
    assert both.tolist() == [1, 2, 3, 4]
    assert step.cache[:3].tolist() == [1, 2, 3]


def test_options_are_those_of_the_callable(cupy: Any) -> None:
    _, decode = made(cupy, outputs="static", name="decode")
    assert decode.callable.name == "decode"
    x = cupy.array([1.0, 2.0])
    first = decode(x, x)[0]
    decode(cupy.array([3.0, 4.0]), x)
    assert first.tolist() == [3, 4]


@pytest.mark.parametrize(
    ("sizes", "shapes"), [((), [4]), ((1, 2), [4]), ((8,), [4]), (SIZES, []), ((4,), [()])]
)
def test_samples_have_to_be_of_the_largest_size(cupy: Any, sizes: Any, shapes: list[Any]) -> None:
    given = tuple(cupy.empty(shape) for shape in shapes)
    with pytest.raises(ValueError, match="sample_args: expected a tuple that begins with an array"):
        DecodeGraphs(lambda x: x, given, sizes)


@pytest.mark.parametrize(
    ("sizes", "error"), [(4, TypeError), (("4",), TypeError), ((0, 4), ValueError)]
)
def test_sizes_are_integers_of_one_and_more(cupy: Any, sizes: Any, error: type) -> None:
    with pytest.raises(error, match=r"batch_sizes.*expected "):
        DecodeGraphs(lambda x: x, samples(cupy), sizes)


@pytest.mark.parametrize(
    "option", [{"buckets": {0: (4,)}}, {"max_graphs": 1}, {"on_new_shape": "raise"}]
)
def test_an_option_that_the_sizes_decide_is_refused(cupy: Any, option: dict[str, Any]) -> None:
    (name,) = option
    with pytest.raises(TypeError, match=f"{name}: DecodeGraphs sets it by batch_sizes"):
        made(cupy, **option)


def test_other_arguments_stay_as_they_are(cupy: Any) -> None:
    seen = []

    def step(x: Any, table: Any, scale: float) -> Any:
        seen.append((x.shape[0], table.shape, scale))
        return x.copy()

    table = cupy.array([1.0] * 6)
    decode = DecodeGraphs(step, (cupy.array([0.0] * 2), table, 0.5), (1, 2), writes=())
    assert decode(cupy.array([3.0]), table, 0.5).tolist() == [3]
    assert {(table, scale) for _, table, scale in seen} == {((6,), 0.5)}


@pytest.mark.torch
def test_the_pages_script_decodes_without_a_gpu_what_the_model_does(tmp_path: Path) -> None:
    torch: Any = pytest.importorskip("torch", reason="torch is not installed")
    script = tmp_path / "decode.py"
    script.write_text(blocks(PAGE.read_text(encoding="utf-8"), "python")[0], encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there is no GPU
        patch.setattr(torch.cuda, "is_available", lambda: False)
        patch.setattr("gpuprof._core.require_cuda", _no_cuda)
        found = runpy.run_path(str(script))
    decode, model = found["decode"], found["model"]
    assert decode.stats().eager_calls > 0
    with torch.no_grad():
        arguments = torch.tensor([3, 5]), torch.tensor([0, 0]), torch.tensor([1, 2])
        assert torch.equal(decode(*arguments), model(*arguments))
    assert gpuprof.stats()["token"].time.count == found["steps"]


def _no_cuda() -> None:
    message = "no driver"
    raise gpuprof.errors.CudaUnavailableError(message)
