"""Ranges of a thread's stack and started ranges: in which order a tool gets them."""

from __future__ import annotations

from pathlib import Path

from tests.nvtx_injection.processes import calls_under_tool, check_under_tool
from tests.support.processes import check_python, run_python

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
    before, after = calls_under_tool(tool, code).split("; ")
    assert before == "push a, push b, push c, pop, pop, pop"
    assert after == before + ", push d, pop"


def test_a_scope_that_is_dropped_while_open_takes_no_range_of_others_with_it(tool: Path) -> None:
    code = """
gpuprof.nvtx.disable()
scope = gpuprof.timer(backend="cpu")
scope.__enter__()
gpuprof.disable()
scope.__enter__()  # not measured, so it has no sample
gpuprof.enable()
gpuprof.nvtx.enable()
def generate(name):
    with gpuprof.annotate(name):
        yield
generators = [generate("a"), generate("b")]
for generator in generators:
    next(generator)
with gpuprof.annotate("above"):
    for generator in generators:
        generator.close()  # their pops wait
    del scope
    with gpuprof.timer("later", backend="cpu"):
        pass
    print(*tool.calls(), sep=", ", end=";")
"""
    during = calls_under_tool(tool, code).split(";")[0]
    assert during == "push a, push b, push above, push later, pop"


def test_many_tasks_that_end_in_any_order_pop_each_range_once(
    tool: Path,
) -> None:
    code = """
import asyncio, random
shared = gpuprof.annotate("shared")
async def task(number, go):
    with shared, gpuprof.timer("step", backend="cpu"):
        await go
async def main(order):
    loop = asyncio.get_running_loop()
    gates = [loop.create_future() for _ in range(300)]
    tasks = [asyncio.create_task(task(i, gate)) for i, gate in enumerate(gates)]
    await asyncio.sleep(0)
    for number in order:
        gates[number].set_result(None)
        await tasks[number]
order = list(range(300))
asyncio.run(main(order))
random.Random(1).shuffle(order)
asyncio.run(main(order))
asyncio.run(main(sorted(order, reverse=True)))
kinds = [call.split()[0] for call in tool.calls()]
depth = [kinds[:i].count("push") - kinds[:i].count("pop") for i in range(0, 3601, 1200)]
print(len(kinds), depth, end=";")
"""
    assert calls_under_tool(tool, code).split(";")[0] == "3600 [0, 0, 0, 0]"


def test_a_range_in_another_domain_does_not_hold_back_a_pop(tool: Path) -> None:
    code = """
a, b = gpuprof.annotate("a"), gpuprof.annotate("b", domain="other")
a.__enter__()
b.__enter__()
a.__exit__(None, None, None)
print(*[(e.kind, e.domain) for e in tool.events("push", "pop")], sep=",", end=";")
b.__exit__(None, None, None)
"""
    assert calls_under_tool(tool, code).split(";")[0] == (
        "('push', 'gpuprof'),('push', 'other'),('pop', 'gpuprof')"
    )


def test_a_range_left_on_another_thread_is_popped_by_its_own_with_one_warning(tool: Path) -> None:
    done = run_python(f"""
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
    """)
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
    assert calls_under_tool(tool, code) == "push a, push b, pop, push a, pop"


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
    assert calls_under_tool(tool, code) == "push shared, pop"


def test_an_annotation_that_goes_while_it_is_open_leaves_the_stack_in_order(
    tool: Path,
) -> None:
    code = """
gpuprof.annotate("lost", payload=1).__enter__()
with gpuprof.annotate("a"):
    pass
"""
    assert calls_under_tool(tool, code) == "push lost, pop, push a, pop"


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
    assert calls_under_tool(tool, code) == "push (unnamed), pop, push a, pop"


def test_an_exit_without_an_enter_does_nothing(tool: Path) -> None:
    code = """
with gpuprof.annotate("a"):
    gpuprof.annotate("b").__exit__(None, None, None)
gpuprof.annotate("a").__exit__(None, None, None)
"""
    assert calls_under_tool(tool, code) == "push a, pop"


def test_many_threads_and_depths_stay_balanced_on_each_thread(tool: Path) -> None:
    code = """
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
    """
    assert check_under_tool(tool, code).strip() == f"{8 * 200 * 4} {{0}}"


def test_the_bodys_exception_comes_out_unchanged_and_the_range_is_closed(tool: Path) -> None:
    code = """
mine = KeyError("mine")
try:
    with gpuprof.annotate("a"):
        raise mine
except KeyError as error:
    assert error is mine
"""
    assert calls_under_tool(tool, code) == "push a, pop"


# Started ranges


def test_ranges_end_in_any_order_and_only_once(tool: Path) -> None:
    code = """
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
    """
    out = check_under_tool(tool, code)
    first, second = out.splitlines()
    assert first == "('start', 1) ('start', 2) ('end', 1) ('end', 2)"
    assert second.startswith("1 gpuprof: range_end was given a number of which no range is open")


def test_started_ranges_are_bounded(tool: Path) -> None:
    code = """
        import warnings
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            numbers = [gpuprof.range_start("x") for _ in range(70_000)]
        print(len(set(numbers) - {0}), numbers[-1], len(caught))
        gpuprof.range_end(numbers[0])
        print(gpuprof.range_start("x") != 0)
    """
    assert check_under_tool(tool, code).split() == ["65536", "0", "1", "True"]


LATE_RANGE = """
import ctypes, os, threading, time, warnings
import gpuprof
warnings.filterwarnings("ignore", "gpuprof: NVTX is on")
gpuprof.nvtx.enable()
library, key = ctypes.CDLL(None), ctypes.c_uint()
left_open = gpuprof.annotate("left open")
@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def late(_):
    left_open.__enter__()
assert library.pthread_key_create(ctypes.byref(key), late) == 0
thread = threading.Thread(target=library.pthread_setspecific, args=(key, ctypes.c_void_p(1)))
thread.start()
thread.join()
while len(os.listdir("/proc/self/task")) > 1:
    time.sleep(0.0001)
left_open.__exit__(None, None, None)
"""


def test_a_range_opened_after_a_threads_own_memory_is_gone_ends_with_the_thread() -> None:
    """It is dropped, as what any ended thread left open: nobody is told of another thread."""
    assert check_python(LATE_RANGE, timeout=20) == ""
