"""Which modules the kernels of compiled code are of: records matched with compiled functions.

A compiled function always launches the same kernels in the same order, and one kernel may serve
many layers. So records are followed through what the functions launch, like a text through an
automaton; where several places fit to the end, the module is that around all of them. Kernels of
libraries are those between.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import pairwise, takewhile
from typing import NamedTuple

from gpuprof._frameworks.torch_inductor import Launch, Origin, common, launches
from gpuprof._kernels.attribution import Attribution
from gpuprof._kernels.records import KERNEL, Collected

Place = tuple[int, int]  # a function, and which of its kernels
Places = frozenset[Place]


class _Step(NamedTuple):
    at: int  # of the stream's records
    places: Places
    follows: bool  # on the step before


def add_modules(found: Collected, by: Attribution) -> None:
    """Put records of compiled code under their modules, below their scopes."""
    functions = launches(set(found.names))
    if not functions:
        return
    automaton = _Automaton(functions)
    origin_of = array("I", [0]) * len(found.work)
    numbers: dict[Origin | None, int] = {None: 0}
    for records in found.streams().values():
        steps = automaton.steps([found.names[found.work.name[each]] for each in records])
        for record, origin in _origins(automaton, steps, records, found, by):
            origin_of[record] = numbers.setdefault(origin, len(numbers))
    by.origin, by.origins = origin_of, [each or Origin("", "") for each in numbers]
    for record, number in enumerate(origin_of):
        if module := by.origins[number].module:
            outer, names = by.paths[by.path[record]], module.split(".")
            for depth in range(1, len(names) + 1):
                by.modules[(*outer, *names[:depth])] = ".".join(names[:depth])
            path = (*outer, *names)
            by.path[record] = by.numbers.setdefault(path, len(by.numbers))
    by.paths = [*by.numbers]


class _Automaton:
    """All places of functions that kernels may be at."""

    def __init__(self, functions: Sequence[Sequence[Launch]]) -> None:
        self.functions = functions
        self.kernels = [
            [at for at, each in enumerate(function) if each.kernel] for function in functions
        ]
        places: dict[str, set[Place]] = {}
        for number, kernels in enumerate(self.kernels):
            for nth, at in enumerate(kernels):
                places.setdefault(functions[number][at].kernel, set()).add((number, nth))
        self.places = {name: frozenset(each) for name, each in places.items()}
        self._next: dict[tuple[Places, str], Places] = {}

    def launch(self, place: Place) -> Launch:
        return self.functions[place[0]][self.kernels[place[0]][place[1]]]

    def follows(self, place: Place, other: Place) -> bool:
        """Return whether a kernel may be at `other` where the one before it was at `place`."""
        number, nth = place
        is_last = nth + 1 == len(self.kernels[number])
        return other[1] == 0 if is_last else other == (number, nth + 1)

    def steps(self, names: Sequence[str]) -> list[_Step]:
        """Return where each of a stream's kernels of compiled code may be."""
        found: list[_Step] = []
        places: Places = frozenset()
        for at, name in enumerate(names):
            anywhere = self.places.get(name)
            if anywhere is None:
                continue
            after = self._next.get((places, name))
            if after is None:
                after = frozenset(
                    new for new in anywhere if any(self.follows(old, new) for old in places)
                )
                self._next[places, name] = after
            begins = frozenset(each for each in anywhere if each[1] == 0)
            places = after or begins or anywhere
            found.append(_Step(at, places, bool(after)))
        for number in reversed(range(len(found) - 1)):
            step, later = found[number], found[number + 1]
            if later.follows:
                kept = (
                    old
                    for old in step.places
                    if any(self.follows(old, new) for new in later.places)
                )
                found[number] = step._replace(places=frozenset(kept))
        return found


def _origins(
    automaton: _Automaton,
    steps: Sequence[_Step],
    records: Sequence[int],
    found: Collected,
    by: Attribution,
) -> Iterable[tuple[int, Origin | None]]:
    """Yield the records of compiled code with their origins."""
    for step in steps:
        yield records[step.at], _around([automaton.launch(each) for each in step.places])
    nowhere = frozenset[Place]()
    first, last = _Step(-1, nowhere, False), _Step(len(records), nowhere, False)
    for before, after in pairwise([first, *steps, last]):
        between = records[before.at + 1 : after.at]
        if not between or len(before.places) > 1 or len(after.places) > 1:
            continue
        tail, head, is_inside = _library_launches(automaton, before, after)
        paths = [by.path[each] for each in between]
        own = len(paths)
        if before.places and not is_inside:
            own = len([*takewhile(by.path[records[before.at]].__eq__, paths)])
        if after.places and own < len(paths):
            rest = len([*takewhile(by.path[records[after.at]].__eq__, reversed(paths))])
            yield from _one_by_one(between[len(paths) - rest :], head, found)
            head = ()
        yield from _one_by_one(between[:own], [*tail, *head], found, is_inside=is_inside)


def _library_launches(
    automaton: _Automaton, before: _Step, after: _Step
) -> tuple[Sequence[Launch], Sequence[Launch], bool]:
    """Return what is launched after one step and before the next, and if that is one call."""
    tail: Sequence[Launch] = ()
    for number, nth in before.places:
        kernels, function = automaton.kernels[number], automaton.functions[number]
        if (number, nth + 1) in after.places and after.follows:
            return function[kernels[nth] + 1 : kernels[nth + 1]], (), True
        if nth + 1 == len(kernels):
            tail = function[kernels[nth] + 1 :]
    for number, nth in after.places:
        if nth == 0:
            return tail, automaton.functions[number][: automaton.kernels[number][0]], False
    return tail, (), False


def _one_by_one(
    records: Sequence[int], made: Sequence[Launch], found: Collected, *, is_inside: bool = False
) -> Iterable[tuple[int, Origin | None]]:
    """Yield records with the origins of as many launches; else, inside, with that around all."""
    for some in (records, [each for each in records if found.work.kind[each] == KERNEL]):
        if len(some) == len(made):
            return zip(some, (launch.origin for launch in made), strict=True)
    return [(each, _around(made)) for each in records] if is_inside and made else ()


def _around(made: Iterable[Launch]) -> Origin | None:
    origins = [each.origin for each in made]
    known = [each for each in origins if each is not None]
    return common(known) if known and len(known) == len(origins) else None
