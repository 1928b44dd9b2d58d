"""NVTX: its switch, what a tool receives, and when a range is said to be active."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.nvtx_injection.build import build
from tests.nvtx_injection.processes import check_under_tool
from tests.support.processes import check_python, run_python


@pytest.fixture(scope="module")
def tools(tool_folder: Path) -> dict[str, Path]:
    return {name: build(tool_folder, name) for name in ("extension", "refuses", "no_entry")}


# What a tool receives


def test_a_tool_receives_ranges_with_domain_category_colour_and_payload_in_order(
    tool: Path,
) -> None:
    out = check_under_tool(
        tool,
        """
        import json
        with gpuprof.annotate("outer", color="green", category="train", payload=7, domain="model"):
            with gpuprof.annotate("inner", color=0x80102030, payload=2.5):
                gpuprof.mark("here", color="#0000FF", category="train", payload=-1)
        number = gpuprof.range_start("copy", category="io", payload=2**64 - 1)
        gpuprof.range_end(number)
        kinds = ("domain", "category", "push", "pop", "mark", "start", "end")
        print(json.dumps([
            [e.kind, e.domain, e.text, e.color, e.category, e.payload]
            for e in tool.events(*kinds) if e.text != "gpuprof"
        ]))
        """,
    )
    assert json.loads(out) == [
        ["domain", "model", "model", None, 0, None],
        ["category", "model", "train", None, 1, None],
        ["push", "model", "outer", 0xFF008000, 1, 7],
        ["push", "gpuprof", "inner", 0x80102030, 0, 2.5],
        ["category", "gpuprof", "train", None, 2, None],
        ["mark", "gpuprof", "here", 0xFF0000FF, 2, -1],
        ["pop", "gpuprof", None, None, 0, None],
        ["pop", "model", None, None, 0, None],
        ["category", "gpuprof", "io", None, 3, None],
        ["start", "gpuprof", "copy", None, 3, 2**64 - 1],
        ["end", "gpuprof", None, None, 0, None],
    ]


def test_start_and_end_carry_the_same_id_and_pushes_the_thread(tool: Path) -> None:
    out = check_under_tool(
        tool,
        """
        import json, threading
        number = gpuprof.range_start("across")
        def end():
            with gpuprof.annotate("there"):
                gpuprof.range_end(number)
        thread = threading.Thread(target=end)
        thread.start()
        thread.join()
        with gpuprof.annotate("here"):
            pass
        print(json.dumps([[e.kind, e.id, e.tid == threading.get_native_id()]
                          for e in tool.events("push", "pop", "start", "end")]))
        """,
    )
    assert json.loads(out) == [
        ["start", 1, True],
        ["push", 0, False],
        ["end", 1, False],
        ["pop", 0, False],
        ["push", 0, True],
        ["pop", 0, True],
    ]


def test_a_text_is_registered_once_however_often_and_in_whichever_colour(tool: Path) -> None:
    out = check_under_tool(
        tool,
        """
        for color in ("red", "blue", None):
            for _ in range(3):
                with gpuprof.annotate("same", color=color):
                    pass
        print([e.text for e in tool.events("register")].count("same"))
        print(all(e.registered for e in tool.events("push")), len(tool.events("push")))
        """,
    )
    assert out.split() == ["1", "True", "9"]


def test_past_the_bound_texts_are_given_each_time_and_no_longer_registered(tool: Path) -> None:
    out = check_under_tool(
        tool,
        """
        for i in range(10_500):
            with gpuprof.annotate(f"step {i}"):
                pass
        pushes = tool.events("push")
        print(len(tool.events("register")), len(pushes), pushes[0].registered)
        print(pushes[-1].registered, pushes[-1].text)
        """,
    )
    assert out.splitlines() == ["10000 10500 True", "False step 10499"]


def test_past_the_bound_domains_are_the_default_one_with_one_warning(tool: Path) -> None:
    out = check_under_tool(
        tool,
        """
        import warnings
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for i in range(70):
                with gpuprof.annotate("x", domain=f"d{i}"):
                    pass
        print(len(tool.events("domain")), tool.events("push")[-1].domain, len(caught))
        print(caught[0].message)
        """,
    )
    first, message = out.splitlines()
    assert first == "64 gpuprof 1"
    assert "one too many" in message


def test_scopes_push_ranges_too_and_flushing_is_a_range_of_gpuprofs_own(tool: Path) -> None:
    out = check_under_tool(
        tool,
        """
        with gpuprof.timer("step", backend="cpu"):
            with gpuprof.annotate("part"), gpuprof.timer("inner", backend="cpu"):
                pass
        with gpuprof.timer(backend="cpu"):
            pass
        gpuprof.flush()
        print(*tool.calls(), sep="\\n")
        """,
    )
    assert out.splitlines() == [
        "push step",
        "push part",
        "push inner",
        "pop",
        "pop",
        "pop",
        "push (unnamed)",
        "pop",
        "push gpuprof.flush",
        "push gpuprof.drain",
        "pop",
        "pop",
    ]


def test_disabled_scopes_push_nothing(tool: Path) -> None:
    out = check_under_tool(
        tool,
        """
        with gpuprof.timer("step", enabled=False):
            pass
        gpuprof.disable()
        with gpuprof.timer("step"):
            pass
        print(tool.calls())
        """,
    )
    assert out.strip() == "[]"


# The switch


def test_it_is_off_by_default_and_no_nvtx_call_is_made(tool: Path) -> None:
    out = check_python(
        """
        import gpuprof
        with gpuprof.annotate("x") as annotation, gpuprof.timer("y", backend="cpu"):
            gpuprof.mark("m")
            assert not annotation.is_active
        assert gpuprof.range_start("r") == 0
        gpuprof.range_end(0)
        gpuprof.flush()
        assert not gpuprof.nvtx.is_enabled()
        assert gpuprof.nvtx.last_push_result() == -2
        print("libnvtx_" in open("/proc/self/maps").read())
        """,
        NVTX_INJECTION64_PATH=str(tool),
    )
    assert out.strip() == "False"


@pytest.mark.parametrize(
    ("value", "on"),
    [
        *((value, True) for value in ("1", "true", "ON", " yes ", "auto")),
        *((value, False) for value in ("0", "false", "off", "")),
    ],
)
def test_the_environment_switches_it_under_a_tool(tool: Path, value: str, on: bool) -> None:
    code = 'with gpuprof.annotate("x") as a: print(a.is_active, gpuprof.nvtx.is_enabled())'
    assert check_under_tool(tool, code, nvtx=value).split() == [str(on)] * 2


@pytest.mark.parametrize("variables", [{}, {"NVTX_INJECTION64_PATH": "/nowhere/none.so"}])
def test_auto_is_off_and_silent_without_a_tool(variables: dict[str, str]) -> None:
    out = check_python(
        """
        import gpuprof
        with gpuprof.annotate("x") as a:
            print(a.is_active, gpuprof.nvtx.is_enabled())
        """,
        GPUPROF_NVTX="auto",
        **variables,
    )
    assert out.split() == ["False", "False"]


def test_an_unknown_value_warns_and_leaves_it_off() -> None:
    done = run_python(
        "import gpuprof; gpuprof.annotate; print(gpuprof.nvtx.is_enabled())", GPUPROF_NVTX="maybe"
    )
    assert done.stdout.strip() == "False"
    assert "GPUPROF_NVTX is 1, 0 or auto, not 'maybe'" in done.stderr


def test_asked_for_and_no_tool_listening_is_one_warning() -> None:
    done = run_python(
        """
        import gpuprof
        for _ in range(3):
            gpuprof.nvtx.enable()
            with gpuprof.annotate("x") as annotation:
                print(annotation.is_active, gpuprof.nvtx.is_enabled())
        """
    )
    assert done.returncode == 0
    assert done.stdout.split() == ["False", "True"] * 3
    assert done.stderr.count("no tool listens") == 1


def test_disable_at_run_time_stops_the_pushes_and_enable_starts_them(tool: Path) -> None:
    out = check_under_tool(
        tool,
        """
        annotation = gpuprof.annotate("x")
        scope = gpuprof.timer("s", backend="cpu")
        @gpuprof.annotate("f")
        def function(): pass
        for turn in (gpuprof.nvtx.disable, gpuprof.nvtx.enable, gpuprof.nvtx.disable):
            turn()
            with annotation, scope:
                function()
        print(*tool.calls(), sep=",")
        """,
    )
    assert out.strip() == "push x,push s,push f,pop,pop,pop"


def test_switched_inside_a_range_it_stays_balanced(tool: Path) -> None:
    out = check_under_tool(
        tool,
        """
        a, b = gpuprof.annotate("a"), gpuprof.annotate("b")
        with a:
            gpuprof.nvtx.disable()
            with b, a:
                gpuprof.nvtx.enable()
                with b, a:
                    pass
            with a:
                gpuprof.nvtx.disable()
        with a:
            gpuprof.nvtx.enable()
            with a:
                pass
        with a:
            pass
        print(*tool.calls(), sep=",")
        """,
    )
    assert out.strip() == ("push a,push b,push a,pop,pop,push a,pop,pop,push a,pop,push a,pop")


def test_the_library_wide_switch_makes_everything_a_no_op(tool: Path) -> None:
    out = check_under_tool(
        tool,
        """
        gpuprof.nvtx.enable()
        @gpuprof.annotate
        def function(): return 3
        with gpuprof.annotate("x") as annotation, gpuprof.nvtx.CATALOG["flush"]:
            print(annotation.is_active, gpuprof.nvtx.is_enabled(), function())
        gpuprof.mark("m")
        print(gpuprof.range_start("r"), tool.calls())
        """,
        GPUPROF_DISABLE="1",
    )
    assert out.splitlines() == ["False False 3", "0 []"]


# Is a range active?


def test_active_is_the_truth_where_a_push_answers_minus_one(tool: Path) -> None:
    out = check_under_tool(
        tool,
        """
        annotation = gpuprof.annotate("x")
        with annotation:
            print(annotation.is_active, gpuprof.nvtx.last_push_result())
        print(annotation.is_active, *tool.calls())
        """,
        INJECTION_PUSH_RESULT="-1",
    )
    assert out.splitlines() == ["True -1", "False push x pop"]


def test_active_is_false_in_a_domain_that_the_tool_has_off(tools: dict[str, Path]) -> None:
    out = check_under_tool(
        tools["extension"],
        """
        with gpuprof.annotate("x") as here, gpuprof.annotate("x", domain="off") as there:
            print(here.is_active, there.is_active, gpuprof.nvtx.is_tool_attached())
        """,
        INJECTION_DISABLED_DOMAIN="off",
    )
    assert out.split() == ["True", "False", "True"]


def test_a_tool_that_has_the_default_domain_off_does_not_listen(tools: dict[str, Path]) -> None:
    out = check_under_tool(
        tools["extension"],
        "gpuprof.annotate; print(gpuprof.nvtx.is_enabled(), gpuprof.nvtx.is_tool_attached())",
        nvtx="auto",
        INJECTION_DISABLED_DOMAIN="gpuprof",
    )
    assert out.split() == ["False", "False"]


def test_active_is_false_on_a_thread_that_did_not_enter(tool: Path) -> None:
    out = check_under_tool(
        tool,
        """
        import threading
        seen = []
        with gpuprof.annotate("x") as annotation:
            thread = threading.Thread(target=lambda: seen.append(annotation.is_active))
            thread.start()
            thread.join()
            print(annotation.is_active, seen)
        """,
    )
    assert out.strip() == "True [False]"


# Tools that are none


@pytest.mark.parametrize("variant", ["refuses", "no_entry"])
def test_a_library_that_is_no_tool_is_no_tool(tools: dict[str, Path], variant: str) -> None:
    done = run_python(
        """
        import gpuprof
        with gpuprof.annotate("x", domain="d", category="c", payload=1) as a:
            print(a.is_active, gpuprof.nvtx.last_push_result())
        gpuprof.mark("m")
        gpuprof.range_end(gpuprof.range_start("r"))
        """,
        NVTX_INJECTION64_PATH=str(tools[variant]),
        GPUPROF_NVTX="1",
    )
    assert (done.returncode, done.stdout.split()) == (0, ["False", "-2"])
    assert done.stderr.count("no tool listens") == 1


# The process


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork, which this Python build lacks")
def test_a_forked_child_goes_on_with_its_parents_ranges_and_tool(tool: Path) -> None:
    out = check_under_tool(
        tool,
        """
        import os
        annotation = gpuprof.annotate("x")
        with annotation:
            child = os.fork()
            if child == 0:
                with gpuprof.annotate("in the child") as inside:
                    assert inside.is_active and annotation.is_active
        if child == 0:
            ok = tool.calls() == ["push x", "push in the child", "pop", "pop"]
            os._exit(0 if ok else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), *tool.calls())
        """,
    )
    assert out.strip() == "0 push x pop"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork, which this Python build lacks")
def test_a_forked_child_has_no_ranges_of_its_parents_other_threads(tool: Path) -> None:
    out = check_under_tool(
        tool,
        """
        import os, threading, warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads
        annotation = gpuprof.annotate("x")
        entered, leave = threading.Event(), threading.Event()
        def work():
            with annotation:
                entered.set()
                leave.wait()
        thread = threading.Thread(target=work)
        thread.start()
        entered.wait()
        with gpuprof.annotate("y"):
            child = os.fork()
            if child == 0:
                annotation.__exit__(None, None, None)  # a warning if it were the thread's range
                with annotation:
                    pass
        if child == 0:
            fresh = threading.Thread(target=annotation.__enter__)
            fresh.start()
            fresh.join()
            calls = ["push x", "push y", "push x", "pop", "pop", "push x"]
            os._exit(0 if tool.calls() == calls else 1)
        leave.set()
        thread.join()
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), *tool.calls())
        """,
    )
    assert out.strip() == "0 push x push y pop pop"


def test_what_is_open_at_exit_is_left_quietly(tool: Path) -> None:
    out = check_under_tool(
        tool,
        """
        import threading
        gpuprof.annotate("a").__enter__()
        gpuprof.timer("b", backend="cpu").__enter__()
        gpuprof.range_start("c")
        def stays_open():
            with gpuprof.annotate("d"):
                started.set()
                threading.Event().wait()
        started = threading.Event()
        threading.Thread(target=stays_open, daemon=True).start()
        started.wait()
        print(len(tool.calls()))
        """,
    )
    assert out.strip() == "4"
