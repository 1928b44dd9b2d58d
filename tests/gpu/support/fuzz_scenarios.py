"""Random scenarios for graphed callables, each made from a seed: a function, options and steps.

What a graphed callable does not promise is left out; see `FROZEN` and `LEFT_OUT`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import warnings
from typing import Any

from tests.gpu.support.fuzz_bodies import Writer, operators
from tests.gpu.support.fuzz_foreign import kernels
from tests.gpu.support.fuzz_state import (
    COLUMNS,
    EXTERNAL,
    LAYOUTS,
    MATRIX,
    MODULE_STATE,
    PARAMETERS,
    ROW,
    ROWS,
    VIEWS_OF_STATE,
    Body,
    State,
)
from tests.gpu.support.fuzz_world import Source, Step, World, kept_generator, seed_generator

# What the contract leaves out besides FROZEN in tests/callable/test_frozen.py.
LEFT_OUT = (
    "results that share memory with arguments, state or each other: a call gives new arrays",
    "the sweeping check, which finds a replaced parameter some calls later",
    "a warm-up on samples by a function that writes to state: the warm-up writes, too",
    "state outside of modules in kernels of other libraries: nothing tells of it",
    "random numbers in the order of a transposed argument: a graph has its own strides",
    "results as arguments of what depends on strides: results may have others",
    "the memory of a static result after the next call, unless that call wrote to it",
    "writes to tensors that need gradients, and gradients of gradients",
)
KINDS = ("torch",) * 5 + ("foreign",) * 2 + ("training", "buckets")
SIZES = (4, 8, 16)  # of buckets
_TYPES = ("float32",) * 6 + ("float16", "int64", "bool")
_TRIES = 10  # of a step
# Steps beside calls, and what they may be of.
_WHOLE = (*MODULE_STATE, "closure", "holder.cache", "kept")
_ALL_STATE = (*MODULE_STATE, *EXTERNAL)
_CHANGES: dict[str, tuple[str, ...]] = {
    "write": _ALL_STATE,
    "data": _ALL_STATE,
    "replace": tuple(MODULE_STATE),
    "resize": _WHOLE,
    "turn": ("model.square",),
    "requires_grad": tuple(PARAMETERS),
    **dict.fromkeys(("optional", "append", "pop", "mode", "hook", "collect", "reset"), ("",)),
}
_OF_TRAINING = {"no_grads": ("",), "update": ("",)}


@dataclasses.dataclass(frozen=True)
class Scenario:
    """A function, how it is made a graphed callable, and what is done with both.

    Attributes
    ----------
    samples : tuple of Source
    takes_samples : bool
        Whether the callable is made with them.
    is_method : bool
        Whether the function is the module itself.
    written : frozenset of str
        Arguments and state that the function may write to.
    """

    torch: Any
    device: str
    seed: int
    kind: str
    body: Body
    samples: tuple[Source, ...]
    takes_samples: bool
    is_method: bool
    written: frozenset[str]
    of_kernels: frozenset[str]
    draws: bool
    sees_strides: bool
    options: dict[str, Any]
    steps: tuple[Step, ...] = ()

    @property
    def trains(self) -> bool:
        return self.kind == "training"

    @property
    def keeps(self) -> bool:
        """Whether results stay as they are."""
        return bool(self.options["outputs"] == "clone")

    def world(self) -> World:
        """Return a new world, equal to all others of this scenario."""
        state = State(self.torch, self.seed, self.device, trains=self.trains)
        foreign = kernels(self.torch, self.device) if self.kind == "foreign" else {}
        function = self.body.function(state.scope, operators(self.torch, foreign))
        if self.is_method:
            state.model.body = function
            function = state.model
        return World(self.torch, state, function, keeps=self.keeps)

    def stale_arguments(self, step: Step) -> list[int]:
        """Return the arguments of a call that are a static result, which that call overwrites."""
        numbers = range(0 if self.keeps else len(step.sources))
        return [number for number in numbers if step.is_result(number)]

    def writes_to(self, numbers: list[int]) -> bool:
        return any(f"a{number}" in self.written for number in numbers)

    def __str__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        samples = ", ".join(map(str, self.samples)) if self.takes_samples else "None"
        function = "model" if self.is_method else "function"
        return "\n".join(
            (
                f"scenario {self.seed} ({self.kind}) on {self.device}",
                str(self.body),
                f"make_graphed_callable({function}, ({samples}), {options})",
                *(f"{number}: {step}" for number, step in enumerate(self.steps)),
            )
        )


def make_scenario(torch: Any, seed: int, device: str, kind: str | None = None) -> Scenario:
    """Return the scenario of a seed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _make_scenario(torch, seed, device, kind)


def _make_scenario(torch: Any, seed: int, device: str, kind: str | None) -> Scenario:
    chance = random.Random(seed)
    kind = kind or chance.choice(KINDS)
    samples = _samples(chance, kind)
    state = State(torch, seed, device, trains=False)
    scratch = World(torch, state, None, keeps=True)
    foreign = kernels(torch, device) if kind == "foreign" else {}
    with torch.no_grad(), kept_generator(torch, device):
        seed_generator(torch, device, seed)
        given = scratch.take([each._replace(is_zero=False) for each in samples])
        writer = Writer(torch, chance, kind=kind, state=state, arguments=given, foreign=foreign)
        body = writer.write(chance.randrange(3, 10))
    if seed % 7 == 3:
        body = body._replace(model="holder.net")
    writes_state = any(not name.startswith(("a", "v")) for name in writer.written)
    takes_samples = chance.random() < 0.5
    writes_arguments = any(name.startswith("a") for name in writer.written)
    samples = tuple(each._replace(how="new") if writes_arguments else each for each in samples)
    if writer.draws or writer.sees_strides:
        samples = tuple(
            each._replace(layout="dense") if each.layout == "transposed" else each
            for each in samples
        )
    scenario = Scenario(
        torch,
        device,
        seed,
        kind,
        body,
        samples,
        takes_samples,
        chance.random() < 0.3,
        frozenset(writer.written),
        frozenset(writer.of_kernels),
        writer.draws,
        writer.sees_strides,
        _options(chance, kind, writer.written, may_warm_up=not (takes_samples and writes_state)),
    )
    with kept_generator(torch, device):
        steps = _Planner(scenario, chance).plan(chance.randrange(4, 9))
    return dataclasses.replace(scenario, steps=steps)


def _samples(chance: random.Random, kind: str) -> tuple[Source, ...]:
    made: list[Source] = []
    for _ in range(chance.choice((1, 2, 2, 3))):
        shape = chance.choice((MATRIX, MATRIX, MATRIX, ROW, (COLUMNS, COLUMNS)))
        if kind == "buckets":
            shape = MATRIX
        dtype = chance.choice(_TYPES) if kind == "torch" else "float32"
        layout = chance.choice(LAYOUTS[:-1]) if chance.random() < 0.3 else "dense"
        source = Source("new", None, chance.getrandbits(30), shape, dtype, layout)
        like = next((n for n, each in enumerate(made) if each[3:5] == source[3:5]), None)
        if kind != "training" and like is not None and chance.random() < 0.08:
            source = source._replace(how="same", of=like)
        made.append(source._replace(is_zero=chance.random() < 0.4, requires_grad=False))
    return tuple(made)


def _options(
    chance: random.Random, kind: str, written: set[str], *, may_warm_up: bool
) -> dict[str, Any]:
    options: dict[str, Any] = {
        "outputs": chance.choice(("clone", "clone", "static")),
        "warmup": chance.choice((0, 1)) if may_warm_up else 0,
        "max_graphs": chance.choice((1, 2, 2, 8)),
        "verify": chance.choice(("off",) * 6 + ("capture",) * 3 + (1,)),
        "timers": chance.choice(("last", "last", "collect", "strip")),
        "on_new_shape": chance.choice(("capture", "capture", "eager")),
    }
    if chance.random() < 0.5:
        options["check"] = "strict"  # which is the default, too
    if kind == "foreign" and chance.random() < 0.5:
        options["writes"] = tuple(f"args[{name[1:]}]" for name in sorted(written) if name[0] == "a")
    if kind == "training":
        options["param_grads"] = chance.choice(("autograd", "accumulate"))
        options["on_new_shape"] = "capture"
        options["verify"] = "off"
    if kind == "buckets":
        options["buckets"] = {0: SIZES}
    return options


class _Planner:
    """Finds steps that the function can do eagerly, by doing them."""

    def __init__(self, scenario: Scenario, chance: random.Random) -> None:
        self._scenario = scenario
        self._chance = chance
        self._steps: list[Step] = []
        self._world = scenario.world()

    def plan(self, count: int) -> tuple[Step, ...]:
        scenario = self._scenario
        first = Step("call", seed=self._seed(), sources=self._plain(), mode=self._mode())
        # What the dense copies in a graph need may be compiled at their first use.
        dense = [each._replace(layout="dense") for each in scenario.samples]
        for sources in (first.sources, tuple(dense)):
            with contextlib.suppress(RuntimeError, ValueError, IndexError, TypeError):
                scenario.world().run(first._replace(sources=sources))
        self._try(first)
        for _ in range(count * _TRIES):
            if len(self._steps) >= count:
                break
            self._try(self._call() if self._chance.random() < 0.65 else self._change())
        while self._steps and self._steps[-1].name != "call":
            self._steps.pop()  # nothing would see it
        return tuple(self._steps)

    def _seed(self) -> int:
        return self._chance.getrandbits(30)

    def _try(self, step: Step | None) -> None:
        if step is None:
            return
        try:
            self._world.run(step)
        except (RuntimeError, IndexError, TypeError, ValueError, AttributeError):
            self._world = self._scenario.world()
            for each in self._steps:
                self._world.run(each)
        else:
            self._steps.append(step)

    def _change(self) -> Step | None:
        chance, kind = self._chance, self._scenario.kind
        changes = {**_CHANGES, **(_OF_TRAINING if kind == "training" else {})}
        name = chance.choice((*changes, *tuple(_OF_TRAINING) * 3 * (kind == "training")))
        if name == "requires_grad" and kind not in {"training", "torch"}:
            return None
        target = chance.choice(changes[name])
        if name in {"data", "resize", "write"} and chance.random() < 0.5:
            used = [each for each in changes[name] if each in str(self._scenario.body)]
            target = chance.choice(used or [target])
        # Nothing tells of state outside of modules that kernels of other libraries read.
        if name in {"data", "resize"} and kind == "foreign" and not target.startswith("model."):
            return None
        return Step(name, target, self._seed())

    def _mode(self) -> str:
        chance = self._chance
        if self._scenario.trains:
            return chance.choice(("backward", "backward", "backward", "no_grad", "inference"))
        mode = chance.choice(("no_grad",) * 5 + ("inference", "grad", "grad"))
        needs = any(each.requires_grad for _, each in self._world.state.tensors())
        return "no_grad" if mode == "grad" and needs else mode

    def _plain(self) -> tuple[Source, ...]:
        return tuple(
            self._new(each.shape, each.dtype, f"a{number}")
            for number, each in enumerate(self._scenario.samples)
        )

    def _new(self, shape: tuple[int, ...], dtype: str, name: str) -> Source:
        chance = self._chance
        layout = chance.choice(LAYOUTS) if chance.random() < 0.5 else "dense"
        if layout == "expanded" and name in self._scenario.written:
            layout = "sliced"
        if layout in {"expanded", "transposed"} and self._scenario.draws:
            layout = "offset"
        needs = self._scenario.trains and chance.random() < 0.6
        is_zero = chance.random() < 0.1
        return Source("new", None, self._seed(), shape, dtype, layout, needs, is_zero)

    def _call(self) -> Step:
        chance, scenario = self._chance, self._scenario
        rows = ROWS
        if scenario.kind == "buckets":
            rows = chance.choice((2, 3, 4, 5, 7, 8, 11, 16))  # 1 would be broadcast
        elif chance.random() < 0.2:
            rows = chance.choice((1, 2, 3, 5, 9))
        sources: list[Source] = []
        for number, sample in enumerate(scenario.samples):
            shape = (rows, *sample.shape[1:]) if sample.shape == MATRIX else sample.shape
            plain = self._new(shape, sample.dtype, f"a{number}")
            sources.append(self._special(sources, plain) or plain)
        where = chance.choice(("here",) * 5 + ("thread", "stream"))
        return Step("call", "", self._seed(), tuple(sources), self._mode(), where)

    def _special(self, sources: list[Source], plain: Source) -> Source | None:
        """Return an argument that is no new memory, or None."""
        chance = self._chance
        draw = chance.random()
        form = plain._replace(layout="dense", requires_grad=False, is_zero=False)
        alike = [n for n, each in enumerate(sources) if each[3:5] == plain[3:5]]
        rows = [n for n, each in enumerate(sources) if each.shape[1:] == plain.shape]
        if draw < 0.3 and (alike or rows):
            how = chance.choice(("same", "alias", "overlap") if alike else ("row",))
            other = chance.choice(alike or rows)
            if how == "overlap" and sources[other].how not in {"new", "state"}:
                how = "alias"  # the strides of a result may differ
            if how == "overlap" and sources[other].how == "new":
                sources[other] = sources[other]._replace(layout="roomy")
            if self._scenario.trains and how != "same":
                return None
            return form._replace(how=how, of=other)
        views = self._views_of_state(plain)
        if draw < 0.4 and views and not self._scenario.trains:
            return form._replace(how="state", of=chance.choice(views))
        if draw < 0.6 and not self._scenario.sees_strides:
            dtype = getattr(self._scenario.torch, plain.dtype)
            fitting = [
                number
                for number, each in enumerate(self._world.kept)
                if (tuple(each.shape), each.dtype) == (plain.shape, dtype)
            ]
            if fitting:
                return form._replace(how="result", of=chance.choice(fitting))
        return None

    def _views_of_state(self, plain: Source) -> list[str]:
        if plain.dtype != "float32":
            return []
        return [
            each
            for each in VIEWS_OF_STATE.get(plain.shape, ())
            if not any(each.startswith(name) for name in self._scenario.of_kernels)
        ]
