"""A callback for PyTorch Lightning, as ``lightning.pytorch`` or as ``pytorch_lightning``.

Neither is imported before a callback is made. See docs/integrations/lightning.md.
"""

from __future__ import annotations

import os
from typing import Any

import gpuprof._startup  # noqa: F401 (a program may import nothing but this module)
from gpuprof._training.callback import TrainingCallback
from gpuprof._training.loop import Schedule, p50_metrics


class GpuprofCallback(TrainingCallback):
    """Measures the steps of ``Trainer.fit`` and the validation, and prints a table at the end.

    Parameters
    ----------
    trace : str or os.PathLike, optional
        Where to write a trace; with several ranks as `gpuprof.distributed.trace` does.
    schedule : tuple of int, optional
        (wait, warm, active, repeat) batches: a trace for each window, as `gpuprof.trace` does.
    table : bool
        Whether the first rank prints the table. It is in `stats` in any case.
    metrics : bool
        Whether the trainer's loggers get ``gpuprof/train_step/p50_ms``, the median of each scope so
        far, after each epoch. The GPU is not waited for.

    Raises
    ------
    ModuleNotFoundError
        Lightning is not installed.
    TypeError, ValueError
        `trace` or `schedule` is not what `gpuprof.trace` accepts.
    """

    _base = "Callback", ("lightning.pytorch", "pytorch_lightning"), "lightning"

    def __init__(
        self,
        trace: str | os.PathLike[str] | None = None,
        *,
        schedule: Schedule | None = None,
        table: bool = True,
        metrics: bool = False,
    ) -> None:
        super().__init__(trace, schedule=schedule, table=table)
        self._options["metrics"] = metrics

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if stage in {"fit", "validate"}:
            self._loop.begin(pl_module, trainer)

    def teardown(self, *_: Any, **__: Any) -> None:
        self._loop.end()

    def on_exception(self, _trainer: Any, _module: Any, exception: BaseException) -> None:
        self._loop.end(exception)

    def on_train_batch_start(self, *_: Any, **__: Any) -> None:
        self._loop.enter("train_step", "forward")

    def on_before_zero_grad(self, *_: Any) -> None:
        self._loop.leave("forward")

    def on_before_backward(self, *_: Any) -> None:
        self._loop.leave("forward")
        self._loop.enter("backward")

    def on_after_backward(self, *_: Any) -> None:
        self._loop.leave("backward")

    def on_before_optimizer_step(self, _trainer: Any, _module: Any, optimizer: Any) -> None:
        self._loop.leave("forward")  # of a training step that returned nothing
        self._loop.enter_step_of(optimizer)

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        self._loop.leave("train_step")
        self._loop.step()

    def on_train_epoch_end(self, trainer: Any, _module: Any) -> None:
        if self._options["metrics"] and self._loop.is_on and trainer.is_global_zero:
            for logger in trainer.loggers:
                logger.log_metrics(p50_metrics(), step=trainer.global_step)

    def on_validation_start(self, trainer: Any, _module: Any) -> None:
        self._loop.enter("sanity_check" if trainer.sanity_checking else "validation")

    def on_validation_batch_start(self, *_: Any, **__: Any) -> None:
        self._loop.enter("validation_step")

    def on_validation_batch_end(self, *_: Any, **__: Any) -> None:
        self._loop.leave("validation_step")

    def on_validation_end(self, *_: Any) -> None:
        self._loop.leave("validation")
        self._loop.leave("sanity_check")
