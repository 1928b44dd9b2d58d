"""The callback of Hugging Face's Trainer, on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import gpuprof
from gpuprof.integrations.transformers import GpuprofCallback
from tests.support.training_loops import (
    assert_nothing_is_left,
    failed,
    framework,
    language_trainer,
    rows,
    sentences,
    spans,
)

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def transformers() -> Any:
    return framework("transformers", "transformers")


def trainer(
    transformers: Any, folder: Path, callbacks: list[GpuprofCallback], **options: Any
) -> Any:
    return language_trainer(transformers, folder, callbacks, use_cpu=True, **options)


def test_a_training_with_accumulation_and_evaluations_on_the_way(
    transformers: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    callback = GpuprofCallback(tmp_path / "run.json", schedule=(0, 0, 2, 1))
    assert isinstance(callback, transformers.TrainerCallback)
    one = trainer(
        transformers,
        tmp_path,
        [callback],
        gradient_accumulation_steps=2,
        eval_strategy="steps",
        eval_steps=2,
    )
    torch = framework("torch", "torch")
    one.eval_dataset = {"a": sentences(torch, 4), "b": sentences(torch, 2)}
    one.train()
    found = rows()
    assert found.pop("dataloader") >= 8
    assert found.pop("evaluation/dataloader") >= 4
    assert found == {
        "train_step": 4,
        "train_step/forward": 8,
        "train_step/backward": 8,
        "train_step/optimizer.step": 4,
        "evaluation": 4,  # two data sets, two times
        "evaluation/forward": 6,
    }
    assert callback.stats["train_step"].host.count == 4
    assert "optimizer.step" in capsys.readouterr().out
    assert spans(tmp_path / "run.1.json").count("train_step") == 2
    assert_nothing_is_left()


class Failing:
    """Batches of which the third makes the model fail."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __call__(self, examples: list[Any]) -> Any:
        self.count = getattr(self, "count", 0) + 1
        torch = framework("torch", "torch")
        found = {name: torch.stack([each[name] for each in examples]) for name in examples[0]}
        if self.count == 3:
            raise self.error
        return found


@pytest.mark.parametrize("error", [ValueError("from the data"), KeyboardInterrupt()])
def test_a_with_block_ends_a_training_that_fails(
    transformers: Any, tmp_path: Path, error: BaseException
) -> None:
    with pytest.raises(type(error)) as raised:
        with GpuprofCallback(tmp_path / "run.json", table=False) as callback:
            one = trainer(transformers, tmp_path, [callback])
            one.data_collator = Failing(error)
            one.train()
    assert raised.value is error
    assert rows()["train_step"] == 1  # the Trainer fetches a batch ahead
    assert failed() == {"dataloader"}
    assert "train_step" in spans(tmp_path / "run.json")
    assert_nothing_is_left()


def test_the_next_training_ends_one_that_failed(transformers: Any, tmp_path: Path) -> None:
    callback = GpuprofCallback(table=False)
    one = trainer(transformers, tmp_path, [callback])
    failing = one.model.model.register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        one.train()
    failing.remove()
    one.train()
    assert failed() == {"train_step", "train_step/forward"}
    assert rows()["train_step"] == rows()["train_step/forward"] == 8
    assert_nothing_is_left()


def test_another_training_ends_one_that_failed(transformers: Any, tmp_path: Path) -> None:
    first = GpuprofCallback(tmp_path / "run.json", table=False)
    one = trainer(transformers, tmp_path, [first])
    one.model.register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        one.train()
    del one
    trainer(transformers, tmp_path, [GpuprofCallback(table=False)]).train()
    assert rows()["train_step"] == rows()["train_step/forward"] == 8
    assert "train_step" in spans(tmp_path / "run.json")
    assert_nothing_is_left()


def test_one_of_two_callbacks_measures(transformers: Any, tmp_path: Path) -> None:
    callbacks = [GpuprofCallback(table=False), GpuprofCallback(table=False)]
    one = trainer(transformers, tmp_path, callbacks)
    with pytest.warns(RuntimeWarning, match="is there twice"):
        one.train()
    assert rows()["train_step"] == rows()["train_step/forward"] == 8
    assert_nothing_is_left()


def test_disabled_it_does_nothing(
    transformers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUPROF_DISABLE", "1")
    callback = GpuprofCallback(tmp_path / "run.json")
    trainer(transformers, tmp_path, [callback]).train()
    assert not rows()
    assert callback.stats is None
    assert not (tmp_path / "run.json").exists()
    assert not gpuprof.stats()
