"""Which modules the kernels of compiled code are of: records matched with compiled functions.

A compiled function launches the same kernels in the same order each time, and one kernel may serve
many layers. So the records of a stream are followed through what the functions launch; where more
than one place fits to the end, the module is that around all of them. Kernels of libraries, which
have no names of their own, are those between.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise, product, takewhile
from typing import NamedTuple, TypeAlias

from gpuprof._frameworks.torch_hooks import Passive
from gpuprof._frameworks.torch_inductor import Launch, Origin, common, launches
from gpuprof._kernels.attribution import Attribution
from gpuprof._kernels.records import KERNEL, Collected

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
    by.origin = array("I", [0]) * len(found.work)
    for records in found.streams().values():
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
        return by.numbers.setdefault(found, len(by.numbers))

    for record, number in enumerate(by.origin):
        if module := by.origins[number].module:
            by.path[record] = below(by.path[record], module)
    by.paths = [*by.numbers]


class _Code:
    """What compiled functions launch, and where in it a kernel may be."""

    def __init__(self, functions: Sequence[Sequence[Launch]]) -> None:
        self._functions = functions
        self._kernels = [
            [at for at, each in enumerate(function) if each.kernel] for function in functions
        ]
        self._places: dict[str, set[Place]] = {}
        for number, kernels in enumerate(self._kernels):
            for nth, at in enumerate(kernels):
                self._places.setdefault(functions[number][at].kernel, set()).add((number, nth))
        self.origin, self.between = cache(self._origin), cache(self._between)
        self._after, self._before = cache(self._that_follow), cache(self._that_lead_to)

    def steps(self, names: Sequence[str]) -> list[_Step]:
        """Return the kernels of compiled code among those of a stream, by their names."""
        found: list[_Step] = []
        places: Places = frozenset()
        for at, name in enumerate(names):
            if name in self._places:
                places, follows = self._after(places, name)
                found.append(_Step(at, places, follows))
        for number in reversed(range(len(found) - 1)):  # what led nowhere was no place
            step, later = found[number], found[number + 1]
            if later.follows:
                kept = self._before(step.places, later.places)
                found[number] = step._replace(places=kept)
        return found

    def _that_follow(self, places: Places, name: str) -> tuple[Places, bool]:
        """Return where a kernel may be after those places; without any it begins anew."""
        anywhere = self._places[name]
        after = [new for old, new in product(places, anywhere) if self._may_follow(old, new)]
        begins = [each for each in anywhere if not each[1]]
        return frozenset(after or begins or anywhere), bool(after)

    def _that_lead_to(self, places: Places, later: Places) -> Places:
        return frozenset(old for old, new in product(places, later) if self._may_follow(old, new))

    def _may_follow(self, old: Place, new: Place) -> bool:
        is_last = old[1] + 1 == len(self._kernels[old[0]])
        return not new[1] if is_last else new == (old[0], old[1] + 1)

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
        tails, heads, inside = [], [], set()
        for old, new in product(before or [None], after or [None]):
            if old and new and follows and not self._may_follow(old, new):
                continue
            is_inside = bool(old and new and follows and new[1])
            inside.add(is_inside)
            if old:
                function = self._functions[old[0]]
                begin, end = [*self._kernels[old[0]], len(function)][old[1] : old[1] + 2]
                is_whole = is_inside or end == len(function)
                tails.append([each.origin for each in function[begin + 1 : end] if is_whole])
            if new and not is_inside:
                until = 0 if new[1] else self._kernels[new[0]][0]
                heads.append([each.origin for each in self._functions[new[0]][:until]])
        if len(inside) > 1:
            return [], [], False
        return _merged(tails), _merged(heads), inside == {True}


def _origins(
    code: _Code, steps: Sequence[_Step], records: Sequence[int], found: Collected, by: Attribution
) -> Iterator[tuple[int, Origin | None]]:
    """Yield the records of compiled code with their origins."""
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
        paths = [by.path[each] for each in others]
        first = by.path[records[before.at]] if before.places else -1
        last = by.path[records[after.at]] if after.places else -1
        if first == last:
            yield from _one_by_one(others, tail + head, found)
        else:  # what is in neither scope is of neither call
            yield from _one_by_one(others[: _run(paths, first)], tail, found)
            yield from _one_by_one(others[len(others) - _run(paths[::-1], last) :], head, found)


def _run(paths: Sequence[int], path: int) -> int:
    return len([*takewhile(path.__eq__, paths)])


def _one_by_one(
    records: Sequence[int], origins: Origins, found: Collected
) -> list[tuple[int, Origin | None]]:
    """Return the records with an origin each, if they are as many; or the kernels among them."""
    for some in (records, [each for each in records if found.work.kind[each] == KERNEL]):
        if len(some) == len(origins):
            return [*zip(some, origins, strict=True)]
    return []


def _merged(several: Sequence[Origins]) -> Origins:
    if len({*map(len, several)}) != 1:
        return []
    return [_around(each) for each in zip(*several, strict=True)]


def _around(origins: Iterable[Origin | None]) -> Origin | None:
    known = [*origins]
    return None if None in known or not known else common(each for each in known if each)
