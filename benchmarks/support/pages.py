"""Which results the pages show, and under which words. `render.py` makes the tables of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Highlight:
    """One row of a script's results, in words for the README."""

    script: str
    row: str
    what: str
    peer: str | None = None  # what the row's ratio, where it has one, is a ratio to


HIGHLIGHTS = (
    Highlight(
        "timing_scope_overhead",
        "scope, in bursts",
        "a CUDA scope, in bursts that the GPU keeps up with",
        "two raw event records that nobody reads",
    ),
    Highlight(
        "timing_scope_overhead",
        "scope, torch's side stream",
        "the same on torch's current stream, host time",
        "two `torch.cuda.Event.record()`",
    ),
    Highlight(
        "timing_scope_overhead",
        "disabled scope",
        "a scope that is switched off",
        "`with contextlib.nullcontext()`",
    ),
    Highlight(
        "nvtx_overhead",
        "annotate, traced, beside record_function, profiler on",
        "a range that is written to a trace",
        "torch's `record_function` under its profiler",
    ),
    Highlight(
        "timing_timeline",
        "placed and correlated: distance, median",
        "error of a GPU time in a trace, placed on the host's clock",
        "a kernel that reads the GPU's clock",
    ),
    Highlight(
        "benchmark_accuracy",
        "torch.mm 512: gpuprof graph",
        "error of `benchmark(torch.mm)`, 512 x 512",
        "CUPTI, the hardware profiler",
    ),
    Highlight(
        "verdict_power",
        "30 models, gpuprof: false SLOW, mean",
        "unchanged code that a verdict calls slower",
        "five stored runs, under 30 simulated kinds of noise",
    ),
    Highlight(
        "graphs_callable",
        "host, 16-layer MLP, batch 32: gpuprof",
        "a call of a graphed 16-layer MLP, host time",
        "`torch.cuda.make_graphed_callables`",
    ),
)

NOT_BETTER = (
    Highlight(
        "graphs_launch",
        "launch(stream), 100 kernels, beside CuPy Graph.launch, 100 kernels",
        "a graph launch takes",
        "CuPy's `Graph.launch`",
    ),
    Highlight(
        "benchmark_accuracy",
        "add, 1 M floats: gpuprof graph beside the nearest peer",
        "`benchmark` of an addition is off by",
        "Triton's `do_bench_cudagraph`",
    ),
    Highlight(
        "trace_summary",
        "gpuprof trace summary FILE",
        "`gpuprof trace summary` of a large file takes",
        "`json.load` of the same file",
    ),
)

VERDICTS = ("benchmark_verdicts", "benchmark_verdicts_busy")

# Each script's section in docs/measurements.md, in this order, and the page that has the other
# rows.
SCRIPTS: Mapping[str, tuple[str, str | None]] = {
    "timing_scope_overhead": ("What a scope costs", None),
    "timing_scope_parts": ("Where each nanosecond of a scope and of a launch goes", None),
    "timing_budget": ("What scopes cost within a budget", None),
    "timing_production": ("What recorder, exporters and budget cost together", "production.md"),
    "timing_accuracy": ("How far a scope is from the kernel's own time", None),
    "timing_timeline": ("Where GPU times are placed on the host's clock", None),
    "cpp_scopes": ("What a scope of the C++ library costs", None),
    "timing_import": ("What importing costs", None),
    "nvtx_overhead": ("What an annotation costs", None),
    "trace_write": ("What writing a trace costs", None),
    "trace_ring": ("What a flight recorder costs", None),
    "trace_summary": ("Reading a trace", None),
    "graphs_launch": ("What CUDA graphs cost the host", None),
    "graphs_callable": ("What a graphed callable costs", "callable.md"),
    "graphs_training": ("What a training step costs", "callable.md"),
    "graphs_decode": ("What a decode step costs", "integrations/decode.md"),
    "idle_cost": ("What finding idle lines costs, and how far it is off", None),
    "kernels_attribution": ("Kernels under scopes, and what collecting costs", None),
    "watch_overhead": ("What watching modules costs", None),
    "distributed_gather": ("What the statistics of many ranks cost rank 0", None),
    "distributed_ranks": ("Ranks side by side", None),
    "benchmark_accuracy": ("How far a benchmark is from the hardware profiler", "accuracy.md"),
    "benchmark_verdicts": ("How often a verdict is wrong", "verdicts.md"),
    "verdict_power": ("What verdicts find under noise of many makes", "verdicts.md"),
    "benchmark_verdicts_busy": ("Verdicts on a busy machine", "verdicts.md"),
    "verdict_ab": ("Verdicts of commands that run in turns", "ab.md"),
    "history_power": ("What a history finds", "history.md"),
    "promises": ("What tests of promises passed", "promises.md"),
}


@dataclass(frozen=True)
class Pivot:
    """A table with a line for each case; `columns` maps a heading to the rows' name, given {}."""

    title: str
    pattern: str  # a row's name that matches names a case, in its first group
    columns: Mapping[str, str]

    def case(self, row: str) -> str | None:
        """Return the case that a row belongs to, or None."""
        found = re.fullmatch(self.pattern, row)
        return found and found[1]


_CASE = r"(.+?): .+"
# The rest of a name that has no further figure of the same case behind it.
_WHOLE = r"(?!.*(?:, beside .*|, latency|, host time|, GPU time|, set-up|, loss .*)$).+)"
PIVOTS: Mapping[str, tuple[Pivot, ...]] = {
    "promises": (
        Pivot(
            "Tests by promise and by what happens:",
            r"(.+): passed",
            {what: f"{{}}: {what}" for what in ("passed", "failed", "skipped")},
        ),
    ),
    "verdict_power": (
        Pivot(
            "Rules by the same samples; all but gpuprof's by one new run against the latest:",
            r"(\d+ (?:models|held out), .+?): .+",
            {
                "false SLOW, mean": "{}: false SLOW, mean",
                "worst": "{}: false SLOW, worst",
                "models that miss 20 % of +10 %": (
                    "{}: models in which more than 20 % of +10 % are missed"
                ),
                "models that miss 5 % of +20 %": (
                    "{}: models in which more than 5 % of +20 % are missed"
                ),
            },
        ),
        Pivot(
            "By model, what gpuprof calls SLOW or FAST though unchanged, and what it misses:",
            r"(.+): 10 % called SAME",
            {
                "false SLOW": "{}: false SLOW",
                "+10 % missed": "{}: 10 % missed",
                "+20 % missed": "{}: 20 % missed",
                "+10 % called SAME": "{}: 10 % called SAME",
                "false FAST": "{}: false FAST",
                "-10 % missed": "{}: 10 % less missed",
            },
        ),
        Pivot(
            "A second mode, 30 % slower, that more samples are in than before, each mode as fast "
            "as it was:",
            r"(from .+): .+",
            {verdict: f"{{}}: {verdict}" for verdict in ("SLOW", "AMBIGUOUS", "SAME")},
        ),
    ),
    "verdict_ab": (
        Pivot(
            "Verdicts of `gpuprof ab` without options, by what is measured, and the pairs of runs "
            "after which they are clear (median):",
            r"(.+), unchanged: not called SAME",
            {
                "unchanged, SLOW or FAST": "{}, unchanged: called SLOW or FAST",
                "unchanged, not SAME": "{}, unchanged: not called SAME",
                "pairs": "{}, unchanged: pairs of runs",
                "+5 %, missed": "{}, 5 % slower: missed",
                "+5 %, SAME": "{}, 5 % slower: called SAME",
                "pairs, +5 %": "{}, 5 % slower: pairs of runs",
                "+10 %, missed": "{}, 10 % slower: missed",
                "pairs, +10 %": "{}, 10 % slower: pairs of runs",
            },
        ),
    ),
    "benchmark_accuracy": (
        Pivot(
            "What CUPTI says one call takes:",
            _CASE,
            {
                state: f"{{}}: CUPTI, {state}"
                for state in ("in a graph", "in a stream", "flushed", "rotated, in a graph")
            },
        ),
        Pivot(
            "How far each reading is from that; a gpuprof reading beyond its target is marked:",
            _CASE,
            {
                "`graph`": "{}: gpuprof graph",
                "`batched`": "{}: gpuprof batched",
                "`do_bench_cudagraph`": "{}: triton do_bench_cudagraph",
                "torch events": "{}: torch events",
                "CuPy `benchmark`": "{}: CuPy benchmark",
                "`do_bench`": "{}: triton do_bench",
                "cold": "{}: gpuprof, cold",
            },
        ),
    ),
    "graphs_callable": (
        Pivot(
            "The best of several rounds:",
            r"((?!host, )" + _WHOLE,
            {
                "latency": "{}, latency",
                "a call, in a loop": "{}",
                "host time": "{}, host time",
                "GPU time": "{}, GPU time",
                "set-up": "{}, set-up",
            },
        ),
        Pivot(
            "What the guards of a module of 64 parameters add to the host's time of a call; what "
            "missed its target is marked:",
            r"host, (64 parameters.+)",
            {"host time": "host, {}"},
        ),
    ),
    "graphs_decode": (
        Pivot(
            "A step by batch size, the best of several rounds:",
            r"batch (\d+): .+",
            {
                "eager, waited for": "batch {}: eager, latency",
                "by hand": "batch {}: torch.cuda.graph by hand, latency",
                "with gpuprof": "batch {}: gpuprof, latency",
                "eager, in a loop": "batch {}: eager",
                "by hand, in a loop": "batch {}: torch.cuda.graph by hand",
                "with gpuprof, in a loop": "batch {}: gpuprof",
            },
        ),
    ),
    "graphs_training": (
        Pivot(
            "The host's time of a forward pass, the best of several rounds; what missed its target "
            "is marked:",
            r"forward, (.+)",
            {"host time": "forward, {}"},
        ),
        Pivot(
            "A whole step, the best of several rounds; a loss too far from eager's is marked:",
            r"((?!forward, )" + _WHOLE,
            {
                "latency": "{}, latency",
                "a step, in a loop": "{}",
                "host time": "{}, host time",
                "GPU time": "{}, GPU time",
                "loss": "{}, loss after 200 steps",
                "apart from eager's": "{}, loss apart from eager's",
            },
        ),
    ),
}
