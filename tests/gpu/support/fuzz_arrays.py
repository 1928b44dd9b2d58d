"""Functions of CuPy's arrays alone, for graphed callables; of NumPy's on the CPU.

Nothing tells of the arrays in a function's closure: arguments never share memory with these. A
raw kernel writes to an array, also where it writes what was there already.

`python -m tests.gpu.support.fuzz_arrays SEED` shows a function and does its calls again.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import random
import warnings
from collections.abc import Callable, Sequence
from typing import Any

SHAPE = (4, 6)
_RAW = """
extern "C" __global__ void grow(float* x, int n, int m, long long by0, long long by1) {
  for (int k = threadIdx.x; k < n * m; k += blockDim.x)
    x[(k / m) * by0 + (k % m) * by1] *= 2.0f;
}
"""


def _apart(xp: Any, x: Any, y: Any) -> Any:
    return y.copy() if xp.may_share_memory(x, y) else y


def _assign(xp: Any, x: Any, y: Any) -> None:
    x[...] = _apart(xp, x, y)


def _add_to(xp: Any, x: Any, y: Any) -> None:
    x += _apart(xp, x, y)


def _double(_: Any, x: Any) -> None:
    x *= 2


def _clip(xp: Any, x: Any) -> None:
    xp.clip(x, -1, 1, out=x)


def _grow(xp: Any, x: Any) -> None:
    if xp.__name__ == "numpy":
        x *= 2
        return
    if x.ndim != 2:
        raise ValueError("only matrices")
    import numpy

    sizes = [numpy.int32(size) for size in x.shape]
    strides = [numpy.int64(by // x.itemsize) for by in x.strides]
    _raw(xp)((1,), (32,), (x, *sizes, *strides))


@functools.cache
def _raw(xp: Any) -> Any:
    return xp.RawKernel(_RAW, "grow")


_MADE: dict[str, tuple[int, Callable[..., Any]]] = {
    "add": (2, lambda _, x, y: x + y),
    "mul": (2, lambda _, x, y: x * y),
    "maximum": (2, lambda xp, x, y: xp.maximum(x, y)),
    "neg": (1, lambda _, x: -x),
    "copy": (1, lambda _, x: x.copy()),
}
_VIEWS: dict[str, tuple[int, Callable[..., Any]]] = {
    "tail": (1, lambda _, x: x[1:]),
    "turned": (1, lambda _, x: x.T),
    "odd": (1, lambda _, x: x[..., ::2]),
}
_WRITES: dict[str, tuple[int, Callable[..., Any]]] = {
    "assign": (2, _assign),
    "add_to": (2, _add_to),
    "double": (1, _double),
    "clip": (1, _clip),
    "grow": (1, _grow),
}
_ALL = {**_MADE, **_VIEWS, **_WRITES}
Line = tuple[str, tuple[str, ...], str]  # operator, operands, result


class ArrayScenario:
    """A function of arrays and calls of it, each made from a seed.

    Parameters
    ----------
    xp : module
        CuPy or NumPy.
    seed : int
    """

    def __init__(self, xp: Any, seed: int) -> None:
        self.xp = xp
        self.seed = seed
        chance = self._chance = random.Random(seed)
        self.count = chance.choice((1, 2, 3))
        self.lines: list[Line] = []
        self.written: set[str] = set()
        self.results: tuple[str, ...] = ()
        self._write(chance.randrange(2, 7))
        writes_state = any(name.startswith("s") for name in self.written)
        self.takes_samples = chance.random() < 0.5
        self.options: dict[str, Any] = {
            "outputs": chance.choice(("clone", "static")),
            "warmup": 0 if self.takes_samples and writes_state else chance.choice((0, 1)),
            "max_graphs": chance.choice((1, 2, 8)),
            # Nothing tells which other arrays would have to be put back for a second run.
            "verify": "off" if writes_state else chance.choice(("off", "off", "capture")),
        }
        if chance.random() < 0.5:
            arguments = sorted(name for name in self.written if name[0] == "a")
            self.options["writes"] = tuple(f"args[{name[1:]}]" for name in arguments)
        for layouts in itertools.product(("dense", "turned"), repeat=self.count):
            self._runs(SHAPE, layouts)  # CuPy compiles at a first use, and not in a graph
        self._sizes = [rows for rows in (2, 7) if self._runs((rows, SHAPE[1]))]
        self.calls = [self._call() for _ in range(chance.randrange(4, 9))]

    def _write(self, count: int) -> None:
        values: dict[str, Any] = dict(self.state())
        for number in range(self.count):
            values[f"a{number}"] = self._new(number, SHAPE, "dense")
        roots: dict[str, str] = {}
        chance = self._chance
        for _ in range(count * 10):
            if len(self.lines) >= count:
                break
            name = chance.choice((*_MADE, *_VIEWS, *_WRITES, *_WRITES))
            weighted = [*values, *(f"a{number}" for number in range(self.count))]
            operands = tuple(chance.choice(weighted) for _ in range(_ALL[name][0]))
            try:
                made = _ALL[name][1](self.xp, *(values[each] for each in operands))
            except (ValueError, TypeError, IndexError):
                continue
            root = roots.get(operands[0], operands[0])
            result = f"v{len(self.lines)}"
            if name in _WRITES:
                self.written.add(root)
                result = ""
            else:
                values[result] = made
                if name in _VIEWS:
                    roots[result] = root
            self.lines.append((name, operands, result))
        made = [each for _, _, each in self.lines if each and each not in roots]
        self.results = tuple(chance.sample(made, min(len(made), 2)))

    def _new(self, seed: int, shape: tuple[int, ...], layout: str) -> Any:
        import numpy

        numbers = numpy.random.RandomState(seed).randint(-8, 9, shape) / 4
        x = self.xp.asarray(numbers.astype(numpy.float32))
        if layout == "turned":
            return x.T.copy().T
        if layout == "backwards":
            return x[::-1].copy()[::-1]
        if layout == "odd":
            base = self.xp.full((shape[0], 2 * shape[1]), 0.5, dtype=self.xp.float32)
            base[:, ::2] = x
            return base[:, ::2]
        if layout == "roomy":
            base = self.xp.full((shape[0] + 1, shape[1]), 0.5, dtype=self.xp.float32)
            base[:-1] = x
            return base[:-1]
        return x

    def _runs(self, shape: tuple[int, ...], layouts: Sequence[str] = ("dense",) * 3) -> bool:
        """Return whether the function takes arrays of this shape."""
        try:
            given = (self._new(0, shape, layout) for layout in layouts[: self.count])
            self.function(self.state())(*given)
        except (ValueError, TypeError, IndexError):
            return False
        return True

    def state(self) -> dict[str, Any]:
        return {"s0": self._new(100, SHAPE, "dense"), "s1": self._new(101, SHAPE, "odd")}

    def _call(self) -> tuple[tuple[Any, ...], ...]:
        chance = self._chance
        rows = chance.choice((*(SHAPE[0],) * 5, *self._sizes))
        sources: list[tuple[Any, ...]] = []
        for number in range(self.count):
            layout = chance.choice(("dense", "dense", "turned", "backwards", "odd", "roomy"))
            source: tuple[Any, ...] = ("new", chance.getrandbits(30), (rows, SHAPE[1]), layout)
            if number and chance.random() < 0.3:
                source = (chance.choice(("same", "overlap")), chance.randrange(number))
            elif chance.random() < 0.25:
                source = ("result", chance.randrange(4), source)
            sources.append(source)
        return tuple(sources)

    def function(self, state: dict[str, Any]) -> Callable[..., Any]:
        lines, results, xp = self.lines, self.results, self.xp

        def function(*given: Any) -> Any:
            values = {**state, **{f"a{n}": each for n, each in enumerate(given)}}
            for name, operands, result in lines:
                made = _ALL[name][1](xp, *(values[each] for each in operands))
                if result:
                    values[result] = made
            return tuple(values[each] for each in results)

        return function

    def take(self, sources: tuple[tuple[Any, ...], ...], kept: list[Any]) -> list[Any]:
        """Return the arguments of a call."""
        found: list[Any] = []
        for source in sources:
            how, *more = source
            if how == "result":
                fitting = [each for each in kept if each.shape == more[1][2]]
                if fitting:
                    found.append(fitting[more[0] % len(fitting)])
                    continue
                how, *more = more[1]
            if how == "new":
                found.append(self._new(*more))
            elif how == "overlap" and sources[more[0]][-1] == "roomy":
                found.append(found[more[0]].base[1:])
            else:
                found.append(found[more[0]])
        return found

    def __str__(self) -> str:
        lines = [f"arrays {self.seed}", *map(str, self.lines), f"return {self.results}"]
        return "\n".join([*lines, str(self.options), *map(str, self.calls)])


def check_arrays(torch: Any, seed: int, device: str, make: Any = None) -> Any:
    """Fail unless a function of arrays does the same in two worlds; return what was called."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        xp = importlib.import_module("numpy" if device == "cpu" else "cupy")
        scenario = ArrayScenario(xp, seed)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _check(scenario, make or _graphed)
    except Exception as error:
        rerun = f"python -m tests.gpu.support.fuzz_arrays {seed}"
        text = f"{type(error).__name__}: {error}\n{scenario}\nagain: {rerun}"
        raise AssertionError(text) from error


def _graphed(scenario: ArrayScenario, function: Any) -> Any:
    import gpuprof

    samples = None
    if scenario.takes_samples:
        samples = tuple(scenario.xp.zeros(SHAPE, "f4") for _ in range(scenario.count))
    return gpuprof.make_graphed_callable(function, samples, **scenario.options)


def _check(scenario: ArrayScenario, make: Any) -> Any:
    keeps = scenario.options["outputs"] == "clone"
    states = [scenario.state(), scenario.state()]
    eager, plain = (scenario.function(state) for state in states)
    fast = make(scenario, plain)
    kept: list[list[Any]] = [[], []]
    for number, sources in enumerate(scenario.calls):
        given = [scenario.take(sources, each) for each in kept]
        # A static result is overwritten by the call that it is given to. Each argument may count as
        # written to, and then such a call may be refused.
        stale = {n for n, each in enumerate(given[1]) if any(each is one for one in kept[1])}
        stale = set() if keeps else stale
        wanted = eager(*given[0])
        found = _call(fast, plain, given[1], may_refuse=bool(stale))
        names = [f"result {n}" for n in range(len(wanted))]
        pairs = list(zip(names, wanted, found or (), strict=True))
        for n, (one, other) in enumerate(zip(*given, strict=True)):
            if n not in stale or f"a{n}" in scenario.written:
                is_new = sources[n][0] == "new"
                both = (_whole(one), _whole(other)) if is_new else (one, other)
                pairs.append((f"argument {n}", *both))
        pairs += [(name, state, states[1][name]) for name, state in states[0].items()]
        news = (wanted, found or ())
        kept = [[*(each if keeps else ()), *new] for each, new in zip(kept, news, strict=True)]
        pairs += [(f"kept {n}", *each) for n, each in enumerate(zip(*kept, strict=True))]
        for name, one, other in pairs:
            same = one.shape == other.shape and bool((one == other).all())
            assert same, f"call {number}: {name} is\n{other}\nand eagerly\n{one}"
    return fast


def _call(fast: Any, plain: Any, given: list[Any], *, may_refuse: bool) -> Any:
    import gpuprof.errors as errors

    try:
        return fast(*given)
    except errors.GpuprofError as error:
        if isinstance(error, errors.GraphMismatchError) or not may_refuse:
            raise
        return plain(*given)


def _whole(array: Any) -> Any:
    return array if array.base is None else array.base


def main(seed: int) -> None:
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    check_arrays(torch, seed, device, _eagerly if device == "cpu" else None)
    print("it does the same in both worlds")


def _eagerly(scenario: ArrayScenario, function: Any) -> Any:
    print(scenario)
    return function


if __name__ == "__main__":
    import sys

    main(int(sys.argv[1]))
