"""`capture(host_constants=True)`, on the fake driver.

Meta tensors stand for those on the GPU, and clones for pinned ones.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import gpuprof

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
numpy: Any = pytest.importorskip("numpy", reason="NumPy is not installed")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:::torch")]

GPU = "meta"


class Pins:
    """Which tensors are pinned, and how often a thread was relaxed."""

    def __init__(self) -> None:
        self.pinned: list[Any] = []
        self.relaxed = 0

    def is_pinned(self, tensor: Any) -> bool:
        return any(tensor is each for each in self.pinned)

    def pin(self, tensor: Any) -> Any:
        assert self.relaxed % 2, "pinned in relaxed mode"
        self.pinned.append(tensor.clone())
        return self.pinned[-1]

    @contextlib.contextmanager
    def relax(self) -> Iterator[None]:
        self.relaxed += 1
        yield
        self.relaxed += 1


def _of(tensor: Any, pins: Pins, method: Callable[[Pins, Any], Any], *_: Any) -> Any:
    return method(pins, tensor)


@pytest.fixture(autouse=True)
def pins(monkeypatch: pytest.MonkeyPatch) -> Pins:
    found = Pins()
    monkeypatch.setattr("gpuprof._frameworks.torch_constants._GPU", GPU)
    monkeypatch.setattr("gpuprof._frameworks.torch_constants.relaxed", found.relax)
    for name, method in (("is_pinned", Pins.is_pinned), ("pin_memory", Pins.pin)):
        monkeypatch.setattr(torch.Tensor, name, functools.partialmethod(_of, found, method))
    return found


def captured(stream: int, body: Callable[[], Any]) -> tuple[Any, gpuprof.CapturedGraph]:
    """Capture a block; return what it gives, and the graph."""
    with gpuprof.capture(stream, allow_empty=True, host_constants=True) as cap:
        result = body()
    return result, cap.graph


def on_gpu(*shape: int, **how: Any) -> Any:
    return torch.empty(*shape, device=GPU, **how)


HOST = torch.arange(6.0).reshape(2, 3)
# What a block does, and what it has to keep.
BODIES: dict[str, tuple[Callable[[], Any], list[Any]]] = {
    "to": (lambda: HOST.to(GPU), [HOST]),
    "to, not blocking": (lambda: HOST.to(GPU, non_blocking=True), [HOST]),
    "to another dtype": (lambda: HOST.to(GPU, torch.float64), [HOST.double()]),
    "of other strides": (lambda: HOST.t()[::2].to(GPU), [HOST.t()[::2]]),
    "expanded": (lambda: HOST[:, :1].expand(2, 3).to(GPU), [HOST[:, :1].expand(2, 3)]),
    "type_as": (lambda: HOST.type_as(on_gpu(1)), [HOST]),
    "copy_": (lambda: on_gpu(2, 3).copy_(HOST), [HOST]),
    "copy_ to a column": (lambda: on_gpu(2, 3)[:, 1].copy_(HOST[:, 0]), [HOST[:, 0]]),
    "copy_ of a row": (lambda: on_gpu(2, 3).copy_(HOST[0]), [HOST[0].expand(2, 3)]),
    "copy_ to half": (lambda: on_gpu(2, 3, dtype=torch.half).copy_(HOST), [HOST.half()]),
    "assigned": (lambda: on_gpu(2, 3).__setitem__(0, HOST[1]), [HOST[1]]),
    "tensor": (lambda: torch.tensor([1, 2], device=GPU), [torch.tensor([1, 2])]),
    "tensor of a dtype": (
        lambda: torch.tensor([1, 2], dtype=torch.half, device=torch.device(GPU)),
        [torch.tensor([1, 2], dtype=torch.half)],
    ),
    "a number": (lambda: torch.tensor(2.5, device=GPU), [torch.tensor(2.5)]),
    "by name": (lambda: torch.tensor(data=[3], device=GPU), [torch.tensor([3])]),
    "as_tensor": (lambda: torch.as_tensor([1.5], device=GPU), [torch.tensor([1.5])]),
    "as_tensor of a tensor": (lambda: torch.as_tensor(HOST, device=GPU), [HOST]),
    "asarray": (lambda: torch.asarray([1.5], device=GPU), [torch.tensor([1.5])]),
    "new_tensor": (lambda: on_gpu(2).new_tensor([1, 2]), [torch.tensor([1.0, 2.0])]),
    "indices": (lambda: on_gpu(2, 3)[:, torch.tensor([1])], [torch.tensor([1])]),
    "a mask": (lambda: on_gpu(2, 3)[HOST > 3], [torch.tensor([1, 1]), torch.tensor([1, 2])]),
    "a mask of rows": (
        lambda: on_gpu(2, 3)[torch.tensor([False, True]), :2],
        [torch.tensor([1])],
    ),
    "a list": (lambda: on_gpu(4)[[0, 2]], [torch.tensor([0, 2])]),
    "a list of columns": (lambda: on_gpu(2, 3)[:, [0, 2]], [torch.tensor([0, 2])]),
    "an array": (lambda: on_gpu(4)[numpy.array([0, 2])], [torch.tensor([0, 2])]),
    "a number at indices": (
        lambda: on_gpu(3).index_put_((torch.tensor([1]),), torch.tensor(2.0)),
        [torch.tensor([1]), torch.tensor(2.0)],
    ),
    "where": (
        lambda: torch.where(on_gpu(2) > 0, on_gpu(2), torch.tensor(0.5)),
        [torch.tensor(0.5)],
    ),
    "nothing": (lambda: on_gpu(2) * torch.tensor(2.0), []),
    "empty": (lambda: torch.tensor([], device=GPU), []),
    "on the host": (lambda: HOST[torch.tensor([0])].to(torch.half).copy_(HOST[:1]), []),
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("inference", [False, True])
def test_what_comes_from_the_host_is_pinned(
    stream: int, name: str, inference: bool, pins: Pins
) -> None:
    body, wanted = BODIES[name]
    with torch.inference_mode(inference):
        expected = body()
        result, _ = captured(stream, body)
    assert len(pins.pinned) == len(wanted)
    for each, like in zip(pins.pinned, wanted, strict=True):
        assert each.dtype == like.dtype
        assert torch.equal(each, like)
    if result is not None and "mask" not in name:  # of which this device does not know the size
        assert (result.device, result.dtype) == (expected.device, expected.dtype)
        assert (result.shape, result.stride()) == (expected.shape, expected.stride())


PASSES: dict[str, Callable[[Any, Any], object]] = {
    "backward": lambda _, result: result.sum().backward(),
    "autograd.backward": lambda _, result: torch.autograd.backward(result.sum()),
    "autograd.grad": lambda x, result: torch.autograd.grad(result.sum(), x),
}


@pytest.mark.parametrize("name", PASSES)
def test_a_backward_pass_may_build_tensors_where_it_recomputes(
    stream: int, name: str, pins: Pins
) -> None:
    checkpoint = importlib.import_module("torch.utils.checkpoint").checkpoint
    run_backward = torch.autograd._engine_run_backward
    x = on_gpu(2, 3).requires_grad_()

    def body() -> None:
        how = {"use_reentrant": False, "preserve_rng_state": False}
        PASSES[name](x, checkpoint(lambda x: x[:, [0, 2]].sin(), x, **how))

    captured(stream, body)
    # Of the two passes, and of the index that autograd keeps.
    assert [each.tolist() for each in pins.pinned] == 3 * [[0, 2]]
    assert torch.autograd._engine_run_backward is run_backward


def test_the_graph_keeps_what_is_pinned(stream: int, pins: Pins) -> None:
    own = torch.ones(4)
    pins.pinned.append(own)
    kept = [weakref.ref(own)]

    def body() -> None:
        HOST.to(GPU)
        pins.pinned[0].to(GPU, non_blocking=True)
        on_gpu(4).copy_(pins.pinned[0], non_blocking=True)

    _, graph = captured(stream, body)
    kept.append(weakref.ref(pins.pinned[1]))
    del own
    pins.pinned.clear()
    gc.collect()
    assert all(each() is not None for each in kept)
    graph.close()
    gc.collect()
    assert all(each() is None for each in kept)


def test_copies_do_not_wait(stream: int) -> None:
    waits = []
    base: Any = importlib.import_module("torch.utils._python_dispatch").TorchDispatchMode

    class Watch(base):  # type: ignore[misc]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            if func is torch.ops.aten._to_copy.default and kwargs.get("device") is not None:
                waits.append(not kwargs.get("non_blocking"))
            if func is torch.ops.aten.copy_.default and args[0].device.type == GPU:
                waits.append(not args[2])
            return func(*args, **kwargs)

    def body() -> None:
        HOST.to(GPU)
        on_gpu(2, 3).copy_(HOST)
        torch.tensor([1], device=GPU)

    with Watch():  # outside: it sees what becomes of the copies
        captured(stream, body)
    assert waits == [False] * 3


def test_pinned_memory_of_others_is_read_as_it_is_at_each_replay(stream: int, pins: Pins) -> None:
    images = torch.zeros(1, 2, 3, 3)
    last = {"memory_format": torch.channels_last, "non_blocking": True}
    pins.pinned += [HOST, images]

    def body() -> tuple[Any, ...]:
        on_gpu(2, 3).copy_(HOST, non_blocking=True)
        on_gpu(4, 2, 3).copy_(HOST, non_blocking=True)
        HOST.to(GPU)  # it waits, so torch refuses it
        half = HOST.to(GPU, torch.half, non_blocking=True)
        return HOST.to(GPU, non_blocking=True), half, images.to(GPU, **last)

    (_, half, of_images), _ = captured(stream, body)
    assert len(pins.pinned) == 2
    assert (half.dtype, half.device.type) == (torch.half, GPU)
    assert of_images.stride() == images.to(GPU, **last).stride() != images.stride()


def test_a_tensor_that_is_built_may_require_a_gradient(stream: int) -> None:
    leaf, _ = captured(stream, lambda: torch.tensor([1.0], device=GPU, requires_grad=True))
    assert leaf.is_leaf
    assert leaf.requires_grad
    plain, _ = captured(stream, lambda: torch.tensor([1.0], device=GPU))
    assert not plain.requires_grad


def test_gradients_flow_through_a_staged_copy(stream: int, pins: Pins) -> None:
    weight = torch.ones(3, requires_grad=True)
    result, _ = captured(stream, lambda: weight.to(GPU))
    assert result.grad_fn is not None
    assert torch.equal(pins.pinned[0], weight)


def test_a_default_device_counts(stream: int, pins: Pins) -> None:
    with torch.device(GPU):
        made, _ = captured(stream, lambda: torch.tensor([1, 2]))
    assert made.device.type == GPU
    assert pins.pinned[0].tolist() == [1, 2]


def test_a_mask_of_another_size_is_torchs_error(stream: int, pins: Pins) -> None:
    with pytest.raises(IndexError, match="shape"):
        captured(stream, lambda: on_gpu(2, 3)[torch.tensor([True, False, True])])
    assert pins.pinned == []


def test_nothing_is_staged_outside_of_such_a_block(stream: int, pins: Pins) -> None:
    def body() -> None:
        HOST.to(GPU)
        torch.tensor([1], device=GPU)

    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        captured(stream, fail)
    body()
    with gpuprof.capture(stream, allow_empty=True):
        body()
    assert pins.pinned == []
    captured(stream, body)
    assert len(pins.pinned) == 2
