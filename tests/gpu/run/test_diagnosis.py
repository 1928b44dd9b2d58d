"""What ``gpuprof run`` says of steps on a GPU: causes that are planted in a training."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.gpu.support.alone import needs_the_gpu_alone
from tests.gpu.support.frameworks import torch_or_skip
from tests.support.processes import run_command

SCRIPT = """
import sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
cause = sys.argv[1]
width = 8192 if cause in ("computation", "read_loss") else 512

class Data(Dataset):
    def __len__(self):
        return 60
    def __getitem__(self, index):
        if cause == "input":
            time.sleep(0.02)
        return torch.ones(width)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(width, width) for _ in range(3)])
        self.head = nn.Linear(width, 1)
    def forward(self, x):
        if cause == "launches":
            for _ in range(500):
                x = x + 1e-6
        if cause == "waiting":
            for _ in range(300):
                torch.cuda._sleep(120_000)  # longer than the launches: the host is no cause
                x = x + 1e-6
                x[0, 0].item()
        x = x.expand(4096, -1) if width == 8192 else x
        return self.head(self.layers(x))

model = Net().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
kept = []
for x in DataLoader(Data(), pin_memory=True):
    optimizer.zero_grad()
    loss = model(x.cuda(non_blocking=True)).square().mean()
    loss.backward()
    optimizer.step()
    if cause == "read_loss":
        loss.item()
    if cause == "memory":
        kept.append(torch.ones(2 << 20, device="cuda"))
        time.sleep(0.02)
"""


@needs_the_gpu_alone
@pytest.mark.parametrize(
    ("cause", "said"),
    [
        ("input", "input"),
        ("launches", "the host's launches"),
        ("waiting", "waiting for the GPU"),
        ("computation", "computation"),
        ("read_loss", "computation"),
        ("memory", "memory grows"),
    ],
)
def test_a_planted_cause_is_found(tmp_path: Path, cause: str, said: str) -> None:
    torch_or_skip()
    (tmp_path / "train.py").write_text(SCRIPT, encoding="utf-8")
    command = (sys.executable, "-m", "gpuprof", "run", "train.py", cause)
    done = run_command(*command, cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stderr
    found = re.findall(r"^(?:bound by )?(.+)\n  why: .+\n  next: ", done.stderr, re.MULTILINE)
    assert said in found, done.stderr
    # Memory is said besides what bounds the time, which the pauses of that program make the host.
    assert found == [said] or cause == "memory", done.stderr
    (title,) = re.findall(r"^a step: .+", done.stderr, re.MULTILINE)
    lines = done.stderr.split(title)[1].splitlines()
    outermost = [re.split("  +", line) for line in lines[3:] if not line.startswith(" ")]
    shares = {name: float(cells[1]) for name, *cells in outermost if len(cells) >= 2}
    assert shares.keys() >= {"dataloader", "Net", "backward", "optimizer.step", "(rest)"}
