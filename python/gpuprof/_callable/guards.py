"""The modules, optimizers and tensors that a captured function depends on, and their changes.

A graph contains the addresses of parameters and moments, and plain settings as they were at the
capture. After `model.to()`, `load_state_dict(assign=True)` or `model.eval()` a replay would
silently use the old ones. docs/design/callable.md lists what is guarded of modules and optimizers.
`_core._Guards` compares it in each call; `ModuleGuards.moved` says what has changed.

Any other object is frozen at the capture. All functions need the interpreter lock, and no other.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import gpuprof._core as _core
from gpuprof._callable.leaves import same_value
from gpuprof._frameworks.array_facts import MOVED, facts_or_none, layout_change, memory_of
from gpuprof._frameworks.loaded import is_tensor
from gpuprof._frameworks.torch_modules import inside
from gpuprof.errors import InvalidStateError

if TYPE_CHECKING:
    from gpuprof._callable.observe import Observation

_AT_ONCE = {"strict": 0, "sweep": 4}  # tensors that a call looks at; 0 is all
_OWNED = {"_parameters": "parameter", "_buffers": "buffer", "_modules": "submodule"}
# Those that `torch.nn.Module.__call__` runs, and what says how.
_HOOKS = (
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_backward_pre_hooks",
    "_backward_hooks",
)
_DICTS = (*_OWNED, *_HOOKS, "__dict__")
# Of the class, unless an instance has its own.
_OF_THE_CLASS = ("forward", "_compiled_call_impl")
_SIMPLE = (bool, int, float, str, type(None))
_MOST = 1_000  # values in a container that is guarded: each call compares those of lists and sets
_ABSENT = _core._Guards.ABSENT
_REPLACED = "replaced by another object"


class MadeStateError(InvalidStateError):
    """An optimizer made its state in the capture, where each replay would make it anew."""


class _Container(NamedTuple):
    """A dict, list or set, and what was in it."""

    entries: Any
    captured: dict[Any, Any]  # of attributes, those that are guarded
    kind: str  # "parameter", "buffer", "submodule", "hook", "entry", or "attribute"
    owner: str  # the path of what it is of; empty for the only module
    holder: Any = None  # the object whose `__dict__` it is


class _Tensor(NamedTuple):
    """A tensor, and where and how it was."""

    name: str
    tensor: Any
    facts: Any
    memory: Any  # kept: a tensor can be given other memory, which would free this one


class ModuleGuards:
    """What modules are before a capture, with all that is in them, which is kept alive."""

    # Compares it in C++: all in each check, or with "sweep" a few tensors at a time.
    core: _core._Guards  # made by `finish`

    def __init__(self, modules: Iterable[Any], check: str = "strict") -> None:
        self.modules: list[Any] = []
        self._at_once = _AT_ONCE[check]
        self._containers: list[_Container] = []
        self._tensors: dict[int, _Tensor] = {}  # by their ids
        self._seen: dict[int, Any] = {}
        self._add_modules(modules)

    def finish(self, seen: Observation | None = None) -> ModuleGuards:
        """Leave out what the run has changed itself, which a replay may not depend on.

        Then take in what was `seen` to be used, as it is now. TypeError names a parameter, buffer,
        submodule or tensor that the run replaced or moved, MadeStateError an optimizer.
        """
        replaced = [
            (f"{each.kind} {_path(each.owner, key)}", change)
            for each in self._containers
            for key, change in _changes(each)
            if each.kind in _OWNED.values() or key in _DICTS
        ]
        for name, change in (*replaced, *self._changed_tensors()):
            verb = {_REPLACED: "replaces", MOVED: "moves"}.get(change, "changes")
            what = name if verb != "changes" else f"{name} ({change})"
            message = f"the function {verb} {what}, which a replay cannot: write into it (copy_)"
            raise TypeError(message)
        kept = []
        for each in self._containers:
            changed = {key for key, _ in _changes(each)} - {"training"}
            if each.kind == "attribute":
                captured = {k: v for k, v in each.captured.items() if k not in changed}
                kept.append(each._replace(captured=captured))
            elif not changed:
                kept.append(each)
        self._containers = kept
        if seen is not None:
            self._add_modules([*seen.modules.values(), *seen.modules_read])
            for each in [*seen.optimizers.values()]:  # as a hook's last call may be going on
                _refuse_made_state(each, seen)
                self._add_optimizer(each)
            for tensor in seen.tensors:
                self._add_tensor(f"a tensor of shape {tuple(tensor.shape)}", tensor)
        self.core = _core._Guards(
            tuple(
                (
                    each.entries,
                    tuple(each.captured),
                    tuple(each.captured.values()),
                    each.kind != "attribute",
                    each.holder,
                )
                for each in self._containers
            ),
            tuple(
                (each.tensor, _core._array_facts(each.tensor))
                for each in self._tensors.values()
                if each.facts is not None
            ),
            self._at_once,
        )
        return self

    def moved(self) -> list[str]:
        """Return all that is not as it was, with its owner and name and what happened."""
        found = [
            _text(each, key, change) for each in self._containers for key, change in _changes(each)
        ]
        found += [f"{name}: {change}" for name, change in self._changed_tensors()]
        return list(dict.fromkeys(found))  # hooks with options are in more than one dict

    def name_of(self, tensor: Any) -> str:
        known = self._tensors.get(id(tensor))
        return f"tensor of shape {tuple(tensor.shape)}" if known is None else known.name

    def _add_modules(self, modules: Iterable[Any]) -> None:
        roots = [each for each in map(inside, modules) if id(each) not in self._seen]
        prefixed = len(self.modules) + len(roots) > 1
        for root in roots:
            if id(root) in self._seen:  # inside of another one
                continue
            self.modules.append(root)
            prefix = type(root).__name__ if prefixed else ""
            for path, part in root.named_modules():
                if id(part) not in self._seen:
                    self._seen[id(part)] = part
                    inner = path.replace("_orig_mod.", "").removesuffix("._orig_mod")
                    self._add_module(part, ".".join(filter(None, (prefix, inner))))

    def _add_module(self, module: Any, path: str) -> None:
        own = vars(module)
        for name, kind in (*_OWNED.items(), *((name, "hook") for name in _HOOKS)):
            held = own.get(name)
            if held is None:  # a scripted module makes these when it is asked
                held = getattr(module, name, {})
            if isinstance(held, dict):
                self._add(held, _contents(held), kind, path)
            for key, value in held.items():
                if is_tensor(value):
                    self._add_tensor(f"{kind} {_path(path, key)}", value)
        guarded = {k: v for k, v in own.items() if k in _DICTS or _is_setting(v)}
        guarded.update({name: _ABSENT for name in _OF_THE_CLASS if name not in own})
        others = (*_DICTS, "_non_persistent_buffers_set")  # which is of no matter to a call
        containers = {k: v for k, v in own.items() if k not in others and _is_plain_container(v)}
        for key, value in containers.items():
            self._add(value, _contents(value), "entry", f"{path}.{key}" if path else key)
        self._add(own, guarded | containers, "attribute", path, module)

    def _add_optimizer(self, optimizer: Any) -> None:
        name, own = type(optimizer).__name__, vars(optimizer)
        groups, state = optimizer.param_groups, optimizer.state
        held = {key: own[key] for key in ("param_groups", "state") if key in own}
        self._add(own, held, "attribute", name, optimizer)
        self._add(groups, _contents(groups), "entry", f"{name}.param_groups")
        for number, group in enumerate(groups):
            options = {
                key: value
                for key, value in group.items()
                if key == "params" or is_tensor(value) or _is_plain(value)
            }
            self._add(group, options, "attribute", f"{name}.param_groups[{number}]")
        of_parameters = {key: each for key, each in state.items() if isinstance(each, dict)}
        self._add(state, of_parameters, "attribute", f"{name}.state")
        for number, each in enumerate(of_parameters.values()):
            tensors = {key: value for key, value in each.items() if is_tensor(value)}
            self._add(each, tensors, "attribute", f"{name}.state[{number}]")

    def _add(self, *container: Any) -> None:
        self._containers.append(_Container(*container))

    def _add_tensor(self, name: str, tensor: Any) -> None:
        if id(tensor) not in self._tensors:
            found = _Tensor(name, tensor, facts_or_none(tensor), memory_of(tensor))
            self._tensors[id(tensor)] = found

    def _changed_tensors(self) -> Iterator[tuple[str, str]]:
        for each in self._tensors.values():
            change = layout_change(facts_or_none(each.tensor), each.facts)
            if change is not None:
                yield each.name, change


def _contents(entries: Any) -> dict[Any, Any]:
    """Return what is in a container, of a list by number, of a set by itself."""
    if isinstance(entries, dict):
        return dict(dict.items(entries))  # as C++ sees it: an `OrderedDict` may iterate otherwise
    items = enumerate(entries) if isinstance(entries, list) else ((each, each) for each in entries)
    return dict(items)


def _is_plain(value: object) -> bool:
    return type(value) in _SIMPLE or (type(value) is tuple and all(map(_is_plain, value)))


def _is_setting(value: object) -> bool:
    """Return whether an attribute is compared: a plain value, or something to call."""
    return _is_plain(value) or isinstance(value, types.ModuleType) or callable(value)


def _is_plain_container(value: Any) -> bool:
    """Return whether an attribute is compared with what is in it: plain values alone."""
    if type(value) not in (dict, list, set) or len(value) > _MOST:
        return False
    return all(type(each) in _SIMPLE for pair in _contents(value).items() for each in pair)


def _refuse_made_state(optimizer: Any, seen: Observation) -> None:
    """Refuse an optimizer that has made tensors of its state in the capture, and drop those."""
    is_made = False
    for state in filter(lambda each: isinstance(each, dict), optimizer.state.values()):
        for key in [k for k, v in state.items() if is_tensor(v) and seen.has_made(v)]:
            del state[key]  # it holds no numbers; the next step makes it
            is_made = True
    if is_made:
        message = (
            f"the function makes the state of its {type(optimizer).__name__} in the capture, and "
            "each replay would make it anew; run it once before, or give warmup=1 or more"
        )
        raise MadeStateError(message)


def _changes(each: _Container) -> Iterator[tuple[Any, str]]:
    """Yield the keys that are not as they were, with what happened."""
    if each.holder is not None and vars(each.holder) is not each.entries:
        yield "__dict__", _REPLACED
    contents = _contents(each.entries)
    for key, expected in each.captured.items():
        now = contents.get(key, _ABSENT)
        if now is expected:
            continue
        if now is _ABSENT or expected is _ABSENT:
            yield key, "removed" if now is _ABSENT else "added"
        elif type(now) not in _SIMPLE or type(expected) not in _SIMPLE:
            yield key, _REPLACED
        elif not same_value(now, expected):
            yield key, f"{now!r}, captured with {expected!r}"
    if each.kind == "attribute":
        return
    yield from ((key, "added") for key in contents if key not in each.captured)
    if isinstance(each.entries, dict) and contents.keys() == each.captured.keys():
        order = zip(contents, each.captured, strict=True)
        yield from ((now, "in another place") for now, then in order if now != then)


def _text(each: _Container, key: Any, change: str) -> str:
    """Write a change with its owner and name."""
    of = f" of '{each.owner}'" if each.owner else ""
    to = {"added": "to", "removed": "from"}.get(change)
    if each.kind == "hook" and to is not None:
        return f"hook {change} {to} '{each.owner}'" if each.owner else f"hook {change}"
    if each.kind == "hook":
        return f"hook{of}: {change}"
    if key == "training":
        return f"training flag{of}: {change}"
    return f"{each.kind} {_path(each.owner, key)}: {change}"


def _path(owner: str, key: Any) -> str:
    key = f"a parameter of shape {tuple(key.shape)}" if is_tensor(key) else key
    return f"'{owner}.{key}'" if owner else f"'{key}'"
