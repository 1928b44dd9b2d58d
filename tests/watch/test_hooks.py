"""What a watch leaves in the model: copies, errors, interrupts, lifetime, and the end of it."""

from __future__ import annotations

import contextlib
import copy
import copyreg
import gc
import io
import pickle
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

import gpuprof
from tests.support.watched import Residual, Shared, Slow, nn, torch

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:::torch")]


def hooks_of(model: Any) -> int:
    return sum(
        len(each._forward_hooks)
        + len(each._forward_pre_hooks)
        + len(each._backward_hooks)
        + len(each._backward_pre_hooks)
        + len(each._forward_hooks_always_called)
        for each in model.modules()
    )


def train(model: Any) -> None:
    model(torch.randn(2, 3, 4)).sum().backward()


class Failing(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, error: type[BaseException] | None) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.inner = nn.Linear(4, 4)
        self.error = error
        self.inner.register_forward_hook(self.fail)

    def fail(self, *_arguments: Any) -> None:
        if self.error is not None:
            raise self.error("stop")

    def forward(self, x: Any) -> Any:
        return self.inner(self.first(x))


@pytest.mark.parametrize("end", ["close", "with", "drop"])
def test_nothing_is_left_in_the_model(end: str) -> None:
    model = Residual()
    before = {name: [*vars(each)] for name, each in model.named_modules()}
    if end == "with":
        with gpuprof.watch(model) as seen:
            assert hooks_of(model) > 0
            train(model)
        assert seen.closed
    else:
        seen = gpuprof.watch(model)
        assert not seen.closed
        train(model)
        if end == "close":
            seen.close()
            seen.close()
            assert seen.closed
            assert seen.read()[""].forward.calls == 1  # can be read later too
        del seen
        gc.collect()
    assert hooks_of(model) == 0
    assert {name: [*vars(each)] for name, each in model.named_modules()} == before
    train(model)


def test_a_watch_keeps_no_model_alive() -> None:
    model = Residual()
    alive = weakref.ref(model)
    gc.disable()  # the last reference is what counts, no cycle
    try:
        seen = gpuprof.watch(model)
        train(model)
        model(torch.randn(2, 3, 4))  # a graph of autograd that no backward pass frees
        assert seen.read()[""].forward.calls == 2
        del model
        assert alive() is None
        assert seen.read()["up"].parameters == 40
        seen.close()
    finally:
        gc.enable()


def test_a_graph_of_autograd_that_outlives_the_watch_is_harmless() -> None:
    model = Residual()
    with gpuprof.watch(model) as seen:
        y = model(torch.randn(2, 3, 4)).sum()
    y.backward()
    assert seen.read()[""].backward.calls == 0
    assert model.up.weight.grad is not None


def test_a_watched_model_can_be_copied_and_saved() -> None:
    model = Shared()
    with gpuprof.watch(model) as seen:
        train(model)
        twin = copy.deepcopy(model)
        whole = pickle.loads(pickle.dumps(model))
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
        assert [*model.state_dict()] == [*Shared().state_dict()]
        file.seek(0)
        twin.load_state_dict(torch.load(file))
        train(twin)
        train(whole)
    rows = seen.read()
    assert rows[""].forward.calls == 1  # a copy is not watched
    train(twin)


def _compiled() -> Any:
    model = Residual()
    model.compile(backend="eager")
    return model


def _own(module: Any, arguments: Any, options: Any) -> None:
    module.own_hook_ran = True


def _revived(state: dict[str, Any]) -> Any:
    module = Residual()
    vars(module).update(state)
    return module


class Reduced(Residual):  # type: ignore[misc]
    def __reduce__(self) -> Any:
        return _revived, (vars(self),)


@pytest.mark.parametrize(
    "make",
    [Residual, _compiled, lambda: torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4))), Reduced],
)
@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, None])
def test_nothing_of_it_is_in_a_pickle_or_a_copy(make: Any, copied: Any) -> None:
    model = make()
    before = dict(copyreg.dispatch_table)
    model.register_forward_pre_hook(_own, with_kwargs=True)
    with gpuprof.watch(model), gpuprof.watch(model, 0):
        raw = pickle.dumps(model)
        assert b"gpuprof" not in raw
        assert b"nullcontext" not in raw
        twin = copied(model) if copied is not None else pickle.loads(raw)
    assert dict(copyreg.dispatch_table) == before
    train(twin)
    if not isinstance(twin, torch.fx.GraphModule):  # which keeps no hooks
        assert hooks_of(twin) == 1
        assert twin.own_hook_ran
    assert hooks_of(model) == 1


def test_two_watches_of_one_model_both_see_it() -> None:
    model = Residual()
    first, second = gpuprof.watch(model, 0), gpuprof.watch(model, 1)
    train(model)
    first.close()
    train(model)
    assert (first.read()[""].forward.calls, second.read()[""].forward.calls) == (1, 2)
    assert second.read()["up"].backward.calls == 2
    second.close()
    assert hooks_of(model) == 0


def test_an_exception_in_a_forward_pass_comes_out_and_is_no_time() -> None:
    model = Failing(ValueError)
    with gpuprof.watch(model) as seen:
        with pytest.raises(ValueError, match="stop"):
            model(torch.randn(2, 4))
        model.error = None
        model(torch.randn(2, 4)).sum().backward()
        try:
            raise KeyError
        except KeyError:
            model(torch.randn(2, 4))  # an error that is being handled is not its own
    rows = seen.read()
    assert (rows[""].forward.calls, rows[""].forward.timed, rows[""].forward.failed) == (3, 2, 1)
    assert (rows["first"].forward.timed, rows["first"].forward.failed) == (3, 0)
    assert rows[""].backward.timed == 1
    assert "1 failed" in str(rows)


def test_an_interrupt_in_a_forward_pass_leaves_no_open_pass() -> None:
    model = Failing(KeyboardInterrupt)
    with gpuprof.watch(model) as seen:
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                model(torch.randn(2, 4))
        model.error = None
        model(torch.randn(2, 4)).sum().backward()
    rows = seen.read()
    assert rows[""].forward.timed == rows[""].backward.timed == 1
    # Inside a pass of the model that was left open it would have no time of its own.
    assert rows[""].forward.total_ms == pytest.approx(rows[""].forward.mean_ms)
    with gpuprof.timer("after", backend="cpu") as sample:
        pass
    assert sample.path == "after"


class Doubled(torch.autograd.Function):  # type: ignore[misc, name-defined]
    @staticmethod
    def forward(context: Any, x: Any) -> Any:
        context.kept = Kept()
        return x * 2

    @staticmethod
    def backward(_context: Any, *gradients: Any) -> Any:
        return 2 * gradients[0]


class Kept:
    """Lives as long as the graph of autograd."""

    alive: ClassVar[weakref.WeakSet[Kept]] = weakref.WeakSet()

    def __init__(self) -> None:
        self.alive.add(self)


class Ended(nn.Module):  # type: ignore[misc, name-defined]
    """Doubles, and does something in a module after that."""

    def __init__(self, then: Callable[[], object]) -> None:
        super().__init__()
        self.first, self.last = nn.Identity(), nn.Identity()
        self.first.forward = Doubled.apply
        self.last.forward = lambda x: (then(), x)[1]

    def forward(self, x: Any) -> Any:
        return self.last(self.first(x))


@pytest.mark.parametrize("end", ["interrupt", "close"])
def test_a_forward_pass_that_a_watch_does_not_see_the_end_of_keeps_no_graph(end: str) -> None:
    watches: list[Any] = []

    def end_it() -> None:
        if end == "interrupt":
            raise KeyboardInterrupt
        watches[0].close()

    model = Ended(end_it)
    watches.append(gpuprof.watch(model))
    with pytest.raises(KeyboardInterrupt) if end == "interrupt" else contextlib.nullcontext():
        model(torch.ones(4, requires_grad=True))
    watches[0].close()
    gc.collect()
    assert not Kept.alive


class Told:
    """Calls a function when it goes."""

    def __init__(self, function: Callable[[], object]) -> None:
        self.function = function

    def __del__(self) -> None:
        self.function()


class Interrupted(nn.Module):  # type: ignore[misc, name-defined]
    """Is interrupted while it holds an object."""

    def forward(self, *_arguments: Any) -> Any:
        raise KeyboardInterrupt


class Outer(nn.Module):  # type: ignore[misc, name-defined]
    """Goes on after a module inside was interrupted."""

    def __init__(self, told: Callable[[], object]) -> None:
        super().__init__()
        self.inner = Interrupted()
        self.after = nn.Linear(4, 4)
        self.told = told

    def forward(self, x: Any) -> Any:
        with contextlib.suppress(KeyboardInterrupt):
            self.inner(x, Told(self.told))
        return x if self.after is None else self.after(x)


@pytest.mark.parametrize("after", [nn.Linear(4, 4), None])  # a call, or the end of the outer one
def test_a_destructor_of_what_an_interrupted_call_held_may_close_the_watch(after: Any) -> None:
    watches: list[Any] = []

    def close_it() -> None:
        watches[0].close()

    model = Outer(close_it)
    model.after = after
    watches.append(gpuprof.watch(model))
    model(torch.ones(4))
    assert watches[0].closed
    assert hooks_of(model) == 0


def test_a_destructor_may_call_the_model_on_another_thread() -> None:
    def call_it() -> None:
        thread = threading.Thread(target=lambda: model.after(torch.ones(4)))
        thread.start()
        thread.join()

    model = Outer(call_it)
    with gpuprof.watch(model) as seen:
        for _ in range(5):
            model(torch.ones(4)).sum().backward()
    rows = seen.read()
    assert rows[""].forward.timed == rows[""].backward.timed == 5
    assert rows["after"].forward.timed == 10


def test_results_of_a_module_go_when_the_model_lets_go_of_them() -> None:
    alive = []

    class Two(nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return x * 2, x * 3

    class Around(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.two = Two()

        def forward(self, x: Any) -> Any:
            first, second = self.two(x)
            kept = weakref.ref(second)
            del second
            alive.append(kept() is not None)
            return first

    model = Around()
    with gpuprof.watch(model):
        model(torch.ones(4, requires_grad=True))
    assert alive == [False]


class Unreadable(dict[str, Any]):
    """A result whose tensors cannot be found."""

    def values(self) -> Any:
        raise ValueError("no values")


def test_a_watch_that_fails_keeps_no_graph() -> None:
    model = Ended(lambda: None)
    model.register_forward_hook(lambda _module, _arguments, result: Unreadable(y=result))
    seen = gpuprof.watch(model)
    with pytest.warns(RuntimeWarning, match="no values"):
        model(torch.ones(4, requires_grad=True))
    assert seen.closed
    gc.collect()
    assert not Kept.alive


def test_a_thread_that_ends_in_a_forward_pass_keeps_nothing() -> None:
    def call(model: Any) -> None:
        with contextlib.suppress(SystemExit):
            model(torch.ones(4, requires_grad=True))

    model = Ended(sys.exit)
    alive = weakref.ref(model)
    seen = gpuprof.watch(model)
    thread = threading.Thread(target=call, args=(model,))
    thread.start()
    thread.join()
    del thread, model
    gc.collect()
    assert not Kept.alive
    assert alive() is None
    seen.close()


def test_a_watch_that_is_closed_while_a_hook_begins_keeps_nothing(monkeypatch: Any) -> None:
    def closing() -> bool:
        while watches:
            watches.pop().close()
        return False

    watches: list[Any] = []
    model = nn.Identity()
    with monkeypatch.context() as patch:  # torch itself asks as well, and earlier
        patch.setattr(torch.compiler, "is_compiling", closing)
        watches.append(gpuprof.watch(model))
    core = weakref.ref(watches[0]._core)
    model(torch.ones(4))
    assert not watches
    gc.collect()
    assert core() is None


def test_an_exception_in_a_backward_pass_leaves_no_open_pass() -> None:
    def refuse(_gradient: Any) -> None:
        raise ValueError("stop")

    model = Residual()
    with gpuprof.watch(model) as seen:
        y = model(torch.randn(2, 3, 4))
        handle = model.down.weight.register_hook(refuse)
        with pytest.raises(ValueError, match="stop"):
            y.sum().backward()
        handle.remove()
        train(model)
    rows = seen.read()
    assert rows[""].backward.timed == rows["norm"].backward.timed == 1
    assert rows[""].backward.total_ms == pytest.approx(rows[""].backward.mean_ms)
    assert "stopped" not in str(seen)


def test_a_watch_that_fails_says_so_and_the_model_goes_on(monkeypatch: Any) -> None:
    model = Residual()
    seen = gpuprof.watch(model)

    def broken(*_arguments: Any) -> None:
        raise OSError("no clock")

    monkeypatch.setattr(type(seen._core), "scope", broken)
    with pytest.warns(RuntimeWarning, match="stopped watching the model, because of OSError: no"):
        train(model)
    train(model)
    assert hooks_of(model) == 0
    assert "stopped by OSError: no clock" in str(seen)


def test_a_backward_pass_after_the_watch_was_closed_is_as_without_it() -> None:
    model = Slow(0.0, 0.0)
    seen = gpuprof.watch(model)
    x = torch.ones(3, requires_grad=True)
    y = model(x).sum()
    seen.close()
    y.backward()
    assert torch.equal(x.grad, torch.full((3,), 2.0))


def test_a_watch_that_begins_inside_a_forward_pass_sees_the_next_one() -> None:
    model = Failing(None)
    watches = []
    model.inner.register_forward_pre_hook(
        lambda *_: watches.append(gpuprof.watch(model)) if not watches else None
    )
    model(torch.randn(2, 4))
    model(torch.randn(2, 4))
    rows = watches[0].read()
    assert rows[""].forward.timed == 1
    watches[0].close()


def test_scripted_modules_are_one_row() -> None:
    model = nn.Sequential(torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.Tanh())), nn.Tanh())
    with gpuprof.watch(model) as seen:
        model(torch.randn(2, 4)).sum().backward()
    rows = seen.read()
    assert rows["0"].forward.timed == rows["0"].backward.timed == rows["1"].forward.timed == 1
    assert rows["0.0"].forward.calls == 0
    first, second = gpuprof.watch(model[0]), gpuprof.watch(model[0])
    model(torch.randn(2, 4)).sum().backward()
    first.close()
    second.close()
    assert first.read()[""].backward.timed == second.read()[""].backward.timed == 1
    assert "_compiled_call_impl" not in vars(model[0])


def test_a_traced_model_is_not_changed() -> None:
    model, x = Residual().eval(), torch.randn(2, 3, 4)
    with gpuprof.watch(model):
        traced = torch.jit.trace(model, x)
        graph = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4)))
    assert torch.equal(traced(x), model(x))
    assert "hook" not in graph.code


def test_a_copy_for_data_parallel_is_measured_forward() -> None:
    model = nn.Tanh()
    with gpuprof.watch(model) as seen:
        copied = model._replicate_for_data_parallel()
        copied(torch.randn(2, requires_grad=True)).sum().backward()
    row = seen.read()[""]
    assert (row.forward.timed, row.backward.calls) == (1, 0)
