"""From a function and the arguments of one call to a graph that serves all calls of that kind.

The function runs on arrays of the graph's own, which are filled from the call's: first for real, to
warm up and to see what it does, then under a capture. The copies from the call's arrays and to new
ones for the result become nodes at the edges of the graph, before it is made executable.

A replay does not do all that an eager call does. What would be missing is found here: gradients,
arguments that the function writes to, results that nobody can make again. What a warm-up changes is
put back: random generators, buffers of modules, and the arguments, of which it sees copies.
"""

from __future__ import annotations

import functools
import itertools
import math
import time
import weakref
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import gpuprof._core as _core
from gpuprof._callable.arrays import Arrays, arrays_of, changed
from gpuprof._callable.buckets import ResultSlices
from gpuprof._callable.guard_finder import find_guards
from gpuprof._callable.guards import GuardList, ReplacementHook
from gpuprof._callable.leaves import (
    ADDRESS,
    DEVICE,
    DTYPE,
    SHAPE,
    Leaf,
    extent,
    is_plain,
    is_used_in_place,
)
from gpuprof._callable.mismatch import describe_mismatch
from gpuprof._callable.placement import Place
from gpuprof._callable.pytree import Flat, Pattern, flatten_arguments, flatten_result, rebuild
from gpuprof._callable.settings import Settings
from gpuprof._callable.state import State, gradient_guards, needs_gradients, state_guards
from gpuprof._frameworks import loaded
from gpuprof._frameworks.torch import fresh_autocast_cache, kept_buffers, kept_random_state
from gpuprof._graphs.capture import capture
from gpuprof._graphs.graph import CapturedGraph

_LOOKED_AT = 2  # places that a call looks at, of those that the function reads from
_ALL = 1 << 30
_WHAT_A_REPLAY_DOES = (
    "and a replay leaves lists, dicts and objects as they are; return the new value instead"
)
_FLOATS, _COMPLEX = (2, 4), 5  # of DLPack's codes


@dataclass
class CapturedCall:
    """One graph of a callable, with what is known of the call that it was captured for."""

    entry: _core._CacheEntry
    graph: CapturedGraph
    key: Any
    flat: Flat  # without its arrays
    state: State
    guards: GuardList
    seconds: float
    result_shapes: list[tuple[str, tuple[int, ...]]]
    nbytes: int  # of the arrays that it owns
    writes: list[str]  # the arguments that the function writes to, by path
    written_ranges: tuple[tuple[int, int], ...]  # of addresses where it writes besides
    slices: ResultSlices | None = None  # how results are cut, for a bucket
    listening: list[Any] = field(default_factory=list)

    def overlaps(self, flat: Flat) -> bool:
        """Return whether it matters for these arguments which copy is made first.

        So it is where one that is written to lies over another, or one over what the function
        writes to besides.
        """
        ends = sorted(extent(leaf.facts) for leaf in flat.leaves)
        if self.writes and any(end > begin for (_, end), (begin, _) in itertools.pairwise(ends)):
            return True
        copied = [extent(leaf.facts) for leaf in flat.leaves if not is_used_in_place(leaf.array)]
        return any(
            begin < written_end and written < end
            for begin, end in copied
            for written, written_end in self.written_ranges
        )


class _Input(NamedTuple):
    """An array of the arguments: the call's, and the graph's own."""

    leaf: Leaf
    arrays: Arrays
    static: Any


class Recording:
    """One capture of a function for the arguments of one call, made in `state`.

    `modules` are those that the function is or holds, or is given. `written` are the paths of the
    arguments that it was seen to write to; None if that is not known.
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
        written: Collection[str] | None = None,
    ) -> None:
        self._function = function
        self._flat = flat
        self._state = state
        self._settings = settings
        self._keywords_in_order = keywords_in_order
        self._place = Place(flat, settings.stream)
        self._inputs: list[_Input] = []
        self._written: set[int] = set()
        self._seen_to_write = written
        self._results: list[Leaf] = []
        self._pattern: Pattern = ()
        self._makers: list[Callable[[Any], Any] | None] = []  # of fresh results
        self._modules = tuple(modules)
        self._written_ranges: tuple[tuple[int, int], ...] = ()
        self._borrowed: list[Any] = []  # what the copies are made with, until instantiated
        self.is_running = False  # whether an error of `make` is of the function in a warm-up

    def make(self, key: Any, warmup: int) -> CapturedCall:
        """Run the function `warmup` times, capture, and return what runs calls of this kind.

        GradientsNeeded if the call asks for gradients, TypeError if the function returns what
        cannot be made again, CaptureError if it cannot be captured, InvalidStateError if this torch
        keeps no graphs.
        """
        begun = time.perf_counter()
        self._place.check()
        self._refuse_gradients(self._flat.leaves, ())
        with self._place.current():
            self._inputs = [self._input(leaf) for leaf in self._flat.leaves]
            if warmup > 0:
                self._warm_up(warmup)
            else:
                self._fill()
            held = self._held()
            graph = self._capture()
        self._borrowed.clear()
        self._written_ranges = tuple(extent(facts) for facts in _written_of(held))
        guards = self._guards()
        entry = self._entry(graph, guards)
        made = CapturedCall(
            entry=entry,
            graph=graph,
            key=key,
            flat=self._flat.without_arrays(),
            state=self._state,
            guards=guards,
            seconds=time.perf_counter() - begun,
            result_shapes=[(leaf.path, tuple(leaf.facts[SHAPE])) for leaf in self._results],
            nbytes=self._owned_bytes(),
            writes=[self._inputs[number].leaf.path for number in sorted(self._written)],
            written_ranges=self._written_ranges,
        )
        if guards.modules:
            hook = ReplacementHook(guards.modules, functools.partial(_flag, weakref.ref(made)))
            made.listening.append(weakref.finalize(made, hook.remove))
        return made

    def _guards(self) -> GuardList:
        # Constants may hold parameters, too.
        constants = [value for value in self._flat.constants if not is_plain(value)]
        return find_guards(functools.partial(self._function, *constants))

    def _held(self) -> list[tuple[Any, object]]:
        """Return the tensors that the function has besides its arguments, with their versions."""
        arrays = [item.expected for item in self._guards().items if item.address is not None]
        return [(array, _version(array)) for array in arrays if _version(array) is not None]

    def _input(self, leaf: Leaf) -> _Input:
        arrays = arrays_of(leaf.array, self._place.copies_on)
        return _Input(leaf, arrays, arrays.static_like(leaf.array))

    def _warm_up(self, times: int) -> None:
        result: Any = None
        with kept_random_state(self._place.device), kept_buffers(self._modules):
            for _ in range(times):
                result = None  # its memory serves the next run
                self._fill()
                with fresh_autocast_cache():
                    result = self._run(is_real=True)
        self._refuse_gradients((), flatten_result(result, self._flat.constants)[1])
        statics = [each.static for each in self._inputs]
        self._seen_to_write = changed(self._flat.leaves, statics, self._place.copies_on)
        self._fill()

    def _fill(self) -> None:
        for each in self._inputs:
            each.arrays.fill(each.static, each.leaf.array)

    def _run(self, *, is_real: bool = False) -> Any:
        args, kwargs = rebuild(self._flat.pattern, [each.static for each in self._inputs])
        self.is_running = is_real
        result = self._function(*args, **kwargs)
        self.is_running = False
        self._check_containers(args, kwargs)
        return result

    def _check_containers(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Refuse a function that puts something else into its arguments: a replay would not."""
        after = flatten_arguments(args, kwargs)
        for leaf, each in zip(after.leaves, self._inputs, strict=False):
            if leaf.array is not each.static:
                message = f"{leaf.path}: the function replaces it, {_WHAT_A_REPLAY_DOES}"
                raise TypeError(message)
        changes = describe_mismatch(after, self._flat)
        if changes:
            message = f"the function changes its arguments, {_WHAT_A_REPLAY_DOES}: {changes[0]}"
            raise TypeError(message)

    def _refuse_gradients(self, leaves: Sequence[Leaf], results: Sequence[Leaf]) -> None:
        asking = needs_gradients(self._state, leaves, results, self._modules)
        if asking:
            raise GradientsNeeded(asking)

    def _capture(self) -> CapturedGraph:
        settings = self._settings
        block = capture(
            self._place.stream,
            backend=self._place.backend,
            mode=settings.mode,
            pool=settings.pool,
            timers=settings.timers,
            keep_alive=[*(each.static for each in self._inputs), self._place.memory],
            allow_empty=True,
            name=settings.name,
        )
        block._settings = block._settings._replace(prepare=self._prepare)
        versions = [_version(each.static) for each in self._inputs]
        with block as guard, fresh_autocast_cache():
            self._take_results(self._run())
            for number, each in enumerate(self._inputs):
                if self._is_written(each, versions[number]):
                    self._written.add(number)
        return guard.graph

    def _is_written(self, each: _Input, version: object) -> bool:
        now = _version(each.static)
        if now != version:
            return True
        if self._seen_to_write is not None:
            return each.leaf.path in self._seen_to_write
        # Nobody has seen it run, so it may be written to, unless torch would tell.
        return now is None and not each.arrays.in_place

    def _take_results(self, result: Any) -> None:
        self._pattern, leaves = flatten_result(result, self._flat.constants)
        self._refuse_gradients((), leaves)
        for leaf in leaves:
            inside = arrays_of(leaf.array, self._place.copies_on).dense(leaf.array)
            facts = _facts(inside)
            if facts[DEVICE] != self._place.device:
                message = (
                    f"{leaf.path}: an array on GPU {facts[DEVICE]}, of a graph on GPU "
                    f"{self._place.device}; return arrays of that one"
                )
                raise TypeError(message)
            self._results.append(leaf._replace(array=inside, facts=facts))

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
        graph._set_launch_order(self._settings.pool._launch_order())
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
        return _facts(inside)[ADDRESS], _facts(outside)[ADDRESS], arrays.nbytes(inside)

    def _entry(self, graph: CapturedGraph, guards: GuardList) -> _core._CacheEntry:
        args, kwargs = self._flat.pattern[1]
        inputs = tuple(self._inputs)
        on = self._place.calls_stream({arrays_of(leaf.array).name for leaf in self._results})
        statics = tuple((arrays_of(each.static, on), each.static) for each in inputs)
        results = tuple((arrays_of(leaf.array, on), leaf.array) for leaf in self._results)
        simple = _is_simple(self._pattern)
        return _core._CacheEntry(
            graph=graph,
            args=args,
            keywords=kwargs,
            keywords_in_order=self._keywords_in_order,
            arrays=tuple(self._spec(number, each) for number, each in enumerate(inputs)),
            state_guards=(
                *state_guards(self._state),
                *gradient_guards(self._state, self._modules),
                *(
                    (functools.partial(getattr, each, "training"), each.training)
                    for each in self._modules
                ),
            ),
            guards=(
                tuple(guards.items),
                tuple(guards.always),
                _ALL if self._settings.check == "strict" else _LOOKED_AT,
            ),
            results=tuple(
                (make, array, make is not None and arrays.nbytes(array) > 0)
                for make, (arrays, array) in zip(self._makers, results, strict=True)
            ),
            result=self._pattern if simple else functools.partial(rebuild, self._pattern),
            stage=functools.partial(_stage, statics),
            put_back=functools.partial(_fill_from, statics),
            fetch=functools.partial(_fill_from, results),
            wrote=_wrote,
            written_ranges=self._written_ranges,
            device=self._place.device,
            stream_type=self._place.stream_type,
            stream=on.ask,
        )

    def _spec(self, number: int, each: _Input) -> _core._EntryArray:
        facts = _facts(each.static)
        of_torch = each.arrays.name == "torch"
        copied = self._is_copied(each)
        return _core._EntryArray(
            types=each.arrays.types,
            desc=facts,
            in_place=each.arrays.in_place,
            no_gradient=of_torch and self._state.records_gradients,
            may_be_view=of_torch and _may_be_view(facts),
            copied_in=copied,
            copied_back=copied and number in self._written,
        )

    def _owned_bytes(self) -> int:
        owned = [each.static for each in self._inputs if not each.arrays.in_place]
        owned += [leaf.array for leaf in self._results]
        return sum(arrays_of(array).nbytes(array) for array in owned)


class GradientsNeeded(Exception):
    """A call asks for gradients, which a graph of the forward pass alone cannot give."""

    def __init__(self, asking: Sequence[str]) -> None:
        super().__init__(
            f"this call needs gradients, which a graph of the forward pass cannot give: "
            f"{', '.join(asking)} requires a gradient. Make the callable and call it under "
            "torch.no_grad() or torch.inference_mode(), or switch requires_grad off; with "
            "on_capture_error='eager' such calls run eagerly"
        )


def _flag(captured: weakref.ref[CapturedCall]) -> None:
    found = captured()
    if found is not None:
        found.entry.flag()


def _facts(array: Any) -> tuple[Any, ...]:
    facts = _core._array_facts(array)
    assert facts is not None
    return facts


def _version(array: Any) -> object:
    """Return what changes where torch writes to a tensor; of other arrays, nothing."""
    try:
        return getattr(array, "_version", None)
    except RuntimeError:  # a tensor of inference mode, which has none
        return None


def _written_of(held: Sequence[tuple[Any, object]]) -> list[tuple[Any, ...]]:
    """Return the facts of those whose version has changed."""
    facts = [_core._array_facts(array) for array, version in held if _version(array) != version]
    return [each for each in facts if each is not None]


def _may_be_view(facts: tuple[Any, ...]) -> bool:
    """Return whether a tensor laid out as this one may stand for the conjugate or negative of it.

    A real tensor is a negative view where it is the imaginary part of a conjugate one, every second
    of its numbers, which shows in its strides if it has more than one.
    """
    code = facts[DTYPE][0]
    return code == _COMPLEX or (code in _FLOATS and math.prod(facts[SHAPE]) == 1)


def _is_simple(pattern: Pattern) -> bool:
    """Return whether a result is made of exact tuples, lists and dicts alone."""
    if pattern[0] in {"array", "value"}:
        return True
    return pattern[0] in {"tuple", "list", "dict"} and all(map(_is_simple, pattern[-1]))


# Called from C++, the first two where a node of the graph cannot make a copy.


def _stage(statics: Sequence[tuple[Arrays, Any]], number: int, array: Any) -> Any:
    arrays, static = statics[number]
    return arrays.stage(static, array)


def _fill_from(statics: Sequence[tuple[Arrays, Any]], number: int, array: Any) -> None:
    arrays, static = statics[number]
    arrays.fill(array, static)


def _wrote(_: int, array: Any) -> None:
    """Tell torch that a tensor of a call has changed, as an operator would."""
    graph = getattr(getattr(loaded.torch(), "autograd", None), "graph", None)
    if hasattr(array, "is_inference") and not array.is_inference():
        bump = getattr(graph, "increment_version", None)
        if bump is not None:
            bump(array)
