"""What a watch does at hooks: those of modules, and of autograd's nodes.

A full backward hook of torch wraps the tensors that go in and out, and so fails where a module
works in place on views. Nothing is wrapped here. Autograd numbers the nodes of a thread as they are
made, and of those that are ready it runs the one with the highest number first, so the nodes of one
call run one after the other: the first is that of a result, the last has the lowest number.

Hooks hold a `Core`, which holds the model's modules weakly, and no node of autograd after a call.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import gpuprof._core as _core
from gpuprof._common import checks
from gpuprof._frameworks import loaded, torch_hooks
from gpuprof._graphs.types import CaptureStatus
from gpuprof._watch.tree import ModuleEntry, Pass, Sums, Waiting

_MEMORY_READS = 8  # of each module: torch takes tens of microseconds for one
_LEAF_NUMBER = 1 << 63  # nodes of parameters have a number above it
_NO_ERROR = (None, None, None)
_STOPPED_EARLY = "_StopRecomputationError"  # torch's, once a checkpoint has what it needs


class _Inner(NamedTuple):
    """What is known of the autograd nodes of a call, for the call around it."""

    starts: dict[Any, _Start]  # by the nodes of its results
    last: Any  # the node with the lowest number
    last_number: int
    beyond: list[Any]  # the nodes after it


class Call:
    """One call of a module. Autograd's nodes hold it for as long as there can be a backward."""

    def __init__(
        self, core: Core, entries: Sequence[ModuleEntry], outer: Call | None, frame: Any
    ) -> None:
        self.core = core
        self.entries = entries
        self.entry = entries[0] if len(entries) == 1 else _entry_below(entries, outer)
        self.outer = outer
        self.inner: list[_Inner] = []
        self.task = core.task_number()
        self.recomputed: bool = self.task != -1 and (
            outer is None or outer.recomputed or outer.task != self.task
        )
        self.frame = frame
        self.handled = id(sys.exc_info()[1])  # the exception that is being handled around the call
        self.reads_memory = self.entry.memory_reads < _MEMORY_READS and not self.recomputed
        self.memory = _allocated() if self.reads_memory else None
        self.first = -1 if core.node_number is None else core.node_number()
        self.scope: Any = None
        self.sample: Any = None

    def begin_backward(self) -> None:
        """Open the scope of its backward pass, unless it is open."""
        opened = self.core.task().opened
        if any(each.call is self for each in opened):
            return
        while opened and not self.is_inside(opened[-1].call):
            self.core.close(opened)  # its last node was not needed, so did not run
        scope = self.core.scope(self.entry, "backward")
        opened.append(_Opened(self, scope, scope.__enter__(), []))

    def end_backward(self, *_gradients: Any) -> None:
        """Close the scope of its backward pass, and what is open in it."""
        with self.core.passive():
            opened = self.core.task().opened
            if any(each.call is self for each in opened):
                while self.core.close(opened) is not self:
                    pass

    def abandon(self) -> None:
        """Let go of the nodes inside, whose hooks hold this call: no collector sees that cycle."""
        self.inner.clear()
        self.frame = None

    @property
    def times(self) -> Pass:
        """What its forward pass is added to."""
        return self.entry.recomputed if self.recomputed else self.entry.forward

    def is_inside(self, other: Call) -> bool:
        """Whether its forward pass was inside that of another call."""
        outer = self.outer
        while outer is not None and outer is not other:
            outer = outer.outer
        return outer is not None


class _Start:
    """The hook before a node: backward passes begin here, the outermost first."""

    __slots__ = ("calls",)

    def __init__(self, call: Call) -> None:
        self.calls = [call]

    def __call__(self, _gradients: Any) -> None:
        if self.calls[0].core.closed:
            return
        with self.calls[0].core.passive():
            for call in self.calls:
                call.begin_backward()


class _Opened(NamedTuple):
    call: Call
    scope: Any
    sample: Any
    recomputed: list[Any]  # samples of the forward passes that ran again inside


class _Task:
    """What is open on one thread in one backward pass of autograd.

    Autograd's own record of that pass holds it. When that is gone, also after an error, so is this,
    and what was open is abandoned.
    """

    def __init__(self, core: Core, number: int) -> None:
        self.core = core
        self.number = number
        self.thread = threading.get_ident()
        self.opened: list[_Opened] = []

    def finish(self) -> None:
        """Close what is open, at the end of the pass."""
        with self.core.passive():
            while self.opened and self.thread == threading.get_ident():
                self.core.close(self.opened)
            self.opened.clear()


class _Local(threading.local):
    def __init__(self) -> None:
        self.calls: list[Call] = []  # whose forward pass runs
        self.tasks: list[weakref.ref[_Task]] = []


_roots: Counter[str] = Counter()  # how many models of a class were watched


class Core:
    """What the hooks of one watch share: it makes scopes and adds up what they measure."""

    def __init__(self, model: Any) -> None:
        torch = loaded.torch()
        self.torch = torch
        self.closed = False
        self.error: str | None = None
        self.local = _Local()
        self.sums = Sums()
        self.scopes: list[Any] = []
        self.undo = contextlib.ExitStack()
        name = type(model).__name__
        _roots[name] += 1
        self.name = name if _roots[name] == 1 else f"{name}#{_roots[name]}"
        self.is_compiling = torch.compiler.is_compiling
        self.task_number = torch._C._current_graph_task_id
        self.node_number = getattr(torch._C._autograd, "_get_sequence_nr", None)
        self.entries: list[ModuleEntry] = []

    def detach(self) -> None:
        """Take all hooks out of the model. Idempotent."""
        self.closed = True
        while self.local.calls:
            self.local.calls.pop().abandon()
        self.undo.close()

    def passive(self) -> contextlib.AbstractContextManager[None]:
        """A block whose failure ends the watch and not the program that it watches."""
        return torch_hooks.Passive(self.fail)

    def fail(self, error: Exception) -> None:
        """End the watch, and say once why."""
        self.error = f"{type(error).__name__}: {error}"
        self.detach()
        text = f"gpuprof.watch has stopped watching the model, because of {self.error}"
        checks.warn(text, level=2)

    # Scopes

    def scope(self, entry: ModuleEntry, direction: str) -> Any:
        """Return a scope that is not open; in a capture of gpuprof's one with a name."""
        if _core._open_captures():
            handle, ordinal, _ = _core._current_stream()
            if _core._capture_status(handle, ordinal) == CaptureStatus.ACTIVE:
                path = f".{entry.path}" if entry.path else ""
                # With an option it is a scope of its own, which goes when it was left: one that is
                # found by its name would hold the graph's events.
                return _core.timer(f"{self.name}{path} {direction}", in_capture="skip")
        try:
            return self.scopes.pop()
        except IndexError:
            return _core.timer()

    def reuse(self, scope: Any) -> None:
        """Keep a scope that was left for the next time."""
        if scope.name is None:
            self.scopes.append(scope)

    # Forward

    def enter(self, entries: Sequence[ModuleEntry], frame: Any) -> None:
        """Open the scope of a module's forward pass."""
        calls = self.local.calls
        while calls and not torch_hooks.is_running(calls[-1].frame, frame):
            calls.pop().abandon()  # an interrupt ended it, of which torch tells no hook
        call = Call(self, entries, calls[-1] if calls else None, frame)
        calls.append(call)
        call.scope = self.scope(call.entry, "recomputed" if call.recomputed else "forward")
        call.sample = call.scope.__enter__()

    def leave(self, entries: Sequence[ModuleEntry], module: Any, result: Any, error: Any) -> None:
        """Close the scope, and follow the results into the backward pass."""
        calls = self.local.calls
        if not any(each.entries is entries for each in reversed(calls)):
            return  # the model was running when the watch began
        while (call := calls.pop()).entries is not entries:
            call.abandon()
        try:
            self._finish(call, module, result, error)
        finally:
            call.abandon()

    def _finish(self, call: Call, module: Any, result: Any, error: Any) -> None:
        raised = (
            error[1] is not None
            and id(error[1]) != call.handled
            and not (call.recomputed and error[0].__name__ == _STOPPED_EARLY)
        )
        if call.sample is None:
            return
        call.scope.__exit__(*(error if raised else _NO_ERROR))
        entry, outer = call.entry, call.outer
        nested = any(each.entry is entry for each in self.local.calls)
        around = None
        if outer is not None and outer.recomputed == call.recomputed:
            around = outer.times
        elif call.recomputed:
            for each in self.open_backwards():
                each.recomputed.append(call.sample)
        self.sums.take(Waiting(call.sample, call.times, around, nested))
        self.reuse(call.scope)
        call.scope = call.sample = None
        if call.reads_memory and not raised:
            entry.memory_reads += 1
            after = _allocated()
            if after is not None and call.memory is not None:
                entry.activation_bytes = after - call.memory
        # The copies that DataParallel makes have nodes of several threads.
        if not raised and call.first >= 0 and module is entry.module():
            self._follow(call, result)

    def _follow(self, call: Call, result: Any) -> None:
        if self.node_number is None or not self.torch.is_grad_enabled():
            return
        nodes = _nodes_of(result)
        first, end = call.first, self.node_number()
        nodes = [node for node in nodes if first <= node._sequence_nr() < end]
        if not nodes:
            return
        known = {node: inner for inner in call.inner for node in inner.starts}
        starts = {}
        for node in nodes:
            start = known[node].starts[node] if node in known else None
            if start is None:
                start = _Start(call)
                node.register_prehook(start)
            else:
                start.calls.insert(0, call)
            starts[node] = start
        last, number, beyond = _last_node(nodes, first, end, known)
        last.register_hook(call.end_backward)  # after those of the calls inside
        if call.outer is not None and not self.closed:
            call.outer.inner.append(_Inner(starts, last, number, beyond))

    # Backward

    def task(self) -> _Task:
        """Return what is open on this thread in the backward pass that runs."""
        tasks = self.local.tasks
        task = None
        while tasks and (task := tasks[-1]()) is None:
            tasks.pop()
        number = self.task_number()
        if task is None or task.number != number:
            task = _Task(self, number)
            self.torch.autograd.Variable._execution_engine.queue_callback(task.finish)
            tasks.append(weakref.ref(task))
        return task

    def close(self, opened: list[_Opened]) -> Call:
        """Close the innermost backward pass that is open."""
        call, scope, sample, recomputed = opened.pop()
        scope.__exit__(*_NO_ERROR)
        outer = [each.call.entry for each in self.open_backwards()]
        around = outer[-1].backward if outer else None
        nested = call.entry in outer
        self.sums.take(Waiting(sample, call.entry.backward, around, nested, recomputed))
        self.reuse(scope)
        return call

    def open_backwards(self) -> list[_Opened]:
        """Return the backward passes that are open on this thread, outermost first."""
        tasks = [task() for task in self.local.tasks]
        return [each for task in tasks if task is not None for each in task.opened]


class _Hook(torch_hooks.Hook):
    """A hook of a module. A copy of the module, and one from a pickle, is not watched."""

    def __init__(self, core: Core, entries: list[ModuleEntry]) -> None:
        self.core = core
        self.entries = entries
        self.is_compiling = core.is_compiling


class Before(_Hook):
    def __call__(self, _module: Any, _arguments: Any) -> None:
        if self.is_compiling() or self.core.closed:
            return  # no Python runs in a compiled region
        with self.core.passive():
            self.core.enter(self.entries, sys._getframe(1))


class After(_Hook):
    def __call__(self, module: Any, _arguments: Any, result: Any) -> None:
        if self.is_compiling() or self.core.closed:
            return
        with self.core.passive():
            self.core.leave(self.entries, module, result, sys.exc_info())


class CompiledCall(_Hook):
    """Wraps the call of a module whose hooks would not run.

    After `module.compile()` they are a part of what is compiled; a `ScriptModule` can have none.
    """

    def __init__(self, core: Core, entries: list[ModuleEntry], before: Any) -> None:
        super().__init__(core, entries)
        self.before = before  # None for a ScriptModule

    def __reduce__(self) -> Any:
        return type(None), ()  # a copy is not compiled

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        module = self.entries[0].module()
        call = module._call_impl if self.before is None else self.before
        if self.is_compiling() or self.core.closed:
            return call(*arguments, **options)
        core = self.core
        with core.passive():
            core.enter(self.entries, sys._getframe())
        result = None
        try:
            result = call(*arguments, **options)
        finally:
            with core.passive():
                core.leave(self.entries, module, result, sys.exc_info())
        return result

    def remove_from(self, module: weakref.ref[Any], kind: type) -> Callable[[], None]:
        """Return what takes it out of the module of a class again; it holds neither of them."""
        itself = weakref.ref(self)
        give_back = torch_hooks.leave_out(kind)

        def remove() -> None:
            give_back()
            found, here = module(), itself()
            if found is None or found.__dict__.get("_compiled_call_impl") is not here:
                return  # another watch wraps this one, and will pass over it
            before = here.before
            while isinstance(before, CompiledCall) and before.core.closed:
                before = before.before
            if before is None:
                del found.__dict__["_compiled_call_impl"]
            else:
                found.__dict__["_compiled_call_impl"] = before

        return remove


def _last_node(
    nodes: Sequence[Any], first: int, end: int, known: Mapping[Any, _Inner]
) -> tuple[Any, int, list[Any]]:
    """Return the node of a call that runs last, its number, and the nodes after the call.

    Calls inside are passed over in one step, so that each node is looked at about once.
    """
    last, least, beyond = nodes[0], _LEAF_NUMBER, []
    seen, left = set(nodes), list(nodes)
    while left:
        node = left.pop()
        inner = known.get(node)
        if inner is None:
            number = node._sequence_nr()
            after: Any = (each for each, _ in node.next_functions if each is not None)
        else:
            node, number, after = inner.last, inner.last_number, inner.beyond
        if number < least:
            last, least = node, number
        for each in after:
            if each not in seen:
                seen.add(each)
                number = each._sequence_nr()
                if first <= number < end:
                    left.append(each)
                elif number < _LEAF_NUMBER:
                    beyond.append(each)
    return last, least, beyond


def _nodes_of(result: Any) -> list[Any]:
    """Return the nodes that made the tensors in a result."""
    nodes: dict[Any, None] = {}
    for tensor in loaded.tensors_in(result):
        with contextlib.suppress(RuntimeError):  # a view that autograd forbids
            if tensor.grad_fn is not None:
                nodes.setdefault(tensor.grad_fn)
            # If the view is changed in place later, its own node drops out of the graph.
            if tensor._is_view() and (node := tensor._base.grad_fn) is not None:
                nodes.setdefault(node)
    return [*nodes]


def _entry_below(entries: Sequence[ModuleEntry], outer: Call | None) -> ModuleEntry:
    """Return the row of a module with several paths: the one below the module that calls it."""
    caller = None if outer is None else outer.entry
    return next((entry for entry in entries if entry.caller is caller), entries[0])


def _allocated() -> int | None:
    """Return how many bytes torch has allocated on the current GPU; None without CUDA."""
    cuda = loaded.torch_cuda()
    if cuda is None:
        return None
    found = cuda.memory_stats_as_nested_dict()["allocated_bytes"]["all"]["current"]
    return int(found)
