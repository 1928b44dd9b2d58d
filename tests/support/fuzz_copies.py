"""Random functions made of copies between arrays, and calls of them, each made from a seed.

Arrays are the stand-in CuPy's, so that copies are real in the fake driver, also in replays. Each
call is done in two worlds: by the function in one, by the graphed callable in the other.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import gpuprof

_SIZE = 6
_LAYOUTS = ("dense", "dense", "stepped", "backwards", "offset", "roomy")


class Line(NamedTuple):
    """``result = op(operands)``, or a copy into the first operand where there is no result."""

    op: str
    operands: tuple[str, ...]
    result: str = ""

    def __str__(self) -> str:
        call = f"{self.op}({', '.join(self.operands)})"
        return f"{self.result} = {call}" if self.result else call


class Source(NamedTuple):
    """An argument: "new", the "same" as another or "overlap" with it, or an earlier "result"."""

    how: str
    of: int = 0
    size: int = _SIZE
    layout: str = "dense"
    first: int = 0  # the values are these and the next whole numbers, or zeros if it is 0

    def __str__(self) -> str:
        if self.how == "new":
            return f"new [{self.first}..] of {self.size}, {self.layout}"
        return f"{self.how} {self.of}"


class Call(NamedTuple):
    """A call, or what is done before the next one: "write" to state, "reset"."""

    what: str = "call"
    sources: tuple[Source, ...] = ()
    where: str = "here"
    number: int = 0

    def __str__(self) -> str:
        return f"{self.what}({', '.join(map(str, self.sources))})  # {self.where}"


def _halves(x: Any) -> tuple[Any, Any]:
    half = x.shape[0] // 2
    return x[:half], x[half : 2 * half]


def _copy(_: Any, x: Any) -> Any:
    return x.copy()


def _join(cupy: Any, x: Any, y: Any) -> Any:
    if len(x.shape) != 1 or len(y.shape) != 1:
        raise ValueError("only rows")
    both = cupy.empty((x.shape[0] + y.shape[0],), "i4")
    both[: x.shape[0]] = x
    both[x.shape[0] :] = y
    return both


def _assign(_: Any, x: Any, y: Any) -> None:
    _same_shape(x, y)
    x[...] = y


def _assign_half(_: Any, x: Any, y: Any) -> None:
    _same_shape(x, y)
    _halves(x)[0][...] = _halves(y)[1]


def _assign_steps(_: Any, x: Any, y: Any) -> None:
    _same_shape(x, y)
    half = x.shape[0] // 2
    x[: 2 * half : 2][...] = y[1 : 2 * half : 2]


def _same_shape(x: Any, y: Any) -> None:
    if x.shape != y.shape:
        raise ValueError("nothing is broadcast")


_MAKES = {"copy": (1, _copy), "join": (2, _join)}
_VIEWS = {"tail": (1, lambda _, x: x[1:]), "even": (1, lambda _, x: x[::2])}
_WRITES = {"assign": (2, _assign), "half": (2, _assign_half), "steps": (2, _assign_steps)}
_OPS: dict[str, tuple[int, Callable[..., Any]]] = {**_MAKES, **_VIEWS, **_WRITES}


class Copies:
    """A function of arrays made of copies, the options of its callable, and calls.

    Parameters
    ----------
    cupy : module
    seed : int
    """

    def __init__(self, cupy: Any, seed: int) -> None:
        self.cupy = cupy
        self.seed = seed
        chance = self._chance = random.Random(seed)
        self.count = chance.choice((1, 2, 2, 3))
        self.lines: list[Line] = []
        self.written: set[str] = set()
        self._write(chance.randrange(2, 7))
        self.takes_samples = chance.random() < 0.5
        written = "".join(self.written)
        may_warm_up = not (self.takes_samples and "s" in written)
        self.zeros = chance.random() < 0.3
        self.options: dict[str, Any] = {
            "outputs": chance.choice(("clone", "static")),
            "warmup": chance.choice((0, 1)) if may_warm_up else 0,
            "max_graphs": chance.choice((1, 2, 8)),
            "on_new_shape": chance.choice(("capture", "capture", "eager")),
        }
        self._sizes = [size for size in (4, 9) if self._runs(size)]
        self.calls = [self._call() for _ in range(chance.randrange(4, 10))]

    def _write(self, count: int) -> None:
        chance = self._chance
        names = [f"a{number}" for number in range(self.count)]
        values = {**self.state(), **{name: self.new(Source("new")) for name in names}}
        roots: dict[str, str] = {}
        for _ in range(count * 8):
            if len(self.lines) >= count:
                break
            op = chance.choice((*_MAKES, *_VIEWS, *_WRITES))
            operands = tuple(chance.choice([*values, *names]) for _ in range(_OPS[op][0]))
            of = [roots.get(each, each) for each in operands]
            if op in _WRITES and of[0] == of[-1]:
                continue  # copies inside of one array depend on how it lies
            try:
                made = _OPS[op][1](self.cupy, *(values[each] for each in operands))
            except ValueError:
                continue
            result = "" if op in _WRITES else f"v{len(self.lines)}"
            if op in _WRITES:
                self.written.add(of[0])
            else:
                values[result] = made
            if op in _VIEWS:
                roots[result] = of[0]
            self.lines.append(Line(op, operands, result))
        made = [each.result for each in self.lines if each.result and each.result not in roots]
        self.results = tuple(chance.sample(made, min(len(made), 2)))

    def _runs(self, size: int) -> bool:
        given = [self.new(Source("new", size=size)) for _ in range(self.count)]
        try:
            self.function(self.state())(*given)
        except ValueError:
            return False
        return True

    def _call(self) -> Call:
        chance = self._chance
        if chance.random() < 0.15:
            return Call(chance.choice(("write", "reset")), number=chance.randrange(1, 100))
        size = chance.choice((*(_SIZE,) * 4, *self._sizes))
        sources = []
        for number in range(self.count):
            how = chance.choice(("new",) * 4 + ("same", "overlap") * bool(number) + ("result",))
            of = chance.randrange(number) if how in {"same", "overlap"} else chance.randrange(4)
            first = 0 if chance.random() < 0.1 else chance.randrange(1, 1000)
            sources.append(Source(how, of, size, chance.choice(_LAYOUTS), first))
        where = chance.choice(("here",) * 4 + ("thread", "stream"))
        return Call("call", tuple(sources), where)

    def new(self, source: Source) -> Any:
        """Return an array that an argument is to be, if it is new."""
        cupy, size = self.cupy, source.size
        values = [source.first + n if source.first else 0 for n in range(size)]
        if source.layout == "dense":
            return cupy.array(values, "i4")
        base = cupy.array([-1] * (2 * size + 3), "i4")
        views = {
            "stepped": base[: 2 * size : 2],
            "backwards": base[size - 1 :: -1][:size],
            "offset": base[3 : size + 3],
            "roomy": base[:size],
        }
        view = views[source.layout]
        view[...] = cupy.array(values, "i4")
        view.beside = base
        return view

    def state(self) -> dict[str, Any]:
        """Return the arrays that the function reads besides its arguments."""
        first, second = Source("new", first=50), Source("new", first=70, layout="stepped")
        return {"s0": self.new(first), "s1": self.new(second)}

    def function(self, state: dict[str, Any]) -> Callable[..., Any]:
        cupy, lines, results = self.cupy, self.lines, self.results

        def function(*given: Any) -> Any:
            values = {**state, **{f"a{n}": each for n, each in enumerate(given)}}
            for line in lines:
                made = _OPS[line.op][1](cupy, *(values[each] for each in line.operands))
                if line.result:
                    values[line.result] = made
            return tuple(values[each] for each in results)

        return function

    def graphed(self, function: Callable[..., Any]) -> Any:
        """Return the graphed callable of a function."""
        first = 0 if self.zeros else 900
        samples = tuple(self.new(Source("new", first=first)) for _ in range(self.count))
        given = samples if self.takes_samples else None
        return gpuprof.make_graphed_callable(function, given, **self.options)

    def __str__(self) -> str:
        samples = ("zeros" if self.zeros else "numbers") if self.takes_samples else "None"
        lines = [f"copies {self.seed}", *map(str, self.lines), f"return {self.results}"]
        return "\n".join([*lines, f"{samples}, {self.options}", *map(str, self.calls)])


class CopiesWorld:
    """State, arguments and kept results of one world."""

    def __init__(self, copies: Copies, make: Callable[[Callable[..., Any]], Any]) -> None:
        self._copies = copies
        self._keeps = copies.options["outputs"] == "clone"
        self._state = copies.state()
        self._function = copies.function(self._state)
        self.fast = make(self._function)
        self._kept: list[Any] = []

    def run(self, call: Call) -> dict[str, list[Any]]:
        """Do a step; return what there is to compare."""
        cupy = self._copies.cupy
        seen: dict[str, Any] = {}
        if call.what == "write":
            size = self._state["s0"].shape[0]
            values = range(call.number, call.number + size)
            self._state["s0"][...] = cupy.array(list(values), "i4")
        elif call.what == "reset":
            self._kept = self._kept if self._keeps else []
            getattr(self.fast, "reset", lambda: None)()
        else:
            given = self._take(call.sources)
            written = {int(name[1:]) for name in self._copies.written if name[0] == "a"}
            # A call overwrites a static result, also where that is its argument.
            stale = {n for n, each in enumerate(given) if any(each is one for one in self._kept)}
            stale = set() if self._keeps else stale
            results = self._at(call.where, given, may_refuse=bool(stale))
            self._kept = [*(self._kept if self._keeps else []), *results][-4:]
            seen.update((f"result {n}", each) for n, each in enumerate(results))
            for n, each in enumerate(given):
                if n not in stale or n in written:
                    seen[f"argument {n}"] = each
                    seen[f"beside argument {n}"] = getattr(each, "beside", each)
        seen.update((f"kept {n}", each) for n, each in enumerate(self._kept))
        seen.update(self._state)
        return {name: each.tolist() for name, each in seen.items()}

    def _take(self, sources: tuple[Source, ...]) -> list[Any]:
        found: list[Any] = []
        for source in sources:
            fitting = [each for each in self._kept if each.shape == (source.size,)]
            if source.how == "same":
                found.append(found[source.of])
            elif source.how == "overlap" and hasattr(found[source.of], "beside"):
                base = found[source.of].beside
                found.append(base[1 : source.size + 1])
                found[-1].beside = base
            elif source.how == "result" and fitting:
                found.append(fitting[source.of % len(fitting)])
            else:
                found.append(self._copies.new(source))
        return found

    def _at(self, where: str, given: list[Any], *, may_refuse: bool) -> tuple[Any, ...]:
        cupy = self._copies.cupy
        current = cupy.cuda.get_current_stream()

        def work() -> Any:
            try:
                return self.fast(*given)
            except gpuprof.GpuprofError as error:
                if not may_refuse or type(error).__name__ == "GraphMismatchError":
                    raise
                return self._function(*given)

        if where == "thread":
            context = cupy.fake.current_context()

            def on_thread() -> Any:
                cupy.fake.set_current(context)
                with current:
                    return work()

            with ThreadPoolExecutor(1) as thread:
                return thread.submit(on_thread).result() or ()
        if where == "stream":
            other = cupy.cuda.Stream(non_blocking=True)
            other.wait_event(current.record())
            with other:
                found = work()
                current.wait_event(other.record())
            current.synchronize()  # before the stream goes
            return found or ()
        return work() or ()


def check_copies(copies: Copies, make: Callable[[Callable[..., Any]], Any]) -> Any:
    """Fail unless a function of copies does the same in a second world; return what it calls."""
    first = CopiesWorld(copies, lambda function: function)
    second = CopiesWorld(copies, make)
    for number, call in enumerate(copies.calls):
        wanted = first.run(call)
        try:
            found = second.run(call)
        except Exception as error:
            text = f"step {number}, {call}: {type(error).__name__}: {error}\n{copies}"
            raise AssertionError(text) from error
        differs = [name for name, each in wanted.items() if found.get(name) != each]
        shown = "; ".join(f"{name} is {found.get(name)}, not {wanted[name]}" for name in differs)
        assert wanted == found, f"step {number}, {call}: {shown}\n{copies}"
    return second.fast
