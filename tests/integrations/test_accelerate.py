"""The recipe for a loop with an Accelerator, on the CPU and on two ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import gpuprof
from tests.docs.examples import of_integration
from tests.support.processes import run_python
from tests.support.training_loops import (
    assert_nothing_is_left,
    batches,
    failed,
    framework,
    rows,
    spans,
)

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

RECIPE = of_integration("accelerate")[0].script

RANKS = """
import os, sys, warnings
warnings.simplefilter("ignore")
import torch
from accelerate import Accelerator

torch.set_num_threads(1)
folder = os.environ["FOLDER"]
os.environ.update(
    MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ["PORT"], WORLD_SIZE="2", LOCAL_WORLD_SIZE="2",
    ACCELERATE_USE_CPU="1",
)
child = os.fork()
os.environ["RANK"] = os.environ["LOCAL_RANK"] = "0" if child else "1"
accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.randn(16, 4))
loader = torch.utils.data.DataLoader(data, batch_size=2)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
with measured(accelerator, os.path.join(folder, "run.json")):
    for (x,) in loader:
        train_step(accelerator, model, optimizer, x)
torch.distributed.destroy_process_group()
if child:
    assert os.waitpid(child, 0)[1] == 0
sys.stdout.flush()
os._exit(0)
"""


@pytest.fixture
def accelerate() -> Any:
    return framework("accelerate", "accelerate")


@pytest.fixture
def torch(accelerate: Any) -> Any:
    return framework("torch", "torch")


def prepared(accelerate: Any, torch: Any, **options: Any) -> tuple[Any, ...]:
    accelerator = accelerate.Accelerator(cpu=True, **options)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return accelerator, *accelerator.prepare(model, optimizer, batches(torch))


@pytest.fixture
def recipe() -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(RECIPE, "accelerate.md", "exec"), names)
    return names


def test_a_loop_with_accumulation(
    accelerate: Any,
    torch: Any,
    recipe: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    accelerator, model, optimizer, loader = prepared(
        accelerate, torch, gradient_accumulation_steps=2
    )
    with recipe["measured"](accelerator, tmp_path / "run.json"):
        for (x,) in loader:
            recipe["train_step"](accelerator, model, optimizer, x)
    assert rows() == {
        "dataloader": 9,
        **dict.fromkeys(("train_step", "train_step/forward", "train_step/backward"), 8),
        "train_step/optimizer.step": 4,
    }
    assert "optimizer.step" in capsys.readouterr().out
    assert spans(tmp_path / "run.json").count("train_step") == 8
    assert_nothing_is_left()


def test_an_exception_ends_the_scopes_and_is_the_programs(
    accelerate: Any,
    torch: Any,
    recipe: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    accelerator, model, optimizer, _loader = prepared(accelerate, torch)
    error = KeyboardInterrupt()
    model.register_forward_pre_hook(lambda *_: (_ for _ in ()).throw(error))
    with pytest.raises(KeyboardInterrupt) as raised:
        with recipe["measured"](accelerator, tmp_path / "run.json"):
            with gpuprof.timer("before"):
                pass
            recipe["train_step"](accelerator, model, optimizer, torch.ones(1, 4))
    assert raised.value is error
    assert failed() == {"train_step", "train_step/forward"}
    assert "before" in capsys.readouterr().out
    assert "before" in spans(tmp_path / "run.json")
    assert_nothing_is_left()


def test_two_ranks_are_one_table_and_one_trace(accelerate: Any, tmp_path: Path) -> None:
    socket = __import__("socket")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    done = run_python(RECIPE + RANKS, timeout=200, FOLDER=str(tmp_path), PORT=str(port))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("2 of 2 ranks") == 1
    assert "train_step" in done.stdout
    assert spans(tmp_path / "run.json").count("train_step") == 8
