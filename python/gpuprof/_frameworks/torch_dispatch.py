"""What torch's operators read and write while a block runs, as its dispatcher shows them.

Nothing here imports torch before `watching` is entered. One thread at a time; operators that the
block runs on other threads are not seen, other than those of a backward pass.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

from gpuprof._frameworks import loaded

# Batch norms write to these while they train, and their schemas do not tell.
_STATISTICS = {"running_mean", "running_var"}
_ALL = sys.maxsize
_TRAINS = ("training", "train", "use_input_stats")


class Use(NamedTuple):
    """A tensor that an operator was given: whether it writes to it, or only makes a view of it."""

    tensor: Any
    is_written: bool
    is_viewed: bool


_Place: TypeAlias = "int | str"  # of an argument: its number or its name
# Called before and after each operator: with what it uses, and with itself, the tensors that it
# returned, whether it may return an argument itself or a copy of it, as their strides decide, and
# whether it may draw random numbers. And with one that raised.
Before = Callable[[list[Use]], None]
After = Callable[[Any, list[Any], bool, bool], None]
Failed = Callable[[Any], None]


@contextlib.contextmanager
def watching(before: Before, after: After, failed: Failed) -> Iterator[None]:
    """Call `before` and `after` around each operator of torch's in the block, or `failed`.

    Code that `torch.compile` has compiled runs its operators one by one meanwhile, and is compiled
    as before afterwards.
    """
    if loaded.whole_torch() is None:
        yield
        return
    with eager_compiled_code(), _mode_class()(before, after, failed):
        yield


def unwatched() -> contextlib.AbstractContextManager[object]:
    """Return a block whose operators no dispatch mode that was entered before it sees."""
    modes: Any = importlib.import_module("torch.utils._python_dispatch")
    block: contextlib.AbstractContextManager[object] = modes._disable_current_modes()
    return block


def may_run_compiled_code() -> bool:
    """Return whether anything was compiled by `torch.compile` in this process."""
    frames = loaded.torch_part("_dynamo.convert_frame")
    return frames is not None and getattr(frames, "FRAME_COUNTER", 1) > 0


def eager_compiled_code() -> Any:
    """Return a block in which compiled code runs its operators one by one."""
    # Under a dispatch mode alone, a function that is not compiled yet would never be.
    if loaded.torch_part("_dynamo.eval_frame") is None:
        return contextlib.nullcontext()
    return loaded.torch().compiler.set_stance("force_eager")


@functools.lru_cache(maxsize=1)
def _mode_class() -> Any:
    base: Any = importlib.import_module("torch.utils._python_dispatch").TorchDispatchMode

    aten = loaded.torch().ops.aten
    copying = {aten.clone, aten._to_copy, aten.contiguous, aten.reshape, aten.flatten}
    lift_fresh = aten.lift_fresh.default  # it gets what `torch.tensor` has just made, unseen
    set_to_storage = {aten.set_.source_Storage, aten.set_.source_Storage_storage_offset}
    drawing = loaded.torch().Tag.nondeterministic_seeded

    class Watch(base):  # type: ignore[misc]
        supports_higher_order_operators = True

        def __init__(self, before: Before, after: After, failed: Failed) -> None:
            super().__init__()
            self._before, self._after, self._failed = before, after, failed

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            self._before([] if func is lift_fresh else _uses(func, args, kwargs))
            try:
                result = func(*args, **kwargs)
            except Exception:
                self._failed(func)
                raise
            if func in set_to_storage:  # recurrent layers' weights become one tensor so
                self._before([Use(result, is_written=False, is_viewed=True)])
            is_copy = getattr(func, "_overloadpacket", None) in copying
            may_draw = drawing in getattr(func, "tags", ()) and _may_draw(func, args, kwargs)
            self._after(func, [*loaded.tensors_in(result, _ALL)], is_copy, may_draw)
            return result

    return Watch


def _uses(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Use]:
    written, is_view, trains = _effects(func)
    if trains is not None:
        number, name = trains
        if not (args[number] if number < len(args) else kwargs.get(name)):
            written = frozenset()
    found = []
    for place, value in (*enumerate(args), *kwargs.items()):
        is_written = written is None or place in written
        found += [Use(each, is_written, is_view) for each in loaded.tensors_in(value, _ALL)]
    return found


def _may_draw(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether all is given without which an operator, such as attention, draws nothing."""
    return all(
        args[number] if number < len(args) else kwargs.get(each.name, each.default_value)
        for number, each in enumerate(func._schema.arguments)
        if each.name in {"dropout_p", "dropout", *_TRAINS}
    )


@functools.lru_cache(maxsize=4096)
def _effects(func: Any) -> tuple[frozenset[_Place] | None, bool, tuple[int, str] | None]:
    """Return which arguments an operator writes to, by place and name, and if it makes a view.

    None stands for all of them: for operators without a schema, and for collectives, whose schemas
    do not tell. The last is the place of a flag without which it writes to none.
    """
    schema = getattr(func, "_schema", None)
    if schema is None or getattr(func, "namespace", "") == "c10d":
        return None, False, None
    written: set[_Place] = set()
    trains: tuple[int, str] | None = None
    is_view = False
    names = [argument.name for argument in schema.arguments]
    flag = next((name for name in _TRAINS if name in names), None)
    for index, argument in enumerate(schema.arguments):
        alias = argument.alias_info
        if alias is None and argument.name in _STATISTICS and flag is not None:
            trains = (names.index(flag), flag)
        elif alias is None or not alias.is_write:
            is_view = is_view or alias is not None
            continue
        written |= {index, argument.name}
    return frozenset(written), is_view, trains
