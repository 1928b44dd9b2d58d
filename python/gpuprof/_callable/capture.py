"""From a function and the arguments of one call to a graph that serves all calls of that kind.

The function runs on arrays of the graph's own, which are filled from the call's: first for real, to
warm up, then under a capture. The copies from the call's arrays and to new ones for the result
become nodes at the edges of the graph, before it is made executable.

What the function uses besides its arguments is observed while it is captured. Under the dispatch
mode that shows it, compiled code runs its operators one by one: where there is such code, a capture
that is thrown away is observed, and another one kept. What warm-ups change is put back: random
generators, tensors that torch's operators wrote to, and the arguments, of which they see copies.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import gpuprof._core as _core
from gpuprof._callable.entry import (
    CapturedCall,
    after_run,
    facts_of,
    fill_from,
    floating_dtypes,
    is_simple,
    may_be_view,
    stage,
    wrote,
)
from gpuprof._callable.guards import ModuleGuards
from gpuprof._callable.leaves import Leaf
from gpuprof._callable.mismatch import check_unchanged
from gpuprof._callable.observe import Observation, Range, check_modules, merged
from gpuprof._callable.placement import Place, one_capture
from gpuprof._callable.pytree import Flat, Pattern, flatten_result, rebuild
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
from gpuprof._frameworks import loaded
from gpuprof._frameworks.array_facts import ADDRESS, DEVICE, SHAPE, STRIDES, extent
from gpuprof._frameworks.arrays import Arrays, arrays_of
from gpuprof._frameworks.torch import fresh_autocast_cache, kept_random_state, own_parameters
from gpuprof._frameworks.torch_dispatch import may_run_compiled_code
from gpuprof._frameworks.torch_modules import find_arrays
from gpuprof._graphs.capture import capture
from gpuprof._graphs.pool import CapturePool
from gpuprof.errors import InvalidStateError

if TYPE_CHECKING:
    from gpuprof._graphs.graph import CapturedGraph


class _Input(NamedTuple):
    """An array of the arguments: the call's, the graph's own, and what the function gets of that.

    `inside` is laid out as the call's array, and is another one than `static` where that one is
    not dense.
    """

    leaf: Leaf
    arrays: Arrays
    static: Any
    inside: Any


class Recording:
    """One capture of a function for the arguments of one call, made in `state`.

    `modules` are those that the function is known to use.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        flat: Flat,
        state: State,
        settings: Settings,
        *,
        keywords_in_order: bool,
        modules: Sequence[Any] = (),
    ) -> None:
        self._function = function
        self._flat = flat
        self._state = state
        self._settings = settings
        self._keywords_in_order = keywords_in_order
        self.modules = list(modules)  # with those that are seen to be called
        self.is_running = False  # whether an error of the function is its own, in a warm-up
        self._begun = time.perf_counter()
        self._owners: dict[int, Any] = {}  # of parameters that stand in for others, by their ids
        self._place = Place(flat, settings.stream)
        self._inputs: list[_Input] = []
        self._seen = Observation()
        self._training: Training | None = None
        self._is_compiled = settings.compile or may_run_compiled_code()
        self._forget()

    def _forget(self) -> None:
        """Forget a capture."""
        self._pool = self._settings.pool
        self._written: set[int] = set()
        self._results: list[Leaf] = []
        self._found: list[Leaf] = []  # the results as the function returned them
        self._pattern: Pattern = ()
        self._makers: list[Callable[[Any], Any] | None] = []  # of fresh results
        self._borrowed: list[Any] = []  # what the copies are made with, until instantiated

    def record(self, warmup: int) -> None:
        """Run the function `warmup` times, and capture it.

        TypeError if the function returns what cannot be made again, CaptureError if it cannot be
        captured, InvalidStateError if this torch keeps no graphs.
        """
        self._place.check()
        check_modules(self.modules)
        with self._place.current():
            self._inputs = [self._input(leaf) for leaf in self._flat.leaves]
            if warmup > 0:
                before = GradientFields(self.modules)
                before.add(self._warm_up(warmup))
                before.restore()
                check_modules(self.modules)
            self._fill()
            self._guards = ModuleGuards(self.modules, check=self._settings.check)
            self._gradients = GradientFields(self.modules)
            self._seen = Observation([each.inside for each in self._inputs])
            self._capture_and_observe()
            if any(requires_grad(leaf.array) for leaf in self._found):
                self._training = self._with_backward()
        self._found = []
        self._borrowed.clear()

    def _capture_and_observe(self) -> None:
        runs_once = self._settings.warmup == 0 and not self._inputs
        trains = False
        if self._is_compiled and not runs_once:
            trains = self._observe_in_a_capture_to_discard()
            self._gradients.restore()
        if not trains:
            self._graph = self._capture(observes=not self._is_compiled, trains=runs_once)
            trains = self._leaves_backward(self._found)
        if trains and not runs_once:
            # Autograd's graph is kept. Parameters of its own leave those of eager passes alone,
            # whose nodes for their gradients may be of another stream.
            if self._found:
                self._graph.close()
            self._forget()
            self._gradients.restore()
            used = [*self.modules, *self._seen.modules, *self._seen.modules_read]
            with own_parameters(used) as self._owners:
                self._graph = self._capture(observes=False, trains=True)

    def _leaves_backward(self, results: Sequence[Leaf]) -> bool:
        """Return whether the backward pass of these results is still to come."""
        self._gradients.add(self._seen.gradients)
        uses_gradients = self._seen.optimizers or self._gradients.changed()
        uses_gradients = uses_gradients or self._gradients.guards(self._seen.externals)
        return not uses_gradients and any(requires_grad(leaf.array) for leaf in results)

    def _with_backward(self) -> Training:
        for number in self._written:
            leaf = self._inputs[number].leaf
            if requires_grad(leaf.array):
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
        externals = self._seen.externals
        arguments = [each.inside for each in self._inputs]
        results = [leaf.array for leaf in self._found]
        may_be_read = [*arguments, *results, *self._owners.values()]
        may_be_read += [each for one in externals for each in one.tensors.values()]
        return Training(
            self._settings,
            self._place,
            self._graph,
            self._pool,
            arguments=arguments,
            results=results,
            frozen=[each.tensor for each in externals if each.is_on_gpu and not each.writes],
            owners=self._owners,
            versions={
                each: each._version
                for each in may_be_read
                if loaded.is_tensor(each) and not each.is_inference()
            },
        )

    def finish(self, key: Any) -> CapturedCall:
        """Return what runs calls of this kind, after `record`."""
        try:
            return self._captured_call(key)
        finally:
            self._gradients.restore()  # what the capture left there holds no numbers yet

    def _captured_call(self, key: Any) -> CapturedCall:
        seen = self._seen
        guards = self._guards.finish(seen)
        written, read = seen.ranges(guards.modules)
        if self._settings.outputs == "static":
            read = merged([*read, *(extent(leaf.facts) for leaf in self._results)])
        entry = self._entry(guards, written, read)
        tensors = [each.static for each in self._inputs if loaded.is_tensor(each.static)]
        tensors += [each.tensor for each in seen.externals]
        return CapturedCall(
            entry=entry,
            graph=self._graph,
            key=key,
            flat=self._flat.without_arrays(),
            state=self._state,
            guards=guards,
            seconds=time.perf_counter() - self._begun,
            result_shapes=[(leaf.path, tuple(leaf.facts[SHAPE])) for leaf in self._results],
            nbytes=self._owned_bytes(),
            pool=self._pool,
            writes=frozenset(self._inputs[number].leaf.path for number in self._written),
            written=written,
            read=read,
            externals_written=self._seen.state(guards.modules),
            has_foreign_work=self._seen.has_foreign_work,
            strides_matter=any(each is not None for each in map(self._call_strides, self._inputs)),
            device=self._place.device,
            dtypes=floating_dtypes(tensors, self._state.autocast),
            gradients=self._gradients.changed(),
        )

    # Warm-up and captures.

    def _input(self, leaf: Leaf) -> _Input:
        arrays = arrays_of(leaf.array, self._place.copies_on)
        static = arrays.static_like(leaf.array)
        inside = arrays.laid_out_like(leaf.array, static)
        if self._state.records_gradients and requires_grad(leaf.array):
            inside = inside.detach().requires_grad_()
        return _Input(leaf, arrays, static, inside)

    def _warm_up(self, times: int) -> list[tuple[Any, Any]]:
        """Run the function; return the tensors whose ``.grad`` it may have set."""
        arguments = [each.inside for each in self._inputs]
        seen = Observation(arguments)
        with kept_random_state(self._place.device), ExitStack() as after:
            after.callback(seen.restore)
            for number in range(max(times, 2) if self._is_compiled else times):
                result = None  # its memory serves the next run
                self._fill()
                with fresh_autocast_cache(), ExitStack() as stack:
                    # Compiled code runs its operators one by one where it is observed.
                    if number == 0 or not self._is_compiled:
                        stack.enter_context(seen.of_block(undo=True))
                    result = self._run(is_real=True)
                    backward_of([leaf.array for leaf in self._leaves_of(result)])
        self.modules += [each for each in seen.modules if each not in self.modules]
        return seen.gradients

    def _fill(self) -> None:
        for each in self._inputs:
            each.arrays.fill(each.static, each.leaf.array)
            if each.inside is not each.static:
                each.arrays.fill(each.inside, each.leaf.array)

    def _run(self, *, is_real: bool = False) -> Any:
        args, kwargs = rebuild(self._flat.pattern, [each.inside for each in self._inputs])
        self.is_running = is_real
        result = self._function(*args, **kwargs)
        self.is_running = False
        check_unchanged(args, kwargs, self._flat, [each.inside for each in self._inputs])
        return result

    def _leaves_of(self, result: Any) -> list[Leaf]:
        return flatten_result(result, self._flat.constants)[1]

    def _observe_in_a_capture_to_discard(self) -> bool:
        """Observe the function; return whether there is a backward pass to capture."""
        block = capture(
            self._place.stream,
            backend=self._place.backend,
            mode=self._settings.mode,
            pool=CapturePool(),
            timers="strip",
            allow_empty=True,
        )
        with (
            one_capture(),
            block as guard,
            fresh_autocast_cache(),
            self._seen.of_block(self._count_nodes(block)),
        ):
            leaves = self._leaves_of(self._run())
            self._seen.note_results([leaf.array for leaf in leaves])
        guard.graph.close()
        return self._leaves_backward(leaves)

    def _capture(self, *, observes: bool, trains: bool) -> CapturedGraph:
        settings = self._settings
        if trains and self._state.records_gradients and not settings.shares_pool:
            # What a forward pass leaves for the backward one no other graph may overwrite.
            self._pool = CapturePool()
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
        with one_capture(), block as guard, fresh_autocast_cache():
            assert block._guard is not None
            stream = block._guard.stream
            strided = [each for each in self._inputs if each.inside is not each.static]
            for each in strided:
                each.arrays.fill(each.inside, each.static)
            if observes:
                with self._seen.of_block(self._count_nodes(block)):
                    result = self._run()
                self._seen.note_results([leaf.array for leaf in self._leaves_of(result)])
            else:
                result = self._run()
            self._note_results(result)
            self._written = self._all_written()
            for each in strided:
                if self._inputs.index(each) in self._written:
                    each.arrays.fill(each.static, each.inside)
        # A call on another stream waits for what a warm-up still does with the graph's arrays.
        guard.graph._note_use(stream)
        return guard.graph

    def _count_nodes(self, block: capture) -> Callable[[int], tuple[int, bool]]:
        def count(since: int) -> tuple[int, bool]:
            assert block._guard is not None
            found = _core._capture_of(block._guard.stream, self._place.device, since)
            return found[2:]

        return count

    def _all_written(self) -> set[int]:
        """Return the numbers of the arguments that the function writes to."""
        paths = [each.leaf.path for each in self._inputs]
        named = self._settings.writes.numbers(paths)
        if named is not None:
            return self._seen.written | named
        every = set(range(len(paths))) if self._seen.has_foreign_work else set()
        return self._seen.written | every

    def _note_results(self, result: Any) -> None:
        self._pattern, leaves = flatten_result(result, self._flat.constants)
        self._found = leaves
        for leaf in leaves:
            inside = arrays_of(leaf.array, self._place.copies_on).dense(leaf.array)
            facts = facts_of(inside)
            if facts[DEVICE] != self._place.device:
                message = (
                    f"{leaf.path}: an array on GPU {facts[DEVICE]}, of a graph on GPU "
                    f"{self._place.device}; return arrays of that one"
                )
                raise TypeError(message)
            if loaded.is_tensor(inside):
                inside = inside.detach()
            self._results.append(leaf._replace(array=inside, facts=facts))

    # Copies.

    def _prepare(self, graph: CapturedGraph) -> tuple[object, ...]:
        """Add the copies to a graph that is not executable yet; return what it has to keep."""
        before = [self._copy(each.arrays, each.static) for each in self._copied_inputs()]
        after = []
        for leaf in self._results:
            arrays = arrays_of(leaf.array)
            if self._settings.outputs == "static" or arrays.in_place:
                self._makers.append(None)
                continue
            self._makers.append(arrays.empty_like)
            if arrays.nbytes(leaf.array):
                after.append(self._copy(arrays, leaf.array))
        for each in self._copied_inputs(self._written):
            after.append(self._copy(each.arrays, each.static))
        graph._set_launch_order(self._pool._launch_order())
        if before or after:
            graph._add_copies(before, after)
        return tuple(leaf.array for leaf in self._results)

    def _copied_inputs(self, among: Collection[int] | None = None) -> list[_Input]:
        return [
            each
            for number, each in enumerate(self._inputs)
            if self._is_copied(each) and (among is None or number in among)
        ]

    def _is_copied(self, each: _Input) -> bool:
        return not each.arrays.in_place and each.arrays.nbytes(each.static) > 0

    def _copy(self, arrays: Arrays, inside: Any) -> tuple[int, int, int]:
        """Describe a copy between an array of the graph's and one that stands for a call's."""
        outside = arrays.empty_like(inside)
        self._borrowed.append(outside)
        return facts_of(inside)[ADDRESS], facts_of(outside)[ADDRESS], arrays.nbytes(inside)

    # The entry.

    def _entry(
        self, guards: ModuleGuards, written: list[Range], read: list[Range]
    ) -> _core._CacheEntry:
        args, kwargs = self._flat.pattern[1]
        inputs = tuple(self._inputs)
        on = self._place.calls_stream({arrays_of(leaf.array).name for leaf in self._results})
        statics = tuple((arrays_of(each.static, on), each.static) for each in inputs)
        results = tuple((arrays_of(leaf.array, on), leaf.array) for leaf in self._results)
        simple = is_simple(self._pattern)
        return _core._CacheEntry(
            graph=self._graph,
            args=args,
            keywords=kwargs,
            keywords_in_order=self._keywords_in_order,
            arrays=tuple(self._spec(number, each) for number, each in enumerate(inputs)),
            state_guards=(
                *state_guards(self._state),
                *tensor_guards(self._state, self._seen.externals),
                *training_flags(self.modules),
                *self._gradients.guards(self._seen.externals),
                *((ask, ask()) for ask in self._settings.guards),
            ),
            guards=guards.core,
            results=tuple(
                (make, array, make is not None and arrays.nbytes(array) > 0)
                for make, (arrays, array) in zip(self._makers, results, strict=True)
            ),
            result=self._pattern if simple else functools.partial(rebuild, self._pattern),
            stage=functools.partial(stage, statics),
            put_back=functools.partial(fill_from, statics),
            fetch=functools.partial(fill_from, results),
            wrote=wrote,
            written=written,
            read=read,
            after=after_run(self._seen.written_tensors(), self._gradients.changed()),
            apply=None if self._training is None else self._training.apply,
            verify_every=self._settings.verify_every,
            device=self._place.device,
            stream_type=self._place.stream_type,
            stream=on.ask,
        )

    def _spec(self, number: int, each: _Input) -> _core._EntryArray:
        facts = facts_of(each.static)
        of_torch = each.arrays.name == "torch"
        copied = self._is_copied(each)
        asks_gradients = of_torch and self._state.records_gradients
        return _core._EntryArray(
            types=each.arrays.types,
            desc=facts,
            in_place=each.arrays.in_place,
            call_strides=self._call_strides(each),
            requires_grad=requires_grad(each.leaf.array) if asks_gradients else None,
            may_be_view=of_torch and may_be_view(facts),
            copied_in=copied,
            copied_back=copied and number in self._written,
        )

    @property
    def _by_layout(self) -> bool:
        return self._seen.depends_on_layout or self._seen.has_foreign_work

    def _call_strides(self, each: _Input) -> tuple[int, ...] | None:
        """Return which strides the array of a call must have; None for any."""
        shape, strides = each.leaf.facts[SHAPE], each.leaf.facts[STRIDES]
        was_expanded = any(
            stride == 0 and size > 1 for size, stride in zip(shape, strides, strict=True)
        )
        return strides if self._by_layout or was_expanded else None

    def _owned_bytes(self) -> int:
        owned = [each.static for each in self._inputs if not each.arrays.in_place]
        owned += [leaf.array for leaf in self._results]
        return sum(arrays_of(array).nbytes(array) for array in owned)
