"""Compares what a replayed graph computed with what the function itself computes."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import gpuprof._core as _core
from gpuprof._callable.buckets import NOTHING_LEARNED
from gpuprof._callable.mismatch import other_parts
from gpuprof._callable.pytree import Flat, flatten_result, rebuild
from gpuprof._callable.state import Snapshot, set_gradients
from gpuprof._distributed.world import distributed
from gpuprof._frameworks import loaded, torch_hooks
from gpuprof._frameworks.arrays import copied
from gpuprof._frameworks.compare import Difference, differences, largest_change, move
from gpuprof._frameworks.torch import fresh_autocast_cache
from gpuprof.errors import GraphMismatchError

if TYPE_CHECKING:
    from gpuprof._callable.entry import CapturedCall
    from gpuprof._frameworks.streams import CallStream

_MAX_PROBLEMS = 8
_SEEDS = (1, 2)  # of the runs that tell what is numerics
_HINTS = (
    "Python state has changed since the capture: numbers, flags, containers and names are frozen "
    'in the graph (docs/callable.md, "What is frozen"). Pass it as an argument, or name it with '
    "guards=.",
    "A kernel that torch does not know (Triton, CuPy, Numba, an extension) writes to an array: "
    "name that argument with writes=.",
    "The function reads memory that nobody has written, such as that of torch.empty().",
    "The function does not compute the same twice, for instance with random numbers that are not "
    'torch\'s: then verify="off" is right.',
)
_DRAWS = (
    "The function draws random numbers, and a capture may choose kernels that draw others from the "
    'same generator. Compare it with dropout off (eval()); then verify="off" is right.'
)


def mismatch(name: str, found: Sequence[Difference], *, draws: bool) -> GraphMismatchError:
    """Return the error for a replay that differs, of a callable that goes on without its graphs."""
    problems = tuple(map(str, found))
    lines = [
        f"{name}: a replay of the graph differs from the function, given the same inputs; from now "
        "on calls run the function",
        *(f"  {problem}" for problem in problems[:_MAX_PROBLEMS]),
    ]
    if len(problems) > _MAX_PROBLEMS:
        lines.append(f"  and {len(problems) - _MAX_PROBLEMS} more")
    hints = (_DRAWS, *_HINTS) if draws else _HINTS
    lines += ["Usual causes:", *(f"- {hint}" for hint in hints)]
    error, first = GraphMismatchError("\n".join(lines)), found[0]
    error.problems, error.path, error.index = problems, first.path, first.index
    error.expected, error.found = first.expected, first.found
    return error


def as_in_capture(captured: CapturedCall) -> contextlib.AbstractContextManager[None]:
    """Answer code of the block that asks whether torch captures as it was in the capture."""
    return torch_hooks.as_if_capturing() if captured.by_torch else contextlib.nullcontext()


def compared(
    function: Callable[..., Any],
    captured: CapturedCall,
    flat: Flat,
    replay: Callable[[tuple[Any, ...], dict[str, Any]], Any],
    on: CallStream,
    *,
    undo: bool,
) -> tuple[Any, list[Difference], bool]:
    """Replay a call, run the function on equal arguments from an equal state, and compare.

    Return the replay's result, the differences, and whether there were others that are numerics.
    What the function writes to arguments and to state is what stays; with `undo`, state and random
    generators are put back, too. Nothing is compared if the replay did not take place.
    """
    state = captured.externals_written
    own = _OwnRuns(function, captured, flat, on)
    with contextlib.ExitStack() as stack:
        if undo:
            stack.callback(own.before.put_back)
        result = replay(*rebuild(flat.pattern, flat.arrays))
        if result is _core._no_fit:
            return result, [], False
        after = copied(state)
        own.before.put_back()
        expected = own.run(own.twins)
        set_gradients(captured.gradients)
        found = _result_pairs(expected, result, flat.constants, captured.flat.constants)
        written = [(flat.leaves[n], own.twins[n], flat.arrays[n]) for n in own.written]
        found += [(leaf.path, twin, array) for leaf, twin, array in written]
        names = map(captured.guards.name_of, state)
        found += zip(names, state, after, strict=True)
        # Other ranks may find no difference: collectives of another run would wait for them.
        group = distributed()
        may_move = flat.libraries == {"torch"} and (group is None or group.get_world_size() == 1)
        units = functools.partial(own.units, found) if may_move else None
        problems = differences(found, on=on, computed_in=captured.dtypes, units=units)
        if problems:
            for leaf, twin, array in written:
                leaf.framework.at(on).fill(array, twin)
    return result, problems, own.has_moved and not problems


class _OwnRuns:
    """The function's own runs of a call, each from where its replay began."""

    def __init__(
        self, function: Callable[..., Any], captured: CapturedCall, flat: Flat, on: CallStream
    ) -> None:
        self._function = function
        self._captured = captured
        self._flat = flat
        self._on = on
        self.written = [n for n, leaf in enumerate(flat.leaves) if leaf.path in captured.writes]
        self.twins = twins_of(flat, on)
        # What the caller's arrays are before the replay, which leaves alone those not written to.
        self._given = twins_of(flat, on) if self.written else flat.arrays
        self.before = self._snapshot(captured.externals_written)
        self.has_moved = False

    def _snapshot(self, tensors: Sequence[Any]) -> Snapshot:
        parameters = [parameter for parameter, _ in self._captured.gradients]
        return Snapshot(self._captured.device, tensors, parameters)

    def run(self, twins: Sequence[Any]) -> Any:
        args, kwargs = rebuild(self._flat.pattern, twins)
        with fresh_autocast_cache(), as_in_capture(self._captured):
            return self._function(*args, **kwargs)

    def units(
        self, pairs: Sequence[tuple[str, Any, Any]], numbers: Sequence[int]
    ) -> dict[int, float]:
        """Return by how much some of the tensors change where inputs and state are moved a little.

        Of those that are changed in place it is that change which does. All is put back. There is
        nothing to return where the memory for copies of all state does not suffice.
        """
        units = dict.fromkeys(numbers, 0.0)
        try:
            self._measure(units, pairs)
        except loaded.torch().OutOfMemoryError:
            return {}
        self.has_moved = True
        return units

    def _measure(self, units: dict[int, float], pairs: Sequence[tuple[str, Any, Any]]) -> None:
        state, floating = self._captured.externals_written, self._captured.floating
        expected = {n: pairs[n][1].detach().clone() for n in units}
        results = [None] * (len(pairs) - len(self.written) - len(state))
        begun = [*results, *(self._given[n] for n in self.written), *self.before.copies]
        now = self._snapshot([*floating, *state])
        try:
            for seed in _SEEDS:
                now.put_back()
                self.before.put_back()
                moved, ended = self._moved_run(seed)
                moved = [*results, *moved]
                # Unless it returns another structure now.
                for n in units if len(ended) == len(pairs) else ():
                    ends = expected[n], ended[n], pairs[n][2]
                    units[n] = max(units[n], largest_change(*ends, begun[n], moved[n]))
        finally:
            now.put_back()

    def _moved_run(self, seed: int) -> tuple[list[Any], list[Any]]:
        """Return what is changed in place as it was moved, and results and that after the run."""
        twins = twins_of(self._flat, self._on, self._given)
        tensors = [each.data for each in twins if each.is_floating_point() or each.is_complex()]
        move([*self._captured.floating, *tensors], seed, self._captured.dtypes)
        written = [*(twins[n] for n in self.written), *self._captured.externals_written]
        moved = copied(written)
        result = self.run(twins)
        return moved, [*flatten_result(result, self._flat.constants).arrays, *written]


def twins_of(flat: Flat, on: CallStream, arrays: Sequence[Any] | None = None) -> list[Any]:
    """Return copies of the arrays of a call, or of `arrays` that are laid out as they are.

    Each is laid out as its array; one that is used in place is that itself.
    """
    twins = []
    for leaf, array in zip(flat.leaves, flat.arrays if arrays is None else arrays, strict=True):
        library = leaf.framework.at(on)
        twin = library.laid_out_like(array, library.static_like(array))
        library.fill(twin, array)
        if leaf.requires_grad:
            twin.requires_grad_()
        twins.append(twin)
    return twins


def check_padding(
    captured: CapturedCall, expected: Any, found: Any, given: Sequence[Any], on: CallStream
) -> None:
    """Compare a padded replay's result with the function's own; ValueError if they differ.

    `given` are the constants of the call.
    """
    pairs = _result_pairs(expected, found, given, captured.flat.constants)
    for problem in differences(pairs, on=on, computed_in=captured.dtypes):
        message = (
            f"buckets: padding changes what the function returns ({problem}): its rows are not "
            'independent, or do not come first. Drop buckets=, or name a "mask"'
        )
        captured.slices = NOTHING_LEARNED
        raise ValueError(message)


def _result_pairs(
    expected: Any, found: Any, given: Sequence[Any], captured: Sequence[Any]
) -> list[tuple[str, Any, Any]]:
    """Pair the arrays of two results; where their structure or their values differ, those."""
    wanted, replayed = flatten_result(expected, given), flatten_result(found, captured)
    paths = [leaf.path for leaf in wanted.leaves]
    others = [*other_parts(wanted, replayed)]
    return others or list(zip(paths, wanted.arrays, replayed.arrays, strict=True))
