"""From a function and the arguments of one call to a graph that serves all calls of that kind.

The function runs on arrays of the graph's own, which are filled from the call's: first for real, to
warm up, then under a capture, in which it is observed. The copies from the call's arrays and to new
ones for the result become nodes at the edges of the graph. The steps, and why they are so, are on
the page docs/design/callable.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuprof._callable.entry import CapturedCall, after_run, floating_dtypes
from gpuprof._callable.guards import ModuleGuards
from gpuprof._callable.leaves import Leaf
from gpuprof._callable.mismatch import check_made, check_unchanged
from gpuprof._callable.observe import Observation, Range, check_modules, merged, range_of, watch_of
from gpuprof._callable.placement import Place, one_capture
from gpuprof._callable.pytree import Flat, flatten_result, rebuild
from gpuprof._callable.settings import Settings
from gpuprof._callable.state import (
    GradientFields,
    State,
    requires_grad,
    state_guards,
    tensor_guards,
    training_flags,
)
from gpuprof._callable.training import Training, backward_of
from gpuprof._frameworks import loaded, torch_hooks
from gpuprof._frameworks.array_facts import Facts, extent, facts_of
from gpuprof._frameworks.arrays import Arrays
from gpuprof._frameworks.torch import fresh_autocast_cache, own_parameters, random_state
from gpuprof._frameworks.torch_constants import HostConstants
from gpuprof._frameworks.torch_dispatch import may_run_compiled_code
from gpuprof._frameworks.torch_modules import find_arrays
from gpuprof._graphs.capture import capture
from gpuprof._graphs.pool import CapturePool
from gpuprof.errors import InvalidStateError

if TYPE_CHECKING:
    from gpuprof._frameworks.streams import CallStream
    from gpuprof._graphs.graph import CapturedGraph


class _Input(NamedTuple):
    """An array of the graph's own for one of the arguments, and what the function gets of that."""

    leaf: Leaf
    arrays: Arrays
    static: Any
    inside: Any  # laid out as the call's array; another one than `static` if that is not dense
    nbytes: int  # that are copied for a call: none of an array that is used in place


class _Result(NamedTuple):
    """An array of the result, dense and in memory of the graph's."""

    arrays: Arrays
    static: Any
    facts: Facts
    make: Callable[[Any], Any] | None  # one like it for a call; None gives that one itself
    nbytes: int  # that are copied for a call


class Recording:
    """One capture of a function for the arguments of one call, made in `state`."""

    def __init__(
        self,
        function: Callable[..., Any],
        flat: Flat,
        state: State,
        settings: Settings,
        modules: Sequence[Any],
    ) -> None:
        self._function = function
        self._flat = flat
        self._state, self._modes = state, state_guards()
        self._settings = settings
        self.modules = list(modules)  # with those that are seen to be called
        self.is_running = False  # whether an error of the function is its own, in a warm-up
        self._begun = time.perf_counter()
        self._owners: dict[int, Any] = {}  # of parameters that stand in for others, by their ids
        self._place = Place(flat, settings.stream)
        self._inputs: list[_Input] = []
        self._arguments: list[Any] = []  # what the function gets of them
        self._constants: HostConstants | None = None  # of the last capture
        self._training: Training | None = None
        self._is_compiled = settings.compile or may_run_compiled_code()
        # Of the last capture.
        self._results: list[_Result] = []
        self._found: Sequence[Any] = ()  # the results as the function returned them
        self._borrowed: list[Any] = []  # what the copies are made with, until instantiated

    def record(self, warmup: int) -> CapturedCall:
        """Run the function `warmup` times, capture it, and return what runs calls of this kind.

        TypeError if the function returns what cannot be made again, CaptureError if it cannot be
        captured, InvalidStateError if this torch keeps no graphs.
        """
        self._place.check()
        check_modules(self.modules)
        with self._place.current():
            self._make_inputs()
            if warmup > 0:
                self._warm_up(warmup)
                check_modules(self.modules)
            self._fill()
            self._guards = ModuleGuards(self.modules, check=self._settings.check)
            self._gradients = GradientFields(self.modules)
            self._seen = Observation(self._arguments, self._gradients)
            self._capture_and_observe()
            if any(map(requires_grad, self._found)):
                self._training = self._with_backward()
        self._flat = self._flat.without_arrays()
        self._found = ()
        self._borrowed.clear()
        try:
            return self._captured_call()
        finally:
            self._gradients.restore()  # what the capture left there holds no numbers yet

    def _capture_and_observe(self) -> None:
        runs_once = self._settings.warmup == 0 and not self._inputs
        observes = not (self._is_compiled and runs_once)
        self._graph = self._capture(observes=observes, trains=runs_once)
        uses_gradients = bool(  # the gradients themselves may not outlive `restore`
            self._seen.optimizers
            or self._gradients.changed()
            or self._gradients.guards(self._seen.used)
        )
        # Whether the backward pass of the results is still to come.
        trains = not uses_gradients and any(map(requires_grad, self._found))
        # The one that was observed has compiled code operator by operator.
        if not runs_once and (trains or self._is_compiled):
            self._found = ()
            self._graph.close()
            self._gradients.restore()
            # Autograd's graph is kept. Parameters of its own leave those of eager passes alone,
            # whose nodes for their gradients may be of another stream.
            used = [*self.modules, *self._seen.modules.values(), *self._seen.modules_read]
            with own_parameters(used if trains else ()) as self._owners:
                self._graph = self._capture(observes=False, trains=trains)

    def _with_backward(self) -> Training:
        for leaf in (self._inputs[number].leaf for number in self._written):
            if leaf.requires_grad:
                message = (
                    f"{leaf.path}: it requires a gradient, and the function changes it in place, "
                    "which the backward graph cannot follow; change a copy: x = x.clone()"
                )
                raise InvalidStateError(message)
        made = self._seen.made_outside
        if made is not None:
            message = (
                f"{self._settings.name}: the function uses a tensor of shape {tuple(made.shape)} "
                "that operators have made outside of it from tensors that require gradients; pass "
                "it as an argument, so that its gradient is returned"
            )
            raise InvalidStateError(message)
        may_be_read = [*self._arguments, *self._found, *self._owners.values(), *self._seen.tensors]
        return Training(
            self._settings,
            self._place,
            self._graph,
            self._pool,
            arguments=self._arguments,
            results=self._found,
            frozen=self._seen.only_read(),
            owners=self._owners,
            versions={
                each: each._version
                for each in may_be_read
                if loaded.is_tensor(each) and not each.is_inference()
            },
        )

    def _captured_call(self) -> CapturedCall:
        seen = self._seen
        guards = self._guards.finish(seen)
        state, read = seen.state(guards.modules), seen.read
        if self._settings.outputs == "static":
            read += [extent(each.facts) for each in self._results]
        tensors = [each.static for each in self._inputs if loaded.is_tensor(each.static)]
        tensors += [each.tensor for each in seen.externals]
        spec = self._entry_spec(guards, merged(map(range_of, state)), merged(read))
        return CapturedCall(
            spec=spec,
            flat=self._flat,
            guards=guards,
            seconds=time.perf_counter() - self._begun,
            returned=self._result,
            nbytes=sum(each.nbytes for each in self._inputs)
            + sum(each.arrays.nbytes(each.static) for each in self._results),
            pool=self._pool,
            writes=frozenset(self._inputs[number].leaf.path for number in self._written),
            by_torch=self._place.backend == "torch",
            externals_written=state,
            floating=seen.floating(guards.modules),
            hides_writes=seen.has_foreign_work and self._settings.writes.names is None,
            strides_matter=any(each["call_strides"] for each in spec["arrays"]),
            device=self._place.device,
            dtypes=floating_dtypes(tensors, self._state.autocast),
            gradients=self._gradients.changed(),
        )

    # Warm-up and captures.

    def _make_inputs(self) -> None:
        for leaf, array in zip(self._flat.leaves, self._flat.arrays, strict=True):
            arrays = leaf.framework.at(self._place.copies_on)
            static = arrays.static_like(array)
            inside = arrays.laid_out_like(array, static)
            if self._state.records_gradients and leaf.requires_grad:
                inside = inside.detach().requires_grad_()
            nbytes = 0 if arrays.in_place else arrays.nbytes(static)
            self._inputs.append(_Input(leaf, arrays, static, inside, nbytes))
            self._arguments.append(inside)
        args, kwargs = rebuild(self._flat.pattern, self._arguments)
        check_made(args, kwargs, self._arguments)

    def _warm_up(self, times: int) -> None:
        """Run the function, and put back what it changes of torch's."""
        gradients = GradientFields(self.modules)
        seen = Observation(self._arguments, gradients)
        with ExitStack() as after:
            after.callback(random_state(self._place.device))
            after.callback(gradients.restore)
            after.callback(seen.restore)
            for number in range(max(times, 2) if self._is_compiled else times):
                result = None  # its memory serves the next run
                self._fill()
                with fresh_autocast_cache(), ExitStack() as stack:
                    if self._place.backend == "torch":
                        stack.enter_context(torch_hooks.as_if_capturing())
                    # Compiled code runs its operators one by one where it is observed.
                    if number == 0 or not self._is_compiled:
                        stack.enter_context(seen.of_block(undo=True))
                    result = self._run(is_real=True)
                    backward_of(flatten_result(result, self._flat.constants).arrays)
        # Copied: another thread may still be inside of a hook that has been removed.
        self.modules += [each for each in [*seen.modules.values()] if each not in self.modules]

    def _fill(self) -> None:
        for each, array in zip(self._inputs, self._flat.arrays, strict=True):
            each.arrays.fill(each.static, array)
            if each.inside is not each.static:
                each.arrays.fill(each.inside, array)

    def _run(self, *, is_real: bool = False) -> Any:
        args, kwargs = rebuild(self._flat.pattern, self._arguments)
        self.is_running = is_real
        result = self._function(*args, **kwargs)
        self.is_running = False
        check_unchanged(args, kwargs, self._flat, self._arguments)
        return result

    def _capture(self, *, observes: bool, trains: bool) -> CapturedGraph:
        settings = self._settings
        # What a forward pass leaves for the backward one no other graph may overwrite.
        is_alone = trains and self._state.records_gradients and not settings.shares_pool
        self._pool = CapturePool() if is_alone else settings.pool
        self._results, self._borrowed = [], []
        block = capture(
            self._place.stream,
            backend=self._place.backend,
            mode=settings.mode,
            pool=self._pool,
            timers=settings.timers,
            keep_alive=[
                *((each.static, each.inside) for each in self._inputs),
                self._place.memory,
                *find_arrays(self._function),
            ],
            allow_empty=True,
            name=settings.name,
        )
        block._settings = block._settings._replace(prepare=self._prepare)
        if observes or self._constants is not None:
            block._constants = self._constants = HostConstants(self._constants)
        with one_capture(), block as guard, fresh_autocast_cache():
            for each in self._inputs:
                if each.inside is not each.static:
                    each.arrays.fill(each.inside, each.static)
            watched = self._seen.of_block(*watch_of(guard, self._place.device))
            with watched if observes else ExitStack():
                result = self._run()
            self._note_results(result)
            if observes:
                self._seen.note_results(self._found)
            paths = [leaf.path for leaf in self._flat.leaves]
            named = self._settings.writes.numbers(paths, foreign=self._seen.has_foreign_work)
            self._written = self._seen.written | named
            for number in self._written:
                each = self._inputs[number]
                if each.inside is not each.static:
                    each.arrays.fill(each.static, each.inside)
        # A call on another stream waits for what a warm-up still does with the graph's arrays.
        guard.graph._note_use(guard.stream)
        return guard.graph

    def _note_results(self, result: Any) -> None:
        flat = flatten_result(result, self._flat.constants)
        self._result, self._found = flat.without_arrays(), flat.arrays
        for leaf, array in zip(flat.leaves, flat.arrays, strict=True):
            arrays = leaf.framework.at(self._place.copies_on)
            static = arrays.dense(array)
            facts = facts_of(static)
            if facts.device != self._place.device:
                message = (
                    f"{leaf.path}: an array on GPU {facts.device}, of a graph on GPU "
                    f"{self._place.device}; return arrays of that one"
                )
                raise TypeError(message)
            if loaded.is_tensor(static):
                static = static.detach()
            is_static = self._settings.outputs == "static" or arrays.in_place
            make = None if is_static else arrays.empty_like
            nbytes = 0 if is_static else arrays.nbytes(static)
            self._results.append(_Result(arrays, static, facts, make, nbytes))

    # Copies.

    def _prepare(self, graph: CapturedGraph) -> tuple[object, ...]:
        """Add the copies to a graph that is not executable yet; return what it has to keep."""
        written = [self._inputs[number] for number in sorted(self._written)]
        before = [self._copy(each) for each in self._inputs if each.nbytes]
        after = [self._copy(each) for each in self._results if each.nbytes]
        after += [self._copy(each) for each in written if each.nbytes]
        graph._set_launch_order(self._pool._launch_order())
        if before or after:
            graph._add_copies(before, after)
        return tuple(each.static for each in self._results)

    def _copy(self, each: _Input | _Result) -> tuple[int, int, int]:
        """Describe a copy between an array of the graph's and one that stands for a call's."""
        outside = each.arrays.empty_like(each.static)
        self._borrowed.append(outside)
        return facts_of(each.static).address, facts_of(outside).address, each.nbytes

    # The entry.

    def _entry_spec(
        self, guards: ModuleGuards, written: list[Range], read: list[Range]
    ) -> dict[str, Any]:
        args, kwargs = self._flat.pattern[1]
        on = self._place.calls_stream({each.arrays.name for each in self._results})
        return {
            "graph": self._graph,
            "args": args,
            "keywords": kwargs,
            "keywords_in_order": self._settings.keywords_in_order,
            "arrays": tuple(self._spec(n, each, on) for n, each in enumerate(self._inputs)),
            "state_guards": (
                *self._modes,
                *tensor_guards(self._state, self._seen.tensors),
                *training_flags(self.modules),
                *self._gradients.guards(self._seen.used),
                *((ask, ask()) for ask in self._settings.guards),
            ),
            "guards": guards.core,
            "results": tuple(
                (each.arrays.at(on), each.make, each.static, each.nbytes > 0)
                for each in self._results
            ),
            "result": self._result.pattern,
            "written": written,
            "read": read,
            "after": after_run(
                self._seen.written_tensors(),
                self._gradients.changed(),
                copies_back=any(self._inputs[n].arrays.name == "torch" for n in self._written),
            ),
            "apply": None if self._training is None else self._training.apply,
            "verify_every": self._settings.verify or 0,
            "device": self._place.device,
            "stream_type": self._place.stream_type,
            "stream": on.ask,
        }

    def _spec(self, number: int, each: _Input, on: CallStream) -> dict[str, Any]:
        shape, strides = each.leaf.facts.shape, each.leaf.facts.strides
        was_expanded = any(
            stride == 0 and size > 1 for size, stride in zip(shape, strides, strict=True)
        )
        matter = self._seen.depends_on_layout or self._seen.has_foreign_work or was_expanded
        of_torch = each.arrays.name == "torch"
        asks_gradients = of_torch and self._state.records_gradients
        return {
            "framework": each.arrays.at(on),
            "inside": each.static,
            "desc": facts_of(each.static),
            "call_strides": strides if matter else None,  # None: any will do
            "requires_grad": each.leaf.requires_grad if asks_gradients else None,
            "of_torch": of_torch,
            "copied_in": each.nbytes > 0,
            "copied_back": each.nbytes > 0 and number in self._written,
        }
