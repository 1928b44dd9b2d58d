"""What ``gpuprof run`` says of a program's steps: planted causes, and healthy programs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import ROOT, environment
from tests.support.programs import script

pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.torch

PAGE = ROOT / "docs" / "run.md"

# Torch is imported once; each program is then a run of its own.
RUNNER = """
import os, runpy, sys
import torch, torch._dynamo  # the latter comes with the first optimizer, and takes seconds
torch.set_num_threads(1)
for number in range(int(sys.argv[2])):
    child = os.fork()
    if child == 0:
        out = os.open(f"{number}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 2)
        if str(number) in sys.argv[3:]:  # they have a rank beside them
            os.environ["WORLD_SIZE"] = "2"
        sys.argv = ["gpuprof", "run", sys.argv[1], str(number)]
        runpy.run_module("gpuprof", run_name="__main__", alter_sys=True)
    if os.waitpid(child, 0)[1]:
        sys.exit(f"run {number} failed: " + open(f"{number}.txt").read())
"""

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


def runs(
    folder: Path, code: str, count: int, *, driver: Path | None = None, ranked: tuple[int, ...] = ()
) -> list[str]:
    """Run a program so often, with the number of the run as its argument; return the reports."""
    name = script(folder, code)
    script(folder, RUNNER, "runner.py")
    subprocess.run(
        [sys.executable, "runner.py", name, str(count), *map(str, ranked)],
        cwd=folder,
        env=environment(driver, CUDA_VISIBLE_DEVICES=""),
        stdout=subprocess.DEVNULL,
        timeout=250,
        check=True,
    )
    return [(folder / f"{number}.txt").read_text(encoding="utf-8") for number in range(count)]


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
    tmp_path: Path, fake_path: Path
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
    code = f"""{ON_GPU}
plan = {[plan for _, plan in plans]}[int(sys.argv[1])]
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
    reports = runs(tmp_path, code, len(plans), driver=fake_path)
    expected = [[cause] if cause else [] for cause, _ in plans]
    assert [causes(report) for report in reports] == expected, reports
    for report in reports:
        shares = tree(report)
        assert set(shares) >= {"dataloader", "Net", "backward", "optimizer.step"}
        assert sum(host for host, *_ in shares.values()) == pytest.approx(100, abs=0.5)
        assert sum(gpu for _, *gpus in shares.values() for gpu in gpus) == pytest.approx(
            100, abs=0.5
        )


ON_CPU = """
import os, sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
run = int(sys.argv[1])

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
    tmp_path: Path,
) -> None:
    code = f"{ON_CPU}\nexec({[*PROGRAMS.values()]}[run])\n"
    ranked = ([*PROGRAMS].index("two ranks"),)
    reports = dict(zip(PROGRAMS, runs(tmp_path, code, len(PROGRAMS), ranked=ranked), strict=True))
    said = {name: causes(report) for name, report in reports.items()}
    expected = {name: [PLANTED[name]] if name in PLANTED else [] for name in PROGRAMS}
    assert said == expected, reports
    assert all("(rest)" in tree(report) for report in reports.values())
    assert set(tree(reports["two ranks"])) >= {"Sequential", "backward", "collective/all_reduce"}
