"""The backward pass of a graphed callable: a second graph, behind one autograd Function.

The backward graph is captured right after the forward one, in the same memory, and reads what that
one leaves there. So it is right only for the last replay of the forward graph, and while no other
graph of that memory ran that was not captured in between: `backward` refuses anything else. One
replay of the forward graph can have several backward passes, other than of compiled code.

``param_grads="autograd"`` gives the gradients of parameters to autograd, which adds them to
``.grad`` and runs hooks. The caller may keep them: each backward pass returns copies.
``"accumulate"`` adds them inside of the graph to tensors of its own, which become ``.grad``.
"""

from __future__ import annotations

import functools
import operator
import warnings
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from gpuprof._callable.state import StateGuard, requires_grad
from gpuprof._frameworks import loaded
from gpuprof._frameworks.torch import has_ddp, in_ddp_forward, without_hooks
from gpuprof._graphs.capture import capture
from gpuprof.errors import InvalidStateError

if TYPE_CHECKING:
    import gpuprof._core as _core
    from gpuprof._callable.observe import External
    from gpuprof._callable.settings import Settings
    from gpuprof._graphs.graph import CapturedGraph
    from gpuprof._graphs.pool import CapturePool

_VERSION = operator.attrgetter("_version")


def backward_of(results: Sequence[Any], inputs: Sequence[Any], modules: Sequence[Any]) -> None:
    """Run a backward pass with gradients of one, for what it has to set up; keep nothing of it."""
    outputs = [each for each in results if requires_grad(each)]
    parameters = [each for module in modules for each in module.parameters()]
    wanted = {id(each): each for each in (*inputs, *parameters) if requires_grad(each)}
    if not outputs or not wanted:
        return
    torch = loaded.torch()
    with torch.autocast("cuda", enabled=False), warnings.catch_warnings():
        # Of the first use of cuBLAS on autograd's thread, which does no harm.
        warnings.filterwarnings("ignore", "Attempting to run cuBLAS, but there was no current CUDA")
        ones = [torch.ones_like(each) for each in outputs]
        with without_hooks(wanted.values()):
            torch.autograd.grad(outputs, list(wanted.values()), ones, allow_unused=True)


class Training:
    """The backward graph of one captured forward pass.

    `arguments` are those that the forward graph was captured with, `externals` the other tensors
    that require a gradient, `results` what the function returned, `frozen` the external tensors
    that it only read, `owners` the parameters that externals stand in for, by the ids of those.
    Refuses what would give wrong gradients, by InvalidStateError.
    """

    def __init__(
        self,
        settings: Settings,
        pool: CapturePool,
        stream: object,
        *,
        arguments: Sequence[Any],
        externals: Sequence[Any],
        results: Sequence[Any],
        frozen: Sequence[Any],
        is_compiled: bool,
        owners: Mapping[int, Any],
    ) -> None:
        self._name = settings.name
        self._is_compiled = is_compiled
        self._owners = owners
        self._is_static = settings.outputs == "static"
        self._launches = pool._launch_order()
        # Only of memory that is shared with other callables' graphs.
        self._order = _Order.of(pool) if settings.shares_pool else None
        self._forward_number = 0 if self._order is None else self._order.next_number()
        self._wants = [requires_grad(each) for each in arguments]
        self._externals = list(externals)
        self._accumulated: list[Any] = []
        made_outside = [each for each in externals if not each.is_leaf]
        if made_outside:
            message = (
                f"{self._name}: the function uses a tensor of shape {tuple(made_outside[0].shape)} "
                "that operators have made outside of it from tensors that require gradients; pass "
                "it as an argument, so that its gradient is returned"
            )
            raise InvalidStateError(message)
        if settings.param_grads == "accumulate":
            self._accumulated, self._externals = self._externals, []
            self._check_hooks()
            if has_ddp(self._accumulated):
                self._refuse_ddp()
        self._results = list(results)
        self._is_differentiable = [requires_grad(each) for each in results]
        self._frozen = list(frozen)
        self._plain = [number for number, one in enumerate(self._is_differentiable) if not one]
        self._apply = _function_apply()
        torch = loaded.torch()
        # Without a tensor that requires a gradient there would be no backward pass.
        self._anchor: list[Any] = []
        if not self._externals:
            self._anchor = [torch.zeros((), requires_grad=True)]
        self._sums = [torch.zeros_like(each) for each in self._accumulated]
        self._grads_in: list[Any] = []
        self._flat: list[tuple[Any, list[int]]] = []  # gradients of one dtype, and whose they are
        self._like: dict[int, Any] = {}
        self._stream = stream
        self._settings = settings
        self._pool = pool
        self._last: object = None  # the call whose activations are there
        self._arguments = list(arguments)

    def capture_backward(self) -> None:
        """Capture the backward pass."""
        torch = loaded.torch()
        outputs = [each for each in self._results if requires_grad(each)]
        inputs = [each for each in self._arguments if requires_grad(each)]
        inputs += [*self._externals, *self._accumulated]
        self._grads_in = [torch.empty_like(each) for each in outputs]
        block = capture(
            self._stream,
            backend="torch",
            mode=self._settings.mode,
            pool=self._pool,
            timers=self._settings.timers,
            keep_alive=[*self._grads_in, *self._sums],
            allow_empty=True,
            name=f"{self._name}, backward",
        )
        order = self._pool._launch_order()

        def prepare(graph: CapturedGraph) -> tuple[object, ...]:
            graph._set_launch_order(order)
            return ()

        block._settings = block._settings._replace(prepare=prepare)
        # Hooks of tensors run when a call's gradients come to autograd.
        with (
            block as guard,
            torch.autocast("cuda", enabled=False),
            without_hooks([*self._externals, *self._accumulated]),
        ):
            found = torch.autograd.grad(
                outputs,
                inputs,
                self._grads_in,
                allow_unused=True,
                # Compiled code may write its gradients to the memory of its activations.
                retain_graph=not self._is_compiled,
            )
            count = len(inputs) - len(self._accumulated)
            with torch.no_grad():
                self._take(found[:count])
                used = [
                    (total, grad)
                    for total, grad in zip(self._sums, found[count:], strict=True)
                    if grad is not None
                ]
                if used:
                    torch._foreach_add_([total for total, _ in used], [grad for _, grad in used])
        self._is_used = [grad is not None for grad in found[count:]]
        self._graph = guard.graph
        # With autograd's own graph goes what it has of the stream of the capture: a parameter's
        # node for its gradient, which eager passes would use as well.
        self._results, self._arguments = [], []
        self._externals = [self._owners.get(id(each), each) for each in self._externals]
        self._accumulated = [self._owners.get(id(each), each) for each in self._accumulated]
        self._backward_number = 0 if self._order is None else self._order.next_number()

    def _take(self, gradients: Sequence[Any]) -> None:
        """Lay the gradients of one dtype side by side, so that one copy makes them the caller's."""
        torch = loaded.torch()
        self._count = len(gradients)
        by_dtype: dict[Any, list[int]] = {}
        for number, gradient in enumerate(gradients):
            if gradient is not None:
                by_dtype.setdefault(gradient.dtype, []).append(number)
                self._like[number] = torch.empty(
                    gradient.shape, dtype=gradient.dtype, device="meta"
                )
        for numbers in by_dtype.values():
            flat = torch.cat([gradients[number].reshape(-1) for number in numbers])
            self._flat.append((flat, numbers))

    # Calls.

    def apply(self, entry: _core._CacheEntry, *arrays: Any) -> tuple[Any, ...]:
        """Replay the forward graph for the arrays of a call; called from C++."""
        results: tuple[Any, ...] = self._apply(
            self, entry, len(arrays), *arrays, *self._externals, *self._anchor
        )
        return results

    def forward(self, ctx: Any, entry: _core._CacheEntry, arrays: tuple[Any, ...]) -> Any:
        """Do the forward part of the autograd Function."""
        if self._accumulated and in_ddp_forward():
            self._refuse_ddp()
        results = entry.replay(arrays)
        if self._is_static:
            # Each call returns tensors of its own, which share the graph's memory.
            results = tuple(each.detach() for each in results)
        ctx.materialize_grads = False
        ctx.training = self
        if self._plain:
            without = [results[number] for number in self._plain]
            ctx.mark_non_differentiable(*filter(loaded.is_tensor, without))
        call = ctx.call = self._last = _Call()
        call.launches = self._launches.launches
        call.versions = list(map(_VERSION, self._frozen))
        if self._order is not None:
            call.opened = self._order.replayed(self._forward_number, self._backward_number)
        if self._is_static:
            call.results = [(weakref.ref(each), each._version) for each in results]
        return results

    def backward(self, ctx: Any, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
        """Do the backward part of the autograd Function: the gradients of `apply`'s arguments."""
        call = ctx.call
        self._check(call)
        call.passes += 1
        torch = loaded.torch()
        wanted = [
            each for each, is_one in zip(gradients, self._is_differentiable, strict=True) if is_one
        ]
        for static, given in zip(self._grads_in, wanted, strict=True):
            if given is None:
                static.zero_()
            else:
                static.copy_(given)
        others = self._begin_accumulation()
        self._graph.launch()
        if self._order is not None:
            self._order.replayed(self._backward_number, self._backward_number)
        for parameter, total in others:
            parameter.grad = parameter.grad + total
        found: list[Any] = [None] * self._count
        for flat, numbers in self._flat:
            like = [self._like[number] for number in numbers]
            views = torch._C._nn.unflatten_dense_tensors(flat.clone(), like)
            for number, view in zip(numbers, views, strict=True):
                found[number] = view
        arguments = iter(found)
        of_arguments = [next(arguments) if wants else None for wants in self._wants]
        return (None, None, None, *of_arguments, *arguments, *(None for _ in self._anchor))

    def _begin_accumulation(self) -> list[tuple[Any, Any]]:
        """Give parameters the graph's sums as their ``.grad``, and clear those that begin anew.

        Return the parameters that have another tensor there, with what has to be added to it.
        """
        fresh, others = [], []
        for parameter, total, is_used in zip(
            self._accumulated, self._sums, self._is_used, strict=True
        ):
            gradient = parameter.grad
            if gradient is total or not is_used:
                continue
            fresh.append(total)
            if gradient is None:
                parameter.grad = total
            else:
                others.append((parameter, total))
        if fresh:
            loaded.torch()._foreach_zero_(fresh)
        if self._accumulated:
            self._check_hooks()
        return others

    def _check_hooks(self) -> None:
        for parameter in self._accumulated:
            if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
                message = (
                    f"{self._name}: a parameter of shape {tuple(parameter.shape)} has hooks, which "
                    "param_grads='accumulate' would not run; remove them, or make it with "
                    "param_grads='autograd'"
                )
                raise InvalidStateError(message)

    def _refuse_ddp(self) -> NoReturn:
        message = (
            f"{self._name}: DistributedDataParallel averages gradients as autograd adds them, and "
            "param_grads='accumulate' adds them without it; make it with param_grads='autograd'"
        )
        raise InvalidStateError(message)

    def _check(self, call: _Call) -> None:
        """Refuse a backward pass whose gradients would be wrong."""
        wrong = ""
        if loaded.torch().is_grad_enabled():
            wrong = (
                "a second derivative is asked for (create_graph=True), and the backward graph has "
                "none; run the function itself: .eager"
            )
        elif call is not self._last:
            wrong = (
                "a later call has replaced what the backward pass of this one needs; call "
                "backward() before the next call, or make a callable for each of the calls"
            )
        elif call.passes and self._is_compiled:
            wrong = (
                "a second backward pass of one call is asked for (retain_graph=True), and that of "
                "compiled code overwrites what it needs; call the function again, or do without "
                "torch.compile"
            )
        elif self._is_overwritten(call):
            wrong = (
                "since the call another graph of the same memory has run, which was not captured "
                "between its forward and backward passes; replay them in the order of their "
                "captures, or give them pools of their own"
            )
        elif list(map(_VERSION, self._frozen)) != call.versions:
            wrong = (
                "since the call a parameter or another tensor that the function reads was changed "
                "in place; call backward() before the optimizer's step"
            )
        elif self._is_static and any(
            ref() is not None and ref()._version != seen for ref, seen in call.results
        ):
            wrong = (
                "since the call its result was changed in place, which is memory of the graph "
                "(outputs='static'); change a copy"
            )
        if wrong:
            message = f"{self._name}: {wrong}"
            raise InvalidStateError(message)

    def _is_overwritten(self, call: _Call) -> bool:
        if call.opened is not None:
            return call.opened.is_overwritten
        return bool(self._launches.launches != call.launches + call.passes)


class _Call:
    """One forward replay, for its backward passes."""

    __slots__ = ("launches", "opened", "passes", "results", "versions")

    def __init__(self) -> None:
        self.passes = 0
        self.opened: _OpenForward | None = None  # where memory is shared
        self.launches: int
        self.versions: list[int]  # of the tensors that were only read
        self.results: list[tuple[Any, int]]  # weak, with their versions, where they are static


class _Order:
    """The graphs with backward passes in one memory, in the order of their captures.

    Between a forward replay and its backward pass only graphs may run that were captured between
    the two: any other may write to where the activations lie.
    """

    _of_pool: ClassVar[weakref.WeakKeyDictionary[CapturePool, _Order]] = weakref.WeakKeyDictionary()

    def __init__(self, pool: CapturePool) -> None:
        self._launches = pool._launch_order()
        self._number = 0
        self._open: weakref.WeakSet[_OpenForward] = weakref.WeakSet()
        self._seen = 0  # launches of the pool that were noted here

    @classmethod
    def of(cls, pool: CapturePool) -> _Order:
        if pool not in cls._of_pool:
            cls._of_pool[pool] = cls(pool)
        return cls._of_pool[pool]

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def replayed(self, number: int, backward: int) -> _OpenForward:
        """Note a replay; return what tells later whether another one has come in between."""
        launches = self._launches.launches
        others = launches - self._seen > 1  # graphs without a backward pass
        self._seen = launches
        for each in self._open:
            each.is_overwritten |= others or not each.forward < number <= each.backward
        opened = _OpenForward(number, backward)
        if number != backward:
            self._open.add(opened)
        return opened


class _OpenForward:
    """A forward replay, while its backward pass may come."""

    def __init__(self, forward: int, backward: int) -> None:
        self.forward = forward
        self.backward = backward
        self.is_overwritten = False


class GradientFields:
    """The ``.grad`` of parameters, which a function that runs backward itself sets.

    Made before the function is captured. It says what the capture found there, which a call must
    find as well, and what a call leaves there.
    """

    def __init__(self, owners: Iterable[Any]) -> None:
        parameters: dict[int, Any] = {}
        for owner in owners:
            groups = getattr(owner, "param_groups", None)
            found = (
                owner.parameters()
                if groups is None
                else (each for group in groups for each in group["params"])
            )
            parameters |= {id(each): each for each in found}
        self._before = [(each, each.grad) for each in parameters.values()]

    def changed(self) -> list[tuple[Any, Any]]:
        """Return the parameters whose ``.grad`` the function has set, with what it has set."""
        return [(each, each.grad) for each, before in self._before if each.grad is not before]

    def restore(self) -> None:
        """Set each ``.grad`` to what it was."""
        for parameter, before in self._before:
            parameter.grad = before

    def guards(self, externals: Iterable[External]) -> list[StateGuard]:
        """Return what says that a call finds there what the capture found, as far as it matters.

        It does where the function read a gradient or wrote to it, and where there was none.
        """
        used = {each.storage._cdata for each in externals}
        expected = [
            (each, before)
            for each, before in self._before
            if (before is None and each.grad is not None)
            or (before is not None and before.untyped_storage()._cdata in used)
        ]
        return [(functools.partial(_have_gradients, expected), True)] if expected else []


def _have_gradients(expected: list[tuple[Any, Any]]) -> bool:
    return all(parameter.grad is gradient for parameter, gradient in expected)


@functools.lru_cache(maxsize=1)
def _function_apply() -> Any:
    torch = loaded.torch()

    class GraphedCall(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, training: Training, entry: Any, count: int, *tensors: Any) -> Any:
            return training.forward(ctx, entry, tensors[:count])

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            return ctx.training.backward(ctx, gradients)

    # Without the part in Python, which is for the transforms of torch.func: those are refused.
    return super(torch.autograd.Function, GraphedCall).apply
