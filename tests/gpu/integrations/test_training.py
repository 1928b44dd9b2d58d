"""Trainings with Lightning, the Trainer of Hugging Face and accelerate, on a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import gpuprof
from tests.docs.examples import of_integration
from tests.support.training_loops import (
    batches,
    framework,
    language_trainer,
    lightning_module,
    lightning_trainer,
    spans,
)

pytestmark = pytest.mark.filterwarnings("ignore")

PARTS = ("forward", "backward", "optimizer.step")


def assert_on_the_gpu(stats: Any, steps: int, calls: int) -> None:
    """The step and its parts were timed on the GPU, and the parts are no longer than the step."""
    step = stats["train_step"]
    assert step.gpu.count == steps
    parts = [stats[f"train_step/{name}"] for name in PARTS]
    assert [part.gpu.count for part in parts] == [calls, calls, steps]
    assert 0 < sum(part.gpu.total_ms for part in parts) <= step.gpu.total_ms
    assert stats["dataloader"].host.count >= calls
    assert not stats["dataloader"].gpu.count


@pytest.mark.parametrize("name", ["lightning.pytorch", "pytorch_lightning"])
@pytest.mark.parametrize("precision", ["32-true", "16-mixed"])
def test_lightning(torch: Any, tmp_path: Path, name: str, precision: str) -> None:
    lightning = framework(name, "Lightning")
    from gpuprof.integrations.lightning import GpuprofCallback

    callback = GpuprofCallback(tmp_path / "run.json")
    trainer = lightning_trainer(
        lightning,
        tmp_path,
        accelerator="gpu",
        devices=1,
        precision=precision,
        callbacks=[callback],
    )
    trainer.fit(lightning_module(lightning), batches(torch, num_workers=2), batches(torch, 3))
    assert_on_the_gpu(callback.stats, 8, 8)
    assert callback.stats["validation/validation_step"].gpu.count == 3
    assert spans(tmp_path / "run.json").count("train_step") == 8


def test_the_trainer_of_hugging_face(torch: Any, tmp_path: Path) -> None:
    transformers = framework("transformers", "transformers")
    from gpuprof.integrations.transformers import GpuprofCallback

    callback = GpuprofCallback(tmp_path / "run.json", schedule=(1, 1, 2, 1))
    trainer = language_trainer(
        transformers,
        tmp_path,
        [callback],
        gradient_accumulation_steps=2,
        eval_strategy="epoch",
        bf16=True,
    )
    with callback:
        trainer.train()
    assert_on_the_gpu(callback.stats, 4, 8)
    assert callback.stats["evaluation"].gpu.count == 1
    assert spans(tmp_path / "run.1.json").count("train_step") == 2


def test_a_loop_with_an_accelerator(
    torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accelerate = framework("accelerate", "accelerate")
    # A Trainer of another test in this process may have settled on another precision.
    monkeypatch.setattr(accelerate.state.AcceleratorState, "_shared_state", {})
    recipe: dict[str, Any] = {}
    exec(compile(of_integration("accelerate")[0].script, "accelerate.md", "exec"), recipe)
    accelerator = accelerate.Accelerator(mixed_precision="fp16")
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, batches(torch))
    with recipe["measured"](accelerator, tmp_path / "run.json"):
        for (x,) in loader:
            recipe["train_step"](accelerator, model, optimizer, x)
    assert_on_the_gpu(gpuprof.stats(), 8, 8)
    assert spans(tmp_path / "run.json").count("train_step") == 8


def test_forked_workers_of_a_program_on_the_gpu(torch: Any, tmp_path: Path) -> None:
    from gpuprof.integrations import dataloader

    loader = batches(
        torch,
        8,
        num_workers=2,
        worker_init_fn=dataloader.WorkerScopes(tmp_path / "%p.json"),
        multiprocessing_context="fork",
        pin_memory=True,
    )
    with dataloader.waits():
        for (x,) in loader:
            with gpuprof.timer("step"):
                x.cuda().square().sum()
    assert gpuprof.stats()["step"].gpu.count == 8
    assert gpuprof.stats()["dataloader"].host.count == 9
    found = [name for path in tmp_path.glob("*.json") for name in spans(path)]
    assert found.count("fetch") == found.count("collate") == 8
