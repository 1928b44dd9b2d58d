"""Annotations, marks and started ranges: how they are entered and left, and what traces get."""

from __future__ import annotations

import asyncio
import inspect
import json
import pickle
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path
from typing import Any

import pytest

import gpuprof
from tests.nvtx_injection.build import build
from tests.nvtx_injection.processes import check_under_tool
from tests.processes import check_python, run_python


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvtx"))


def calls(tool: Path, code: str, **variables: str) -> str:
    """Run `code` and return the calls that the tool got, on one line."""
    return check_under_tool(tool, code + '\nprint(*tool.calls(), sep=", ")', **variables).strip()


# Order


def test_a_range_left_under_another_is_popped_when_it_is_on_top(tool: Path) -> None:
    # The generator's range is left while `b` is open: its pop must not take b's.
    code = """
def generate():
    with gpuprof.annotate("a") as a:
        yield
generator = generate()
next(generator)
with gpuprof.annotate("b") as b:
    generator.close()
    assert b.is_active
    with gpuprof.annotate("c"):
        pass
print(*tool.calls(), sep=", ", end="; ")
with gpuprof.annotate("d"):
    pass
"""
    before, after = calls(tool, code).split("; ")
    assert before == "push a, push b, push c, pop, pop, pop"
    assert after == before + ", push d, pop"


def test_a_range_in_another_domain_does_not_hold_back_a_pop(tool: Path) -> None:
    code = """
a, b = gpuprof.annotate("a"), gpuprof.annotate("b", domain="other")
a.__enter__()
b.__enter__()
a.__exit__(None, None, None)
print(*[(e.kind, e.domain) for e in tool.events("push", "pop")], sep=",", end=";")
b.__exit__(None, None, None)
"""
    assert calls(tool, code).split(";")[0] == (
        "('push', 'gpuprof'),('push', 'other'),('pop', 'gpuprof')"
    )


def test_generators_that_interleave_pop_each_range_once(tool: Path) -> None:
    code = """
def generate(name):
    with gpuprof.annotate(name):
        yield 1
        yield 2
one, two = generate("one"), generate("two")
for pair in zip(one, two):
    pass
next(two, None)
"""
    assert calls(tool, code) == "push one, push two, pop, pop"


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


def test_a_range_left_on_another_thread_is_popped_by_its_own_with_one_warning(
    tool: Path,
) -> None:
    done = run_python(
        f"""
        import os
        os.environ["NVTX_INJECTION64_PATH"] = {str(tool)!r}
        import threading
        import gpuprof
        from tests.nvtx_injection.tool import Tool
        gpuprof.nvtx.enable()
        tool = Tool()
        annotation = gpuprof.annotate("a")
        for _ in range(2):
            annotation.__enter__()
            with gpuprof.annotate("b") as b:
                thread = threading.Thread(target=annotation.__exit__, args=(None, None, None))
                thread.start()
                thread.join()
                assert not annotation.is_active
                assert b.is_active
        with gpuprof.annotate("c"):
            pass
        print(*tool.calls(), sep=", ")
        print(len({{e.tid for e in tool.events("push", "pop")}}))
        """
    )
    assert done.returncode == 0, done.stderr
    expected = "push a, push b, pop, pop, push a, push b, pop, pop, push c, pop"
    assert done.stdout.splitlines() == [expected, "1"]
    assert done.stderr.count("left on another thread") == 1


def test_what_a_dead_thread_left_open_is_dropped_and_nobody_is_popped_for_it(
    tool: Path,
) -> None:
    code = """
import threading
annotation = gpuprof.annotate("a")
thread = threading.Thread(target=annotation.__enter__)
thread.start()
thread.join()
def work():
    with gpuprof.annotate("b"):
        pass
other = threading.Thread(target=work)
other.start()
other.join()
with annotation:
    pass
"""
    assert calls(tool, code) == "push a, push b, pop, push a, pop"


def test_a_thread_that_entered_unseen_does_not_close_anothers_range(tool: Path) -> None:
    code = """
import threading
shared = gpuprof.annotate("shared")
gpuprof.nvtx.disable()
entered, leave = threading.Event(), threading.Event()
def work():
    with shared:
        entered.set()
        leave.wait()
thread = threading.Thread(target=work)
thread.start()
entered.wait()
gpuprof.nvtx.enable()
with shared:
    leave.set()
    thread.join()
    assert shared.is_active
"""
    assert calls(tool, code) == "push shared, pop"


def test_an_annotation_that_goes_while_it_is_open_leaves_the_stack_in_order(
    tool: Path,
) -> None:
    code = """
gpuprof.annotate("lost", payload=1).__enter__()
with gpuprof.annotate("a"):
    pass
"""
    assert calls(tool, code) == "push lost, pop, push a, pop"


def test_a_scope_that_goes_while_it_is_open_leaves_the_stack_in_order(tool: Path) -> None:
    code = """
import gc
scope = gpuprof.timer(backend="cpu")
scope.__enter__()
del scope
gc.collect()
with gpuprof.annotate("a"):
    pass
"""
    assert calls(tool, code) == "push (unnamed), pop, push a, pop"


def test_an_exit_without_an_enter_does_nothing(tool: Path) -> None:
    code = """
with gpuprof.annotate("a"):
    gpuprof.annotate("b").__exit__(None, None, None)
gpuprof.annotate("a").__exit__(None, None, None)
"""
    assert calls(tool, code) == "push a, pop"


def test_many_threads_and_depths_stay_balanced_on_each_thread(tool: Path) -> None:
    out = check_under_tool(
        tool,
        """
        import collections, threading
        shared = [gpuprof.annotate(str(i), domain=f"d{i % 3}") for i in range(5)]
        def work(seed):
            for i in range(200):
                with shared[(i + seed) % 5], shared[i % 5], gpuprof.timer("t", backend="cpu"):
                    with shared[i % 3]:
                        pass
        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        depth = collections.Counter()
        for event in tool.events("push", "pop"):
            depth[event.tid, event.domain] += 1 if event.kind == "push" else -1
            assert depth[event.tid, event.domain] >= 0
        print(len(tool.events("push")), set(depth.values()))
        """,
    )
    assert out.strip() == f"{8 * 200 * 4} {{0}}"


def test_the_bodys_exception_comes_out_unchanged_and_the_range_is_closed(tool: Path) -> None:
    code = """
mine = KeyError("mine")
try:
    with gpuprof.annotate("a"):
        raise mine
except KeyError as error:
    assert error is mine
"""
    assert calls(tool, code) == "push a, pop"


# Started ranges


def test_ranges_end_in_any_order_and_only_once(tool: Path) -> None:
    out = check_under_tool(
        tool,
        """
        import warnings
        one, two = gpuprof.range_start("one"), gpuprof.range_start("two")
        gpuprof.range_end(one)
        gpuprof.range_end(two)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for number in (one, two, 12345, 2**80, -1):
                gpuprof.range_end(number)
        print(*[(e.kind, e.id) for e in tool.events("start", "end")])
        print(len(caught), caught[0].message)
        """,
    )
    first, second = out.splitlines()
    assert first == "('start', 1) ('start', 2) ('end', 1) ('end', 2)"
    assert second.startswith("1 gpuprof: range_end was given a number of which no range is open")


def test_started_ranges_are_bounded(tool: Path) -> None:
    out = check_under_tool(
        tool,
        """
        import warnings
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            numbers = [gpuprof.range_start("x") for _ in range(70_000)]
        print(len(set(numbers) - {0}), numbers[-1], len(caught))
        gpuprof.range_end(numbers[0])
        print(gpuprof.range_start("x") != 0)
        """,
    )
    assert out.split() == ["65536", "0", "1", "True"]


# Tasks


def test_async_with_is_a_started_range_of_its_task(tool: Path) -> None:
    out = check_under_tool(
        tool,
        """
        import asyncio
        shared = gpuprof.annotate("shared")
        async def work(turns):
            async with shared as annotation:
                assert annotation is shared
                for _ in range(turns):
                    await asyncio.sleep(0)
                    assert shared.is_active
        async def main():
            await asyncio.gather(work(3), work(1))
            assert not shared.is_active
            async with shared, shared:
                pass
        asyncio.run(main())
        print(*[(e.kind, e.id) for e in tool.events()
                if e.kind not in ("register", "domain", "category")], sep=";")
        """,
    )
    expected = [
        ("start", 1),
        ("start", 2),
        ("end", 2),
        ("end", 1),
        ("start", 3),
        ("start", 4),
        ("end", 4),
        ("end", 3),
    ]
    assert out.strip() == ";".join(map(str, expected))


def test_a_plain_with_across_awaits_stays_balanced(tool: Path) -> None:
    code = """
import asyncio
async def work(name, turns):
    with gpuprof.annotate(name):
        for _ in range(turns):
            await asyncio.sleep(0)
async def main():
    await asyncio.gather(work("a", 1), work("b", 3), work("c", 2))
asyncio.run(main())
"""
    got = calls(tool, code).split(", ")
    assert sorted(got) == ["pop", "pop", "pop", "push a", "push b", "push c"]


def test_a_coroutine_that_is_cancelled_or_never_run_leaves_nothing_open(tool: Path) -> None:
    code = """
import asyncio
@gpuprof.annotate("work")
async def work():
    await asyncio.sleep(60)
async def main():
    work().close()
    task = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
asyncio.run(main())
"""
    assert calls(tool, code) == "start work, end"


# Decorators


def plain(x: int, *, y: int = 1) -> int:
    """Docstring."""
    return x + y


@pytest.mark.parametrize(
    "decorator",
    [
        gpuprof.annotate,
        gpuprof.annotate(),
        gpuprof.annotate("named", color="red"),
        gpuprof.annotate(color="red"),
    ],
)
def test_a_decorated_function_keeps_its_signature_and_answers(decorator: Any) -> None:
    decorated = decorator(plain)
    assert decorated(2, y=3) == 5
    assert inspect.signature(decorated) == inspect.signature(plain)
    assert (decorated.__name__, decorated.__doc__) == ("plain", "Docstring.")


def test_decorated_kinds_keep_their_kind_and_open_what_fits_them(tool: Path) -> None:
    code = """
import asyncio, inspect
class Thing:
    @gpuprof.annotate
    def method(self): return 1
    @gpuprof.annotate("static")
    @staticmethod
    def static(): return 2
    @gpuprof.annotate()
    @classmethod
    def classy(cls): return cls
    @staticmethod
    @gpuprof.annotate
    def below(): return 3
thing = Thing()
assert (thing.method(), thing.static(), Thing.static(), thing.classy(), Thing.below()) == (
    1, 2, 2, Thing, 3)
@gpuprof.annotate("generator")
def generator():
    got = yield 1
    yield got
    return 9
assert inspect.isgeneratorfunction(generator)
def outer():
    result = yield from generator()
    assert result == 9
running = outer()
assert [next(running), running.send("sent")] == [1, "sent"]
assert next(running, None) is None
list(generator())
next(generator())
@gpuprof.annotate("coroutine")
async def coroutine(): return 4
assert inspect.iscoroutinefunction(coroutine)
assert asyncio.run(coroutine()) == 4
@gpuprof.annotate("stream")
async def stream():
    try:
        got = yield 1
        assert got == "sent"
        yield 2
    except KeyError:
        yield 3
assert inspect.isasyncgenfunction(stream)
async def use():
    items = stream()
    assert await items.__anext__() == 1
    assert await items.asend("sent") == 2
    assert await items.athrow(KeyError()) == 3
    assert [x async for x in items] == []
    cut = stream()
    await cut.__anext__()
    await cut.aclose()
asyncio.run(use())
"""
    assert calls(tool, code) == ", ".join(
        [
            *["push Thing.method", "pop", "push static", "pop", "push static", "pop"],
            *["push Thing.classy", "pop", "push Thing.below", "pop"],
            *["start generator", "end"] * 3,
            *["start coroutine", "end"],
            *["start stream", "end"] * 2,
        ]
    )


def test_a_generator_is_one_range_from_its_first_item_to_its_end(tool: Path) -> None:
    code = """
@gpuprof.annotate("items")
def items():
    yield 1
    yield 2
running = items()
gpuprof.mark("made")
for item in running:
    with gpuprof.annotate(f"use {item}"):
        pass
"""
    assert calls(tool, code) == ("mark made, start items, push use 1, pop, push use 2, pop, end")


@pytest.mark.parametrize("what", [3, "text", None])
def test_what_is_no_function_cannot_be_decorated(what: object) -> None:
    with pytest.raises(TypeError, match="an annotation decorates a function, got"):
        gpuprof.annotate("x")(what)  # type: ignore[operator]


# Arguments


def test_annotate_by_name_is_one_object_per_name() -> None:
    assert gpuprof.annotate("one") is gpuprof.annotate("one")
    assert gpuprof.annotate("one") is not gpuprof.annotate("two")
    assert gpuprof.annotate("one", payload=1) is not gpuprof.annotate("one")
    assert gpuprof.annotate("one").name == "one"
    assert repr(gpuprof.annotate("one")) == "<gpuprof.annotate 'one'>"


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"color": "octarine"}, ValueError, "color: expected '#rrggbb'.*green.*got 'octarine'"),
    ({"color": "#12345"}, ValueError, "color: expected '#rrggbb'"),
    ({"color": 2**32}, ValueError, "color: expected a number from 0 to 0xFFFFFFFF"),
    ({"color": -1}, ValueError, "color: expected a number"),
    ({"color": 1.5}, TypeError, "color: expected a str, an int or None, got float"),
    ({"category": 3}, TypeError, "category: expected a str or None, got int"),
    ({"category": ""}, ValueError, "category: expected a non-empty str"),
    ({"domain": b"x"}, TypeError, "domain: expected a str or None, got bytes"),
    ({"domain": ""}, ValueError, "domain: expected a non-empty str"),
    ({"payload": "3"}, TypeError, "payload: expected an int, a float or None"),
    ({"args": [1]}, TypeError, "args: expected a dict or None, got list"),
    ({"args": {1: 2}}, TypeError, "args: expected a dict whose keys are str, got int"),
    ({"colour": "red"}, TypeError, "has no argument 'colour'; it takes name, color, category"),
]


@pytest.mark.parametrize("function", ["annotate", "mark", "range_start"])
@pytest.mark.parametrize(("given", "error", "message"), WRONG, ids=str)
def test_a_wrong_argument_is_an_error_at_the_call_that_says_what_fits(
    function: str, given: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        getattr(gpuprof, function)("name", **given)


@pytest.mark.parametrize("function", ["annotate", "mark", "range_start"])
@pytest.mark.parametrize("name", [3, b"bytes", 1.5])
def test_a_name_that_is_no_str_is_a_type_error(function: str, name: object) -> None:
    with pytest.raises(TypeError, match=f"name: expected a str.*gpuprof.{function}"):
        getattr(gpuprof, function)(name)


@pytest.mark.parametrize("function", [gpuprof.mark, gpuprof.range_start])
def test_a_mark_and_a_started_range_need_a_name(function: Callable[[], object]) -> None:
    with pytest.raises(TypeError, match="name: expected a str, got NoneType"):
        function()


def test_a_second_positional_argument_is_refused() -> None:
    with pytest.raises(TypeError, match="got 2 positional arguments"):
        gpuprof.annotate("name", "red")  # type: ignore[call-overload]


@pytest.mark.parametrize("number", ["1", None, 1.0])
def test_range_end_takes_an_int(number: Any) -> None:
    with pytest.raises(TypeError, match="id: expected the int that range_start returned"):
        gpuprof.range_end(number)


class FakeArray:
    """Like an array on a GPU: reading it would wait."""

    def __dlpack__(self) -> None: ...

    def __float__(self) -> float:
        raise AssertionError("the array was read")

    def __repr__(self) -> str:
        raise AssertionError("the array was read")


def test_an_array_is_no_payload_because_reading_it_could_wait() -> None:
    with pytest.raises(TypeError, match="payload: expected an int, a float or None"):
        gpuprof.annotate("x", payload=FakeArray())  # type: ignore[call-overload]


class Scalar:
    """Like a scalar of NumPy's."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __float__(self) -> float:
        return self.value


def test_a_scalar_is_a_payload(tool: Path) -> None:
    out = check_under_tool(
        tool,
        """
        from tests.test_nvtx_ranges import Scalar
        with gpuprof.annotate("x", payload=Scalar(2.5)):
            print(tool.events("push")[0].payload)
        """,
    )
    assert out.strip() == "2.5"


@pytest.mark.parametrize("name", ["", "a\0b", "\0"])
def test_an_invalid_label_warns_once_and_shows_nothing(tool: Path, name: str) -> None:
    out = check_under_tool(
        tool,
        f"""
        import warnings
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                with gpuprof.annotate({name!r}) as annotation:
                    assert not annotation.is_active
                gpuprof.mark({name!r})
                assert gpuprof.range_start({name!r}) == 0
        print(len(caught), caught[0].message)
        print(tool.calls())
        """,
    )
    first, second = out.splitlines()
    assert first.startswith("1 gpuprof: the name of an annotation is empty or has a NUL")
    assert second == "[]"


def test_an_annotation_without_a_name_is_a_decorator_only() -> None:
    with pytest.warns(RuntimeWarning, match="without a name was entered"), gpuprof.annotate():
        pass


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_an_annotation_pickles_as_its_arguments(protocol: int) -> None:
    before = gpuprof.annotate("x", color="red", category="c", payload=3, domain="d", args={"a": 1})
    after = pickle.loads(pickle.dumps(before, protocol))
    assert (after.name, after._options) == (before.name, before._options)
    plain_one = gpuprof.annotate("pickled")
    assert pickle.loads(pickle.dumps(plain_one, protocol)) is plain_one


# What traces get


def spans_of(path: Path, name: str) -> list[dict[str, Any]]:
    """Return the slices of a name as begin, end, category and args, however they are written."""
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    spans = []
    opened: dict[Any, dict[str, Any]] = {}
    for event in events:
        if event.get("name") != name:
            continue
        span = {"ph": event["ph"], "cat": event.get("cat"), "args": event.get("args", {})}
        span |= {"tid": event["tid"], "begin": event["ts"], "end": event["ts"]}
        if event["ph"] == "X":
            spans.append(span | {"end": event["ts"] + event["dur"]})
        elif event["ph"] == "b":
            opened[event["id"]] = span
        elif event["ph"] == "e":
            spans.append(opened.pop(event["id"]) | {"end": event["ts"]})
        else:
            spans.append(span)
    assert not opened
    return spans


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
    out = with_torch(
        """
        a = gpuprof.annotate("a")
        for enabled in (False, True, False):
            module._is_profiler_enabled = enabled
            with a, gpuprof.timer("b", backend="cpu"):
                with a:
                    module._is_profiler_enabled = False
        print(", ".join(log))
        """
    )
    assert out == "enter a, enter b, enter a, exit a, exit b, exit a"


def test_a_torch_that_comes_later_is_noticed() -> None:
    out = with_torch(
        """
        del sys.modules["torch.autograd.profiler"]
        a, b = gpuprof.annotate("a"), gpuprof.timer("b", backend="cpu")
        sys.modules["torch.autograd.profiler"] = module
        for _ in range(300):
            with a, b:
                pass
        print(0 < log.count("enter a") < 300, len(log) % 2)
        """
    )
    assert out == "True 0"


def test_failures_of_torchs_profiler_stay_out_of_the_body() -> None:
    out = with_torch(
        """
        a = gpuprof.annotate("a")
        module.fail = ValueError("no")
        with a:
            pass
        module.fail, module.fail_exit = None, ValueError("no")
        with a:
            pass
        print(", ".join(log))
        """
    )
    assert out == "enter a, enter a, exit a"


def test_an_interrupt_in_torchs_profiler_comes_out() -> None:
    out = with_torch(
        """
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
        """
    )
    assert out.split() == ["interrupted", "interrupted"]


def test_types_of_decorated_functions_survive() -> None:
    @gpuprof.annotate
    def generator() -> Generator[int, None, None]:
        yield 1

    @gpuprof.annotate("x")
    async def stream() -> AsyncGenerator[int, None]:
        yield 1

    assert list(generator()) == [1]
    assert inspect.isasyncgenfunction(stream)
