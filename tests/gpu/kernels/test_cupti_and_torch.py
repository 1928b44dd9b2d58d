"""gpuprof's own collection and torch's profiler in one process, in both orders.

CUPTI serves one tool at a time and keeps the buffer callbacks of the last one, so each must find
its kernels again after the other. Each test is a process of its own.
"""

from __future__ import annotations

from typing import Any

from tests.gpu.support.alone import needs_the_gpu_alone
from tests.gpu.support.frameworks import torch_or_skip
from tests.support.processes import result_of

_PREAMBLE = """
import json, warnings
warnings.simplefilter("ignore")
import torch
from torch.profiler import ProfilerActivity, profile
from tests.support.cupti import KERNEL, collected

x = torch.zeros(1 << 16, device="cuda")
torch.cuda.synchronize()
counts = []

def work(number):
    for _ in range(number):
        x.sin_()
    torch.cuda.synchronize()

def torch_sees(number):
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as prof:
        work(number)
    kernels = [e for e in prof.events() if "sin" in e.name and str(e.device_type).endswith("CUDA")]
    counts.append(["torch", number, len(kernels)])

def gpuprof_sees(number):
    with collected() as seen:
        work(number)
    kernels = seen.named("sin")
    counts.append(["gpuprof", number, len(kernels)])
    elapsed = [row.end_ns - row.begin_ns for row in kernels]
    assert all(0 < each < 10_000_000 for each in elapsed), elapsed
    for row in kernels:
        assert -100_000 < row.begin_ns - seen.launch_of(row).begin_ns < 10_000_000, row
"""


def counts_of(body: str) -> list[Any]:
    """Run `body`; return who saw how many of how many kernels, in order."""
    torch_or_skip()
    found: list[Any] = result_of(f"{_PREAMBLE}\n{body}\nresult = counts", timeout=200)
    return found


def assert_all_seen(counts: list[Any]) -> None:
    assert [seen for _, _, seen in counts] == [launched for _, launched, _ in counts], counts


@needs_the_gpu_alone
def test_torch_sees_its_kernels_after_gpuprof() -> None:
    assert_all_seen(counts_of("gpuprof_sees(3)\ntorch_sees(5)\ntorch_sees(4)"))


@needs_the_gpu_alone
def test_gpuprof_sees_its_kernels_after_torch() -> None:
    assert_all_seen(counts_of("torch_sees(5)\ngpuprof_sees(3)\ngpuprof_sees(2)"))


@needs_the_gpu_alone
def test_they_alternate() -> None:
    rounds = "for number in (2, 3, 4):\n    torch_sees(number)\n    gpuprof_sees(number + 1)\n"
    assert_all_seen(counts_of(rounds + "torch_sees(7)"))


def test_a_profiler_of_a_torch_that_is_imported_inside_sees_its_kernels() -> None:
    torch_or_skip()
    ours, theirs, notes = result_of(
        """
        import sys, warnings
        warnings.simplefilter("ignore")
        import gpuprof
        from tests.gpu.support.kernels import Spin, device
        gpu = device()
        spin = Spin(gpu, gpu.stream(), 20_000)
        assert "torch" not in sys.modules
        with gpuprof.kernels() as k:
            spin.launch()
            spin.launch()
            gpu.synchronize()
            import torch
            from torch.profiler import ProfilerActivity, profile
            x = torch.zeros(1 << 16, device="cuda")
            x.cos_()
            with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as prof:
                for _ in range(5):
                    x.sin_()
                torch.cuda.synchronize()
        theirs = [e for e in prof.events()
                  if "sin" in e.name and str(e.device_type).endswith("CUDA")]
        ours = [each.name for each in k.records]
        result = [ours, len(theirs), k.notes]
        """,
        timeout=200,
    )
    assert sum("spin" in name.lower() for name in ours) == 2, ours
    assert sum("cos" in name for name in ours) == 1, ours
    assert theirs == 5
    assert any("ended early by a torch profiler" in note for note in notes)
