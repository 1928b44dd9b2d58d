"""A loop with an Accelerator, on the CPU and on two ranks."""

from __future__ import annotations

import copy
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from gpuprof.integrations import accelerate as integration
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

RANKS = """
import os, sys, tempfile, warnings
warnings.simplefilter("ignore")
import torch
from accelerate import Accelerator
from gpuprof.integrations.accelerate import measure

torch.set_num_threads(1)
folder = sys.argv[1] if len(sys.argv) > 1 else os.environ["FOLDER"]
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
with measure(accelerator, os.path.join(folder, "run.json")) as run:
    for (x,) in loader:
        with run.step():
            accelerator.backward(model(x).square().mean())
            optimizer.step()
            optimizer.zero_grad()
assert (run.stats is None) == (not child), run.stats
if child:
    assert list(run.stats["train_step"]) == [0, 1], run.stats
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


def test_a_loop_with_accumulation(
    accelerate: Any, torch: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    accelerator, model, optimizer, loader = prepared(
        accelerate, torch, gradient_accumulation_steps=2
    )
    with integration.measure(accelerator, tmp_path / "run.json", schedule=(2, 0, 3, 1)) as run:
        for (x,) in loader:
            with run.step(), accelerator.accumulate(model):
                accelerator.backward(model(x).square().mean())
                optimizer.step()
                optimizer.zero_grad()
        for twin in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
            twin(x)  # it is not measured
            assert not twin._forward_hooks
            assert not twin._forward_pre_hooks
    assert rows() == {
        "dataloader": 9,
        **dict.fromkeys(("train_step", "train_step/forward", "train_step/backward"), 8),
        "train_step/optimizer.step": 4,
    }
    assert "optimizer.step" in capsys.readouterr().out
    assert run.stats["train_step"].host.count == 8
    assert spans(tmp_path / "run.1.json").count("train_step") == 3
    model(x)
    assert rows()["train_step/forward"] == 8  # no hook is left
    assert_nothing_is_left()


def test_an_exception_ends_the_scopes_and_is_the_programs(accelerate: Any, torch: Any) -> None:
    accelerator, model, _optimizer, _loader = prepared(accelerate, torch)
    error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt) as raised:
        with integration.measure(accelerator, table=False) as run:
            with run.step():
                model.register_forward_pre_hook(lambda *_: (_ for _ in ()).throw(error))
                model(torch.ones(1, 4))
    assert raised.value is error
    assert failed() == {"train_step", "train_step/forward"}
    assert_nothing_is_left()


def test_a_forked_child_is_not_measured(accelerate: Any, torch: Any, tmp_path: Path) -> None:
    accelerator, model, *_ = prepared(accelerate, torch)
    with integration.measure(accelerator, tmp_path / "run.json", table=False) as run:
        with run.step():
            model(torch.ones(1, 4))
        before = rows()
        child = os.fork()
        if not child:
            status = 1
            try:
                with run.step():
                    model(torch.ones(1, 4))
                run.__exit__(None, None, None)
                status = int(run.stats is not None or rows() != before)
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
    assert rows() == before == {"train_step": 1, "train_step/forward": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_two_ranks_are_one_table_and_one_trace(accelerate: Any, tmp_path: Path) -> None:
    socket = __import__("socket")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    done = run_python(RANKS, timeout=200, FOLDER=str(tmp_path), PORT=str(port))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 of 2 ranks" in done.stdout
    assert spans(tmp_path / "run.json").count("train_step") == 8


def test_what_is_no_accelerator_is_an_error() -> None:
    with pytest.raises(TypeError, match=r"expected an accelerate\.Accelerator, got 5"):
        integration.measure(5)
