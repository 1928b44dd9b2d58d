"""What ``gpuprof run`` says of a program's steps: planted causes, and healthy programs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.support.processes import ROOT
from tests.support.programs import script
from tests.support.warm_torch import WarmTorch

pytestmark = pytest.mark.torch

PAGE = ROOT / "docs" / "run.md"

# A program whose GPU is the fake driver's: its clock moves while the host does something.
ON_GPU = f"""
import contextlib, os, sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
sys.path.insert(0, {str(ROOT)!r})
from tests.fake_driver.control import FakeCuda

fake = FakeCuda(os.environ["GPUPROF_CUDA_DRIVER"])
fake.use_primary()

def host(ms):
    time.sleep(ms / 1e3)
    fake.advance(round(ms * 1e6))

def gpu(ms):
    fake.work(0, round(ms * 1e6))

def wait():  # what torch.cuda.synchronize() calls of a build with CUDA
    time.sleep(max(fake.stream_tail(0) - fake.now(), 0) / 1e9)
    fake.complete(0)

torch.cuda._lazy_init = lambda: None
torch.cuda.device = contextlib.nullcontext
torch._C._cuda_synchronize = wait

class Work(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, gradient):
        host(plan["host"]), gpu(plan["gpu"])
        return gradient

class Net(nn.Linear):
    def forward(self, x):
        for _ in range(plan.get("reads", 0)):
            gpu(1), torch.cuda.synchronize(), host(1)
        host(plan["host"]), gpu(plan["gpu"])
        return Work.apply(super().forward(x))

class Data(Dataset):
    def __len__(self):
        return 48
    def __getitem__(self, index):
        host(plan.get("data", 0))
        return torch.ones(2)

def train():
    model = Net(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for x in DataLoader(Data()):
        optimizer.zero_grad()
        host(0.2)
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        if plan.get("read_loss"):
            torch.cuda.synchronize()
"""


Report: TypeAlias = Callable[..., str]


@pytest.fixture
def report(tmp_path: Path, warm_torch: WarmTorch) -> Report:
    """Run a program by ``gpuprof run``, and return what is said of it."""

    def run(code: str, **variables: str) -> str:
        name = script(tmp_path, code)
        done = warm_torch.measured(tmp_path, name, program=name, **variables)
        assert done.status == 0, done.err
        return done.report

    return run


def causes(report: str) -> list[str]:
    """Return the first words of what is said, whose page must be there."""
    headings = re.findall(r"^#+ (.+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in headings}
    for page in re.findall(r"^  next: .* \(docs/run\.md#([\w-]+)\)$", report, re.MULTILINE):
        assert page in anchors
    return re.findall(r"^(?:bound by )?(.+)\n  why: .+\n  next: ", report, re.MULTILINE)


def tree(report: str) -> dict[str, list[float]]:
    """Return the shares of the outermost rows of a step: the host's, and the GPU's if it has."""
    lines = report.split("\na step: ")[1].split("---\n")[1].splitlines()
    found: dict[str, list[float]] = {}
    for line in lines:
        if line.startswith(" "):
            continue
        name, *cells = re.split(r"  +", line)
        found[name] = [float(cell) for cell in cells if re.fullmatch(r"[\d.]+", cell)]
        if name == "(rest)":
            return found
    raise AssertionError(report)


def test_planted_causes_on_a_gpu_are_found_and_nothing_is_said_without_evidence(
    report: Report, fake_path: Path
) -> None:
    by_launches = {"host": 9, "gpu": 0.2}
    plans = [
        ("input", {"host": 0.3, "gpu": 0.3, "data": 25}),
        ("the host's launches", by_launches),
        ("waiting for the GPU", {"host": 0.1, "gpu": 0.2, "reads": 9}),
        ("computation", {"host": 0.5, "gpu": 6}),
        # The host waits for the GPU, which has work: this is what bounds it, not the waiting.
        ("computation", {"host": 0.5, "gpu": 10, "read_loss": True}),
        # Batches that come while the GPU has work.
        ("computation", {"host": 0.5, "gpu": 10, "data": 3}),
        ("", {**by_launches, "few": True}),
        ("", {**by_launches, "mixed": True}),
    ]
    program = """
if plan.get("few"):
    Data.__len__ = lambda self: 9
if plan.get("mixed"):  # the second half of the steps is bound by something else
    fetch = Data.__getitem__
    def mixed(self, index):
        if index == 24:
            plan.update(host=0.2, data=25)
        return fetch(self, index)
    Data.__getitem__ = mixed
train()
"""
    for cause, plan in plans:
        said = report(f"{ON_GPU}\nplan = {plan}\n{program}", GPUPROF_CUDA_DRIVER=str(fake_path))
        assert causes(said) == ([cause] if cause else []), (plan, said)
        shares = tree(said)
        assert set(shares) >= {"dataloader", "Net", "backward", "optimizer.step"}
        assert sum(host for host, *_ in shares.values()) == pytest.approx(100, abs=0.5)
        assert sum(gpu for _, *gpus in shares.values() for gpu in gpus) == pytest.approx(
            100, abs=0.5
        )


ON_CPU = """
import os, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def train(model, batches, kept=None):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for x, y in batches:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        if kept is not None:
            kept.append(torch.ones(4 << 20)), time.sleep(0.02)

def data(width, count=40, size=32):
    values = TensorDataset(torch.randn(count * size, width), torch.randn(count * size, 1))
    return DataLoader(values, batch_size=size)

def mlp(width):
    return nn.Sequential(nn.Linear(width, 8 * width), nn.ReLU(), nn.Linear(8 * width, 1))
"""


PROGRAMS = {
    "slow items": """
fetch = TensorDataset.__getitem__
TensorDataset.__getitem__ = lambda self, i: (time.sleep(0.001), fetch(self, i))[1]
train(mlp(8), data(8))
""",
    "kept tensors": "train(mlp(8), data(8, 60), kept=[])",
    "two ranks": """
import torch.distributed as dist
rank = 0 if (child := os.fork()) else 1
dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/store", rank=rank, world_size=2)
model = mlp(8)
for _ in range(40):
    time.sleep(0.04 * rank)
    model(torch.ones(2, 8)).sum().backward()
    dist.all_reduce(model[0].weight.grad)
dist.barrier()
os._exit(0) if rank else os.waitpid(child, 0)
""",
    "small": "train(mlp(8), data(8))",
    "middle": "train(mlp(32), data(32))",
    "large": "train(mlp(80), data(80))",
    "inference": """
with torch.no_grad():
    model = nn.LSTM(16, 64, batch_first=True)
    for _ in range(40):
        model(torch.ones(4, 10, 16))
""",
    "convolution": """
train(nn.Sequential(nn.Unflatten(1, (1, 16, 16)), nn.Conv2d(1, 8, 3), nn.Flatten(),
                    nn.Linear(8 * 14 * 14, 1)), data(256))
""",
    "closure": """
model = mlp(16)
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
def closure():
    optimizer.zero_grad()
    loss = model(torch.ones(4, 16)).sum() ** 2
    loss.backward()
    return loss
for _ in range(30):
    optimizer.step(closure)
""",
    "two optimizers in turns": """
models = mlp(16), mlp(32)
optimizers = [torch.optim.Adam(each.parameters()) for each in models]
for _ in range(40):
    for model, optimizer in zip(models, optimizers):
        model(torch.ones(8, model[0].in_features)).sum().backward()
        optimizer.step()
""",
    "epochs with a validation between": """
model = mlp(64)
for _ in range(4):
    train(model, data(64, 12))
    with torch.no_grad():
        [model(x) for x, _ in data(64, 20)]
""",
    "gradients of several batches": """
model = mlp(64)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for number, (x, y) in enumerate(data(64, 90)):
    nn.functional.mse_loss(model(x), y).backward()
    if number % 3 == 2:
        optimizer.step()
""",
    "memory that grows in the warm-up only": """
kept = []
model = mlp(64)
for number in range(30):
    train(model, data(64, 3), kept if number < 5 else [])
""",
}
PLANTED = {
    "slow items": "input",
    "kept tensors": "memory grows",
    "two ranks": "communication",
}


def test_planted_causes_without_a_gpu_are_found_and_healthy_programs_get_no_diagnosis(
    report: Report,
) -> None:
    ranked = {"two ranks": {"WORLD_SIZE": "2"}}
    reports = {
        name: report(ON_CPU + program, **ranked.get(name, {})) for name, program in PROGRAMS.items()
    }
    said = {name: causes(each) for name, each in reports.items()}
    expected = {name: [PLANTED[name]] if name in PLANTED else [] for name in PROGRAMS}
    assert said == expected, reports
    assert all("(rest)" in tree(each) for each in reports.values())
    assert set(tree(reports["two ranks"])) >= {"Sequential", "backward", "collective/all_reduce"}
