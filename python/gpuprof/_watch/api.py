"""`gpuprof.watch`: what each module of a torch model takes on the GPU, forward and backward."""

from __future__ import annotations

import importlib.util
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import gpuprof._core as _core
from gpuprof._common.checks import not_pickled, shortened, whole
from gpuprof._common.imports import need
from gpuprof._display.shown import Shown
from gpuprof._frameworks import loaded, torch_hooks
from gpuprof._timing import scope as timing
from gpuprof._watch.hooks import CompiledCall, Core, ModuleHook
from gpuprof._watch.tree import NOTED, ModuleEntry, ModuleRow, ModuleTimes, PassTimes
from gpuprof.errors import GpuprofError

if TYPE_CHECKING:
    from gpuprof._display.table import Table
    from gpuprof._timing.rows import Row


def watch(model: Any, depth: int = 2) -> ModuleWatch:
    """Measure the forward and backward time of a model's modules while the model is used.

    The modules get hooks, nothing else of the model changes: results and gradients are what they
    are without it. Running the model never waits for the GPU; reading the watch does.

    Parameters
    ----------
    model : torch.nn.Module
        A module of any kind, also what `torch.compile` or `DataParallel` made of one.
    depth : int
        How far down modules are measured: 0 is the model alone, 1 also what is directly in it.

    Returns
    -------
    ModuleWatch
        Keep it: the hooks are removed by its `close`, at the end of its ``with`` block, or when it
        is dropped. Printing it shows the tree.

    Raises
    ------
    TypeError
        `model` is no `torch.nn.Module`.
    ValueError
        `depth` is no whole number, or negative.
    ModuleNotFoundError
        Torch is not installed.

    Notes
    -----
    A compiled region is one row, and a model that is captured as a graph is measured inside the
    graph if it is watched before it is captured. Autograd's backward pass is measured by hooks on
    its nodes, which work with in-place operations, views and checkpointing. A module that drops
    results of modules inside, or detaches them in a loop, keeps their graphs until its own call is
    over. A model may be watched twice at the same time.

    Examples
    --------
    >>> import gpuprof, torch  # doctest: +SKIP
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())  # doctest: +SKIP
    >>> with gpuprof.watch(model) as seen:  # doctest: +SKIP
    ...     model(torch.ones(2, 8)).sum().backward()
    >>> print(seen)  # doctest: +SKIP
    """
    if loaded.whole_torch() is None and importlib.util.find_spec("torch") is None:
        need("torch", "gpuprof.watch")
    if not loaded.is_module(model):
        hint = "; pass an instance of it" if isinstance(model, type) else ""
        message = f"model: expected a torch.nn.Module, got {shortened(model)}{hint}"
        raise TypeError(message)
    whole("depth", depth, 0)
    core = Core(model)
    try:
        _attach(core, model, depth)
    except BaseException:
        core.detach()
        raise
    return ModuleWatch(core)


def _attach(core: Core, model: Any, depth: int) -> None:
    """Hook the modules down to `depth`, and give each of their places a row."""
    of_module: dict[int, list[ModuleEntry]] = {}
    without_forward = loaded.torch().nn.Module.forward  # ModuleList and ModuleDict have no other

    def visit(
        path: tuple[str, ...], module: Any, above: tuple[Any, ...], caller: ModuleEntry | None
    ) -> ModuleEntry:
        entry = ModuleEntry(".".join(path), module, caller)
        core.entries.append(entry)
        known = of_module.setdefault(id(module), [])
        known.append(entry)
        if len(known) == 1:
            _hook(core, module, known)
        if len(path) == depth:
            return entry
        if getattr(type(module), "forward", None) is not without_forward:
            caller = entry
        children: dict[int, ModuleEntry] = {}
        for name, child in module._modules.items():
            if child is None or child is module or any(child is each for each in above):
                continue
            if id(child) in children:  # its calls cannot be told apart
                children[id(child)].also.append(".".join((*path, name)))
            else:
                children[id(child)] = visit((*path, name), child, (*above, module), caller)
        return entry

    visit((), model, (), None)


def _hook(core: Core, module: Any, entries: list[ModuleEntry]) -> None:
    before = module.__dict__.get("_compiled_call_impl")
    if before is None and not isinstance(module, loaded.torch().jit.ScriptModule):
        hook = ModuleHook(core, entries)
        core.undo.callback(torch_hooks.add(module, hook, hook))
        return
    around = CompiledCall(core, entries, before)
    module.__dict__["_compiled_call_impl"] = around
    core.undo.callback(around.remove_from(weakref.ref(module), type(module)))


class ModuleWatch(Shown, AbstractContextManager["ModuleWatch"]):
    """A model that is being measured, as `watch` returns it.

    It does not keep the model alive. What it has measured can be read at any time, also after
    `close`.
    """

    __module__ = "gpuprof"

    def __init__(self, core: Core) -> None:
        self._core = core
        self._detach = weakref.finalize(self, core.detach)
        self._detach.atexit = False

    @property
    def closed(self) -> bool:
        """Whether the model is watched no more."""
        return self._core.closed

    def close(self) -> None:
        """Remove all hooks from the model. Idempotent."""
        self._detach()

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def read(self, wait: bool = True) -> ModuleTimes:
        """Return what has been measured so far.

        Parameters
        ----------
        wait : bool
            First wait for the GPU. False never waits, and counts what is not done as pending.

        Returns
        -------
        ModuleTimes
            The rows by path: ``seen.read()["layers.0"].forward.mean_ms``.
        """
        core = self._core
        core.fold(wait)
        notes = [] if core.error is None else [f"stopped by {core.error}"]
        if loaded.torch_part("_dynamo") is not None and not any(
            s.forward.calls for s in core.entries
        ):
            notes.append("of a model that torch.compile compiled, watch what it returned")
        passes = (of for s in core.entries for of in (s.forward, s.recomputed, s.backward))
        in_graphs = timing.stats(wait).values() if any(of.captured for of in passes) else ()
        collected = {row.names: row for row in in_graphs if row.gpu.count}
        return ModuleTimes([*_rows(core, collected, wait)], core.clocks, notes)

    def to_dict(self) -> dict[str, Any]:
        """Return what has been measured as plain data; waits for the GPU."""
        return self.read().to_dict()

    def __str__(self) -> str:
        return repr(self.read())

    def __repr__(self) -> str:
        return repr(self.read(wait=False))

    def _table(self) -> Table:
        return self.read()._table()

    __reduce__ = not_pickled(
        "a ModuleWatch cannot be pickled, as it hangs on its model: pickle .read()"
    )


def _rows(core: Core, collected: Mapping[tuple[str, ...], Row], wait: bool) -> Iterator[ModuleRow]:
    called = {entry.path for entry in core.entries if entry.forward.calls or entry.backward.calls}
    # Forward, backward, what of both was inside others, recomputed.
    totals: dict[str, list[float]] = {}
    for entry in reversed(core.entries):
        own = totals.setdefault(entry.path, [0.0] * 4)
        if entry.path in called:
            own[:3] = [
                entry.forward.outermost_ms,
                entry.backward.outermost_ms,
                entry.forward.inside_ms + entry.backward.inside_ms,
            ]
        own[3] += entry.recomputed.outermost_ms
        if entry.path:
            sums = totals.setdefault(entry.path.rpartition(".")[0], [0.0] * 4)
            sums[:] = [mine + its for mine, its in zip(sums, own, strict=True)]
            sums[3] -= entry.recomputed.inside_ms
    for entry in core.entries:
        entry.count_parameters()
        forward, backward, inside, recomputed = totals[entry.path]
        above = entry.path.rpartition(".")[0]
        above_ms = sum(totals[above]) - totals[above][2]
        part_ms = recomputed + (inside if above in called else forward + backward)
        yield ModuleRow(
            path=entry.path,
            class_name=entry.class_name,
            depth=len(entry.path.split(".")) if entry.path else 0,
            forward=_times(entry.forward, forward, collected, wait),
            recomputed=_times(entry.recomputed, recomputed, collected, wait),
            backward=_times(entry.backward, backward, collected, wait),
            share=part_ms / above_ms if entry.path and above_ms and part_ms else None,
            parameters=entry.parameters,
            parameter_bytes=entry.parameter_bytes,
            activation_bytes=entry.activation_bytes,
            also=tuple(entry.also),
        )


def _times(
    of: _core._WatchedPass,
    total_ms: float,
    collected: Mapping[tuple[str, ...], Row],
    wait: bool,
) -> PassTimes:
    last = [ms for each in of.captured if (ms := _last_ms(each, wait)) is not None]
    names = {sample.names for sample, *_ in of.captured} & {*collected}
    others = {each.names for _, *without in of.captured for each in without} & {*collected}
    return PassTimes(
        **{name: getattr(of, name) for name in ("calls", "timed", *NOTED)},
        total_ms=total_ms,
        self_ms=max(0.0, of.all_ms - of.below_ms),
        mean_ms=of.all_ms / of.timed if of.timed else None,
        graph_calls=len(last) + sum(collected[each].gpu.count for each in names),
        graph_ms=sum(last)
        + sum(collected[each].gpu.total_ms for each in names)
        - sum(collected[each].gpu.total_ms for each in others),
    )


def _last_ms(samples: Sequence[_core.Sample], wait: bool) -> float | None:
    """Return the time of a call inside a graph in its last replay; None if that is not known."""
    found: list[float] = []
    for sample in samples:
        try:
            ms = sample.ms if wait else sample.try_ms()
        except GpuprofError:  # it was never replayed, or its graph is closed or collects all times
            return None
        if ms is None:
            return None
        found.append(ms)
    return found[0] - sum(found[1:])
