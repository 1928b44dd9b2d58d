"""What a graphed call depends on besides its arguments: parameters, modes, captured variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import gpuprof
from tests.gpu.support.callables import assert_counts, assert_replays

# The calls within which a sweep of a few parameters a call has seen all of a small model.
SWEPT = 100


def make(torch: Any) -> Any:
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.BatchNorm1d(64), torch.nn.Linear(64, 8)
    )
    return module.eval().to("cuda").requires_grad_(False)


def convert(torch: Any, module: Any) -> None:
    """Replace the memory of all parameters and buffers, and round what they hold."""
    module.to(torch.bfloat16).to(torch.float32)


def load(torch: Any, module: Any) -> None:
    state = {name: value * 2 for name, value in module.state_dict().items()}
    module.load_state_dict(state, assign=True)


def point(torch: Any, module: Any) -> None:
    weight = module[3].weight
    weight.data = weight.data * 3


def replace(torch: Any, module: Any) -> None:
    module[0].weight = torch.nn.Parameter(module[0].weight * 3, requires_grad=False)


def replace_buffer(torch: Any, module: Any) -> None:
    module[2].running_mean = module[2].running_mean + 1


def replace_layer(torch: Any, module: Any) -> None:
    module[3] = torch.nn.Linear(64, 8, device="cuda").requires_grad_(False)


CHANGES: dict[str, Callable[[Any, Any], None]] = {
    "to": convert,
    "load_state_dict": load,
    "data": point,
    "parameter": replace,
    "buffer": replace_buffer,
    "layer": replace_layer,
}
changes = pytest.mark.parametrize("change", CHANGES)


def changed(torch: Any, module: Any, given: Any, change: str) -> None:
    """Change a module so that what it returns is another result."""
    before = module(given)
    CHANGES[change](torch, module)
    assert not torch.allclose(module(given), before)
    # What took the place of the old parameters' memory would be seen.
    for parameter in module.parameters():
        torch.full_like(parameter, float("nan"))


@changes
def test_replaced_parameters_are_found_by_the_next_call(torch: Any, change: str) -> None:
    module = make(torch)
    given = torch.randn(4, 32, device="cuda")
    fast = gpuprof.make_graphed_callable(module, (given,))
    torch.testing.assert_close(fast(given), module(given))
    changed(torch, module, given, change)
    for _ in range(3):
        torch.testing.assert_close(fast(given), module(given))
    seen = fast.stats()
    assert (seen.replays, seen.eager_calls) == (4, 0), seen
    assert seen.captures == 2, seen


@changes
def test_replaced_parameters_are_found_by_the_sweep(torch: Any, change: str) -> None:
    module = make(torch)
    given = torch.randn(4, 32, device="cuda")
    fast = gpuprof.make_graphed_callable(module, (given,), check="sweep")
    old = fast(given)
    changed(torch, module, given, change)
    wanted = module(given)
    for _ in range(SWEPT):
        found = fast(given)
        if torch.allclose(found, wanted):
            break
        torch.testing.assert_close(found, old)  # never anything but the one or the other
    torch.testing.assert_close(fast(given), wanted)
    seen = fast.stats()
    assert seen.eager_calls == 0, seen
    assert seen.captures >= 2, seen


def test_what_a_function_reads_of_objects_is_in_its_next_result(torch: Any) -> None:
    from tests.support import read_objects

    for change in read_objects.CHANGES.values():
        read_objects.assert_a_change_is_in_the_next_result(
            gpuprof.make_graphed_callable, change, "cuda"
        )


def test_what_later_warm_ups_write_is_put_back(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # Where a test before has compiled something, later warm-ups are not observed.
    monkeypatch.setattr("gpuprof._callable.capture.may_run_compiled_code", lambda: False)
    total, late = torch.zeros(8, device="cuda"), torch.zeros(8, device="cuda")
    runs = []

    def count(values: Any) -> Any:
        runs.append(values.shape)
        total.add_(1)
        if len(runs) > 1:
            late.add_(1)
        return values + total

    gpuprof.make_graphed_callable(count, (torch.ones(8, device="cuda"),), verify="off")
    assert (total.tolist(), late.tolist()) == ([0] * 8, [0] * 8)
    assert len(runs) == 4


def test_parameters_that_are_written_to_need_no_new_capture(torch: Any) -> None:
    module = make(torch)
    given = torch.randn(4, 32, device="cuda")
    fast = gpuprof.make_graphed_callable(module, (given,))
    for _ in range(3):
        module.load_state_dict({name: v * 1.5 for name, v in module.state_dict().items()})
        torch.testing.assert_close(fast(given), module(given))
    assert_replays(fast, 3)
    assert fast.stats().recaptures == 0


def test_buffers_that_a_call_writes_to_are_the_modules(torch: Any) -> None:
    module, eager = make(torch).train(), make(torch).train()
    sample = torch.randn(16, 32, device="cuda")
    fast = gpuprof.make_graphed_callable(module, (sample,))
    # What the captured body ran for real before is in the module's buffers.
    eager.load_state_dict(module.state_dict())
    for _ in range(4):
        given = torch.randn(16, 32, device="cuda")
        torch.testing.assert_close(fast(given), eager(given))
    for name, buffer in eager.named_buffers():
        torch.testing.assert_close(module.get_buffer(name), buffer)
    assert_replays(fast, 4)


def test_training_and_inference_have_graphs_of_their_own(torch: Any) -> None:
    module = make(torch)
    given = torch.randn(16, 32, device="cuda")
    fast = gpuprof.make_graphed_callable(module, (given,))
    infer = fast(given)
    module.train()
    train = fast(given)
    assert not torch.allclose(train, infer)
    module.eval()
    torch.testing.assert_close(fast(given), module(given))
    assert_replays(fast, 3, captures=2)


def test_gradient_modes_are_followed(torch: Any) -> None:
    module = make(torch)
    given = torch.randn(4, 32, device="cuda")
    fast = gpuprof.make_graphed_callable(module, (given,))
    for _ in range(2):
        with torch.no_grad():
            torch.testing.assert_close(fast(given), module(given))
        with torch.inference_mode():
            found = fast(given)
            assert found.is_inference()
            torch.testing.assert_close(found, module(given))
        found = fast(given)
        assert not found.is_inference()
        torch.testing.assert_close(found, module(given))
    seen = fast.stats()
    assert (seen.replays, seen.eager_calls, seen.failures) == (6, 0, 0), seen
    assert seen.captures <= 3


def test_an_argument_that_was_made_in_inference_mode(torch: Any) -> None:
    fast = gpuprof.make_graphed_callable(lambda v: v * 2, (torch.ones(8, device="cuda"),))
    with torch.inference_mode():
        given = torch.randn(8, device="cuda")
        inside = fast(given)
    outside = fast(given)
    assert torch.equal(inside, given * 2)
    assert torch.equal(outside, given * 2)
    assert_counts(fast, replays=2, eager_calls=0)


def test_trainable_parameters_without_gradients(torch: Any) -> None:
    module = make(torch).requires_grad_(True)
    given = torch.randn(4, 32, device="cuda", requires_grad=True)
    with torch.no_grad():
        fast = gpuprof.make_graphed_callable(module, (given,))
        found = fast(given)
        assert not found.requires_grad
        torch.testing.assert_close(found, module(given))
    assert_replays(fast, 1)
