"""The steps of a fuzzer's scenario, and the worlds in which they are done.

A step is plain data, so that it does the same in each world: a call with new arguments, or a change
of what the function reads besides.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import gc
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from tests.gpu.support.fuzz_state import State, laid_out, values, whole

_DECOY = 1e30


class Source(NamedTuple):
    """Where an argument of a call comes from.

    Attributes
    ----------
    how : str
        "new" memory; "same" tensor as another argument; "alias", "row" or "overlap" of one; "state"
        that an expression stands for; "result" of an earlier call.
    of : int or str
        The number of the argument or of the result, or the expression.
    """

    how: str
    of: Any = None
    seed: int = 0
    shape: tuple[int, ...] = ()
    dtype: str = "float32"
    layout: str = "dense"
    requires_grad: bool = False
    is_zero: bool = False

    def __str__(self) -> str:
        if self.how != "new":
            return f"{self.how} {self.of}"
        also = (" zeros" if self.is_zero else "") + (" requires_grad" if self.requires_grad else "")
        return f"new {self.dtype} {self.shape} {self.layout}{also}"


class Step(NamedTuple):
    """One step: a method of `World`, by its name, with what it takes."""

    name: str
    target: str = ""
    seed: int = 0
    sources: tuple[Source, ...] = ()
    mode: str = "no_grad"
    where: str = "here"

    def is_result(self, number: int) -> bool:
        """Return whether an argument of a call is in the memory of an earlier result."""
        source = self.sources[number]
        if source.how in {"new", "state"}:
            return False
        return source.how == "result" or self.is_result(source.of)

    def __str__(self) -> str:
        if self.name == "call":
            given = ", ".join(map(str, self.sources))
            return f"call({given})  # {self.mode}, {self.where}"
        return f"{self.name}({self.target})"


def kept_generator(torch: Any, device: str) -> Any:
    """Return a context manager that puts the device's random generator back."""
    return torch.random.fork_rng(devices=[] if device == "cpu" else [torch.cuda.current_device()])


def seed_generator(torch: Any, device: str, seed: int) -> None:
    """Seed the device's random generator alone: torch.manual_seed looks for many devices."""
    if device == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.cuda.manual_seed(seed)


@functools.cache
def _thread() -> concurrent.futures.ThreadPoolExecutor:
    """The other thread: one for all, whose library handles exist before a capture needs them."""
    return concurrent.futures.ThreadPoolExecutor(1, "fuzz")


@functools.cache
def _side(torch: Any) -> Any:
    return torch.cuda.Stream()


class World:
    """State, memory of arguments, and kept results.

    Parameters
    ----------
    torch : module
    state : State
    function : callable
        What calls call.
    keeps : bool
        Whether results stay what they are when there is another call.
    """

    def __init__(self, torch: Any, state: State, function: Any, *, keeps: bool) -> None:
        self.torch = torch
        self.state = state
        self.function = function
        self.call_function: Callable[..., Any] = function
        self.after_reset: Callable[[], object] = lambda: None
        self.keeps = keeps
        self.step = Step("")
        self.fast: Any = None  # the graphed callable, if calls call one
        self.refused = 0  # calls, by name
        self.arguments: list[Any] = []
        self.results: tuple[Any, ...] = ()
        self.kept: list[Any] = []
        self._decoys: list[Any] = []
        self._hooks: list[Any] = []

    def run(self, step: Step) -> None:
        self.step = step
        with self.torch.no_grad():
            getattr(self, step.name)(step)

    # Steps

    def call(self, step: Step) -> None:
        arguments = self.take(step.sources)
        if not self.keeps:
            self.kept = []
        work = functools.partial(self._call, arguments, step.mode, step.seed)
        device = self.state.device
        if step.where == "thread":
            with_stream = contextlib.nullcontext
            if device != "cpu":
                with_stream = functools.partial(
                    self.torch.cuda.stream, self.torch.cuda.current_stream()
                )

            def in_thread() -> Any:
                with with_stream():
                    return work()

            result = _thread().submit(in_thread).result()
        elif step.where == "stream" and device != "cpu":
            side, current = _side(self.torch), self.torch.cuda.current_stream()
            side.wait_stream(current)
            with self.torch.cuda.stream(side):
                result = work()
            current.wait_stream(side)
        else:
            result = work()
        self.results = () if result is None else tuple(result)
        self.kept = [*self.kept, *self.results][-6:]

    def _call(self, arguments: Sequence[Any], mode: str, seed: int) -> Any:
        torch = self.torch
        modes = {
            "no_grad": torch.no_grad,
            "inference": torch.inference_mode,
            "grad": torch.enable_grad,
            "backward": torch.enable_grad,
        }
        with modes[mode]():
            result = self.call_function(*arguments)
            if mode == "backward":
                given = [each for each in result or () if each.requires_grad]
                back = [
                    values(torch, seed + n, x.shape, x.dtype, self.state.device)
                    for n, x in enumerate(given)
                ]
                if given:
                    torch.autograd.backward(given, back)
        return result

    def take(self, sources: Sequence[Source]) -> tuple[Any, ...]:
        """Return arguments, whose memory is compared after the call."""
        self.arguments = []
        for source in sources:
            self.arguments.append(self._argument(source))
        return tuple(self.arguments)

    def _argument(self, source: Source) -> Any:
        torch = self.torch
        if source.how == "new":
            dtype = getattr(torch, source.dtype)
            given = values(torch, source.seed, source.shape, dtype, self.state.device)
            if source.is_zero:
                given.zero_()
            made = laid_out(torch, given, source.layout)
            return made.requires_grad_() if source.requires_grad else made
        if source.how == "state":
            found = self.state.get(source.of)
        elif source.how == "result":
            found = self.kept[source.of].detach()
        else:
            other = self.arguments[source.of]
            if source.how == "same":
                return other
            if source.how == "overlap":
                offset = other.storage_offset() + other.stride(0)
                found = other.as_strided(other.shape, other.stride(), offset)
            else:
                found = other[-1] if source.how == "row" else other.view_as(other)
        if found.shape != source.shape or found.dtype != getattr(torch, source.dtype):
            raise ValueError("of another shape")
        return found

    def write(self, step: Step) -> None:
        tensor = self.state.get(step.target)
        tensor.copy_(self._values(step.seed, tensor.shape, tensor.dtype))

    def data(self, step: Step) -> None:
        """Give a parameter or another tensor other memory."""
        tensor = self.state.get(step.target)
        tensor.data = self._values(step.seed, tensor.shape, tensor.dtype)
        self._decoy(tensor.shape)

    def replace(self, step: Step) -> None:
        old = self.state.get(step.target)
        self.state.replace(step.target, self._values(step.seed, old.shape, old.dtype))
        shape = old.shape
        del old
        self._decoy(shape)

    def turn(self, step: Step) -> None:
        self.state.get(step.target).t_()

    def resize(self, step: Step) -> None:
        """Free memory of state and take other memory, as sharded parameters do."""
        tensor = self.state.get(step.target)
        storage = tensor.untyped_storage()
        size = storage.nbytes()
        storage.resize_(0)
        self._decoy((size // tensor.element_size(),))
        storage.resize_(size)
        all_of_it = whole(self.torch, tensor)
        all_of_it.copy_(self._values(step.seed, all_of_it.shape, all_of_it.dtype))

    def optional(self, step: Step) -> None:
        model = self.state.model
        shape = model.bias.shape
        dtype = self.torch.float32
        model.optional = (
            None if model.optional is not None else self._values(step.seed, shape, dtype)
        )

    def append(self, step: Step) -> None:
        self.state.append_block(step.seed)

    def pop(self, _: Step) -> None:
        blocks = self.state.model.blocks
        if len(blocks) == 0:
            raise IndexError("no block is left")
        del blocks[-1]

    def mode(self, _: Step) -> None:
        """Switch between training and evaluation."""
        self.state.model.train(not self.state.model.training)

    def requires_grad(self, step: Step) -> None:
        tensor = self.state.get(step.target)
        tensor.requires_grad_(not tensor.requires_grad)

    def hook(self, _: Step) -> None:
        """Register a hook on a block, or remove all."""
        if self._hooks:
            self._hooks.pop().remove()
        else:
            block = self.state.model.blocks[0]
            self._hooks.append(block.register_forward_hook(lambda _block, _given, out: out * 2))

    def no_grads(self, _: Step) -> None:
        self.state.model.zero_grad(set_to_none=True)

    def update(self, _: Step) -> None:
        """Do what an optimizer does."""
        for parameter in self.state.model.parameters():
            if parameter.grad is not None:
                parameter.sub_(parameter.grad * 0.05)

    def collect(self, _: Step) -> None:
        gc.collect(1)  # all would take long: torch has many objects

    def reset(self, _: Step) -> None:
        if not self.keeps:
            self.kept = []
        self.after_reset()

    # What there is to compare

    def tensors(self, step: Step, skip: Sequence[int] = ()) -> Iterator[tuple[str, Any]]:
        """All tensors after a step, by name: those of arguments and state with what is beside.

        Parameters
        ----------
        step : Step
        skip : sequence of int
            Arguments whose memory is not looked at.
        """
        if step.name == "call":
            yield from ((f"result {n}", each) for n, each in enumerate(self.results))
            for number, each in enumerate(self.arguments):
                if number in skip:
                    continue
                if step.is_result(number):  # whose strides may be others
                    yield f"argument {number}", each.detach()
                else:
                    yield f"the memory of argument {number}", whole(self.torch, each)
                if step.mode == "backward" and each.is_leaf and each.grad is not None:
                    yield f"the gradient of argument {number}", each.grad
        yield from ((f"kept result {n}", each) for n, each in enumerate(self.kept))
        for name, each in self.state.tensors():
            yield f"the memory of {name}", whole(self.torch, each)
            yield name, each.detach()
            if each.is_leaf and each.grad is not None:
                yield f"the gradient of {name}", each.grad
        yield from ((f"other memory {n}", each) for n, each in enumerate(self._decoys))

    def _values(self, seed: int, shape: Sequence[int], dtype: Any) -> Any:
        return values(self.torch, seed, shape, dtype, self.state.device)

    def _decoy(self, shape: Sequence[int]) -> None:
        """Take memory that was just let go: whoever still reads or writes it is found."""
        self._decoys.append(self.torch.full(tuple(shape), _DECOY, device=self.state.device))
