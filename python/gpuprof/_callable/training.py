"""The backward passes of a graphed callable: graphs behind one autograd Function.

Autograd's graph of the captured forward pass is kept. The first backward pass in which a set of
results gets gradients is captured from it, in the memory of the forward graph, and replayed from
then on: what a result leads to that the loss does not use gets no gradient, as without a graph. A
backward graph reads what the forward graph leaves in that memory. So it is right only for its last
replay, and while no graph ran that was captured in that memory before it: `backward` refuses
anything else. docs/design/callable.md says more, and what `param_grads` does with gradients.
"""

from __future__ import annotations

import contextlib
import functools
import math
import operator
import warnings
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn, TypeAlias

from gpuprof._callable.placement import Place, one_capture
from gpuprof._callable.state import requires_grad
from gpuprof._frameworks import loaded
from gpuprof._frameworks.torch import (
    at_versions,
    has_ddp,
    in_ddp_forward,
    leaves_of,
    without_hooks,
)
from gpuprof._frameworks.torch_dispatch import unwatched
from gpuprof._graphs.capture import capture
from gpuprof.errors import InvalidStateError

if TYPE_CHECKING:
    import gpuprof._core as _core
    from gpuprof._callable.settings import Settings
    from gpuprof._graphs.graph import CapturedGraph
    from gpuprof._graphs.pool import CapturePool

_VERSION = operator.attrgetter("_version")
_PATIENCE_S = 20  # for another thread's capture, which may wait for the thread of a backward pass
# Gradients of one dtype in one tensor, whose they are, and the layout of each, without memory.
_SideBySide: TypeAlias = "tuple[Any, list[int], list[Any]]"


def backward_of(results: Sequence[Any]) -> None:
    """Run a backward pass with gradients of one, for what it has to set up; keep nothing of it."""
    outputs = [each for each in results if requires_grad(each)]
    if not outputs:
        return
    torch = loaded.torch()
    leaves, _ = leaves_of(outputs)
    with (
        contextlib.suppress(Exception),  # which is of whoever goes backward
        torch.autocast("cuda", enabled=False),
        warnings.catch_warnings(),
        without_hooks(leaves),
    ):
        # Of the first use of cuBLAS on autograd's thread, which does no harm.
        warnings.filterwarnings("ignore", "Attempting to run cuBLAS, but there was no current CUDA")
        ones = [torch.ones_like(each) for each in outputs]
        torch.autograd.grad(outputs, leaves, ones, allow_unused=True)


class _Backward(NamedTuple):
    """The graph of the backward pass from some of the results."""

    graph: CapturedGraph
    number: int  # in the order of captures, where memory is shared
    gradients_in: dict[int, Any]  # by the numbers of the results
    returned: int  # how many gradients autograd gets
    flat: list[_SideBySide]
    is_used: list[bool]  # for each parameter whose gradients are accumulated


class Training:
    """The backward passes of one captured forward pass; keeps its graph and memory.

    `frozen` are the external tensors that the function only read, `owners` the parameters that
    others stood in for, by the ids of those, `versions` the version counters of what a backward
    pass may read. Refuses what would give wrong gradients, by InvalidStateError.
    """

    def __init__(
        self,
        settings: Settings,
        place: Place,
        graph: CapturedGraph,
        pool: CapturePool,
        *,
        arguments: Sequence[Any],
        results: Sequence[Any],
        frozen: Sequence[Any],
        owners: Mapping[int, Any],
        versions: Mapping[Any, int],
    ) -> None:
        self._name = settings.name
        self._settings = settings
        self._place = place
        self._forward_graph = graph  # a backward pass may come after the callable has dropped it
        self._pool = pool
        self._is_static = settings.outputs == "static"
        self._order = _Order.of(pool)
        self._forward_number = self._order.next_number()
        self._wants = [requires_grad(each) for each in arguments]
        inputs = [each for each in arguments if requires_grad(each)]
        leaves, self._is_compiled = leaves_of(results)
        given = {id(each) for each in inputs}
        self._leaves = [each for each in leaves if id(each) not in given]
        self._inputs = [*inputs, *self._leaves]
        self._externals = [owners.get(id(each), each) for each in self._leaves]
        # Those have no nodes of the graph's own, so an eager pass may share them.
        self._has_others = any(id(each) not in owners for each in self._leaves)
        self._accumulated: list[Any] = []
        if settings.param_grads == "accumulate":
            self._accumulated, self._externals = self._externals, []
            self._check_hooks()
            if has_ddp(self._accumulated):
                self._refuse_ddp()
        self._results = list(results)
        self._is_differentiable = [requires_grad(each) for each in results]
        self._frozen = list(frozen)
        self._versions = versions
        self._plain = [number for number, one in enumerate(self._is_differentiable) if not one]
        self._apply = _function_apply()
        torch = loaded.torch()
        # Without a tensor that requires a gradient there would be no backward pass.
        self._anchor = [] if self._externals else [torch.zeros((), requires_grad=True)]
        self._sums = [torch.zeros_like(each) for each in self._accumulated]
        self._backwards: dict[tuple[int, ...], _Backward] = {}  # by the results with a gradient
        self._last: object = None  # the call whose activations are there

    def _backward_from(self, used: tuple[int, ...]) -> _Backward:
        """Return the backward pass from these results, captured now if it is the first one."""
        if self._is_compiled:  # which makes zeros of what is not given, and captures once
            used = tuple(n for n, one in enumerate(self._is_differentiable) if one)
        found = self._backwards.get(used)
        if found is None:
            try:
                found = self._backwards[used] = self._capture(used)
            except InvalidStateError:  # which says all
                raise
            except Exception as error:
                message = f"{self._name}: the backward pass cannot be captured ({error})"
                if self._has_others:
                    message += (
                        "; possibly autograd's graph of an eager pass is alive that goes to the "
                        "tensors that are in no module: delete its results and losses, or make the "
                        "callable before that pass"
                    )
                raise InvalidStateError(message) from error
        return found

    def _capture(self, used: tuple[int, ...]) -> _Backward:
        torch = loaded.torch()
        outputs = [self._results[number] for number in used]
        gradients_in = {number: torch.empty_like(self._results[number]) for number in used}
        with self._place.current():
            block = capture(
                self._place.stream,
                backend="torch",
                mode=self._settings.mode,
                pool=self._pool,
                timers=self._settings.timers,
                keep_alive=[*gradients_in.values(), *self._sums],
                allow_empty=True,
                host_constants=not self._is_compiled,
                name=f"{self._name}, backward",
            )

            def prepare(graph: CapturedGraph) -> tuple[object, ...]:
                graph._set_launch_order(self._order.launches)
                return ()

            block._settings = block._settings._replace(prepare=prepare)
            # Hooks of tensors run when a call's gradients come to autograd.
            with (
                one_capture(_PATIENCE_S),
                unwatched(),  # by the observation of a function that this pass is part of
                at_versions(self._versions),
                block as guard,
                torch.autocast("cuda", enabled=False),
                without_hooks(self._leaves),
            ):
                found = torch.autograd.grad(
                    outputs,
                    self._inputs,
                    list(gradients_in.values()),
                    allow_unused=True,
                    # Compiled code may write its gradients to the memory of its activations.
                    retain_graph=not self._is_compiled,
                )
                count = len(found) - len(self._accumulated)
                with torch.no_grad():
                    flat = _side_by_side(found[:count])
                    used_sums = [
                        (total, grad)
                        for total, grad in zip(self._sums, found[count:], strict=True)
                        if grad is not None
                    ]
                    if used_sums:
                        torch._foreach_add_(*map(list, zip(*used_sums, strict=True)))
            is_used = [grad is not None for grad in found[count:]]
            number = self._order.next_number()
            return _Backward(guard.graph, number, gradients_in, count, flat, is_used)

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
        returned = [(weakref.ref(each), each._version) for each in results if self._is_static]
        versions = list(map(_VERSION, self._frozen))
        # Compiled code lets go of its activations once its backward pass is captured.
        captured = self._backwards.values() if self._is_compiled else ()
        last = max((each.number for each in captured), default=math.inf)
        begun = self._order.replayed(self._forward_number)
        ctx.call = self._last = _Call(begun, last, versions, returned)
        return results

    def backward(self, ctx: Any, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
        """Do the backward part of the autograd Function: the gradients of `apply`'s arguments."""
        call = ctx.call
        self._check(call)
        torch = loaded.torch()
        which = zip(gradients, self._is_differentiable, strict=True)
        used = tuple(n for n, (given, one) in enumerate(which) if one and given is not None)
        if not used:
            return (None,) * (3 + len(self._wants) + len(self._externals) + len(self._anchor))
        backward = self._backward_from(used)
        call.passes += 1
        for number, static in backward.gradients_in.items():
            static.copy_(gradients[number]) if number in used else static.zero_()
        others = self._begin_accumulation(backward.is_used)
        backward.graph.launch()
        self._order.replayed(backward.number)
        for parameter, total in others:
            parameter.grad = parameter.grad + total
        found: list[Any] = [None] * backward.returned
        for flat, numbers, like in backward.flat:
            views = torch._C._nn.unflatten_dense_tensors(flat.clone(), like)
            for number, view in zip(numbers, views, strict=True):
                found[number] = view
        arguments = iter(found)
        of_arguments = [next(arguments) if wants else None for wants in self._wants]
        of_externals = list(arguments)
        pairs = zip(self._externals, of_externals, strict=True)
        _skip_hooks([each for each, gradient in pairs if gradient is None])
        return (None, None, None, *of_arguments, *of_externals, *(None for _ in self._anchor))

    def _begin_accumulation(self, is_used: Sequence[bool]) -> list[tuple[Any, Any]]:
        """Give parameters the graph's sums as their ``.grad``, and clear those that begin anew.

        Return the parameters that have another tensor there, with what has to be added to it.
        """
        fresh, others = [], []
        for parameter, total, gets_one in zip(self._accumulated, self._sums, is_used, strict=True):
            gradient = parameter.grad
            if gradient is total or not gets_one:
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
            if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
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
        elif self._order.is_overwritten(self._forward_number, call.last, since=call.begun):
            wrong = (
                "since the call another graph of the same memory has run, which has no backward "
                "pass or was not captured between the two passes; run it after the backward pass, "
                "or give it a pool of its own"
            )
        elif list(map(_VERSION, self._frozen)) != call.versions:
            wrong = (
                "since the call a parameter or another tensor that the function reads was changed "
                "in place; call backward() before the optimizer's step"
            )
        elif any(ref() is not None and ref()._version != seen for ref, seen in call.results):
            wrong = (
                "since the call its result was changed in place, which is memory of the graph "
                "(outputs='static'); change a copy"
            )
        if wrong:
            message = f"{self._name}: {wrong}"
            raise InvalidStateError(message)


def _side_by_side(gradients: Sequence[Any]) -> list[_SideBySide]:
    """Lay the gradients of one dtype side by side, so that one copy makes them the caller's."""
    torch = loaded.torch()
    by_dtype: dict[Any, list[int]] = {}
    for number, gradient in enumerate(gradients):
        if gradient is not None:
            by_dtype.setdefault(gradient.dtype, []).append(number)
    return [
        (
            torch.cat([gradients[number].reshape(-1) for number in numbers]),
            numbers,
            [torch.empty(gradients[n].shape, dtype=dtype, device="meta") for n in numbers],
        )
        for dtype, numbers in by_dtype.items()
    ]


class _Unless(NamedTuple):
    """A hook of a tensor's, other than for what has no gradient."""

    hook: Any

    def __call__(self, gradient: Any) -> Any:
        return None if gradient is None else self.hook(gradient)


def _skip_hooks(tensors: Iterable[Any]) -> None:
    """Let no hook see None until the backward pass ends: autograd runs those of all inputs."""
    replaced = []
    for hooks in filter(None, (each._backward_hooks for each in tensors)):
        for key, hook in hooks.items():
            if type(hook) is not _Unless:  # by another part of this backward pass
                hooks[key] = new = _Unless(hook)
                replaced.append((hooks, key, new))

    def put_back() -> None:
        for hooks, key, new in replaced:
            if hooks.get(key) is new:
                hooks[key] = new.hook

    if replaced:
        loaded.torch().autograd.Variable._execution_engine.queue_callback(put_back)


@dataclass(slots=True)
class _Call:
    """One forward replay, for its backward passes."""

    begun: int  # in launches of the memory
    last: float  # graph for whose capture the activations were kept
    versions: list[int]  # of the tensors that were only read
    results: list[tuple[Any, int]]  # weak, with their versions, where they are static
    passes: int = 0


class _Order:
    """The graphs with backward passes in one memory, in the order of their captures.

    Between a forward replay and its backward pass only graphs may run that were captured after it,
    and while its activations were kept: any other may write to where they lie.
    """

    _of_pool: ClassVar[weakref.WeakKeyDictionary[CapturePool, _Order]] = weakref.WeakKeyDictionary()

    def __init__(self, pool: CapturePool) -> None:
        self.launches = pool._launch_order()
        self._number = 0
        self._replays: dict[int, int] = {}  # the last one of each graph
        self._seen = 0  # launches that were noted here
        self._other = 0  # the last one that was not: of a graph without a backward pass

    @classmethod
    def of(cls, pool: CapturePool) -> _Order:
        if pool not in cls._of_pool:
            cls._of_pool[pool] = cls(pool)
        return cls._of_pool[pool]

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def replayed(self, number: int) -> int:
        """Note a replay; return how many launches of the memory there were with it."""
        launches = self.launches.launches
        if launches - self._seen > 1:
            self._other = launches - 1
        self._replays[number] = self._seen = launches
        return launches

    def is_overwritten(self, forward: int, last: float, *, since: int) -> bool:
        """Return whether a graph has run since a forward replay that may have overwritten it.

        `last` is the last graph for whose capture the activations were kept.
        """
        if self.launches.launches != self._seen or self._other > since:
            return True
        replays = tuple(self._replays.items())
        return any(not forward < each <= last for each, replay in replays if replay > since)


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
