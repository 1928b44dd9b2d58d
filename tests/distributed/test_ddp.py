"""What DDP's wait needs to know, without torch: the path of a backward pass, a model's result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import gpuprof
from gpuprof._distributed import ddp, watch_state
from tests.support.captures import on_another_thread


def test_a_thread_of_autograd_has_the_path_of_who_called_backward() -> None:
    paths = watch_state.BackwardPaths()
    with gpuprof.timer("step", backend="cpu"), gpuprof.timer("a/b", backend="cpu"):
        with paths.noted():
            assert paths.prefix() == ""  # the scopes of this thread are open
            assert on_another_thread(paths.prefix) == "step/a/b/"
        assert on_another_thread(paths.prefix) == ""
    with paths.noted():
        assert on_another_thread(paths.prefix) == ""  # outside of all scopes
    assert {row.path for row in gpuprof.stats().values()} == {"step", "step/a/b"}


def test_a_pass_that_fails_is_not_running_any_more() -> None:
    paths = watch_state.BackwardPaths()
    with gpuprof.timer("step", backend="cpu"):
        with pytest.raises(KeyError), paths.noted():
            raise KeyError
        assert on_another_thread(paths.prefix) == ""


class Tensor:
    def __init__(self, requires_grad: bool) -> None:
        self.requires_grad = requires_grad


@dataclass
class Output:
    """As models of some libraries return it."""

    loss: Any
    logits: Any = None


@pytest.mark.parametrize(
    "wrap",
    [
        lambda tensor: tensor,
        lambda tensor: (None, Tensor(False), [tensor]),
        lambda tensor: {"x": 1, "y": {"z": tensor}},
        lambda tensor: Output(loss=[Tensor(False)], logits=tensor),
    ],
)
def test_a_result_with_a_gradient_is_found(monkeypatch: pytest.MonkeyPatch, wrap: Any) -> None:
    monkeypatch.setattr(
        "gpuprof._frameworks.loaded.is_tensor", lambda value: isinstance(value, Tensor)
    )
    tensor = Tensor(True)
    assert ddp.first_with_gradient(wrap(tensor)) is tensor
    assert ddp.first_with_gradient(wrap(Tensor(False))) is None


def test_a_result_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    endless: list[Any] = []
    endless.append(endless)
    monkeypatch.setattr("gpuprof._frameworks.loaded.is_tensor", lambda _: False)
    assert ddp.first_with_gradient(endless) is None
