"""Scopes for a training loop with an ``Accelerator``. See docs/integrations/accelerate.md."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import gpuprof._startup  # noqa: F401 (a program may import nothing but this module)
from gpuprof._common.checks import type_error
from gpuprof._training.loop import Schedule, TrainingLoop

if TYPE_CHECKING:
    from typing_extensions import Self


def measure(
    accelerator: Any,
    trace: str | os.PathLike[str] | None = None,
    *,
    schedule: Schedule | None = None,
    table: bool = True,
) -> Measurement:
    """Measure the loop in a ``with`` block, and print a table at its end.

    Calls of the models that the accelerator has prepared, ``accelerator.backward``, the steps of
    the optimizers and the waits for batches become scopes.

    Parameters
    ----------
    accelerator : accelerate.Accelerator
        The one of the loop.
    trace : str or os.PathLike, optional
        Where to write a trace; with several ranks as `gpuprof.distributed.trace` does.
    schedule : tuple of int, optional
        (wait, warm, active, repeat) steps: a trace for each window, as `gpuprof.trace` does.
    table : bool
        Whether the first rank prints the table, with several ranks that of
        `gpuprof.distributed.gather_stats`. It is in `Measurement.stats` in any case.

    Returns
    -------
    Measurement
        A context manager, used once.

    Raises
    ------
    TypeError, ValueError
        `accelerator` is no Accelerator; `trace` or `schedule` is not what `gpuprof.trace` accepts.
    """
    if not callable(getattr(accelerator, "prepare", None)):
        raise type_error(accelerator, "accelerator", "an accelerate.Accelerator")
    name = "gpuprof.integrations.accelerate"
    return Measurement(accelerator, TrainingLoop(name, trace=trace, schedule=schedule, table=table))


class Measurement:
    """A loop that is being measured, as `measure` returns it."""

    def __init__(self, accelerator: Any, loop: TrainingLoop) -> None:
        self._accelerator = accelerator
        self._loop = loop
        self._watched: list[Any] = []

    @property
    def stats(self) -> Any:
        """`gpuprof.Stats` at the end; of several ranks, `gpuprof.distributed.RankStats` on one."""
        return self._loop.stats

    @contextmanager
    def step(self) -> Iterator[None]:
        """Make a block the scope ``train_step``, and a step of the trace's schedule."""
        self._watch_models()
        self._loop.enter("train_step")
        try:
            yield
        except BaseException as error:
            self._loop.leave("train_step", error)
            raise
        self._loop.leave("train_step")
        self._loop.step()

    def _watch_models(self) -> None:
        for model in getattr(self._accelerator, "_models", ()) if self._loop.is_on else ():
            if not any(model is each for each in self._watched):
                self._watched.append(model)
                self._loop.watch_forward(model)

    def __enter__(self) -> Self:
        self._loop.begin(self._accelerator, self._accelerator, parts=True)
        self._watch_models()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        self._loop.end(error)
        self._watched.clear()
