"""From a function and the arguments of one call to a graph that serves all calls of that kind.

The function runs on arrays of the graph's own, which are filled from the call's: first for real, to
warm up and to see what it does, then under a capture. The copies from the call's arrays and to new
ones for the result become nodes at the edges of the graph, before it is made executable.

What a call would have to do differently from an eager one without being told is found here:
gradients that would be missing, arguments that the function writes to, results that nobody can make
again. What a warm-up moves is put back: random generators, buffers of modules, and the arguments,
which it never sees.
"""

from __future__ import annotations

import functools
import math
import sys
import time
import weakref
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import gpuprof._core as _core
from gpuprof._callable.arrays import Arrays, arrays_of
from gpuprof._callable.entry import CapturedCall
from gpuprof._callable.guards import Watched, collect
from gpuprof._callable.hooks import on_replaced
from gpuprof._callable.leaves import extent
from gpuprof._callable.mismatch import describe_mismatch
from gpuprof._callable.placement import CallStream, Place
from gpuprof._callable.pytree import flatten_arguments
from gpuprof._callable.results import flatten_result, rebuild
from gpuprof._callable.state import (
    State,
    fresh_autocast_cache,
    gradient_probes,
    kept_buffers,
    kept_random_state,
    needs_gradients,
    probes,
)
from gpuprof._callable.values import is_plain
from gpuprof._graphs.capture import capture

if TYPE_CHECKING:
    from gpuprof._callable.pytree import Flat, Leaf, Pattern
    from gpuprof._graphs.graph import CapturedGraph
    from gpuprof._graphs.pool import CapturePool
    from gpuprof._graphs.types import CaptureModeLike, TimersLike

_ADDRESS, _DEVICE, _DTYPE, _SHAPE = 0, 2, 3, 4  # in an array's facts
_LOOKED_AT = 2  # places that a call looks at, of those that the function reads from
_ALL = 1 << 30
_WHAT_A_REPLAY_DOES = (
    "and a replay leaves lists, dicts and objects as they are; return the new value instead"
)
_FLOATS, _COMPLEX = (2, 4), 5  # of DLPack's codes


class CallableOptions(NamedTuple):
    """What `make_graphed_callable` was asked for, as far as captures are concerned."""

    name: str
    mode: CaptureModeLike
    stream: object
    pool: CapturePool
    timers: TimersLike
    outputs: str
    strict: bool
    keywords_in_order: bool  # whether the function may see their order


class _Input(NamedTuple):
    """An array of the arguments: the call's, and the graph's own."""

    leaf: Leaf
    arrays: Arrays
    static: Any


class Recording:
    """One capture of a function for the arguments of one call.

    Parameters
    ----------
    function : callable
    flat : Flat
        The arguments of the call.
    state : State
        Under which it was made.
    options : CallableOptions
    modules : sequence of torch.nn.Module
        Those that the function is or holds, or is given.
    written : collection of str, optional
        The arguments that the function was seen to write to, by path; None if that is not known.

    Attributes
    ----------
    is_running : bool
        Whether an error of `make` came out of the function while it ran for real.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        flat: Flat,
        state: State,
        options: CallableOptions,
        *,
        modules: Sequence[Any] = (),
        written: Collection[str] | None = None,
    ) -> None:
        self._function = function
        self._flat = flat
        self._state = state
        self._options = options
        self._place = Place(flat, options.stream)
        self._inputs: list[_Input] = []
        self._written: set[int] = set()
        self._seen_to_write = written
        self._results: list[Leaf] = []
        self._pattern: Pattern = ()
        self._makers: list[tuple[Callable[[Any], Any] | None, Any]] = []
        self._modules = tuple(modules)
        self._taken: tuple[tuple[int, int], ...] = ()
        self._lent: list[Any] = []  # what the copies are made with, until there is an executable
        self.is_running = False

    def make(self, key: Any, warmup: int) -> CapturedCall:
        """Warm up, capture, and return what runs calls of this kind.

        Parameters
        ----------
        key : hashable
        warmup : int
            How often the function runs for real.

        Raises
        ------
        GradientsNeeded
            The call asks for gradients.
        TypeError
            The arrays are on several devices, or the function returns what cannot be made again.
        CaptureError
            The function cannot be captured.
        InvalidStateError
            This torch keeps no graphs, so that nothing can be added to one.
        """
        begun = time.perf_counter()
        self._place.check()
        self._refuse_gradients(self._flat.leaves, ())
        with self._place.current():
            self._inputs = [_input(leaf, self._place.copies_on) for leaf in self._flat.leaves]
            if warmup > 0:
                self._warm_up(warmup)
            else:
                self._fill()
            held = self._held()
            graph = self._capture()
        self._lent.clear()
        self._taken = tuple(extent(facts) for facts in _written_of(held))
        watched = self._collect()
        entry = self._entry(graph, watched)
        made = CapturedCall(
            entry=entry,
            graph=graph,
            key=key,
            flat=self._flat.without_arrays(),
            state=self._state,
            watched=watched,
            seconds=time.perf_counter() - begun,
            result_shapes=[(leaf.path, tuple(leaf.facts[_SHAPE])) for leaf in self._results],
            nbytes=self._owned_bytes(),
            writes=[self._inputs[number].leaf.path for number in sorted(self._written)],
            taken=self._taken,
        )
        if watched.modules:
            handle = on_replaced(watched.modules, functools.partial(_flag, weakref.ref(made)))
            made.listening.append(weakref.finalize(made, handle.remove))
        return made

    def _collect(self) -> Watched:
        # Constants may hold parameters, too.
        constants = [value for value in self._constants() if not is_plain(value)]
        return collect(functools.partial(self._function, *constants))

    def _held(self) -> list[tuple[Any, object]]:
        """Return the tensors that the function has besides its arguments, with their versions."""
        arrays = [item.expected for item in self._collect().items if item.address is not None]
        return [(array, _version(array)) for array in arrays if _version(array) is not None]

    def _warm_up(self, times: int) -> None:
        result: Any = None
        with kept_random_state(self._place.device), kept_buffers(self._modules):
            for _ in range(times):
                result = None  # its memory serves the next run
                self._fill()
                with fresh_autocast_cache():
                    result = self._run(is_real=True)
        self._refuse_gradients((), flatten_result(result, self._constants())[1])
        self._seen_to_write = {
            each.leaf.path
            for each in self._inputs
            if not each.arrays.in_place and not each.arrays.same_bytes(each.static, each.leaf.array)
        }
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

    def _constants(self) -> list[Any]:
        return [value for _, value in self._flat.values]

    def _refuse_gradients(self, leaves: Sequence[Leaf], results: Sequence[Leaf]) -> None:
        asking = needs_gradients(self._state, leaves, results, self._modules)
        if asking:
            raise GradientsNeeded(asking)

    def _capture(self) -> CapturedGraph:
        options = self._options
        block = capture(
            self._place.stream,
            backend=self._place.backend,
            mode=options.mode,
            pool=options.pool,
            timers=options.timers,
            keep_alive=[*(each.static for each in self._inputs), self._place.memory],
            allow_empty=True,
            name=options.name,
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
        self._pattern, leaves = flatten_result(result, self._constants())
        self._refuse_gradients((), leaves)
        for leaf in leaves:
            arrays = arrays_of(leaf.array, self._place.copies_on)
            inside = arrays.dense(leaf.array)
            facts = _core._array_facts(inside)
            assert facts is not None
            if facts[_DEVICE] != self._place.device:
                message = (
                    f"{leaf.path}: an array on GPU {facts[_DEVICE]}, of a graph on GPU "
                    f"{self._place.device}; return arrays of that one"
                )
                raise TypeError(message)
            self._results.append(leaf._replace(array=inside, facts=facts))

    def _prepare(self, graph: CapturedGraph) -> tuple[object, ...]:
        """Add the copies to a graph that is not executable yet; return what it has to keep."""
        before, after, lent = [], [], self._lent
        for each in self._inputs:
            if self._is_copied(each):
                outside = _new(each.arrays, each.static)
                lent.append(outside)
                before.append(_copy(each.static, outside, each.arrays.nbytes(each.static)))
        for leaf in self._results:
            arrays = arrays_of(leaf.array)
            if self._options.outputs == "static" or arrays.in_place:
                self._makers.append((None, leaf.array))
                continue
            make, like = arrays.fresh_maker(leaf.array)
            self._makers.append((make, like))
            if arrays.nbytes(leaf.array):
                lent.append(make(like))
                after.append(_copy(leaf.array, lent[-1], arrays.nbytes(leaf.array)))
        for number in sorted(self._written):
            each = self._inputs[number]
            if self._is_copied(each):
                lent.append(_new(each.arrays, each.static))
                after.append(_copy(each.static, lent[-1], each.arrays.nbytes(each.static)))
        graph._take_turns(self._options.pool._take_turns())
        if before or after:
            graph._add_copies(before, after)
        return tuple(leaf.array for leaf in self._results)

    def _is_copied(self, each: _Input) -> bool:
        return not each.arrays.in_place and each.arrays.nbytes(each.static) > 0

    def _entry(self, graph: CapturedGraph, watched: Watched) -> _core._CallEntry:
        args, kwargs = self._flat.pattern[1]
        inputs = tuple(self._inputs)
        on = self._place.calls_stream({arrays_of(leaf.array).name for leaf in self._results})
        statics = tuple((arrays_of(each.static, on), each.static) for each in inputs)
        results = tuple((arrays_of(leaf.array, on), leaf.array) for leaf in self._results)
        simple = _is_simple(self._pattern)
        described = {
            "graph": graph,
            "args": args,
            "keywords": kwargs,
            "in_order": self._options.keywords_in_order,
            "arrays": tuple(self._spec(number, each) for number, each in enumerate(inputs)),
            "probes": (
                *probes(self._state),
                *gradient_probes(self._state, self._modules),
                *(
                    (functools.partial(getattr, each, "training"), each.training)
                    for each in self._modules
                ),
            ),
            "watch": (watched.items, watched.always, _ALL if self._options.strict else _LOOKED_AT),
            "results": tuple(
                (make, like, make is not None and arrays_of(leaf.array).nbytes(leaf.array) > 0)
                for (make, like), leaf in zip(self._makers, self._results, strict=True)
            ),
            "result": self._pattern if simple else functools.partial(rebuild, self._pattern),
            "stage": functools.partial(_stage, statics),
            "put_back": functools.partial(_put_back, statics),
            "fetch": functools.partial(_fetch, results),
            "wrote": _wrote,
            "taken": self._taken,
            "device": self._place.device,
            "stream_type": self._place.stream_type,
            "stream": on.ask,
        }
        return _core._CallEntry(described)

    def _spec(self, number: int, each: _Input) -> tuple[Any, ...]:
        facts = _core._array_facts(each.static)
        assert facts is not None
        of_torch = each.arrays.name == "torch"
        copied = self._is_copied(each)
        return (
            each.arrays.types,
            facts,
            each.arrays.in_place,
            of_torch and self._state.grad and not self._state.inference,
            of_torch and _may_be_view(facts),
            copied,
            copied and number in self._written,
        )

    def _owned_bytes(self) -> int:
        owned = sum(
            each.arrays.nbytes(each.static) for each in self._inputs if not each.arrays.in_place
        )
        return owned + sum(arrays_of(leaf.array).nbytes(leaf.array) for leaf in self._results)


class GradientsNeeded(Exception):
    """A call asks for gradients, which a graph of the forward pass alone cannot give.

    Parameters
    ----------
    asking : sequence of str
        What asks for them, by name.
    """

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
        found.watched.flagged = True
        found.entry.flag()


def _input(leaf: Leaf, on: CallStream) -> _Input:
    arrays = arrays_of(leaf.array, on)
    return _Input(leaf, arrays, arrays.static_like(leaf.array))


def _new(arrays: Arrays, static: Any) -> Any:
    make, like = arrays.fresh_maker(static)
    return make(like)


def _copy(inside: Any, outside: Any, nbytes: int) -> tuple[int, int, int]:
    facts, others = _core._array_facts(inside), _core._array_facts(outside)
    assert facts is not None
    assert others is not None
    return facts[_ADDRESS], others[_ADDRESS], nbytes


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
    code = facts[_DTYPE][0]
    return code == _COMPLEX or (code in _FLOATS and math.prod(facts[_SHAPE]) == 1)


def _is_simple(pattern: Pattern) -> bool:
    """Return whether a result is made of exact tuples, lists and dicts alone."""
    if pattern[0] in {"array", "value"}:
        return True
    return pattern[0] in {"tuple", "list", "dict"} and all(map(_is_simple, pattern[-1]))


def _stage(statics: Sequence[tuple[Arrays, Any]], number: int, array: Any) -> Any:
    arrays, static = statics[number]
    return arrays.stage(static, array)


def _put_back(statics: Sequence[tuple[Arrays, Any]], number: int, array: Any) -> None:
    arrays, static = statics[number]
    arrays.fill(array, static)


def _wrote(_: int, array: Any) -> None:
    """Tell torch that a tensor of a call has changed, as an operator would."""
    torch: Any = sys.modules.get("torch")
    increment = getattr(getattr(torch, "autograd", None), "graph", None)
    if hasattr(array, "is_inference") and not array.is_inference():
        bump = getattr(increment, "increment_version", None)
        if bump is not None:
            bump(array)


def _fetch(results: Sequence[tuple[Arrays, Any]], number: int, array: Any) -> None:
    arrays, static = results[number]
    arrays.fill(array, static)
