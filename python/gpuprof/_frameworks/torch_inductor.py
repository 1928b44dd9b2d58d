"""Which module of a model each kernel of compiled code belongs to.

Inductor writes above each launch in the source that it makes which nodes of the traced graph the
launch came from. Torch keeps that graph alive beside the compiled function, and its nodes know
their modules. So both are read when they are asked for, also where a cache had the code. Only the
nodes of a backward pass know nothing, unless they are told while they are traced.
"""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from types import CellType, FunctionType, MethodType
from typing import Any, NamedTuple

from gpuprof._common.places import is_of_library, short
from gpuprof._frameworks import loaded, torch_hooks

_TRACERS = ("graph_capture", "dispatch_and_compile_graph")  # the second one up to torch 2.8
_COPY = "copy_fwd_metadata_to_bw_nodes"
# A Triton kernel of the user's, which may run elsewhere, too, has another name than its variable.
_DEFINED = re.compile(r"^(triton_\w+) = async_compile\.triton\('\1'", re.MULTILINE)
_STEP = re.compile(r"Source Nodes: \[([^]]*)\]|\b(\w+)\.run\(|^ *def (\w+)\(", re.MULTILINE)
_INDEX = re.compile(r"\[['\"]?([^]'\"]*)['\"]?\]")
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
# What was compiled: a module, one whose forward pass is of torch itself; also `___stack0`, which is
# what code after a graph break has from before it.
_ROOTS = ("self", "fn")
_PARTS = ("torch._dynamo", "torch._functorch", "torch._inductor")  # what compiled functions are of
_UNUSED = 2  # references to what only its module and the question have
_CONTAINERS = (dict, list, tuple, CellType, MethodType)


class Origin(NamedTuple):
    """Where a kernel comes from: a module's path, `""` for no single one; and a line of source."""

    module: str
    line: str


class Launch(NamedTuple):
    """One launch of compiled code; the kernel's name is `""` for one of a library."""

    kernel: str
    origin: Origin | None  # None where it is not known


def common(origins: Iterable[Origin]) -> Origin:
    """Return the module around all, and the first line."""
    known = list(origins)
    columns = zip(*(each.module.split(".") for each in known), strict=False)
    shared = [names[0] for names in takewhile(lambda names: len({*names}) == 1, columns)]
    return Origin(".".join(shared), next((each.line for each in known if each.line), ""))


def launches(kernels: set[str]) -> list[list[Launch]]:
    """Return what each compiled function launches, in order, of those that launch such kernels."""
    codecache = getattr(loaded.torch_part("_inductor.codecache"), "PyCodeCache", None)
    sources: dict[str, str] = {}
    held: set[str] = set()  # which may run; torch keeps the modules of all others, too
    for module in [*getattr(codecache, "modules", ())]:
        file = getattr(module, "__file__", None)
        if not file or not hasattr(module, "call"):
            continue
        if sys.getrefcount(module.call) > _UNUSED:
            held.add(file)
        with suppress(OSError):  # its folder was cleared
            text = sources.get(file) or Path(file).read_text(encoding="utf-8")
            if not kernels.isdisjoint(_DEFINED.findall(text)):
                sources[file] = text
    nodes_of = _graphs_of(sources) if sources else {}
    # Kernels of one whose graph is not found are not to be taken for those of another.
    return [
        each
        for file, text in sources.items()
        if file in held or file in nodes_of
        for each in _sequences(text, nodes_of.get(file, {}))
    ]


def _sequences(text: str, nodes: Mapping[str, Origin]) -> list[list[Launch]]:
    """Return the launches of each function of a source, with those of unknown origin filled in."""
    defined = {*_DEFINED.findall(text)}
    found: list[list[Launch]] = [[]]
    above: str | None = None  # the nodes of a launch that is still to come
    for names, variable, function in _STEP.findall(f"{text}\ndef end("):
        if variable and variable not in defined:
            continue
        if variable or above is not None:
            known = [nodes[each] for each in (above or "").split(", ") if each in nodes]
            found[-1].append(Launch(variable, common(known) if known else None))
        above = None if variable or function else names
        if function:
            found.append([])
    return [_filled(each) for each in found if any(launch.kernel for launch in each)]


def _filled(sequence: Sequence[Launch]) -> list[Launch]:
    """Give launches of unknown origin the module around those known on either side."""
    before, after = list(sequence), list(sequence)
    for at in range(1, len(sequence)):
        if before[at].origin is None:
            before[at] = before[at - 1]
        if after[-1 - at].origin is None:
            after[-1 - at] = after[-at]
    return [
        launch
        if launch.origin or not (old.origin and new.origin)
        else Launch(launch.kernel, common((old.origin, new.origin)))
        for launch, old, new in zip(sequence, before, after, strict=True)
    ]


def _graphs_of(files: Collection[str]) -> dict[str, dict[str, Origin]]:
    """Return for each file the origins of the traced graph that it was compiled from, by node.

    The function that torch makes of a traced module has that module's methods as attributes.
    """
    module_type = loaded.torch().fx.GraphModule
    found: dict[str, dict[str, Origin]] = {}
    for each in gc.get_objects():
        # By its name first: a function that is asked for its attributes gets a place for them.
        if type(each) is not FunctionType or "forward" not in each.__name__:
            continue
        traced = getattr(each.__dict__.get("named_parameters"), "__self__", None)
        if isinstance(traced, module_type) and (reached := _files_behind(each, files)):
            origins = _origins(traced)
            for file in reached:
                known = found.setdefault(file, {})
                for name, origin in origins.items():
                    known[name] = common((known.get(name, origin), origin))
    return found


def _files_behind(function: object, files: Collection[str]) -> set[str]:
    """Return the files of functions that a compiled function can call."""
    found: set[str] = set()
    seen: dict[int, Any] = {}  # which keeps them, so that no two have one number
    left: list[Any] = [function]
    while left:
        each = left.pop()
        if id(each) in seen:
            continue
        seen[id(each)] = each
        kind = type(each)  # also of proxies, which may be asked for nothing
        if kind is FunctionType:
            if each.__code__.co_filename in files:
                found.add(each.__code__.co_filename)
            else:
                left += [*(each.__closure__ or ()), each.__dict__]
        elif issubclass(kind, _CONTAINERS):
            left += gc.get_referents(each)
        else:
            owner = each if issubclass(kind, type) else kind
            if str(owner.__module__).startswith(_PARTS):
                left.append(dict(vars(owner)) if owner is each else getattr(each, "__dict__", None))
    return found


def _origins(traced: Any) -> dict[str, Origin]:
    graphs = [each.graph for each in traced.modules() if hasattr(each, "graph")]
    nodes = [
        (node, [*map(_names, (node.meta.get("nn_module_stack") or {}).values())])
        for graph in graphs
        for node in graph.nodes
        if node.op not in ("placeholder", "output", "get_attr")
    ]
    # The only one that all are parts of, and that nobody calls, is the module of the method.
    outermost = [stack[0] for _, stack in nodes if stack]
    roots = {names[0] for names in outermost if names}
    is_whole = len(roots) == 1 and min(map(len, outermost)) > 1
    found: dict[str, list[Origin]] = {}
    for node, stack in nodes:
        names = stack[-1] if stack else []
        if names and (is_whole or names[0] in _ROOTS or names[0].startswith("___")):
            names = names[1:]
        module = ".".join(names)
        found.setdefault(node.name, []).append(Origin(module, _line(node.stack_trace or "")))
    return {name: common(origins) for name, origins in found.items()}


def _names(called: tuple[str, Any]) -> list[str]:
    """Return the names of a module that torch has as ``L['self'].layers[0]``."""
    names = _INDEX.sub(r".\1", called[0]).split(".")
    return [each for each in names[1:] if each != "_modules"]


def _line(stack_trace: str) -> str:
    """Return the innermost line of a trace that is of no library, as text."""
    for file, line, function in reversed(_FRAME.findall(stack_trace)):
        if not is_of_library(file):
            return f"{short(file)}:{line} in {function}"
    return ""


def keep_origins() -> None:
    """Have inductor write for the kernels of backward passes what it writes for those of forward.

    Code that was compiled before, or that a cache has from before, has no such notes.
    """
    tracers = (loaded.torch_part(f"_functorch._aot_autograd.{each}") for each in _TRACERS)
    module = next((each for each in tracers if hasattr(each, _COPY)), None)
    if module is None:
        return
    copy = getattr(module, _COPY)

    def copy_with_origins(joint: Any) -> Any:
        result = copy(joint)
        with suppress(Exception):  # a compilation must not fail for it
            _copy_origins(joint)
        return result

    torch_hooks.replace(module, _COPY, copy_with_origins)


def _copy_origins(joint: Any) -> None:
    """Give nodes of the backward pass the origin of the forward node with the same number."""
    graphs = [each.graph for each in joint.modules() if hasattr(each, "graph")]
    nodes = [each for graph in graphs for each in graph.nodes if "seq_nr" in each.meta]
    forward: dict[int, Any] = {}
    for node in nodes:
        if "from_node" in node.meta:
            forward.setdefault(node.meta["seq_nr"], node.meta["from_node"])
    for node in nodes:
        origin = forward.get(node.meta["seq_nr"])
        # An accumulation of gradients has the number of any one of the nodes it adds up.
        is_sum = node.meta.get("is_gradient_acc", False)
        if origin is not None and "from_node" not in node.meta and not is_sum:
            node.meta["from_node"] = list(origin)
