"""Processes that end in each way with everything of gpuprof's open, in use and on its way."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.gpu.support.alone import ALONE
from tests.gpu.support.frameworks import torch_or_skip
from tests.support.processes import run_python

# The first of them fills the driver's queue, whose lock is always taken then: processes that do so
# side by side starve each other.
REPEATS = [pytest.param(0, marks=ALONE), *range(1, 10)]
# Each block is entered and never left; `held` keeps it to the end.
PROGRAM = """
import atexit, os, signal, sys, threading, time
import gpuprof, torch, torch._dynamo.utils

# At exit it imports a module that runs text as code, by which Python 3.12 forgets an interrupt: the
# status is 1 then, also without gpuprof.
atexit.unregister(torch._dynamo.utils.dump_compile_times)

def linear(x):
    return torch.nn.functional.relu(x @ x)

x = torch.ones(512, 512, device="cuda")
held = [
    gpuprof.trace("run.json"),
    gpuprof.flight_recorder("dump.json"),
    gpuprof.idle(),
    gpuprof.timer("outer"),
]
for each in held:
    each.__enter__()
fast = gpuprof.make_graphed_callable(linear, (x,))
with torch.cuda.stream(torch.cuda.Stream()), gpuprof.capture(name="body") as captured:
    y = linear(x)

inside = threading.Barrier(4)

def beside(step):
    with torch.cuda.stream(torch.cuda.Stream()), gpuprof.timer("beside"):
        inside.wait()
        while True:
            step()

def scopes():
    with gpuprof.timer("step"):
        pass

def launch():
    captured.graph.launch()
    if PAUSE_S:
        time.sleep(PAUSE_S)

# Nothing of torch's: it ends the process where such a thread is in its code at exit.
for step in (scopes, launch, gpuprof.stats):
    threading.Thread(target=beside, args=(step,), daemon=True).start()
inside.wait()
timer = gpuprof.Timer("cuda")
timer.record_start()
samples = []
for _ in range(200):
    with gpuprof.timer("pending") as sample:
        fast(x)
    samples.append(sample)
kernels = gpuprof.kernels()
kernels.__enter__()
fast(x)
stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    graph = gpuprof.capture(stream, name="open", mode="relaxed")
    graph.__enter__()
    z = x + 1
print("ready", flush=True)
"""
WAYS = {
    "returns": ("", 0),
    "sys.exit": ("sys.exit(3)", 3),
    "an exception": ("raise ValueError('of the program')", 1),
    "SIGINT": ("os.kill(os.getpid(), signal.SIGINT); time.sleep(60)", -signal.SIGINT),
    "SIGTERM": ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)", -signal.SIGTERM),
}


@pytest.mark.parametrize("repeat", REPEATS)
@pytest.mark.parametrize("way", WAYS)
def test_a_process_ends_with_its_own_status_with_everything_open(
    tmp_path: Path, way: str, repeat: int
) -> None:
    torch_or_skip()
    code, status = WAYS[way]
    begin = f"import os\nos.chdir({str(tmp_path)!r})\nPAUSE_S = {1e-4 if repeat else 0.0}\n"
    program = f"{begin}{PROGRAM}\ntime.sleep({repeat} * 3e-3)\n"
    done = run_python(program + code, timeout=120)
    assert (done.returncode, done.stdout) == (status, "ready\n"), done.stderr
    for bad in ("Fatal", "terminate called", "Segmentation", "gpuprof.errors"):
        assert bad not in done.stderr, done.stderr
    if way != "SIGTERM":  # nothing of Python runs then
        events = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
        assert {"pending", "step"} <= {event["name"] for event in events}
