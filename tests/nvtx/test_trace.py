"""What traces and torch's profiler get of annotations, marks and started ranges."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import gpuprof
from tests.support.processes import check_python


def spans_of(path: Path, name: str) -> list[dict[str, Any]]:
    """Return the slices of a name as begin, end, category and args, however they are written."""
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    spans = []
    opened: dict[str, dict[str, Any]] = {}
    for event in events:
        if event.get("name") != name:
            continue
        span = {"ph": event["ph"], "cat": event.get("cat"), "args": event.get("args", {})}
        pair = str(event.get("id2"))
        span |= {"tid": event["tid"], "begin": event["ts"], "end": event["ts"]}
        if event["ph"] == "X":
            spans.append(span | {"end": event["ts"] + event["dur"]})
        elif event["ph"] == "b":
            opened[pair] = span
        elif event["ph"] == "e":
            spans.append(opened.pop(pair) | {"end": event["ts"]})
        else:
            spans.append(span)
    assert not opened
    return spans


def test_one_annotation_in_two_generators_closes_its_own_entry(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    shared = gpuprof.annotate("shared")

    def generate() -> Generator[None, None, None]:
        with shared:
            yield

    with gpuprof.trace(path):
        first, second = generate(), generate()
        next(first)
        gpuprof.mark("between")
        next(second)
        next(first, None)
        gpuprof.mark("first is over")
        next(second, None)
    ((between,), (over,)) = spans_of(path, "between"), spans_of(path, "first is over")
    one, two = sorted(spans_of(path, "shared"), key=lambda span: span["begin"])
    assert one["begin"] <= between["begin"] <= two["begin"]
    assert one["end"] <= over["begin"] <= two["end"]


def test_annotations_are_slices_with_their_arguments(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with gpuprof.trace(path):
        with gpuprof.annotate("outer", category="train", payload=3, args={"bs": 8, "lr": 0.5}):
            with gpuprof.annotate("inner"):
                pass
    (outer,) = spans_of(path, "outer")
    (inner,) = spans_of(path, "inner")
    assert (outer["ph"], outer["cat"]) == ("X", "train")
    assert outer["args"] == {"payload": 3, "bs": 8, "lr": 0.5}
    assert (inner["ph"], inner["cat"], inner["args"]) == ("X", "annotation", {})
    assert outer["begin"] <= inner["begin"] <= inner["end"] <= outer["end"]
    assert outer["tid"] == inner["tid"]


def test_marks_and_started_ranges_are_traced(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with gpuprof.trace(path):
        number = gpuprof.range_start("prefetch", payload=1)
        gpuprof.mark("here", category="io", args={"why": "because"})
        gpuprof.range_end(number)
    (prefetch,) = spans_of(path, "prefetch")
    (here,) = spans_of(path, "here")
    assert prefetch["args"] == {"payload": 1}
    assert prefetch["begin"] <= here["begin"] <= prefetch["end"]
    assert (here["ph"], here["cat"], here["args"]) == ("i", "io", {"why": "because"})


class Rude:
    def __repr__(self) -> str:
        raise ValueError("no")


def test_values_that_json_has_no_form_for_are_texts(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    values = {"nan": float("nan"), "inf": float("-inf"), "big": 2**53 + 1, "huge": 10**5000}
    values |= {"none": None, "yes": True, "rude": Rude(), "set": {1}}  # type: ignore[dict-item]
    with gpuprof.trace(path), gpuprof.annotate("x", payload=2**60, args=values):
        pass
    (span,) = spans_of(path, "x")
    args = span["args"]
    assert args["payload"] == str(2**60)
    assert (args["nan"], args["inf"], args["big"]) == ("NaN", "-Infinity", str(2**53 + 1))
    assert (args["none"], args["yes"], args["set"]) == (None, True, "{1}")
    assert isinstance(args["huge"], str)
    assert args["rude"] == "<Rude>"


def test_a_payload_in_the_arguments_is_not_written_twice(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with gpuprof.trace(path), gpuprof.annotate("x", payload=1, args={"payload": 2}):
        pass
    text = path.read_text(encoding="utf-8")
    assert text.count('"payload"') == 1
    assert spans_of(path, "x")[0]["args"] == {"payload": 2}


def test_a_trace_begun_or_ended_inside_a_range_has_only_whole_ranges(tmp_path: Path) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    with gpuprof.annotate("around"):
        with gpuprof.trace(first):
            with gpuprof.annotate("whole"):
                pass
            late = gpuprof.annotate("late", payload=1)
            late.__enter__()
    late.__exit__(None, None, None)
    with gpuprof.trace(second):
        pass
    assert len(spans_of(first, "whole")) == 1
    assert not spans_of(first, "around")
    assert not spans_of(first, "late")
    assert not spans_of(second, "late")


def test_tasks_of_one_thread_have_ranges_that_may_cross(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"

    @gpuprof.annotate("task")
    async def work(turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0.002)

    async def main() -> None:
        await asyncio.gather(work(2), work(4))

    with gpuprof.trace(path):
        asyncio.run(main())
    spans = spans_of(path, "task")
    assert [span["ph"] for span in spans] == ["b", "b"]
    assert max(s["begin"] for s in spans) < min(s["end"] for s in spans)


def test_the_name_of_a_traced_annotation_is_cut_and_escaped(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    names = ['a "b" \\', "a\n\x01", "\N{ROCKET}", "x" * 10_000]
    with gpuprof.trace(path):
        for name in names:
            with gpuprof.annotate(name):
                pass
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    found = [event["name"] for event in events if event.get("cat") == "annotation"]
    assert found[1:3] == names[1:3]
    assert found[0].rstrip("\N{ZERO WIDTH SPACE}") == names[0]
    assert found[3] == "x" * 4093 + "\N{HORIZONTAL ELLIPSIS}"


# torch's profiler, played by a module of its name

_TORCH = """
import sys, types
log = []
module = types.ModuleType("torch.autograd.profiler")
class record_function:
    def __init__(self, name): self.name = name
    def __enter__(self):
        log.append("enter " + self.name)
        if module.fail: raise module.fail
        return self
    def __exit__(self, *exception):
        log.append("exit " + self.name)
        if module.fail_exit: raise module.fail_exit
module.record_function = record_function
module._is_profiler_enabled = True
module.fail = module.fail_exit = None
sys.modules["torch.autograd.profiler"] = module
import gpuprof
"""


def with_torch(code: str) -> str:
    return check_python(_TORCH + inspect.cleandoc(code)).strip()


def test_while_torchs_profiler_records_ranges_are_in_it_too() -> None:
    out = with_torch("""
        a = gpuprof.annotate("a")
        for enabled in (False, True, False):
            module._is_profiler_enabled = enabled
            with a, gpuprof.timer("b", backend="cpu"):
                with a:
                    module._is_profiler_enabled = False
        print(", ".join(log))
    """)
    assert out == "enter a, enter b, enter a, exit a, exit b, exit a"


def test_torchs_profiler_gets_names_that_it_can_write() -> None:
    out = with_torch(r"""
        with gpuprof.annotate("lone \udc80 surrogate"), gpuprof.annotate("x" * 5000):
            pass
        log[0].encode()
        print(ascii(log[0]), len(log[1]) - len("enter "))
    """)
    assert out == r"'enter lone \ufffd surrogate' 4094"


def test_a_torch_that_comes_later_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "profiler.py").write_text(
        "from __main__ import record_function\n_is_profiler_enabled = True\n"
    )
    out = with_torch(f"""
        del sys.modules["torch.autograd.profiler"]
        for name in ("torch", "torch.autograd"):
            sys.modules[name] = types.ModuleType(name)
            sys.modules[name].__path__ = [{str(tmp_path)!r}]
        a, b = gpuprof.annotate("a"), gpuprof.timer("b", backend="cpu")
        with a, b:
            pass
        import torch.autograd.profiler
        with a, b:
            pass
        print(", ".join(log))
    """)
    assert out == "enter a, enter b, exit b, exit a"


def test_a_torch_that_another_thread_is_importing_is_noticed() -> None:
    out = with_torch("""
        del module._is_profiler_enabled  # its import has not come that far
        a = gpuprof.annotate("a")
        with a:
            pass
        module._is_profiler_enabled = True
        with a:
            pass
        print(", ".join(log))
    """)
    assert out == "enter a, exit a"


def test_failures_of_torchs_profiler_stay_out_of_the_body() -> None:
    out = with_torch("""
        a = gpuprof.annotate("a")
        module.fail = ValueError("no")
        with a:
            pass
        module.fail, module.fail_exit = None, ValueError("no")
        with a:
            pass
        print(", ".join(log))
    """)
    assert out == "enter a, enter a, exit a"


def test_an_interrupt_in_torchs_profiler_comes_out() -> None:
    out = with_torch("""
        a = gpuprof.annotate("a")
        module.fail = KeyboardInterrupt()
        try:
            with a:
                print("not reached")
        except KeyboardInterrupt:
            print("interrupted")
        module.fail, module.fail_exit = None, KeyboardInterrupt()
        try:
            with a:
                pass
        except KeyboardInterrupt:
            print("interrupted")
        module.fail_exit = None
        with a:
            pass
    """)
    assert out.split() == ["interrupted", "interrupted"]


def test_an_annotation_whose_exit_was_interrupted_is_closed_all_the_same() -> None:
    out = with_torch("""
        a = gpuprof.annotate("a")
        module.fail_exit = KeyboardInterrupt()
        a.__enter__()
        with gpuprof.annotate("b"):
            try:
                a.__exit__(None, None, None)
            except KeyboardInterrupt:
                print("interrupted", end=" ")
            module.fail_exit = None
        a.__exit__(None, None, None)
        print(", ".join(log))
    """)
    assert out == "interrupted enter a, enter b, exit a, exit b"


def test_an_interrupt_of_a_range_left_elsewhere_keeps_no_other_open() -> None:
    out = with_torch("""
        import threading, warnings
        warnings.simplefilter("ignore")
        a, b = gpuprof.annotate("a"), gpuprof.annotate("b")
        a.__enter__()
        b.__enter__()
        other = threading.Thread(target=a.__exit__, args=(None, None, None))
        other.start()
        other.join()
        interrupt = [KeyboardInterrupt()]
        plain = record_function.__exit__
        def leave(self, *exception):
            plain(self, *exception)
            if interrupt: raise interrupt.pop()
        record_function.__exit__ = leave
        try:
            b.__exit__(None, None, None)
        except KeyboardInterrupt:
            print("interrupted", end=" ")
        print(", ".join(log))
    """)
    assert out == "interrupted enter a, enter b, exit a, exit b"
