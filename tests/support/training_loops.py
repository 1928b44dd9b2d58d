"""Small trainings for the integrations' tests, on the CPU or on a GPU."""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path
from typing import Any

import pytest

import gpuprof
from tests.support.trace_files import load


def framework(name: str, shown: str) -> Any:
    """Import a framework that trains torch models, or skip the test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch = pytest.importorskip("torch", reason="torch is not installed")
        pytest.importorskip(name, reason=f"{shown}, for torch, is not installed")
        torch.set_num_threads(1)
        return importlib.import_module(name)


def rows() -> dict[str, int]:
    """Return how often each scope was measured."""
    return {path: row.host.count for path, row in gpuprof.stats().items()}


def spans(trace: Path) -> list[str]:
    """Return the names of the host's spans in a trace."""
    events = load(trace)["traceEvents"]
    return [event["name"] for event in events if event["ph"] == "X" and event["cat"] != "gpu"]


def failed() -> set[str]:
    """Return the scopes whose body has failed."""
    return {path for path, row in gpuprof.stats().items() if row.failed}


def assert_nothing_is_left() -> None:
    """No scope is open on this thread, and torch is as it was."""
    torch = importlib.import_module("torch")
    batches = importlib.import_module("torch.utils.data.dataloader")._BaseDataLoaderIter
    assert not hasattr(batches.__next__, "__wrapped__")
    assert not hasattr(torch.autograd.backward, "__wrapped__")
    with gpuprof.timer("after", backend="cpu") as sample:
        pass
    assert sample.path == "after"


def lightning_module(lightning: Any, *, fails: Any = None) -> Any:
    """Return a small LightningModule, whose training step may raise an exception."""
    torch = importlib.import_module("torch")

    class Small(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, _index: int) -> Any:
            if fails is not None:
                raise fails
            return self.layer(batch[0]).square().mean()

        def validation_step(self, batch: Any, _index: int) -> None:
            self.layer(batch[0])

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    return Small()


def batches(torch: Any, count: int = 8, **options: Any) -> Any:
    """Return a loader of that many batches."""
    data = torch.utils.data.TensorDataset(torch.randn(2 * count, 4))
    return torch.utils.data.DataLoader(data, batch_size=2, **options)


def lightning_trainer(lightning: Any, folder: Any, **options: Any) -> Any:
    """Return a Trainer of Lightning that shows and saves nothing."""
    quiet = {
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
        "logger": False,
        "default_root_dir": str(folder),
        "max_epochs": 1,
        "num_sanity_val_steps": 0,
    }
    return lightning.Trainer(**{**quiet, **options})


def language_model(transformers: Any) -> Any:
    """Return a Llama of two tiny layers."""
    config = transformers.LlamaConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
    )
    return transformers.LlamaForCausalLM(config)


def sentences(torch: Any, count: int) -> list[dict[str, Any]]:
    """Return random text for a language model."""
    found = [torch.randint(0, 32, (8,)) for _ in range(count)]
    return [{"input_ids": each, "labels": each} for each in found]


def language_trainer(transformers: Any, folder: Any, callbacks: list[Any], **options: Any) -> Any:
    """Return a Trainer of Hugging Face for eight steps that shows and saves nothing."""
    torch = importlib.import_module("torch")
    arguments = {
        "per_device_train_batch_size": 2,
        "per_device_eval_batch_size": 2,
        "num_train_epochs": 1,
        "report_to": [],
        "disable_tqdm": True,
        "save_strategy": "no",
        "logging_strategy": "no",
        **options,
    }
    settings = transformers.TrainingArguments(str(folder), **arguments)
    settings._n_gpu = min(settings.n_gpu, 1)  # with more it would copy the model to each of them
    return transformers.Trainer(
        language_model(transformers),
        settings,
        train_dataset=sentences(torch, 16),
        eval_dataset=sentences(torch, 4),
        callbacks=callbacks,
    )
