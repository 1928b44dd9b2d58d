"""The zoo's harness finds planted errors, and none where there are none; on the CPU."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from gpuprof.errors import InvalidStateError  # noqa: E402
from tests.gpu.zoo import report, run  # noqa: E402
from tests.gpu.zoo.uses import USES  # noqa: E402
from tests.gpu.zoo.world import eager  # noqa: E402

pytestmark = pytest.mark.torch


def verdicts(name: str, graph: Any, *uses: str) -> dict[str, Any]:
    model = run.MODELS[name]
    net = run.made(model)
    return {use: run.check(model, net, use, graph, "cpu") for use in uses or USES}


def planted(changed: Callable[..., Any]) -> Any:
    """Return a stand-in for `make_graphed_callable` whose callables call `changed(fn, batch)`."""

    def graph(fn: Any, *_samples: Any, **_options: Any) -> Any:
        return lambda **batch: changed(fn, batch)

    return graph


def scaled(factor: float) -> Any:
    def changed(fn: Any, batch: Any) -> Any:
        return torch.utils._pytree.tree_map_only(
            torch.Tensor,
            lambda each: each * factor if each.is_floating_point() else each,
            fn(**batch),
        )

    return planted(changed)


def stale(fn: Any, *_samples: Any, **_options: Any) -> Any:
    """Return the function as it is now, whatever is done to its module later."""
    return copy.deepcopy(fn)


@pytest.mark.parametrize(
    "name", ["MultiheadAttention", "low-rank adapters", "weight norm", "tied weights"]
)
def test_eager_beside_eager_is_equal_in_all_uses(name: str) -> None:
    found = verdicts(name, eager)
    assert {each.status for each in found.values()} == {"equal", "n/a"}
    assert [each.status for each in found.values()].count("equal") > len(USES) * 3 / 4


CHANGES = ("load_state_dict", "load_state_dict(assign=True)", "hook registered later", "training")


def test_what_is_not_seen_of_a_change_is_wrong() -> None:
    found = verdicts("tied weights", stale, *CHANGES, "parameter replaced", "evaluation")
    assert found.pop("evaluation").status == "equal"
    assert {each.status for each in found.values()} == {"wrong"}


def test_other_random_numbers_are_wrong() -> None:
    def changed(fn: Any, batch: Any) -> Any:
        torch.rand(1)
        return fn(**batch)

    found = verdicts("MultiheadAttention", planted(changed), "dropout", "training", "evaluation")
    assert [each.status for each in found.values()] == ["wrong", "wrong", "equal"]


@pytest.mark.parametrize("use", ["evaluation", "training", "whole step, AdamW"])
@pytest.mark.parametrize(("by", "status"), [(1e-4, "wrong"), (2.0**-22, "close")])
def test_what_is_more_than_numerics_is_wrong(use: str, by: float, status: str) -> None:
    found = verdicts("dense mixture of experts", scaled(1 + by), use)[use]
    assert found.status == status, found
    assert 0 < found.relative < 1e-2


def test_a_gradient_of_zeros_where_eager_has_none_is_wrong() -> None:
    def graph(fn: Any, *_samples: Any, **_options: Any) -> Any:
        for each in fn.parameters():
            each.grad = torch.zeros_like(each)
        return fn

    found = verdicts("low-rank adapters", graph, 'param_grads="accumulate"')
    assert "gradient" in found['param_grads="accumulate"'].why


@pytest.mark.parametrize(
    ("error", "status", "operator"),
    [
        (
            RuntimeError("the capture broke in aten::nonzero at model.py:1 in f"),
            "refused",
            "nonzero",
        ),
        (InvalidStateError("no"), "refused", ""),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), "wrong", ""),
    ],
)
def test_errors_are_refusals_if_they_say_so(error: Any, status: str, operator: str) -> None:
    def graph(*_args: Any, **_options: Any) -> Any:
        raise error

    found = verdicts("GRU", graph, "evaluation")["evaluation"]
    assert (found.status, found.operator.removeprefix("aten::")) == (status, operator)


def test_a_model_has_a_line_in_the_table(tmp_path: Path) -> None:
    known = {"why": "", "relative": 0.0, "notes": {}}
    drifted = {"why": "gradient a at step 1: x", "relative": 2e-6}
    why = "broke in aten::nonzero at /usr/lib/transformers/models/a.py:3 in forward"
    uses = [
        {**known, "use": "evaluation", "status": "equal", "notes": {"eager calls": 4}},
        {**known, "use": "training", "status": "close", **drifted},
        {**known, "use": "dropout", "status": "refused", "why": why},
    ]
    report.write(tmp_path, "A (b)", "by hand", uses)
    _, _, line, total = report.table(report.read(tmp_path)).splitlines()
    assert line.startswith("| A (b) | by hand | 1 | 1 | 1 | 0 | 0 | ")
    assert line.split(" | ")[-1].removesuffix(" |").split("<br>") == [
        "refused: dropout: aten::nonzero at `transformers/models/a.py:3`",
        "close, at most 2.0e-06 apart: training: within what the numerics allow",
        "partly run eagerly: evaluation",
    ]
    assert total == "| all | | 1 | 1 | 1 | 0 | 0 | |"
