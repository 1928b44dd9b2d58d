"""``gpuprof run`` on a training script on a GPU: rows on the GPU's clock, the trace, the end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.support.frameworks import torch_or_skip
from tests.support.processes import run_command

STEPS = 20
SCRIPT = f"""
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 2048))
        self.head = nn.Linear(2048, 1)
    def forward(self, x):
        return self.head(self.body(x))

def step(x, y):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())
    loss.backward()
    optimizer.step()
    return loss

torch.manual_seed(0)
model = Net().cuda()
optimizer = torch.optim.AdamW(model.parameters())
data = TensorDataset(torch.randn({STEPS} * 64, 512), torch.randn({STEPS} * 64, 1))
for x, y in DataLoader(data, batch_size=64):
    loss = step(x, y)
print(bool(loss.isfinite()))

# A capture of torch's own must not notice the scopes of modules.
inputs = torch.randn(64, 512, device="cuda")
stream = torch.cuda.Stream()
with torch.cuda.stream(stream), torch.no_grad():
    model(inputs)
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph), torch.no_grad():
    result = model(inputs)
graph.replay()
with torch.no_grad():
    print(torch.allclose(result, model(inputs), atol=1e-4))
if "fail" in sys.argv:
    sys.exit(7)
"""


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    torch_or_skip()
    (folder / "train.py").write_text(SCRIPT, encoding="utf-8")
    command = (sys.executable, "-m", "gpuprof", "run", *options)
    return run_command(*command, cwd=folder, timeout=300)


def rows(folder: Path) -> dict[str, Any]:
    data = json.loads((folder / "s.json").read_text(encoding="utf-8"))
    return {"/".join(row["names"]): row for row in data["rows"]}


def test_a_training_script_is_measured_on_the_gpu(tmp_path: Path) -> None:
    files = ("-o", "t.json", "--stats", "s.json", "--html", "r.html")
    done = run(tmp_path, *files, "--watch", "2", "train.py", "fail")
    assert done.returncode == 7, done.stderr
    assert done.stdout == "True\nTrue\n"
    found = rows(tmp_path)
    for name in ("backward", "optimizer.step"):
        assert found[name]["gpu"]["count"] == STEPS
        assert found[name]["gpu"]["p50_ms"] > 0
    for name in ("Net", "Net/body", "Net/head"):
        assert found[name]["gpu"]["count"] == STEPS + 2  # and two outside of the capture
    assert found["dataloader"]["gpu"] is None
    assert found["dataloader"]["host"]["count"] == STEPS + 1
    inside = found["Net/body"]["gpu"]["total_ms"] + found["Net/head"]["gpu"]["total_ms"]
    assert inside <= found["Net"]["gpu"]["total_ms"]
    assert "optimizer.step" in done.stderr
    assert "optimizer.step" in (tmp_path / "r.html").read_text(encoding="utf-8")

    events = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))["traceEvents"]
    tracks = {
        (event["pid"], event["tid"])
        for event in events
        if event.get("ph") == "X" and event["name"] == "Net"
    }
    assert len(tracks) >= 2  # the host's, and those of the streams
    slices = [e for e in events if e.get("ph") == "X" and e["name"] == "optimizer.step"]
    assert len(slices) == 2 * STEPS


@pytest.mark.skipif(sys.version_info < (3, 12), reason="--scopes needs another Python version")
def test_functions_are_measured_on_the_gpu(tmp_path: Path) -> None:
    done = run(tmp_path, "--scopes", "__main__.step", "--stats", "s.json", "train.py")
    assert done.returncode == 0, done.stderr
    found = rows(tmp_path)
    assert found["step"]["gpu"]["count"] == STEPS
    assert found["step/optimizer.step"]["gpu"]["count"] == STEPS
    assert found["step"]["gpu"]["total_ms"] >= found["step/backward"]["gpu"]["total_ms"]


def test_a_gpu_error_is_the_scripts_own(tmp_path: Path) -> None:
    torch_or_skip()
    (tmp_path / "fails.py").write_text(
        "import torch\n"
        "model = torch.nn.Embedding(4, 4).cuda()\n"
        "model(torch.tensor([1], device='cuda'))\n"
        "model(torch.tensor([1000], device='cuda'))\n"
        "torch.cuda.synchronize()\n",
        encoding="utf-8",
    )
    done = run(tmp_path, "--stats", "s.json", "fails.py")
    assert done.returncode == 1
    assert "device-side assert" in done.stderr
    assert "fails.py ran for" in done.stderr
    assert (tmp_path / "s.json").is_file()
