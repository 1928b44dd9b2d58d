"""What a function uses besides its arguments, observed while it runs.

Torch's dispatcher shows each tensor that an operator reads or writes. One that is neither an
argument nor made in the run is *external*, wherever the function has it from. In a capture, nodes
that appear between two operators were launched by others (Triton, CuPy, Numba): *foreign* work, of
which nothing else is known. Calls of modules and optimizers are seen by torch's global hooks, and
what a capture reads of modules by their attributes.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import gpuprof._core as _core
from gpuprof._callable.state import GradientFields
from gpuprof._frameworks import loaded, torch_hooks
from gpuprof._frameworks.array_facts import extent, facts_by_attributes
from gpuprof._frameworks.arrays import put_back
from gpuprof._frameworks.torch_dispatch import Use, watching
from gpuprof._frameworks.torch_modules import read_modules
from gpuprof._graphs.debug import line_of, line_raised
from gpuprof._graphs.types import CaptureStatus
from gpuprof.errors import InvalidStateError

if TYPE_CHECKING:
    from gpuprof._graphs.guard import GraphCaptureGuard

Range = tuple[int, int]
# Tells how many nodes a capture has, None of a broken one, and whether one of those after the first
# `since` does work.
CountNodes = Callable[[int], tuple["int | None", bool]]
# Is told which operator of torch's broke a capture, if it was one, and the line.
Broke = Callable[["str | None", "str | None"], None]


@dataclass
class External:
    """Memory from outside of the run, and what was used of it."""

    tensor: Any  # as an operator got it first
    storage: Any  # keeps the memory alive
    tensors: dict[int, Any] = field(default_factory=dict)  # all that lie there, by their ids
    reads: set[Range] = field(default_factory=set)
    writes: dict[Range, Any] = field(default_factory=dict)  # with a tensor that lies there

    @property
    def is_on_gpu(self) -> bool:
        return bool(self.tensor.is_cuda)


class Observation:
    """What runs of a function were seen to use; made before, with the graph's own arguments."""

    def __init__(
        self, arguments: Sequence[Any] = (), gradients: GradientFields | None = None
    ) -> None:
        self._arguments: dict[int, list[int]] = {}
        self._keep: list[Any] = []  # what must keep its address
        for number, argument in enumerate(arguments):
            if loaded.is_tensor(argument):
                storage = argument.untyped_storage()
                self._arguments.setdefault(int(storage._cdata), []).append(number)
                self._keep.append(storage)
        self._views: set[tuple[Any, ...]] = set()  # where the run made views of external memory
        self._made: dict[int, tuple[Any, bool]] = {}
        self._externals: dict[int, External] = {}
        self._undo: list[tuple[Any, Any]] | None = None  # of all blocks
        self._count: CountNodes | None = None
        self._broke: Broke | None = None
        self._nodes = 0
        self._first = 0  # number of a node of autograd's graph that the run made
        self._read: dict[int, Any] = {}
        # Gets the external tensors that gradients go to, as they are at their first use.
        self._gradients = GradientFields() if gradients is None else gradients
        # An external tensor that operators have made of others that require gradients.
        self.made_outside: Any = None
        self.written: set[int] = set()  # the numbers of the arguments that were written to
        # Whether an operator wrote to an argument, or to what may be a copy of one or itself, as
        # the argument is laid out: `reshape` copies some tensors and makes views of others. Or
        # whether one may have drawn random numbers.
        self.depends_on_layout = False
        self.has_foreign_work = False
        self.modules: dict[int, Any] = {}  # that were called, by their ids
        self.optimizers: dict[int, Any] = {}

    @property
    def externals(self) -> list[External]:
        return list(self._externals.values())

    @property
    def tensors(self) -> list[Any]:
        """All external tensors."""
        return [each for one in self.externals for each in one.tensors.values()]

    @property
    def used(self) -> Collection[int]:
        """The numbers of all external memory."""
        return self._externals.keys()

    @property
    def modules_read(self) -> list[Any]:
        """The modules of which a capture has read an attribute."""
        return [each for each in self._read.values() if hasattr(each, "_modules")]

    def has_made(self, tensor: Any) -> bool:
        return _has_storage(tensor) and int(tensor.untyped_storage()._cdata) in self._made

    @contextlib.contextmanager
    def of_block(
        self, count: CountNodes | None = None, broke: Broke | None = None, *, undo: bool = False
    ) -> Iterator[None]:
        """Observe the block; with `undo`, copy what it writes to besides, for `restore`."""
        self._count, self._broke, self._nodes = count, broke, 0
        self._undo = (self._undo or []) if undo else None
        self._first = _next_sequence_number()
        try:
            self._count_nodes(None)
            with (
                _called_modules(self.modules, self.optimizers),
                contextlib.nullcontext() if count is None else read_modules(self._read),
                watching(self._before, self._after, self._failed),
            ):
                yield
            self._broke = None  # no operator comes that could tell of a line
            self.has_foreign_work |= self._count_nodes(None)
        except Exception as error:
            with contextlib.suppress(Exception):  # it matters more than its note
                if self._broke is not None and count is not None and count(0)[0] is None:
                    self._broke(None, line_raised(error))
            raise
        finally:
            self._count = self._broke = None  # they know the capture, which knows who observes it

    def restore(self) -> None:
        """Undo all writes to external tensors that the blocks made by operators of torch's."""
        undo, self._undo = self._undo or [], None
        tensors, copies = zip(*reversed(undo), strict=True) if undo else ((), ())
        put_back(tensors, copies)

    def note_results(self, results: Sequence[Any]) -> None:
        """Note external tensors among the results, which a replay reads to copy them."""
        for each in results:
            if loaded.is_tensor(each) and each.is_cuda:
                self._note(Use(each, is_written=False, is_viewed=False))

    @property
    def read(self) -> list[Range]:
        """Where operators read external memory of the GPU."""
        return [place for each in self._on_gpu for place in each.reads]

    def state(self, modules: Sequence[Any]) -> list[Any]:
        """Return external tensors that cover all that may have been written to."""
        if not self.has_foreign_work:
            return self.written_tensors()
        storages = {  # foreign work may have written to all that is known
            tensor.untyped_storage()._cdata: tensor.untyped_storage()
            for tensor in (*(each.tensor for each in self.externals), *_tensors_in(modules))
            if tensor.is_cuda
        }
        if not storages:  # perhaps without torch
            return []
        torch = loaded.torch()
        with torch.inference_mode(False):
            return [
                torch.empty(0, dtype=torch.uint8, device=each.device).set_(each)
                for each in storages.values()
                if each.nbytes()
            ]

    def written_tensors(self) -> list[Any]:
        """Return external tensors on the GPU that cover all that was written besides."""
        return [tensor for each in self._on_gpu for tensor in each.writes.values()]

    def only_read(self) -> list[Any]:
        """Return the external tensors on the GPU whose memory was not written."""
        unwritten = [each for each in self._on_gpu if not each.writes]
        return [tensor for each in unwritten for tensor in each.tensors.values()]

    def floating(self, modules: Sequence[Any]) -> list[Any]:
        """Return the external floating-point tensors on the GPU that may have been read."""
        tensors = [tensor for each in self._on_gpu for tensor in each.tensors.values()]
        if self.has_foreign_work:  # which may have read all that is in modules
            tensors += [each for each in _tensors_in(modules) if each.is_cuda]
        tensors = [each for each in tensors if each.is_floating_point() or each.is_complex()]
        found = {_place_of(each): each for each in tensors}
        # Others on the same memory: version counters do not show what is written to those.
        aliases = [each.data for each in found.values()]
        torch = loaded.torch()
        return [each for each in aliases if torch._debug_has_internal_overlap(each) != 1]

    @property
    def _on_gpu(self) -> list[External]:
        return [each for each in self._externals.values() if each.is_on_gpu]

    def _before(self, uses: list[Use]) -> None:
        self.has_foreign_work |= self._count_nodes(None)
        for use in uses:
            self._note(use)

    def _after(self, func: Any, results: list[Any], is_copy: bool, draws: bool) -> None:
        reductions: Any = importlib.import_module("torch.multiprocessing.reductions")
        self.depends_on_layout |= draws  # what an element draws depends on where it lies
        for tensor in filter(_has_storage, results):
            storage = tensor.untyped_storage()
            number = int(storage._cdata)
            if number in self._externals:
                self._views.add(_place_of(tensor))
            elif number not in self._arguments:
                # A weak reference keeps the number, not the memory.
                self._made.setdefault(number, (reductions.StorageWeakRef(storage), is_copy))
        self._count_nodes(func)

    def _failed(self, func: Any) -> None:
        if self._broke is not None:
            self._broke(str(func.name()), line_of(sys._getframe()))

    def _count_nodes(self, func: Any) -> bool:
        """Return whether nodes that do work were added since the last count, as by `func`."""
        if self._count is None:
            return False
        nodes, works = self._count(self._nodes)
        if nodes is None and self._broke is not None:
            if func is not None:
                self._failed(func)
            else:
                self._broke(None, f"a line before {line_of(sys._getframe())}")
        self._nodes = nodes or 0
        return works

    def _note(self, use: Use) -> None:
        tensor = use.tensor
        _refuse_subclass(tensor)
        if not _has_storage(tensor):
            return
        storage = tensor.untyped_storage()
        number = int(storage._cdata)
        if number in self._arguments:
            if use.is_written:
                self.depends_on_layout = True
                self.written.update(self._arguments[number])
        elif number in self._made:
            self.depends_on_layout |= use.is_written and self._made[number][1]
        else:
            self._note_external(self._externals.setdefault(number, External(tensor, storage)), use)

    def _note_external(self, external: External, use: Use) -> None:
        tensor = use.tensor
        if tensor.requires_grad and tensor.is_leaf:
            self._gradients.add(tensor)
        elif tensor.requires_grad:
            is_made_here = tensor._is_view() and tensor.grad_fn._sequence_nr() >= self._first
            self.made_outside = self.made_outside if is_made_here else tensor
        if _place_of(tensor) not in self._views:
            external.tensors.setdefault(id(tensor), tensor)
        if use.is_viewed:
            return
        place = range_of(tensor)
        if not use.is_written:
            external.reads.add(place)
            return
        if place not in external.writes:
            external.writes[place] = tensor.detach()
            if self._undo is not None:
                self._undo.append((tensor.detach(), tensor.detach().clone()))


def watch_of(guard: GraphCaptureGuard, device: int) -> tuple[CountNodes, Broke]:
    """Return what an observation asks of an open capture, and how it tells where that broke."""

    def count(since: int) -> tuple[int | None, bool]:
        status, _, nodes, works = _core._capture_of(guard.stream, device, since)
        return None if status == CaptureStatus.INVALIDATED else nodes, works

    def broke(op: str | None, where: str | None) -> None:
        if guard._broke_at == (None, None):
            guard._broke_at = op, where

    return count, broke


def check_modules(modules: Sequence[Any]) -> None:
    """Refuse modules that torch.distributed works on in each pass, which a replay leaves out."""
    data_parallel = loaded.torch_part("nn.parallel.distributed")
    sharded = loaded.torch_part("distributed.tensor")
    for part in (part for module in modules for part in module.modules()):
        if data_parallel is not None and isinstance(part, data_parallel.DistributedDataParallel):
            message = (
                "the function calls a DistributedDataParallel, which prepares each pass in Python; "
                "graph the module inside (.module), and make the DistributedDataParallel of that"
            )
            raise InvalidStateError(message)
        for name, parameter in part.named_parameters(recurse=False):
            if sharded is not None and isinstance(parameter, sharded.DTensor):
                message = (
                    f"parameter {name!r} of {type(part).__name__} is a DTensor (FSDP's "
                    "fully_shard, tensor parallelism), whose memory is another one in each pass; "
                    "graph modules that are not sharded, and call those that are eagerly"
                )
                raise TypeError(message)


def range_of(tensor: Any) -> Range:
    return extent(facts_by_attributes(tensor))


def merged(ranges: Iterable[Range]) -> list[Range]:
    """Return disjoint ranges in order that cover the same."""
    found: list[Range] = []
    for begin, end in sorted(ranges):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        elif begin < end:
            found.append((begin, end))
    return found


@contextlib.contextmanager
def _called_modules(modules: dict[int, Any], optimizers: dict[int, Any]) -> Iterator[None]:
    """Add the modules and optimizers of torch's that the block calls, by their ids."""

    def add(to: dict[int, Any]) -> Callable[..., None]:
        return lambda each, *_: to.update({id(each): each})

    with contextlib.ExitStack() as undo:
        if loaded.whole_torch() is not None:
            undo.callback(torch_hooks.around_all_modules(add(modules)))
        if loaded.torch_part("optim.optimizer") is not None:
            undo.callback(torch_hooks.around_all_steps(add(optimizers)))
        yield


def _tensors_in(modules: Sequence[Any]) -> Iterator[Any]:
    for module in modules:
        yield from module.parameters()
        yield from module.buffers()


def _has_storage(tensor: Any) -> bool:
    return tensor.layout is loaded.torch().strided  # sparse tensors are made of others


def _place_of(tensor: Any) -> tuple[Any, ...]:
    return tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride())


def _refuse_subclass(tensor: Any) -> None:
    """Refuse a tensor made of others (DTensor): what a call reads of it may lie elsewhere then."""
    kind = type(tensor)
    if hasattr(kind, "__tensor_flatten__"):
        message = (
            f"the function uses a {kind.__module__}.{kind.__qualname__}, a tensor that is made of "
            "others, which a CUDA graph cannot follow. With FSDP or tensor parallelism, use "
            "torch.compile, or make callables of modules that are not sharded"
        )
        raise TypeError(message)


def _next_sequence_number() -> int:
    """Return a number that no later node of autograd's graph on this thread is below."""
    torch = loaded.whole_torch()
    if torch is None:
        return 0
    with torch.inference_mode(False), torch.enable_grad():
        return int(torch.zeros((), requires_grad=True).neg().grad_fn._sequence_nr())
