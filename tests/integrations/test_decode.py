"""Decode loops behind graphs: what is captured ahead, what is padded, and what runs by itself."""

from __future__ import annotations

import ast
import runpy
import warnings
from pathlib import Path
from typing import Any

import pytest

import gpuprof
from tests.docs.test_docs import ROOT, blocks
from tests.support.callables import Counted

PAGE = ROOT / "docs" / "integrations" / "decode.md"
SCRIPT = blocks(PAGE.read_text(encoding="utf-8"), "python")[0]
SIZES = (1, 2, 4)


def recipe() -> Any:
    """The page's function."""
    (found,) = (
        node
        for node in ast.parse(SCRIPT).body
        if isinstance(node, ast.FunctionDef) and node.name == "decode_graphs"
    )
    names: dict[str, Any] = {"gpuprof": gpuprof}
    exec(ast.unparse(found), names)
    return names["decode_graphs"]


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


def made(cupy: Any, **options: Any) -> tuple[Step, Any]:
    step = Step(cupy)
    return step, recipe()(step, samples(cupy), SIZES, writes=(), **options)


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


def test_options_are_those_of_the_callable(cupy: Any) -> None:
    _, decode = made(cupy, outputs="static", name="decode")
    assert decode.name == "decode"
    x = cupy.array([1.0, 2.0])
    first = decode(x, x)[0]
    decode(cupy.array([3.0, 4.0]), x)
    assert first.tolist() == [3, 4]


@pytest.mark.torch
def test_the_pages_script_decodes_without_a_gpu_what_the_model_does(tmp_path: Path) -> None:
    torch: Any = pytest.importorskip("torch", reason="torch is not installed")
    script = tmp_path / "decode.py"
    script.write_text(SCRIPT, encoding="utf-8")
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
