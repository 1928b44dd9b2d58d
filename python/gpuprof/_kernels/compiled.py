"""Which modules the kernels of compiled code are of: records matched with compiled functions.

A compiled function launches the same kernels in the same order each time, and one kernel may serve
many layers. So what a thread launched on a stream is followed through what the functions launch;
where more than one place fits to the end, the module is that around all of them. Kernels of
libraries, which have no names of their own, are those between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise, takewhile
from typing import NamedTuple, TypeAlias

from gpuprof._frameworks.torch_hooks import Passive
from gpuprof._frameworks.torch_inductor import Launch, Origin, common, launches
from gpuprof._kernels.attribution import Attribution
from gpuprof._kernels.collector import KERNEL, Collected

Place: TypeAlias = "tuple[int, int]"  # a function, and which of its own kernels
Places: TypeAlias = "frozenset[Place]"
Origins: TypeAlias = "list[Origin | None]"  # None is for one that is not known


class _Step(NamedTuple):
    """A kernel of compiled code."""

    at: int  # of the stream's records
    places: Places  # where it may be
    follows: bool  # on the step before


def add_modules(found: Collected, by: Attribution) -> None:
    """Put records of compiled code under their modules, below their scopes."""
    functions: Sequence[Sequence[Launch]] = ()
    with Passive(lambda error: found.notes.append(f"modules of compiled code: {error!r}")):
        functions = launches(set(found.names))
    if not functions:
        return
    code = _Code(functions)
    numbers: dict[Origin | None, int] = {None: 0}
    for records in _sequences(found, by):
        steps = code.steps([found.names[found.work.name[each]] for each in records])
        for record, origin in _origins(code, steps, records, found, by):
            by.origin[record] = numbers.setdefault(origin, len(numbers))
    by.origins = [each or Origin("", "") for each in numbers]

    @cache
    def below(path: int, module: str) -> int:
        found = by.paths[path]
        for name in module.split("."):
            inner = (*found, name)
            by.modules[inner] = ".".join(inner[len(by.paths[path]) :])
            found = inner
        return by.number(found)

    for record, number in enumerate(by.origin):
        if module := by.origins[number].module:
            by.path[record] = below(by.path[record], module)
    by.paths = [*by.numbers]


def _sequences(found: Collected, by: Attribution) -> Iterator[list[int]]:
    """Yield the records of each stream, by the thread that launched them."""
    threads = found.launches.thread_id
    for records in found.streams().values():
        of_thread: dict[int, list[int]] = {}
        for record in records:
            call = by.launch[record]
            of_thread.setdefault(threads[call] if call >= 0 else 0, []).append(record)
        yield from of_thread.values()


class _Code:
    """What compiled functions launch, and where in it a kernel may be."""

    def __init__(self, functions: Sequence[Sequence[Launch]]) -> None:
        self._functions = functions
        self._kernels = [
            [at for at, each in enumerate(function) if each.kernel] for function in functions
        ]
        places: dict[str, list[Place]] = {}
        for number, kernels in enumerate(self._kernels):
            for nth, at in enumerate(kernels):
                places.setdefault(functions[number][at].kernel, []).append((number, nth))
        self._places = {name: frozenset(each) for name, each in places.items()}
        self._first = frozenset((number, 0) for number in range(len(functions)))
        self._last = frozenset(
            (number, len(kernels) - 1) for number, kernels in enumerate(self._kernels)
        )
        self.origin, self.between = cache(self._origin), cache(self._between)
        self._after, self._before = cache(self._that_follow), cache(self._that_lead_to)

    def steps(self, names: Sequence[str]) -> list[_Step]:
        """Return the kernels of compiled code among those of a stream, by their names."""
        found: list[_Step] = []
        places = self._last  # before the first one, which begins a call where it can
        for at, name in enumerate(names):
            if name in self._places:
                after = self._after(places, name)
                places = after or self._places[name]
                found.append(_Step(at, places, follows=bool(after)))
        for number in reversed(range(len(found) - 1)):  # what led nowhere was no place
            step, later = found[number], found[number + 1]
            if later.follows:
                kept = self._before(step.places, later.places)
                found[number] = step._replace(places=kept)
        return found

    def _that_follow(self, places: Places, name: str) -> Places:
        after = {(number, nth + 1) for number, nth in places}
        begins = frozenset() if places.isdisjoint(self._last) else self._first
        return self._places[name] & (after | begins)

    def _that_lead_to(self, places: Places, later: Places) -> Places:
        ends = frozenset() if later.isdisjoint(self._first) else self._last
        return places & ({(number, nth - 1) for number, nth in later} | ends)

    def _origin(self, places: Places) -> Origin | None:
        return _around(
            self._functions[number][self._kernels[number][nth]].origin for number, nth in places
        )

    def _between(
        self, before: Places, after: Places, follows: bool
    ) -> tuple[Origins, Origins, bool]:
        """Return what libraries' kernels are launched after one step, and before the next.

        The last says whether both steps are of one call, which launches nothing else between.
        """
        inside = {follows and nth > 0 for _, nth in after}
        if len(inside) > 1:
            return [], [], False
        is_inside = True in inside
        tails: list[Sequence[Launch]] = []
        for number, nth in before:
            function, kernels = self._functions[number], self._kernels[number]
            is_last = nth + 1 == len(kernels)
            end = len(function) if is_last else kernels[nth + 1]
            tails.append(function[kernels[nth] + 1 : end] if is_inside or is_last else [])
        heads = [
            self._functions[number][: 0 if nth else self._kernels[number][0]]
            for number, nth in after
        ]
        return _merged(tails), _merged(heads), is_inside


def _origins(
    code: _Code, steps: Sequence[_Step], records: Sequence[int], found: Collected, by: Attribution
) -> Iterator[tuple[int, Origin | None]]:
    for step in steps:
        yield records[step.at], code.origin(step.places)
    nowhere: Places = frozenset()
    ends = _Step(-1, nowhere, follows=False), _Step(len(records), nowhere, follows=False)
    for before, after in pairwise([ends[0], *steps, ends[1]]):
        others = records[before.at + 1 : after.at]
        if not others:
            continue
        tail, head, is_inside = code.between(before.places, after.places, after.follows)
        if is_inside:
            yield from _one_by_one(others, tail, found) or [
                (each, _around(tail)) for each in others
            ]
            continue
        begin = _as_many(records[before.at], others, by) if before.places else 0
        end = _as_many(records[after.at], others[::-1], by) if after.places else 0
        if begin == end == len(others):
            yield from _one_by_one(others, tail + head, found)
        else:  # what is in neither scope is of neither call
            yield from _one_by_one(others[:begin], tail, found)
            yield from _one_by_one(others[len(others) - end :], head, found)


def _as_many(step: int, records: Sequence[int], by: Attribution) -> int:
    """Return how many of the records, from the first on, are in the entry of a scope of a step."""
    scope = by.span[step], by.path[step]
    return len([*takewhile(lambda each: (by.span[each], by.path[each]) == scope, records)])


def _one_by_one(
    records: Sequence[int], origins: Origins, found: Collected
) -> list[tuple[int, Origin | None]]:
    """Return the records with an origin each, if they are as many; or the kernels among them."""
    for some in (records, [each for each in records if found.work.kind[each] == KERNEL]):
        if len(some) == len(origins):
            return [*zip(some, origins, strict=True)]
    return []


def _merged(several: Sequence[Sequence[Launch]]) -> Origins:
    if len({*map(len, several)}) != 1:
        return []
    return [_around(each.origin for each in same) for same in zip(*several, strict=True)]


def _around(origins: Iterable[Origin | None]) -> Origin | None:
    known = [*origins]
    return None if None in known or not known else common(each for each in known if each)
