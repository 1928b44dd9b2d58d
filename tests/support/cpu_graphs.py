"""Graphed callables of CPU tensors: the graph is a tape of torch's operators.

A capture notes the operators that run in it, below autograd, and then puts all memory back that it
was given, as a capture that runs nothing leaves it. A replay runs them again on the same memory,
which no version counter sees. What a graph alone keeps alive is overwritten when the graph goes, as
memory is that is given out again. There are no streams.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import importlib
import threading
import types
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from gpuprof import CapturePool, _core
from gpuprof._callable import cache, capture, training
from gpuprof._callable.cache import CapturingCalls
from gpuprof._callable.entry import CapturedCall
from gpuprof._callable.observe import External, Range
from gpuprof._callable.placement import one_capture
from tests.support.threads import PATIENCE_S

_owners: collections.Counter[int] = collections.Counter()  # of memory, by its address


_WAITING = {"aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::_unique2"}
_WAITING |= {"aten::bincount", "aten::_linalg_check_errors"}


def _tensors(value: Any) -> list[Any]:
    if hasattr(value, "untyped_storage"):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return []
    return [tensor for each in value for tensor in _tensors(each)]


def _aliases(value: Any) -> Any:
    """Return a structure with other tensors on the same memory, with their own version counters."""
    if hasattr(value, "untyped_storage"):
        return value.data
    if isinstance(value, dict):
        return {key: _aliases(each) for key, each in value.items()}
    return type(value)(map(_aliases, value)) if type(value) in {list, tuple} else value


def _number(tensor: Any) -> int:
    return int(tensor.untyped_storage()._cdata)


class LaunchOrder:
    """Counts the launches of the graphs of one pool."""

    def __init__(self) -> None:
        self.launches = 0


class Graph:
    """What was captured."""

    name: str | None = None
    raw_graph = 0
    num_nodes = 0
    memory = types.SimpleNamespace(total=0)
    _by_torch = None

    def __init__(self, tape: Any, keep: list[Any]) -> None:
        self._tape = tape
        self._own = [each for one in keep if type(one) is tuple for each in one]
        self._keep = keep
        self._order = LaunchOrder()
        self.num_replays = 0
        self.copies_in: list[tuple[int, int, int]] = []
        _owners.update(map(_number, self._own))

    def _set_launch_order(self, order: LaunchOrder) -> None:
        self._order = order

    def _note_use(self, stream: Any) -> None: ...

    def _add_copies(self, before: list[Any], after: list[Any]) -> None:  # noqa: ARG002
        self.copies_in = before

    def launch(self, stream: Any = None) -> None:  # noqa: ARG002
        self._order.launches += 1
        self.num_replays += 1
        self._tape.replay()

    def close(self) -> None:
        own, self._own = self._own, []
        for each in own:
            _owners[_number(each)] -= 1
            if not _owners[_number(each)] and each.is_floating_point():
                each.data.fill_(float("nan"))

    __del__ = close


def _waits(func: Any, args: Any, kwargs: Any) -> bool:
    """Return whether the host would wait for the data of an operator on the GPU."""
    name = func.name()
    if name.startswith("aten::index.Tensor"):
        return any(each is not None and each.dtype is each.bool().dtype for each in args[1])
    if name == "aten::repeat_interleave.Tensor":
        return kwargs.get("output_size") is None
    return name in _WAITING


def _tape_class() -> Any:
    torch: Any = importlib.import_module("torch")
    base: Any = importlib.import_module("torch.utils._python_dispatch").TorchDispatchMode

    class Tape(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.steps: list[Any] = []
            self._random_state = torch.get_rng_state()
            self._known: dict[int, Any] = {}  # memory that was made or copied, by its number
            self._before: list[Any] = []

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            given = _tensors([args, kwargs or {}])
            for each in given:
                if _number(each) not in self._known:
                    storage = self._known[_number(each)] = each.untyped_storage()
                    self._before.append((storage, storage.clone()))
            if _waits(func, args, kwargs or {}):
                message = "CUDA error: operation not permitted when stream is capturing"
                raise RuntimeError(message)
            result = func(*args, **(kwargs or {}))
            memory = {_number(each) for each in given}
            made = [each.data for each in _tensors(result) if _number(each) not in memory]
            self._known |= {_number(each): each.untyped_storage() for each in made}
            given = _aliases(args), _aliases(kwargs or {})
            self.steps.append((func, *given, made, memory, torch.is_grad_enabled()))
            return result

        def put_back(self) -> None:
            torch.set_rng_state(self._random_state)
            for storage, copy in self._before:
                storage.copy_(copy)
            self._before = []

        def replay(self) -> None:
            for func, args, kwargs, made, memory, has_grad in self.steps:
                with torch.set_grad_enabled(has_grad):  # some operators return more then
                    again = _tensors(func(*args, **kwargs))
                fresh = [each for each in again if _number(each) not in memory]
                for static, each in zip(made, fresh, strict=True):
                    static.copy_(each)

    return Tape


class Capture:
    """Stands for `gpuprof.capture`."""

    number_open = 0
    status = 1  # of the open one: active; 2: broken

    def __init__(
        self, _: Any = None, *, keep_alive: Any = (), name: str | None = None, **_options: Any
    ) -> None:
        self._settings: Any = _Settings(None)
        self._keep, self._name = list(keep_alive), name
        self._guard: Any = None

    def __enter__(self) -> Any:
        self._tape = _tape_class()()
        self._guard = types.SimpleNamespace(stream=0, graph=None, _broke_at=(None, None))
        self._tape.__enter__()
        Capture.number_open, Capture.status = Capture.number_open + 1, 1
        return self._guard

    def __exit__(self, *error: object) -> None:
        Capture.number_open -= 1
        self._tape.__exit__(*error)
        self._tape.put_back()
        if isinstance(error[1], Exception):
            diagnosis = importlib.import_module("gpuprof._graphs.diagnosis")
            facts = diagnosis.CaptureFacts(name=self._name, mode="thread_local")
            diagnosis.note_for_body(error[1], facts.at(*self._guard._broke_at))
        if error[0] is None:
            graph = self._guard.graph = Graph(self._tape, self._keep)
            graph.name = self._name
            if self._settings.prepare is not None:
                self._keep.append([self._settings.prepare(graph)])


class _Settings(NamedTuple):
    prepare: Any


@contextlib.contextmanager
def open_on_another_thread() -> Iterator[None]:
    """Have another thread keep a capture open for the block."""
    is_open, may_end = threading.Event(), threading.Event()

    def run() -> None:
        with one_capture():
            is_open.set()
            may_end.wait(PATIENCE_S)

    other = threading.Thread(target=run)
    other.start()
    try:
        assert is_open.wait(PATIENCE_S)
        yield
    finally:
        may_end.set()
        other.join()


class Stream:
    """Of calls: there is none."""

    ask = None

    def is_captured(self) -> bool:
        return Capture.number_open > 0

    def handle(self) -> int:
        return 0


class Place:
    """Where there is no GPU."""

    def __init__(self, flat: Any, asked: object) -> None:  # noqa: ARG002
        self.backend, self.stream, self.stream_type = "torch", asked, None
        self.device, self.memory, self.copies_on = 0, [], Stream()

    def check(self) -> None: ...

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        yield

    def calls_stream(self, of_results: Any) -> Stream:  # noqa: ARG002
        return Stream()


class Entry:
    """Stands for `CapturedCall` with what C++ does of it."""

    runs = checks = 0
    slices = CapturedCall.slices
    replays, overlaps = CapturedCall.replays, CapturedCall.overlaps

    def __init__(self, spec: dict[str, Any], **given: Any) -> None:
        vars(self).update(spec | given)

    def overlap_at(self, places: list[Range]) -> bool:
        def meet(one: Range, others: list[Range]) -> bool:
            return any(one[0] < end and begin < one[1] for begin, end in others)

        return len(places) != len(self.arrays) or any(
            meet(place, self.written)
            or (spec["copied_back"] and meet(place, self.read + places[:n] + places[n + 1 :]))
            for n, (place, spec) in enumerate(zip(places, self.arrays, strict=True))
        )

    def run(self, arrays: list[Any]) -> list[Any]:
        return list(self.replay(arrays) if self.apply is None else self.apply(self, *arrays))

    def replay(self, arrays: Any) -> tuple[Any, ...]:
        pairs = zip(self.arrays, arrays, strict=True)
        copied = [(spec, array) for spec, array in pairs if spec["copied_in"]]
        for (spec, array), (inside, _, nbytes) in zip(copied, self.graph.copies_in, strict=True):
            staged = spec["framework"].stage(spec["inside"], array)
            ctypes.memmove(inside, staged.data_ptr(), nbytes)
        self.graph.launch()
        results = [like if make is None else make(like) for _, make, like, _ in self.results]
        for result, (framework, make, like, is_copied) in zip(results, self.results, strict=True):
            if make is not None and is_copied:
                framework.fill(result, like)
        for spec, array in copied:
            if spec["copied_back"]:
                spec["framework"].fill(array, spec["inside"])
        if self.after is not None:
            self.after(*(array for spec, array in copied if spec["copied_back"]))
        self.runs += 1
        return tuple(results)


def _run(self: Any, entry: Any, args: Any, kwargs: Any) -> Any:
    flat = self._flat(args, kwargs)
    shapes = [spec["desc"].shape for spec in entry.arrays]
    if shapes != [leaf.facts.shape for leaf in flat.leaves] or not entry.guards.core.hold():
        return _core._no_fit
    results = entry.run(list(flat.arrays))
    return cache.rebuild(entry.result, results)


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `gpuprof.make_graphed_callable` take CPU tensors, and the tape for a graph."""
    orders: weakref.WeakKeyDictionary[Any, LaunchOrder] = weakref.WeakKeyDictionary()
    facts = importlib.import_module("gpuprof._frameworks.array_facts")
    entries: weakref.WeakKeyDictionary[Any, list[Any]] = weakref.WeakKeyDictionary()

    def entries_of(self: Any) -> list[Any]:
        return entries.setdefault(self, [])

    def use(self: Any, entry: Any, args: Any, kwargs: Any) -> Any:
        entries_of(self).sort(key=lambda each: each is not entry)
        return _run(self, entry, args, kwargs)

    for where, name, value in (
        (_core, "require_cuda", lambda: None),
        (_core, "_capture_of", lambda *_: (Capture.status, 0, 0, False)),
        (capture, "CapturedCall", Entry),
        (facts, "_unfit", lambda *_: None),
        (facts, "facts_of", lambda tensor: facts.facts_by_attributes(tensor.cpu())),
        (cache, "CallStream", lambda *_: Stream()),
        (capture, "Place", Place),
        (capture, "capture", Capture),
        (training, "capture", Capture),
        (capture, "tensor_guards", lambda *_: []),  # of CPU tensors they compare versions
        (External, "is_on_gpu", True),
        (CapturePool, "_launch_order", lambda self: orders.setdefault(self, LaunchOrder())),
        (CapturingCalls, "__call__", lambda self, *args, **kwargs: self._miss(args, kwargs)),
        (CapturingCalls, "_entries", property(lambda self: tuple(entries_of(self)))),
        (CapturingCalls, "_add", lambda self, entry: entries_of(self).insert(0, entry)),
        (CapturingCalls, "_remove", lambda self, entry: entries_of(self).remove(entry)),
        (CapturingCalls, "_run", use),
    ):
        monkeypatch.setattr(where, name, value, raising=False)
