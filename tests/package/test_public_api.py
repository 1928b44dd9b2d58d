"""The public names: what there is, that it is documented, and what pickles."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import re
import tempfile
from collections.abc import Callable
from operator import methodcaller
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import gpuprof
from gpuprof import errors, results
from tests.fake_driver.control import FakeCuda
from tests.support.captures import graph_of
from tests.support.graph_nodes import chain
from tests.support.processes import check_python

API_PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference.md"
PUBLIC = sorted(
    {*gpuprof.__all__, *gpuprof._MODULE_OF, *results.__all__}
    - {"compat", "distributed", "errors", "exporters", "integrations", "nvtx", "results"}
    - {*errors.__all__}
)


def public(name: str) -> Any:
    """Return what has a public name, here or in `gpuprof.results`."""
    return getattr(gpuprof, name, None) or getattr(results, name)


FUNCTIONS = [name for name in PUBLIC if not inspect.isclass(public(name))]
# Those that a user makes; the others are made by gpuprof.
CONSTRUCTED = [
    "CapturePool",
    "DeviceScalar",
    "GraphCaptureGuard",
    "SyncBackend",
    "Timer",
    "capture",
]
PER_THREAD_STREAM = 2  # the driver's handle
STATS = results.GraphedCallableStats(
    captures=1,
    graphs=(results.GraphCounts("step", "args[0]: float32 (2,)", 3, 5, None, 0.5),),
)
KERNEL = results.KernelRecord(
    "gemm", "kernel", ("step",), 5, 9, 0, 7, "cudaLaunchKernel", 1, 2, 77, 3, 0, 0, 0, 4, "unknown"
)
KERNELS = results.KernelTotals(
    [results.KernelTotal("gemm", "kernel", 2, 3.0, 1.0, 2.0, 1.0)], "all"
)
TIMES = gpuprof.ModuleTimes(
    [
        results.ModuleRow(
            path="",
            class_name="Net",
            depth=0,
            forward=results.PassTimes(calls=2, timed=2, total_ms=3.0, self_ms=1.0, mean_ms=1.5),
            recomputed=results.PassTimes(),
            backward=results.PassTimes(),
            share=None,
            parameters=8,
            parameter_bytes=32,
            activation_bytes=64,
            also=("twin",),
        )
    ],
    clocks=("cuda",),
)
SERIES = results.HistorySeries(
    "test_a",
    "test_a",
    "main",
    "NVIDIA-H200",
    tuple(results.HistoryPoint("2026-11-01", ms, ms, ms, "c1", "NVIDIA H200") for ms in (1.0, 2.0)),
    (results.HistoryChange(1, 0.001, 1.1),),
    ("a note",),
)
OPEN = results.OpenCapture(7, 2, gpuprof.CaptureMode.GLOBAL, 1, 2)


def parameters_of(name: str) -> list[inspect.Parameter]:
    return list(inspect.signature(public(name)).parameters.values())


def sections(name: str) -> dict[str, str]:
    """Return the NumPy-style sections of a docstring; the text before them is ``''``."""
    text = inspect.getdoc(public(name)) or ""
    parts = re.split(r"^(\w[\w ]*)\n-{3,}$", text, flags=re.M)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def test_dir_shows_the_everyday_names_before_and_after_they_are_used() -> None:
    assert dir(gpuprof) == sorted([*gpuprof.__all__, "__version__"])
    for name in PUBLIC:
        public(name)
    assert dir(gpuprof) == sorted([*gpuprof.__all__, "__version__"])


def test_every_name_in_all_exists_and_is_there_once() -> None:
    assert len(gpuprof.__all__) == len(set(gpuprof.__all__))
    assert all(hasattr(gpuprof, name) for name in gpuprof.__all__)


def test_an_unknown_name_is_an_attribute_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="module 'gpuprof' has no attribute 'stopwatch'"):
        gpuprof.stopwatch  # noqa: B018


def test_no_module_hides_a_public_name() -> None:
    assert not any(inspect.ismodule(public(name)) for name in PUBLIC)


CLASSES = [name for name in PUBLIC if name not in FUNCTIONS]


@pytest.mark.parametrize("name", [*CLASSES, *errors.__all__])
def test_tracebacks_and_pickles_show_a_class_by_its_public_name(name: str) -> None:
    value = errors.cuda_error if name == "cuda_error" else public(name)
    module = "gpuprof.results" if name in results.__all__ else "gpuprof"
    assert not inspect.isclass(value) or value.__module__ == module


@pytest.mark.parametrize("name", results.__all__)
def test_a_class_of_what_was_measured_has_one_public_name(name: str) -> None:
    assert getattr(results, name).__module__ == "gpuprof.results"
    assert not hasattr(gpuprof, name)


@pytest.mark.parametrize("name", CLASSES)
def test_a_record_takes_no_private_field(name: str) -> None:
    kind = public(name)
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    assert [each.name for each in fields if each.init and each.name.startswith("_")] == []


def test_a_class_has_its_public_name_also_where_nobody_has_asked_for_it() -> None:
    out = check_python("""
        import gpuprof
        with gpuprof.timer("a", backend="cpu"):
            pass
        stats = gpuprof.stats()
        print(*(type(x).__module__ for x in (stats, stats["a"], stats["a"].host)))
        try:
            gpuprof.Timer("cpu").record_end()
        except RuntimeError as error:
            print(type(error).__module__)
        """)
    assert out.split() == ["gpuprof", "gpuprof.results", "gpuprof.results", "gpuprof"]


def test_a_pickle_that_names_a_module_of_an_older_version_loads() -> None:
    text = pickle.dumps(errors.TraceError("lost"), 0).replace(b"cgpuprof\n", b"cgpuprof.errors\n")
    assert isinstance(pickle.loads(text), errors.TraceError)


def test_the_reference_documents_every_public_name_and_no_other() -> None:
    page = API_PAGE.read_text(encoding="utf-8")
    documented = re.findall(
        r"^\.\. auto(?:function|class):: (?:gpuprof\.results\.)?(\w+)$", page, re.M
    )
    assert sorted(documented) == PUBLIC
    assert re.search(r"^\.\. automodule:: gpuprof\.errors\n +:members:", page, re.M)


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_has_a_docstring_that_begins_with_a_sentence(name: str) -> None:
    first = sections(name)[""].split("\n\n")[0]
    assert first.endswith(".")
    assert not first.startswith(f"{name}(")


@pytest.mark.parametrize("name", [*FUNCTIONS, *CONSTRUCTED])
def test_every_argument_is_described(name: str) -> None:
    given = [parameter.name for parameter in parameters_of(name)]
    described = re.findall(r"^(\w+) : ", sections(name).get("Parameters", ""), re.M)
    assert described == given


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_a_function_returns_is_described(name: str) -> None:
    signature = inspect.signature(public(name))
    returns_nothing = signature.return_annotation in {None, "None"}
    flat = "Return" in sections(name)[""]  # a sentence is enough where there are no arguments
    has_section = "Returns" in sections(name)
    assert returns_nothing or has_section or (flat and not parameters_of(name))


@pytest.mark.parametrize("name", [*FUNCTIONS, *CONSTRUCTED])
def test_what_is_raised_is_described_where_more_than_a_flag_is_given(name: str) -> None:
    if all(parameter.annotation == "bool" for parameter in parameters_of(name)):
        assert "Raises" not in sections(name)
    else:
        assert "Raises" in sections(name)


@pytest.mark.parametrize("name", CLASSES)
def test_public_members_have_docstrings(name: str) -> None:
    kind = public(name)
    silent = [
        member
        for member, value in vars(kind).items()
        if not member.startswith("_")
        and (callable(value) or inspect.isdatadescriptor(value) or isinstance(value, classmethod))
        and not inspect.ismemberdescriptor(value)
        and not inspect.getdoc(value)
    ]
    assert not silent


@pytest.mark.parametrize("name", [name for name in errors.__all__ if name != "cuda_error"])
def test_errors_are_importable_from_the_package(name: str) -> None:
    assert getattr(gpuprof, name) is getattr(errors, name)
    assert name not in gpuprof.__all__


@pytest.mark.parametrize("name", errors.__all__)
def test_errors_are_documented_and_derive_from_the_root(name: str) -> None:
    value = getattr(errors, name)
    assert inspect.getdoc(value)
    assert not inspect.isclass(value) or issubclass(value, errors.GpuprofError)


def cpu_sample() -> Any:
    with gpuprof.timer("pickled", backend="cpu") as sample:
        pass
    return sample


def cpu_stats() -> Any:
    cpu_sample()
    return gpuprof.stats()


def traces_compared() -> gpuprof.TraceDiff:
    trace = Path(__file__).parents[1] / "fixtures" / "torch_profiler.json"
    return gpuprof.trace_diff(trace, trace)


def compared() -> gpuprof.CompareResult:
    return gpuprof.compare({"a": int, "b": int}, rounds=6, warmup_s=0.0)


def nodes_of_a_graph() -> tuple[gpuprof.GraphNode, ...]:
    return chain("first", "second")


CHANGE = results.NodeChange(*nodes_of_a_graph(), {"symbol": ("first", "second")})


RESULT = gpuprof.BenchResult("f", "cpu", "auto", "cpu", "n/a", (1.0, 2.0), 1.5)

to_dict = methodcaller("to_dict")
PICKLING: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "Annotation": (lambda: gpuprof.annotate("pickled"), id),
    "Backend": (lambda: gpuprof.backends()["cpu"], lambda b: (b.available, b.reason)),
    "Calibration": (lambda: results.Calibration(0, 32.0, 1.0, None, 256, "by hand"), to_dict),
    "CaptureInfo": (
        lambda: results.CaptureInfo(gpuprof.CaptureStatus.ACTIVE, 7, 2, (OPEN,)),
        to_dict,
    ),
    "CaptureMode": (lambda: gpuprof.CaptureMode.RELAXED, id),
    "CaptureStatus": (lambda: gpuprof.CaptureStatus.ACTIVE, id),
    "Counter": (lambda: gpuprof.counter("pickled"), lambda c: c.name),
    "GraphDiff": (
        lambda: gpuprof.GraphDiff(("a line",), removed=nodes_of_a_graph(), changed=(CHANGE,)),
        lambda diff: (str(diff), diff.to_dict()),
    ),
    "GraphMemory": (lambda: results.GraphMemory(4096, None), to_dict),
    "GraphNode": (lambda: nodes_of_a_graph()[1], to_dict),
    "GraphCounts": (lambda: STATS.graphs[0], to_dict),
    "GraphTimings": (lambda: gpuprof.GraphTimings([(("a",), 1.0), (("b",), None)]), dict),
    "GraphedCallableStats": (lambda: STATS, to_dict),
    "GraphSignature": (
        lambda: results.GraphSignature("1234", results.Launches({"k": 2})),
        lambda signature: (str(signature), signature.launches),
    ),
    "Launches": (lambda: results.Launches({"k": 2}, 1), to_dict),
    "MemoryUse": (lambda: results.MemoryUse(1, 30, 130, 10), to_dict),
    "IdleRow": (lambda: results.IdleRow("train.py", 40, "step", 1.5, 0.1), lambda r: r),
    "KernelRecord": (lambda: KERNEL, tuple),
    "KernelRow": (lambda: results.KernelRow(("step", "a/b"), 2, 1, 1), to_dict),
    "KernelTotal": (lambda: KERNELS[0], to_dict),
    "KernelTotals": (lambda: KERNELS, to_dict),
    "ModuleRow": (lambda: TIMES[""], to_dict),
    "ModuleTimes": (lambda: TIMES, to_dict),
    "NodeChange": (lambda: CHANGE, lambda change: (repr(change), change.to_dict())),
    "OpenCapture": (lambda: OPEN, to_dict),
    "PassTimes": (lambda: TIMES[""].forward, to_dict),
    "Peaks": (lambda: results.Peaks({"float16": 1e15}, 4e12), to_dict),
    "Row": (lambda: cpu_stats()["pickled"], to_dict),
    "Sample": (cpu_sample, to_dict),
    "Scope": (lambda: gpuprof.timer("pickled"), id),
    "SpanTiming": (lambda: results.SpanTiming((1.0, None)), to_dict),
    "Stats": (cpu_stats, to_dict),
    "Summary": (lambda: cpu_stats()["pickled"].host, to_dict),
    "SyncBackend": (
        lambda: gpuprof.SyncBackend("npu", gpuprof.flush),
        lambda b: (b.name, b.synchronize),
    ),
    "BenchResult": (lambda: RESULT, lambda r: r),
    "History": (lambda: gpuprof.History([SERIES]), to_dict),
    "HistoryChange": (lambda: results.HistoryChange(1, 0.001, 1.1), lambda change: change),
    "HistoryPoint": (lambda: SERIES.points[0], lambda point: point),
    "HistorySeries": (lambda: SERIES, lambda series: series),
    "CompareResult": (compared, to_dict),
    "CompareRow": (lambda: compared()["b"], to_dict),
    "SweepPoint": (lambda: results.SweepPoint({"n": 1}, RESULT), to_dict),
    "SweepResult": (
        lambda: gpuprof.sweep(lambda **_: int, {"n": [1]}, warmup_s=0.0, max_time_s=0.1),
        to_dict,
    ),
    "TraceDiff": (traces_compared, lambda diff: (str(diff), diff.to_dict())),
    "Verdict": (lambda: gpuprof.Verdict.SLOW, lambda v: v),
    "Decision": (
        lambda: results.Decision(gpuprof.Verdict.SAME, 1.0, 1.0, 1.0, None, 0.05, None, 1, "rule"),
        lambda d: d,
    ),
    "Work": (lambda: results.Work(2, flops=1e9, flops_per_s=1e12), to_dict),
    # What was asked for, as long as it is not entered.
    "capture": (lambda: gpuprof.capture(2, name="pickled"), lambda c: c._settings),
}


def closed(trace: Any) -> Any:
    trace.close()
    return trace


def closed_writer() -> gpuprof.TraceWriter:
    with tempfile.TemporaryDirectory() as folder:
        writer = gpuprof.TraceWriter(Path(folder, "run.json"))
        writer.close()
    return writer


def closed_listener() -> gpuprof.Listener:
    with gpuprof.on_sample(len) as listener:
        return listener


def finished_guard(fake: FakeCuda) -> gpuprof.GraphCaptureGuard:
    guard = gpuprof.GraphCaptureGuard(PER_THREAD_STREAM)
    guard.abort()
    assert fake.capture_status(PER_THREAD_STREAM) == 0
    return guard


def fixture_of_a_test() -> gpuprof.GpuBenchmark:
    settings: Any = SimpleNamespace(compare=None, disabled=True, measuring={})
    item: Any = SimpleNamespace(name="test_a")
    return gpuprof.GpuBenchmark(item, "test_a", settings, {"group": None})


REFUSING: dict[str, Callable[[FakeCuda], Any]] = {
    "CapturePool": lambda _: gpuprof.CapturePool(),
    "CapturedGraph": lambda fake: graph_of(fake, PER_THREAD_STREAM),
    "DeviceScalar": lambda _: gpuprof.DeviceScalar(1.0, "float32", PER_THREAD_STREAM),
    "FlightRecorder": lambda _: closed(gpuprof.flight_recorder("unused.json")),
    "GpuBenchmark": lambda _: fixture_of_a_test(),
    "GraphCaptureGuard": finished_guard,
    "GraphedCallable": lambda _: gpuprof.make_graphed_callable(str),
    "Idle": lambda _: gpuprof.idle(),
    "Kernels": lambda _: gpuprof.kernels(),
    "Listener": lambda _: closed_listener(),
    "ModuleWatch": lambda _: object.__new__(gpuprof.ModuleWatch),
    "Timer": lambda _: gpuprof.Timer("cpu"),
    "TraceWindows": lambda _: closed(gpuprof.trace_windows("unused.json", (1, 1, 1, 1))),
    "TraceWriter": lambda _: closed_writer(),
}
# A name of something, which copies as itself but means nothing to another process.
REFUSING_TO_PICKLE = {"GraphPoolHandle": gpuprof.graph_pool_handle}


def test_every_public_class_either_pickles_or_refuses() -> None:
    assert {*CLASSES} == {*PICKLING, *REFUSING, *REFUSING_TO_PICKLE}


@pytest.mark.parametrize("name", PICKLING)
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_class_that_pickles_comes_back_as_it_was(name: str, protocol: int) -> None:
    make, essence = PICKLING[name]
    before = make()
    after = pickle.loads(pickle.dumps(before, protocol))
    assert type(after) is type(before) is public(name)
    assert essence(after) == essence(before)


@pytest.mark.parametrize("name", REFUSING)
@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_class_that_belongs_to_the_process_refuses_to_be_copied(
    name: str, duplicate: Callable[[Any], Any], fake: FakeCuda
) -> None:
    with pytest.raises(TypeError, match="cannot be pickled"):
        duplicate(REFUSING[name](fake))


@pytest.mark.parametrize("name", REFUSING_TO_PICKLE)
def test_a_name_that_belongs_to_the_process_refuses_to_be_pickled(name: str) -> None:
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(REFUSING_TO_PICKLE[name]())
