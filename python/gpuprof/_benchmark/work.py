"""What is measured: a function with its arguments, and what is told of it on the way."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Any

from gpuprof._benchmark import arrays

__tracebackhide__ = True  # pytest shows the frames of the test and of its function

MAX_CLONES = 256  # of the arguments; with smaller ones the L2 is flushed instead
_SHOWN = 5


class Work:
    """A function and its arguments. One thread uses it.

    Parameters
    ----------
    fn : callable
        What is called.
    args, kwargs : sequence, mapping
        Its arguments.
    setup : callable or None
        Called before each measured call. It may return ``(args, kwargs)`` for that call.

    Attributes
    ----------
    warnings : list of str
        What the result will say, each text once.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        setup: Callable[[], Any] | None,
    ) -> None:
        self.fn = fn
        self.setup = setup
        self.warnings: list[str] = []
        self._variants = [(tuple(args), dict(kwargs))]
        self._next = 0

    def warn(self, text: str) -> None:
        """Note a warning, unless it is noted already."""
        if text not in self.warnings:
            self.warnings.append(text)

    def call(self) -> Any:
        """Call the function once, with the next clones of its arguments; return its value."""
        args, kwargs = self._variants[self._next]
        self._next = (self._next + 1) % len(self._variants)
        return self.fn(*args, **kwargs)

    def call_times(self, count: int) -> None:
        """Call it `count` times; with clones of the arguments, each with the next ones."""
        if len(self._variants) > 1:
            for _ in range(count):
                self.call()
            return
        fn, (args, kwargs) = self.fn, self._variants[0]
        # On the CPU's clock every step in here is in the result, and counting makes ints.
        for _ in repeat(None, count):
            fn(*args, **kwargs)

    def set_up(self) -> None:
        """Run `setup`, if there is one, and take over the arguments that it returns."""
        if self.setup is None:
            return
        given = self.setup()
        if given is None:
            return
        if not _is_call(given):
            message = (
                f"setup: expected it to return None or (args, kwargs), got {type(given).__name__}"
            )
            raise TypeError(message)
        self._variants = [(tuple(given[0]), dict(given[1]))]
        self._next = 0

    def first_call(self) -> None:
        """Set up and call once, which loads and compiles; warn of arguments changed in place."""
        self.set_up()
        self.call()
        if self.setup is not None:
            return
        args, kwargs = self._variants[0]
        watches = [arrays.watch(args, "args"), arrays.watch(kwargs, "kwargs")]
        self.call()
        paths = [path for changed in watches for path in changed()]
        if paths:
            shown = ", ".join(paths[:_SHOWN])
            more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
            self.warn(
                f"the function changes {shown}{more} in place, so each call starts from what the "
                "last one left; give setup= to start each from the same"
            )

    @property
    def clones(self) -> int:
        """How many variants of the arguments take turns."""
        return len(self._variants)

    def rotate(self, l2_bytes: int) -> str | None:
        """Let clones of the arguments take turns, so that none is in an L2 cache of that size.

        Returns
        -------
        str or None
            Why that is not possible; None if it is done.
        """
        original = self._variants[0]
        size = arrays.gpu_bytes(original)
        if size == 0:
            return "no GPU array of torch's or CuPy's is among the arguments"
        count = max(2, math.ceil(2 * l2_bytes / size) + 1)
        if count > MAX_CLONES:
            return (
                f"the arguments have {size:,} bytes, so that twice the L2 cache of {l2_bytes:,} "
                f"would take {count:,} clones of them"
            )
        try:
            clones = [arrays.clone(original) for _ in range(count - 1)]
        except Exception as error:  # of the framework's: no memory left, no such copy
            return f"a copy of them cannot be made: {first_line(error)}"
        for value, its_clone, name in zip(original, clones[0], ("args", "kwargs"), strict=True):
            path = arrays.shared(value, its_clone, name)
            if path is not None:
                return f"what holds {path} is not a container that can be copied"
        self._variants = [original, *clones]
        self._next = 0
        return None


def first_line(error: Exception) -> str:
    """Return the first line of what an error says."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0]


def _is_call(given: Any) -> bool:
    return (
        isinstance(given, tuple)
        and len(given) == 2
        and isinstance(given[0], (tuple, list))
        and isinstance(given[1], Mapping)
    )
