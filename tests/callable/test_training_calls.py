"""Training steps of graphed callables beside eager ones, on the CPU with a tape for a graph."""

from __future__ import annotations

import copy
import gc
from typing import Any

import pytest

import gpuprof
from gpuprof.errors import InvalidStateError
from tests.support import cpu_graphs
from tests.support.callables import step_of

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("tapes")]

from tests.support import small_networks as networks  # noqa: E402
from tests.support.structures import Cache  # noqa: E402

both_ways = pytest.mark.parametrize("param_grads", ["autograd", "accumulate"])


def make(fn: Any, *args: Any, **options: Any) -> Any:
    return gpuprof.make_graphed_callable(fn, args, **options)


def assert_same(module: Any, eager: Any, context: object = None) -> None:
    """Fail unless parameters, buffers and gradients are equal, and None where the other's are."""
    for (name, mine), theirs in zip(module.named_parameters(), eager.parameters(), strict=True):
        assert (mine.grad is None) == (theirs.grad is None), (name, context)
        assert mine.grad is None or torch.equal(mine.grad, theirs.grad), (name, context)
    for name, tensor in eager.state_dict().items():
        assert torch.equal(module.state_dict()[name], tensor), (name, context)


def batch(step: int, rows: int = networks.ROWS) -> Any:
    return torch.randn(rows, networks.WIDTH, generator=torch.Generator().manual_seed(step))


def train(seed: int, param_grads: str, optimizer: str) -> None:
    module = networks.Network(seed)
    eager = copy.deepcopy(module)
    # An eager pass before the capture, whose graph of autograd's is kept or not.
    losses = [networks.loss_of(each, batch(0), 0) for each in (module, eager)]
    if seed % 2:
        losses.clear()
    samples = (batch(0),) if seed % 3 else None
    fast = gpuprof.make_graphed_callable(
        module, samples, verify="off", warmup=2, param_grads=param_grads
    )
    optimizers = [networks.OPTIMIZERS[optimizer](each.parameters()) for each in (module, eager)]
    for step in range(networks.STEPS):
        for run, each in zip((fast, eager), optimizers, strict=True):
            each.zero_grad()
            torch.manual_seed(step)  # of dropout
            networks.loss_of(run, batch(step), seed + step).backward()
            each.step()
        assert_same(module, eager, (seed, module.names, step))
    assert fast.stats().captures == 1


@pytest.mark.parametrize("seed", range(16))
def test_random_networks_train_as_they_do_eagerly(seed: int) -> None:
    train(seed, ("autograd", "accumulate")[seed % 2], ("SGD", "AdamW")[seed // 2 % 2])


# Which tensors get gradients.


class Flattening(torch.nn.LSTM):  # type: ignore[misc]
    """Gives its weights other memory where it finds other ones, as the layers do for cuDNN."""

    def flatten_parameters(self) -> None:
        weights = self.__dict__.get("_flat_weights", [])
        for weight in weights:
            weight.data = weight.detach().clone()


@both_ways
@pytest.mark.parametrize("keeps", [False, True])
def test_a_recurrent_layer_trains_whatever_memory_it_gives_its_weights(
    param_grads: str, keeps: bool
) -> None:
    module = Flattening(networks.WIDTH, 3, num_layers=2)
    eager = copy.deepcopy(module)
    kept = [each(batch(9))[0].sum() for each in (module, eager)]
    if not keeps:
        kept.clear()
    fast = make(module, batch(0), param_grads=param_grads)
    for step in range(3):
        for run in (fast, eager):
            run(batch(step))[0].square().sum().backward()
        assert_same(module, eager, step)
    assert all(each.grad is not None for each in module.parameters())
    assert all(a is b for a, b in zip(module._flat_weights, module.parameters(), strict=True))
    for each in kept:
        each.backward()
    assert_same(module, eager, "the loss that was kept")


class Hidden:
    """What the function uses, and nothing but a run of it shows."""

    net: Any = None
    tensor: Any = None


@pytest.mark.parametrize("warmup", [0, 2])
def test_gradients_of_what_only_a_run_shows_are_those_of_the_last_call(
    warmup: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = torch.nn.Linear(networks.WIDTH, 1)
    eager = copy.deepcopy(net)
    tensor = torch.ones(networks.WIDTH, requires_grad=True)
    monkeypatch.setattr(Hidden, "net", net)
    monkeypatch.setattr(Hidden, "tensor", tensor)

    def step(values: Any) -> Any:
        Hidden.net.zero_grad()
        Hidden.net(values * Hidden.tensor.detach()).square().sum().backward()
        (values * Hidden.tensor).sum().backward()
        return values.sum()

    fast = make(step, batch(0), warmup=warmup, verify="off")
    assert net.weight.grad is None
    assert tensor.grad is None
    for number in (1, 2):
        tensor.grad = None
        fast(batch(number))
        eager.zero_grad()
        eager(batch(number)).square().sum().backward()
        assert_same(net, eager, number)
        assert torch.equal(tensor.grad, batch(number).sum(dim=0))


def test_parameters_that_are_in_no_module_train() -> None:
    held = {"scale": torch.ones(networks.WIDTH, requires_grad=True)}
    weight = torch.nn.Parameter(torch.ones(networks.WIDTH))

    def body(values: Any) -> Any:
        return values * held["scale"] * weight

    fast = make(body, batch(0))
    fast(batch(1)).sum().backward()
    for each in (held["scale"], weight):
        assert torch.equal(each.grad, batch(1).sum(dim=0))


def test_a_tensor_that_operators_have_made_outside_is_refused() -> None:
    made = torch.ones(networks.WIDTH, requires_grad=True) * 2
    with pytest.raises(InvalidStateError, match=r"shape \(4,\).* made outside .*as an argument"):
        make(lambda values: values * made, batch(0))


@both_ways
@pytest.mark.parametrize("warmup", [2, 3])  # after compiled code at least two
def test_one_capture_at_most_is_thrown_away(param_grads: str, warmup: int) -> None:
    weight = torch.ones(networks.WIDTH, requires_grad=True)
    runs = []

    def counted(values: Any) -> Any:
        runs.append(values)
        return values * weight

    fast = make(counted, batch(0), warmup=warmup, verify="off", param_grads=param_grads)
    assert len(runs) - warmup in {1, 2}
    at_first = len(runs)
    for step in range(3):
        fast(batch(step)).sum().backward()
    assert len(runs) == at_first
    assert torch.equal(weight.grad, sum(batch(step).sum(dim=0) for step in range(3)))


# Results that got a gradient.


class Heads(torch.nn.Module):  # type: ignore[misc]
    """Two results of layers of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.left, self.right = (torch.nn.Linear(4, 4) for _ in range(3))

    def forward(self, values: Any) -> Any:
        hidden = self.body(values)
        return self.left(hidden), hidden.argmax(dim=1), self.right(hidden)


@pytest.fixture
def heads() -> tuple[Any, Any]:
    torch.manual_seed(0)
    module = Heads()
    return module, copy.deepcopy(module)


@both_ways
def test_what_no_used_result_leads_to_gets_no_gradient(heads: Any, param_grads: str) -> None:
    module, eager = heads
    fast = make(module, batch(0), param_grads=param_grads)
    for step, used in enumerate([(0,), (0, 2), (2,), (0,), (2,), (0, 2)]):
        for run in (module, eager):
            run.zero_grad()
        for run in (fast, eager):
            results = run(batch(step))
            sum(results[number].square().sum() for number in used).backward()
        assert (module.left.weight.grad is None) == (0 not in used)
        assert_same(module, eager, used)


@both_ways
def test_one_call_has_backward_passes_of_one_result_after_the_other(
    heads: Any, param_grads: str
) -> None:
    module, eager = heads
    fast = make(module, batch(0), param_grads=param_grads)
    for step in range(2):
        for run in (fast, eager):
            left, _, right = run(batch(step))
            left.sum().backward(retain_graph=True)
            right.square().sum().backward()
        assert_same(module, eager, step)


@pytest.mark.parametrize("retain_graph", [None, True])
def test_one_result_has_several_backward_passes(retain_graph: bool | None) -> None:
    given = batch(0).requires_grad_()
    result = make(lambda values: values * 2, given)(given)
    for passes in range(1, 4):
        result.backward(torch.ones_like(result), retain_graph=retain_graph)
        assert torch.equal(given.grad, torch.full_like(given, 2 * passes))


def test_hooks_of_arguments_results_and_parameters_run_for_what_is_used(heads: Any) -> None:
    module, eager = heads
    ran: list[str] = []
    gradients = []
    fast = make(module, batch(0).requires_grad_())
    for run, own in ((fast, module), (eager, eager)):
        own.left.weight.register_hook(lambda grad: (ran.append("left"), grad * 2)[1])
        own.right.weight.register_hook(lambda grad: (ran.append("right"), grad * 2)[1])
        given = batch(1).requires_grad_()
        given.register_hook(lambda grad: (ran.append("argument"), grad * 4)[1])
        results = run(given)
        results[0].register_hook(lambda grad: (ran.append("result"), grad * 3)[1])
        results[0].sum().backward()
        gradients.append(given.grad)
    for each in (ran[:3], ran[3:]):
        assert each[0] == "result"
        assert sorted(each[1:]) == ["argument", "left"]
    assert torch.equal(*gradients)
    assert_same(module, eager)
    for run in (fast, eager):  # and so they do in the next pass
        sum(each.sum() for each in run(batch(1))[::2]).backward()
    assert sorted(ran[6:]) == ["left", "left", "right", "right"]
    assert_same(module, eager)


def test_an_argument_that_no_used_result_comes_from_gets_no_gradient() -> None:
    fast = make(lambda a, b: (a * 2, b * 3), *(batch(n).requires_grad_() for n in range(2)))
    a, b = (batch(n).requires_grad_() for n in range(2))
    fast(a, b)[1].sum().backward()
    assert a.grad is None
    assert torch.equal(b.grad, torch.full_like(b, 3))


@pytest.mark.usefixtures("register")
def test_gradients_flow_through_registered_arguments_and_results() -> None:
    def body(given: Any) -> Cache:
        return Cache([torch.tanh(given.keys[0])], [given.values[0] * 3], given.window)

    def gradients(run: Any) -> Any:
        given = [batch(n).requires_grad_() for n in range(2)]
        made = run(Cache(given[:1], given[1:], window=2))
        (made.keys[0].sum() + made.values[0].square().sum()).backward()
        return torch.stack([each.grad for each in given])

    fast = make(body, Cache(*([batch(n).requires_grad_()] for n in range(2)), window=2))
    assert torch.equal(gradients(fast), gradients(body))
    assert fast.stats().captures == 1


class Fails(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(_: Any, values: Any) -> Any:
        return values * 2

    @staticmethod
    def backward(*_: Any) -> Any:
        message = "only in training mode"
        raise RuntimeError(message)


def test_a_backward_pass_is_captured_when_it_comes_and_not_before() -> None:
    given = batch(0).requires_grad_()
    fast = make(lambda values: (Fails.apply(values), values * 3), given)
    failing, other = fast(given)
    assert torch.equal(failing, given * 2)
    other.sum().backward()
    assert torch.equal(given.grad, torch.full_like(given, 3))
    with pytest.raises(InvalidStateError, match=r"cannot be captured \(only in training mode\)$"):
        fast(given)[0].sum().backward()


def test_an_eager_pass_is_named_where_it_may_share_nodes_with_a_refused_backward_pass() -> None:
    other = torch.ones(networks.WIDTH, requires_grad=True)
    fast = make(lambda values: Fails.apply(values * other), batch(0))
    with pytest.raises(InvalidStateError, match=r"eager pass is alive .* that are in no module"):
        fast(batch(1)).sum().backward()


class CompiledFunction(torch.autograd.Function):  # type: ignore[misc]
    """Called as autograd's part of compiled code is, whose saved tensors serve one pass."""

    @staticmethod
    def forward(ctx: Any, values: Any, left: Any, right: Any) -> Any:
        ctx.save_for_backward(values)
        return values * left, values * right

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (values,) = ctx.saved_tensors
        return None, *((values * each).sum(dim=0) for each in gradients)


def test_compiled_code_has_one_backward_pass_that_makes_zeros_of_what_is_not_given() -> None:
    left, right = (torch.ones(networks.WIDTH, requires_grad=True) for _ in range(2))
    fast = make(lambda values: CompiledFunction.apply(values, left, right), batch(0))
    fast(batch(1))[0].sum().backward()
    assert torch.equal(left.grad, batch(1).sum(dim=0))
    assert torch.equal(right.grad, torch.zeros(networks.WIDTH))
    loss = fast(batch(1))[1].sum()
    loss.backward(retain_graph=True)
    assert torch.equal(right.grad, batch(1).sum(dim=0))
    with pytest.raises(InvalidStateError, match=r"second backward pass.*compiled code"):
        loss.backward()


# When a backward pass may come.


@both_ways
@pytest.mark.parametrize("how", ["another shape", "reset", "the callable is gone"])
@pytest.mark.parametrize("ran", [False, True], ids=["the first", "a later one"])
def test_a_backward_pass_comes_after_its_graph_was_dropped(
    heads: Any, param_grads: str, how: str, ran: bool
) -> None:
    module, eager = heads
    fast = make(module, batch(0), max_graphs=1, param_grads=param_grads)
    if ran:
        for run in (fast, eager):
            run(batch(1))[0].square().sum().backward()
    losses = [run(batch(2))[0].square().sum() for run in (fast, eager)]
    if how == "another shape":
        with torch.no_grad():
            fast(batch(3, rows=7))
        assert fast.stats().evictions == 1
    elif how == "reset":
        fast.reset()
    else:
        del fast
    gc.collect()
    for loss in losses:
        loss.backward()
    assert_same(module, eager)


def test_a_backward_pass_after_the_optimizers_step_is_refused(heads: Any) -> None:
    module, eager = heads
    fast = make(module, batch(0))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    loss = fast(batch(1))[0].sum()
    loss.backward(retain_graph=True)
    optimizer.step()
    with pytest.raises(InvalidStateError, match=r"changed in place.*optimizer's step"):
        loss.backward()
    eager.load_state_dict(module.state_dict())
    for run in (module, eager):
        run.zero_grad()
    for run in (fast, eager):
        run(batch(1))[2].sum().backward()
    assert_same(module, eager, "captured after the step")


def test_a_backward_pass_after_a_later_call_is_refused(heads: Any) -> None:
    fast = make(heads[0], batch(0))
    loss = fast(batch(1))[0].sum()
    fast(batch(2))
    with pytest.raises(InvalidStateError, match="a later call has replaced"):
        loss.backward()


def test_a_backward_pass_waits_for_another_threads_capture_but_not_for_ever(
    heads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuprof._callable.training._PATIENCE_S", 0.02)
    fast = make(heads[0], batch(0))
    loss = fast(batch(1))[0].sum()
    with (
        cpu_graphs.open_on_another_thread(),
        pytest.raises(InvalidStateError, match="another thread has had a capture open"),
    ):
        loss.backward()
    loss.backward()
    assert heads[0].left.weight.grad is not None


# Several callables in one memory.


def stages(options: dict[str, Any]) -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    modules = tuple(torch.nn.Linear(4, 4) for _ in range(3))
    inner = batch(0).requires_grad_()
    samples = ((batch(0),), (inner,), (inner,))
    fast = gpuprof.make_graphed_callable(modules, samples, **options)
    return fast, modules, copy.deepcopy(modules)


@both_ways
@pytest.mark.parametrize("order", [(2, 1, 0), (0, 1, 2), (1, 2, 0)])
def test_stages_go_backwards_in_any_order(param_grads: str, order: tuple[int, ...]) -> None:
    fast, modules, eager = stages({"param_grads": param_grads})
    for step in range(2):
        for run in (fast, eager):
            results, values = [], batch(step)
            for stage in run:
                results.append(stage(values))
                values = results[-1].detach().requires_grad_()
            for number in order:
                results[number].square().sum().backward()
        for mine, theirs in zip(modules, eager, strict=True):
            assert_same(mine, theirs, step)


def test_a_stage_that_was_captured_earlier_overwrites() -> None:
    fast, _, _ = stages({})
    loss = fast[1](batch(1).requires_grad_()).sum()
    fast[0](batch(1))
    with pytest.raises(InvalidStateError, match="another graph of the same memory"):
        loss.backward()


def test_a_graph_without_a_backward_pass_overwrites() -> None:
    pool = gpuprof.CapturePool()
    double = make(lambda values: values * 2, batch(0), pool=pool)
    fast = make(torch.nn.Linear(4, 4), batch(0), pool=pool)
    loss = fast(batch(1)).sum()
    double(batch(1))
    with pytest.raises(InvalidStateError, match="same memory has run, which has no backward pass"):
        loss.backward()


# Functions that go backward themselves.


@pytest.mark.parametrize("detaches", [True, False])
def test_a_whole_step_may_return_its_loss_as_it_is(detaches: bool) -> None:
    torch.manual_seed(0)
    module = torch.nn.Linear(4, 4)
    eager = copy.deepcopy(module)

    fast, plain = (
        step_of(each, torch.optim.SGD(each.parameters(), lr=0.1), detaches=detaches)
        for each in (module, eager)
    )
    fast = gpuprof.make_graphed_callable(fast)
    for number in range(6):
        assert torch.equal(fast(batch(number)).detach(), plain(batch(number)).detach())
        assert_same(module, eager, number)
    assert fast.stats().captures == 1


@both_ways
def test_a_graphed_model_trains_in_a_step_that_is_warmed_up(param_grads: str) -> None:
    torch.manual_seed(0)
    module = torch.nn.Linear(4, 4)
    eager = copy.deepcopy(module)
    fast = make(module, batch(0), param_grads=param_grads)

    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (module, eager)]
    whole, plain = make(step_of(fast, optimizers[0]), batch(0)), step_of(eager, optimizers[1])
    for number in range(3):
        assert torch.equal(whole(batch(number)), plain(batch(number)))
        assert torch.equal(module.weight, eager.weight)
    for run, own in ((fast, module), (eager, eager)):
        own.zero_grad()
        run(batch(5)).sum().backward()  # captured in the warm-up
    assert_same(module, eager)
