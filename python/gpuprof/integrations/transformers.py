"""A callback for the Trainer of Hugging Face's transformers.

It is not imported before a callback is made. See docs/integrations/transformers.md.
"""

from __future__ import annotations

from typing import Any

import gpuprof._startup  # noqa: F401 (a program may import nothing but this module)
from gpuprof._training.callback import TrainingCallback


class GpuprofCallback(TrainingCallback):
    """Measures the steps of ``Trainer.train`` and its evaluations, and prints a table at the end.

    The Trainer tells no callback of an exception. A ``with`` block around ``train()``, or `close`
    in a ``finally``, ends the scopes and writes the trace then; the next training does so too.

    Parameters
    ----------
    trace : str or os.PathLike, optional
        Where to write a trace; with several ranks as `gpuprof.distributed.trace` does.
    schedule : tuple of int, optional
        (wait, warm, active, repeat) steps of the optimizer: a trace for each window, as
        `gpuprof.trace` does.
    table : bool
        Whether the first rank prints the table. It is in `stats` in any case.

    Raises
    ------
    ModuleNotFoundError
        transformers is not installed.
    TypeError, ValueError
        `trace` or `schedule` is not what `gpuprof.trace` accepts.
    """

    _base = "TrainerCallback", ("transformers",), "'transformers[torch]'"

    def on_train_begin(self, _args: Any, state: Any, _control: Any, **found: Any) -> None:
        self._loop.begin(found["model"], state, tells_little=True)
        if self._loop.is_on:
            self._loop.watch_forward(found["model"])

    def on_train_end(self, *_: Any, **__: Any) -> None:
        self._loop.end()

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._loop.enter("train_step")

    def on_step_end(self, _args: Any, _state: Any, control: Any, **_: Any) -> None:
        self._loop.leave("train_step")
        self._loop.step()
        self._expect_evaluation(control)

    def on_epoch_end(self, _args: Any, _state: Any, control: Any, **_: Any) -> None:
        self._loop.leave("train_step")  # where the last one was stopped
        self._expect_evaluation(control)

    def _expect_evaluation(self, control: Any) -> None:
        if control.should_evaluate:
            self._loop.enter("evaluation")

    def on_evaluate(self, *_: Any, **__: Any) -> None:
        self._loop.leave("evaluation")
