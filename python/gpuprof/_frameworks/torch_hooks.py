"""Hooks into torch: around modules, optimizers and profilers, and replaced functions.

Each is made by a function that returns what takes it out again. Torch keeps the hooks of one module
in that module, and so pickles and copies them. While a module has hooks of ours, `copyreg` has a
reducer for its class that leaves them out. A module that is reduced in another way, as by its
class's own ``__deepcopy__``, has functions of the standard library in their place.
"""

from __future__ import annotations

import contextlib
import copyreg
import gc
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from gpuprof._frameworks import loaded

Undo: TypeAlias = Callable[[], None]

PROFILERS = "torch.autograd.profiler"  # the module that starts torch's profilers

_HOOKS = ("_forward_pre_hooks", "_forward_hooks")
# By the numbers of hooks, which of them have an option.
_OPTIONS = (
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
)
_COMPILED = "_compiled_call_impl"
_hooked: Counter[type] = Counter()  # how often modules of a class have hooks
_reducers: dict[type, Any] = {}  # what `copyreg` had for such a class, or None
_global_hooks: set[int] = set()  # the numbers of ours among the hooks of all modules
_put_back: list[Undo] = []  # what torch asks whether there are any
_IS_CAPTURING = "_cuda_isCurrentStreamCapturing"
_AS_CAPTURING = "gpuprof's as_if_capturing"
_lent = threading.local()  # the function mode that backward passes of this thread run in


class Passive:
    """A block whose failure is told to `fail`, and ends there."""

    __slots__ = ("_fail",)

    def __init__(self, fail: Callable[[Exception], object]) -> None:
        self._fail = fail

    def __enter__(self) -> None:
        return None

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> bool:
        if isinstance(error, Exception):
            self._fail(error)
            return True
        return False


def is_running(frame: Any, inner: Any) -> bool:
    """Return whether `frame` is one of those that have called `inner`."""
    while inner is not None and inner is not frame:
        inner = inner.f_back
    return inner is not None


def replace(owner: Any, name: str, function: Any) -> Undo:
    """Replace an attribute of a module or class, until somebody else has replaced it in turn."""
    is_own = name in vars(owner)
    before = vars(owner).get(name)
    setattr(owner, name, function)

    def put_back() -> None:
        if vars(owner).get(name) is not function:
            return
        if is_own:
            setattr(owner, name, before)
        else:
            delattr(owner, name)

    return put_back


class _WhileNeeded:
    """Functions that are replaced while a block on any thread needs them."""

    def __init__(self, replace_all: Callable[[], list[Undo]]) -> None:
        self._replace_all = replace_all
        self._put_back: list[Undo] = []
        self._blocks = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            if not self._blocks:
                self._put_back = self._replace_all()
            self._blocks += 1

    def __exit__(self, *_error: object) -> None:
        with self._lock:
            self._blocks -= 1
            while self._put_back and not self._blocks:
                self._put_back.pop()()


@contextlib.contextmanager
def as_if_capturing() -> Iterator[None]:
    """Tell code of the block that torch's current stream is captured, on this thread alone.

    Autograd's threads are told so as well, in backward passes of the block: torch lends them what
    is stashed on this one. What is replaced lies below torch's function, which others have imported
    under their own names.
    """
    core, graphs = loaded.torch_part("_C"), loaded.torch_part("cuda.graphs")
    if not hasattr(graphs, _IS_CAPTURING):
        yield
        return
    told_before = _is_told(core)
    with _answering:
        core._stash_obj_in_tls(_AS_CAPTURING, True)
        try:
            yield
        finally:
            core._stash_obj_in_tls(_AS_CAPTURING, told_before)


@contextlib.contextmanager
def backward_in(mode: Any) -> Iterator[None]:
    """Let backward passes that this thread starts in the block run in a function mode.

    For what a mode is asked for torch leaves it, and its engine lends the modes of that moment to
    the threads that recompute checkpointed layers.
    """
    before = getattr(_lent, "mode", None)
    with _running_backward:
        _lent.mode = mode
        try:
            yield
        finally:
            _lent.mode = before


def _replace_run_backward() -> list[Undo]:
    autograd = loaded.torch().autograd
    engine = autograd._engine_run_backward

    def run_backward(*args: Any, **kwargs: Any) -> Any:
        with getattr(_lent, "mode", None) or contextlib.nullcontext():
            return engine(*args, **kwargs)

    return [replace(autograd, "_engine_run_backward", run_backward)]


_running_backward = _WhileNeeded(_replace_run_backward)


def _is_told(core: Any) -> bool:
    return bool(core._is_key_in_tls(_AS_CAPTURING) and core._get_obj_in_tls(_AS_CAPTURING))


def _replace_is_capturing() -> list[Undo]:
    core, graphs = loaded.torch_part("_C"), loaded.torch_part("cuda.graphs")
    truth = getattr(graphs, _IS_CAPTURING)

    def answer() -> bool:
        if not _is_told(core):
            return bool(truth())
        asker: Any = sys._getframe(1)
        if asker.f_globals is vars(graphs) and asker.f_back is not None:
            asker = asker.f_back
        library, _, part = asker.f_globals.get("__name__", "").partition(".")
        # Torch's modules are part of models. What else of it asks allocates, or refuses to.
        wants_truth = library == "torch" and part.partition(".")[0] != "nn"
        return bool(truth()) if wants_truth else True

    return [replace(each, _IS_CAPTURING, answer) for each in (core, graphs)]


_answering = _WhileNeeded(_replace_is_capturing)


def around_all_modules(before: Callable[..., Any], after: Callable[..., Any] | None = None) -> Undo:
    """Call `before` before each call of any module, and `after` after it, also after an exception.

    Torch warns that such hooks are called twice for a compiled module; of these it does not.
    """
    modules = loaded.torch_part("nn.modules.module")
    handles = [modules.register_module_forward_pre_hook(before)]
    if after is not None:
        handles.append(modules.register_module_forward_hook(after, always_call=True))
    ours = {handle.id for handle in handles}

    def has_any_other() -> bool:
        backward = modules._global_backward_pre_hooks or modules._global_backward_hooks
        others = {*modules._global_forward_pre_hooks, *modules._global_forward_hooks}
        return bool(backward or others - _global_hooks)

    if not _global_hooks:
        _put_back.append(replace(modules, "_has_any_global_hook", has_any_other))
    _global_hooks.update(ours)

    def remove() -> None:
        for handle in handles:
            handle.remove()
        _global_hooks.difference_update(ours)
        while _put_back and not _global_hooks:
            _put_back.pop()()

    return remove


def around_all_steps(before: Callable[..., Any], after: Callable[..., Any] | None = None) -> Undo:
    """Call `before` before each step of any optimizer, and `after` after it."""
    optimizers, undo = loaded.torch_part("optim.optimizer"), contextlib.ExitStack()
    undo.callback(optimizers.register_optimizer_step_pre_hook(before).remove)
    if after is not None:
        undo.callback(optimizers.register_optimizer_step_post_hook(after).remove)
    return undo.close


def after_steps_of(optimizer: Any, after: Callable[..., Any]) -> Undo | None:
    """Call `after` after each step of an optimizer; None for one without hooks."""
    add_hook = getattr(optimizer, "register_step_post_hook", None)
    return None if add_hook is None else add_hook(after).remove


class Hook:
    """What is called around a module's calls; subclasses do so, or `call` does."""

    def __init__(self, call: Callable[..., Any] | None = None) -> None:
        self._call = call

    def __call__(self, *arguments: Any) -> Any:
        return self._call and self._call(*arguments)

    def __reduce__(self) -> Any:
        return getattr, (contextlib.nullcontext(), "__exit__")  # takes anything, returns None


def add(module: Any, before: Hook, after: Hook) -> Undo:
    """Call `before` before each call of a module, and `after` after it, also after an exception."""
    first = module.register_forward_pre_hook(before, prepend=True)
    last = module.register_forward_hook(after, always_call=True)
    undo = contextlib.ExitStack()
    undo.callback(leave_out(type(module)))  # last: a copy meanwhile has no hooks
    undo.callback(last.remove)
    undo.callback(first.remove)
    return undo.close


def leave_out(kind: type) -> Undo:
    """Have the hooks left out where modules of a class are reduced, until the result is called."""
    _hooked[kind] += 1
    if _hooked[kind] == 1:
        _reducers[kind] = copyreg.dispatch_table.get(kind)
        copyreg.pickle(kind, _reduced)

    def give_back() -> None:
        _hooked[kind] -= 1
        if _hooked[kind]:
            return
        before = _reducers.pop(kind)
        del _hooked[kind]
        if copyreg.dispatch_table.get(kind) is not _reduced:
            return  # another one has replaced it
        if before is None:
            del copyreg.dispatch_table[kind]
        else:
            copyreg.pickle(kind, before)

    return give_back


def _reduced(module: Any) -> Any:
    before = _reducers.get(type(module))
    found = module.__reduce_ex__(2) if before is None else before(module)
    return tuple(map(_without, found)) if isinstance(found, tuple) else found


def _without(part: Any) -> Any:
    """Return a part of what a module is reduced to without hooks of ours."""
    if type(part) is tuple:
        return tuple(map(_without, part))
    if type(part) is not dict or not any(name in part for name in _HOOKS):
        return part
    part = dict(part)
    for name in _HOOKS:
        hooks = part.get(name, {})
        ours = {number for number, hook in hooks.items() if isinstance(hook, Hook)}
        for each in (name, *_OPTIONS):
            if each in part and ours & part[each].keys():
                kept = part[each].items()
                part[each] = type(part[each])(pair for pair in kept if pair[0] not in ours)
    if isinstance(part.get(_COMPILED), Hook):
        del part[_COMPILED]
    return part


def before_profiler(call: Callable[[], None]) -> Undo:
    """Call `call` whenever one of torch's profilers is about to start."""
    module = loaded.torch_part("autograd.profiler")
    prepare = getattr(module, "_prepare_profiler", None)
    if prepare is None:
        return lambda: None

    def prepare_profiler(*arguments: Any, **options: Any) -> Any:
        call()
        return prepare(*arguments, **options)

    return replace(module, "_prepare_profiler", prepare_profiler)


def running_profiler() -> str | None:
    """Name the torch profiler that runs, or that is in the warm-up of its schedule, or None."""
    base: Any = getattr(loaded.torch_part("profiler"), "_KinetoProfile", None)
    for each in gc.get_objects() if base is not None else ():
        if not issubclass(type(each), base):
            continue
        inner = getattr(each, "profiler", None)
        action = getattr(getattr(each, "current_action", None), "name", "RECORD")
        if inner is None or action == "NONE":
            continue
        # One that adds up its cycles keeps the result of the last one while it prepares the next.
        prepares = getattr(inner, "acc_events", False) and action == "WARMUP"
        if inner.kineto_results is None or prepares:
            return f"torch.profiler.{type(each).__name__}"
    enabled = getattr(loaded.torch_part("autograd"), "_profiler_enabled", None)
    if enabled is not None and enabled():
        return PROFILERS
    if getattr(loaded.torch_part("autograd.profiler"), "_is_profiler_enabled", False):
        return f"{PROFILERS}, on another thread"
    return None
