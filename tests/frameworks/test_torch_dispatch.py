"""What torch's dispatcher shows of operators: what each reads, writes, and makes a view of."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from gpuprof._frameworks.torch_dispatch import Use, may_run_compiled_code, watching

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


def watched(body: Callable[[], Any]) -> tuple[list[Use], list[Any]]:
    used: list[Use] = []
    made: list[Any] = []
    with watching(used.extend, lambda _, results, *__: made.extend(results), lambda _: None):
        body()
    return used, made


def effects(body: Callable[[], Any], tensor: Any) -> set[str]:
    """Return how operators used a tensor."""
    return {
        "written" if each.is_written else "viewed" if each.is_viewed else "read"
        for each in watched(body)[0]
        if each.tensor is tensor
    }


@pytest.mark.parametrize(
    ("body", "of_x", "of_y"),
    [
        (lambda x, y: x + y, {"read"}, {"read"}),
        (lambda x, y: x.add_(y), {"written"}, {"read"}),
        (lambda x, y: torch.add(y, 1, out=x), {"written"}, {"read"}),
        (lambda x, y: x.copy_(y), {"written"}, {"read"}),
        (lambda x, _: x.view(1, 3), {"viewed"}, set()),
        (lambda x, _: x[1:], {"viewed"}, set()),
        (lambda x, y: torch.cat([x, y]), {"read"}, {"read"}),
        (lambda x, y: torch._foreach_add_([x], [y]), {"written"}, {"read"}),
        (lambda x, y: torch.where(x > 0, x, y), {"read"}, {"read"}),
        (lambda x, _: x.zero_(), {"written"}, set()),
        (lambda x, _: x.tolist(), {"read", "viewed"}, set()),
    ],
)
def test_effects_are_those_of_the_schema(body: Any, of_x: set[str], of_y: set[str]) -> None:
    x, y = torch.ones(3), torch.ones(3)
    assert effects(lambda: body(x, y), x) <= of_x
    assert effects(lambda: body(x, y), y) == of_y
    assert effects(lambda: body(x, y), x) & {"written"} == of_x & {"written"}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "norm", [torch.nn.functional.batch_norm, torch.nn.functional.instance_norm]
)
def test_norms_write_to_running_statistics_while_they_train(norm: Any, training: bool) -> None:
    x, mean, var = torch.randn(4, 3, 5), torch.zeros(3), torch.ones(3)
    flag = "training" if norm is torch.nn.functional.batch_norm else "use_input_stats"
    before = mean.clone()
    used, _ = watched(lambda: norm(x, mean, var, **{flag: training}))
    written = any(
        each.is_written
        for each in used
        if each.tensor.untyped_storage()._cdata == mean.untyped_storage()._cdata
    )
    assert written or torch.equal(mean, before), "a write that was not seen"
    if norm is torch.nn.functional.batch_norm:
        assert written is training


def test_the_pass_backward_is_seen() -> None:
    x = torch.ones(3, requires_grad=True)
    y = (x * 2).sum()
    used, made = watched(y.backward)
    assert used
    assert any(each is x.grad or each.shape == (3,) for each in made)


def test_results_are_told_with_those_in_lists() -> None:
    x = torch.arange(4.0)
    _, made = watched(lambda: x.chunk(2))
    assert [each.tolist() for each in made] == [[0, 1], [2, 3]]
    _, made = watched(lambda: torch.max(x.view(2, 2), dim=1))
    assert [each.tolist() for each in made[-2:]] == [[1, 3], [1, 1]]


def test_what_may_be_a_copy_or_the_argument_itself_is_told() -> None:
    told: list[tuple[bool, bool]] = []
    x = torch.ones(2, 3)
    with watching(lambda _: None, lambda _, __, *of_it: told.append(of_it), lambda _: None):
        x.clone()
        x + 1
    assert told == [(True, False), (False, False)]


def test_what_may_draw_random_numbers_is_told() -> None:
    told: list[bool] = []
    x = torch.ones(2, 3)
    with watching(lambda _: None, lambda *of_it: told.append(of_it[3]), lambda _: None):
        x + 1
        torch.rand_like(x)
        torch.nn.functional.dropout(x)
    assert told[:2] == [False, True]
    assert any(told[2:])


@pytest.mark.parametrize("has_schema", [True, False])
def test_an_operator_of_ones_own_writes_to_what_it_says(has_schema: bool) -> None:
    mutates = ["x"] if has_schema else "unknown"

    def copy(x: torch.Tensor, y: torch.Tensor) -> None:
        x.copy_(y)

    from torch import library

    fill = library.custom_op(f"gpuprof::fill_{has_schema}", copy, mutates_args=mutates)
    x, y = torch.zeros(2), torch.ones(2)
    used, _ = watched(lambda: fill(x, y))
    written = {id(each.tensor) for each in used if each.is_written}
    assert written == ({id(x)} if has_schema else {id(x), id(y)}), "all, where it is not known"


def test_an_error_passes_and_nothing_is_watched_afterwards() -> None:
    used: list[Use] = []
    with pytest.raises(KeyError), watching(used.extend, lambda *_: None, lambda _: None):
        raise KeyError
    torch.ones(2) + 1
    assert used == []


def test_without_torch_nothing_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    with watching(lambda _: None, lambda *_: None, lambda _: None):
        pass


def test_compiled_code_runs_its_operators_one_by_one_and_stays_compiled() -> None:
    compiled: list[Any] = []

    def backend(module: Any, _: Any) -> Any:
        compiled.append(module)
        return lambda *given: (given[0] * 2,)

    @torch.compile(backend=backend)  # type: ignore[misc]
    def double(x: Any) -> Any:
        return x + x

    x = torch.ones(2)
    used, _ = watched(lambda: double(x))
    assert compiled == [], "it is not compiled for being watched"
    assert any(each.tensor is x for each in used)
    assert double(x).tolist() == [2, 2]
    assert len(compiled) == 1
    assert may_run_compiled_code()
    watched(lambda: double(x))
    double(x)
    assert len(compiled) == 1, "what was compiled is used again"
