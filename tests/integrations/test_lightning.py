"""The callback of PyTorch Lightning, on the CPU."""

from __future__ import annotations

import copy
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

import gpuprof
from gpuprof.integrations.lightning import GpuprofCallback
from tests.support.processes import ROOT
from tests.support.programs import measured, script
from tests.support.training_loops import (
    assert_nothing_is_left,
    batches,
    failed,
    framework,
    lightning_module,
    lightning_trainer,
    rows,
    spans,
)

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(params=["lightning.pytorch", "pytorch_lightning"])
def each(request: pytest.FixtureRequest) -> Any:
    return framework(request.param, "Lightning")


@pytest.fixture
def lightning() -> Any:
    return framework("lightning.pytorch", "Lightning")


@pytest.fixture
def torch(lightning: Any) -> Any:
    return framework("torch", "torch")


def test_a_training_is_measured_under_both_names_of_the_package(
    each: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch = framework("torch", "torch")
    callback = GpuprofCallback(tmp_path / "run.json")
    assert isinstance(callback, GpuprofCallback)
    assert isinstance(callback, each.Callback)
    trainer = lightning_trainer(
        each, tmp_path, callbacks=[callback], accumulate_grad_batches=2, val_check_interval=4
    )
    trainer.fit(lightning_module(each), batches(torch), batches(torch, 3))
    assert rows() == {
        **dict.fromkeys(("train_step", "train_step/forward", "train_step/backward"), 8),
        "train_step/optimizer.step": 4,
        "dataloader": 8,  # Lightning knows how many there are, and does not ask for a ninth
        "validation": 2,
        "validation/dataloader": 6,
        "validation/validation_step": 6,
    }
    assert callback.stats["train_step"].host.count == 8
    assert "optimizer.step" in capsys.readouterr().out
    assert spans(tmp_path / "run.json").count("train_step") == 8
    assert_nothing_is_left()


def test_a_trace_of_some_steps_beside_the_users_own(
    lightning: Any, torch: Any, tmp_path: Path
) -> None:
    callback = GpuprofCallback(tmp_path / "run.json", schedule=(1, 1, 2, 2), table=False)
    with gpuprof.trace(tmp_path / "own.json"):
        trainer = lightning_trainer(lightning, tmp_path, callbacks=[callback])
        trainer.fit(lightning_module(lightning), batches(torch))
    counts = {path.name: spans(path).count("train_step") for path in tmp_path.glob("*.json")}
    assert counts == {"own.json": 8, "run.1.json": 2, "run.2.json": 2}


@pytest.mark.parametrize("error", [ValueError("from the step"), KeyboardInterrupt()])
def test_an_exception_ends_the_scopes_and_the_trace(
    lightning: Any, torch: Any, tmp_path: Path, error: BaseException
) -> None:
    callback = GpuprofCallback(tmp_path / "run.json")
    module = lightning_module(lightning, fails=error)
    trainer = lightning_trainer(lightning, tmp_path, callbacks=[callback])
    with pytest.raises((ValueError, KeyboardInterrupt, SystemExit)):  # it exits after a Ctrl-C
        trainer.fit(module, batches(torch))
    assert failed() == {"train_step", "train_step/forward"}
    assert "train_step" in spans(tmp_path / "run.json")
    assert callback.stats is not None
    assert_nothing_is_left()


def test_one_training_after_another_and_one_callback_beside_another(
    lightning: Any, torch: Any, tmp_path: Path
) -> None:
    first, second = GpuprofCallback(table=False), GpuprofCallback(table=False)
    module = lightning_module(lightning)
    trainer = lightning_trainer(lightning, tmp_path, callbacks=[first, second])
    with pytest.warns(RuntimeWarning, match="is there twice"):
        trainer.fit(module, batches(torch))
    assert rows()["train_step"] == rows()["dataloader"] == 8
    assert (first.stats is None) != (second.stats is None)
    lightning_trainer(lightning, tmp_path, callbacks=[first]).fit(module, batches(torch))
    assert rows()["train_step"] == 16
    assert_nothing_is_left()


def test_the_loggers_get_the_medians(lightning: Any, torch: Any, tmp_path: Path) -> None:
    class Logger(lightning.loggers.CSVLogger):  # type: ignore[misc]
        def log_metrics(self, metrics: Any, step: Any = None) -> None:
            seen.append((self.name, step, metrics))

    seen: list[Any] = []
    trainer = lightning_trainer(
        lightning,
        tmp_path,
        callbacks=[GpuprofCallback(metrics=True, table=False)],
        logger=[Logger(tmp_path, name="a"), Logger(tmp_path, name="b")],
    )
    trainer.fit(lightning_module(lightning), batches(torch))
    ours = [(name, step) for name, step, found in seen if "gpuprof/train_step/p50_ms" in found]
    assert ours == [("a", 8), ("b", 8)]


def test_manual_optimization_and_workers(lightning: Any, torch: Any, tmp_path: Path) -> None:
    module = lightning_module(lightning)
    module.automatic_optimization = False

    def training_step(batch: Any, batch_idx: int) -> None:
        optimizer = module.optimizers()
        for _ in range(2):
            optimizer.zero_grad()
            module.manual_backward(module.layer(batch[0]).square().mean())
            optimizer.step()

    module.training_step = training_step
    trainer = lightning_trainer(lightning, tmp_path, callbacks=[GpuprofCallback(table=False)])
    trainer.fit(module, batches(torch, num_workers=1))
    found = rows()
    assert found["train_step"] == found["train_step/forward"] == 8
    assert found["train_step/backward"] == found["train_step/optimizer.step"] == 16


def test_a_step_that_returns_nothing_ends_forward_before_the_optimizer(
    lightning: Any, torch: Any, tmp_path: Path
) -> None:
    module = lightning_module(lightning)
    module.training_step = lambda batch, batch_idx: None  # noqa: ARG005 (the Trainer needs the names)
    trainer = lightning_trainer(lightning, tmp_path, callbacks=[GpuprofCallback(table=False)])
    trainer.fit(module, batches(torch))
    names = ("dataloader", "train_step", "train_step/forward", "train_step/optimizer.step")
    assert rows() == dict.fromkeys(names, 8)


def test_under_gpuprof_run_no_scope_crosses_another(lightning: Any, tmp_path: Path) -> None:
    name = script(
        tmp_path,
        """
        import lightning.pytorch as pl, torch
        from gpuprof.integrations.lightning import GpuprofCallback
        from tests.support.training_loops import batches, lightning_module, lightning_trainer

        callback = GpuprofCallback(table=False)
        trainer = lightning_trainer(pl, ".", callbacks=[callback])
        trainer.fit(lightning_module(pl), batches(torch))
        """,
    )
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = measured(tmp_path, "--stats", "s.json", name, program=name, PYTHONPATH=paths)
    assert done.status == 0
    found = gpuprof.Stats.from_json((tmp_path / "s.json").read_text(encoding="utf-8"))
    assert {path: row.host.count for path, row in found.items()} == dict.fromkeys(
        (
            *("dataloader", "train_step", "train_step/optimizer.step"),
            *("train_step/optimizer.step/Linear", "train_step/optimizer.step/backward"),
        ),
        8,
    )


def test_disabled_it_does_nothing(
    lightning: Any, torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUPROF_DISABLE", "1")
    callback = GpuprofCallback(tmp_path / "run.json")
    trainer = lightning_trainer(lightning, tmp_path, callbacks=[callback])
    trainer.fit(lightning_module(lightning), batches(torch))
    assert not rows()
    assert callback.stats is None
    assert not (tmp_path / "run.json").exists()


def test_a_callback_can_be_copied_and_sent_to_ranks(lightning: Any) -> None:
    class Mine(GpuprofCallback):
        def on_train_start(self, *_: Any) -> None: ...

    callback = GpuprofCallback("run.json", schedule=(1, 1, 1, 1), metrics=True)
    for other in (pickle.loads(pickle.dumps(callback)), copy.deepcopy(callback)):
        assert isinstance(other, GpuprofCallback)
        assert isinstance(other, lightning.Callback)
        assert other._options == callback._options
    assert isinstance(copy.copy(Mine(table=False)), Mine)


def test_wrong_arguments_are_errors_of_the_call(lightning: Any) -> None:
    with pytest.raises(TypeError, match="schedule: expected it with trace="):
        GpuprofCallback(schedule=(1, 1, 1, 1))
    with pytest.raises(ValueError, match="%z"):
        GpuprofCallback("run.%z.json")
    with pytest.raises(ValueError, match="active steps of at least 1"):
        GpuprofCallback("run.json", schedule=(1, 1, 0, 1))
