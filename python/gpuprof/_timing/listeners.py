"""Functions of the user's that get finished samples: `gpuprof.on_sample`."""

from __future__ import annotations

import atexit
import functools
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from typing import TypeAlias

import gpuprof._core as _core
from gpuprof._common import checks
from gpuprof._common.text import clean_text

Samples: TypeAlias = "list[_core.Sample]"

# What is pending at exit is waited for so long: the GPU may never come to it.
_EXIT_WAITS_S = 5.0

# Those that listen. Without a lock, which a forked child could find taken: each step is one
# operation on the list.
_listening: list[Listener] = []


class Listener(AbstractContextManager["Listener"]):
    """A function that gets finished samples, until it is closed. Made by `on_sample`.

    Attributes
    ----------
    error : BaseException or None
        What the function raised. It has ended the listener.
    """

    __module__ = "gpuprof"

    def __init__(self, function: Callable[[Samples], object], paths: Iterable[str]) -> None:
        self.error: BaseException | None = None
        self._function = function
        self._name = _name_of(function)
        self._queue = _core._SampleQueue(self._name, list(paths))
        self._closed = False

    @property
    def dropped(self) -> int:
        """How many samples it did not get because too many waited for it."""
        return self._queue.dropped

    @property
    def closed(self) -> bool:
        """Whether it gets no more samples: by `close`, by an error of its own, or at exit."""
        return self._closed

    def close(self) -> None:
        """Hand over what is finished, and nothing more after that. Idempotent; never raises.

        What the GPU has not finished is not waited for: call `flush` first. Inside of a listener
        nothing is handed over.
        """
        if self._closed:
            return
        self._closed = True
        _core._drain()
        self._queue.close()
        try:
            self._call()
        finally:
            _forget(self)

    def __exit__(self, *_exception: object) -> None:
        self.close()

    __reduce__ = checks.not_pickled(
        "a Listener cannot be pickled or copied: it listens in this process"
    )

    def __repr__(self) -> str:
        state = "failed" if self.error else "closed" if self._closed else "listening"
        dropped = f", {self.dropped} samples dropped" if self.dropped else ""
        return f"<gpuprof.Listener {self._name}, {state}{dropped}>"

    def _call(self) -> None:
        try:
            self._queue.hand_on(self._function)
        except KeyboardInterrupt:  # the user's, not the function's
            raise
        except BaseException as error:  # also `sys.exit`, which is not the program's here
            self.error = error.with_traceback(None)  # which would keep the function's variables
            self._closed = True
            self._queue.close()
            _forget(self)
            text = f"the listener {self._name} raised {type(error).__name__}: {error}"
            _core._warn(f"gpuprof: {text}; it gets no more samples")


def on_sample(f: Callable[[Samples], object], paths: str | Iterable[str] | None = None) -> Listener:
    """Have a function get every finished sample, in batches.

    It is called on a thread that uses gpuprof, once the call there is over: by `stats`, `flush` and
    a sample's ``ms``; after the exit of an outermost scope or a graph's launch, if 256 samples wait
    or one has waited for a second; and at the interpreter's exit. It may enter scopes, read
    statistics, close its handle and add others. It is not called inside of a listener, nor on two
    threads at once.

    Parameters
    ----------
    f : callable
        Gets a list of `Sample` objects, each once, oldest first: all measured ones of named scopes,
        and failed ones (``sample.failed``), whatever `reset` does. If it raises an exception, it
        gets no more samples, which is said in one warning.
    paths : str or iterable of str, optional
        Only these paths, such as ``"step/fwd"``; ``"step/*"`` stands for all below ``step``. None
        is every path.

    Returns
    -------
    Listener
        A handle with ``close()``, also a context manager. Dropping it does not end the listener.

    Raises
    ------
    TypeError, ValueError
        An argument is not what is listed above.

    Examples
    --------
    >>> import gpuprof
    >>> with gpuprof.on_sample(lambda samples: print([each.path for each in samples])):
    ...     with gpuprof.timer("load", backend="cpu"):
    ...         pass
    ['load']
    """
    checks.function("f", f, "a function that takes a list of samples")
    checked = _checked(paths)
    _close_at_exit()
    return add(f, checked)


def add(function: Callable[[Samples], object], paths: Iterable[str] = ()) -> Listener:
    """Return a listener that nobody closes at the interpreter's exit."""
    listener = Listener(function, paths)
    _listening.append(listener)
    return listener


def call_all() -> None:
    """Hand all listeners what waits for them. Called by C++."""
    for listener in list(_listening):
        listener._call()


def _forget(listener: Listener) -> None:
    with suppress(ValueError):  # it was forgotten already, as by another thread
        _listening.remove(listener)


def _checked(paths: object) -> list[str]:
    if paths is None or paths == "*":
        return []
    if isinstance(paths, str):
        paths = [paths]
    if not isinstance(paths, Iterable):
        raise checks.type_error(paths, "paths", "a str, an iterable of str or None")
    texts: list[object] = list(paths)
    for text in texts:
        if not isinstance(text, str):
            message = (
                "paths: expected texts such as 'step/fwd' or 'step/*', got "
                f"{type(text).__name__} {text!r}"
            )
            raise TypeError(message)
        if not text or text == "/*":
            message = f"paths: {text!r} is no path; leave paths out for all of them"
            raise ValueError(message)
    if not texts:
        message = "paths: none is given, so nothing would ever be heard; None is every path"
        raise ValueError(message)
    return [] if "*" in texts else [clean_text(str(text)) for text in texts]


def _name_of(function: object) -> str:
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    module = getattr(function, "__module__", None)
    return f"{module}.{name}" if isinstance(module, str) else str(name)


@functools.cache
def _close_at_exit() -> None:
    atexit.register(_close_all)
    # Workers of multiprocessing skip the exit handlers, and forget what they inherit of its own.
    from multiprocessing import process, util

    if process.parent_process() is not None:
        _close_at_end_of_worker()
    util.register_after_fork(Listener, _close_at_end_of_worker)


def _close_at_end_of_worker(_: object = None) -> None:
    from multiprocessing.util import Finalize

    Finalize(None, _close_all, exitpriority=-90)


def _close_all() -> None:
    if not _listening:
        return
    _core._wait_for_pending(_EXIT_WAITS_S)
    for listener in list(_listening):
        listener.close()
