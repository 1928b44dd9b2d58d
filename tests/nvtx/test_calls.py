"""``python -m gpuprof.nvtx`` and `gpuprof.nvtx.Profile`: each call of a function is a range."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

import gpuprof
from tests.nvtx_injection.build import build
from tests.nvtx_injection.processes import check_under_tool
from tests.support.processes import ROOT, environment

SCRIPT = """\
import sys
def outer(n):
    return sum(inner(i) for i in range(n))
def inner(i):
    if i == 1:
        try:
            fails()
        except KeyError:
            pass
    return i
def fails():
    raise KeyError
def report():
    sys.path.insert(0, {root!r})
    from tests.nvtx_injection.tool import Tool
    calls = []
    for e in Tool().events("push", "pop"):
        if (e.text or "").endswith(("report", "report)")):
            break
        calls.append(e.text or "")
    print(calls)
outer(2)
report()
print(sys.argv[1:], __name__, __file__ == sys.argv[0], sys.path[1] != "")
"""
NAMES = [
    *["<module>", "outer"],
    *["<genexpr>", "inner", "", "", "<genexpr>", "inner", "fails", "", "", "", "<genexpr>", ""],
    *[""],
]
LINES = {"<module>": 1, "outer": 2, "<genexpr>": 3, "inner": 4, "fails": 11}


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvtx"), "extension")


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(SCRIPT.format(root=str(ROOT)), encoding="utf-8")
    return path


def run(
    module: str, *arguments: str | Path, tool: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    if tool is not None:
        variables["NVTX_INJECTION64_PATH"] = str(tool)
    return subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        env=environment(None, **variables),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def calls(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return what the script reported: the ranges that were pushed, '' for a pop."""
    assert done.returncode == 0, done.stderr
    found: list[str] = eval(done.stdout.splitlines()[0])
    return found


def test_each_call_is_a_range_with_its_line_and_the_script_keeps_its_arguments(
    tool: Path, script: Path
) -> None:
    done = run("gpuprof.nvtx", script, "-x", "--linenos", "y", tool=tool)
    assert calls(done) == [f"program.py:{LINES[name]}({name})" if name else "" for name in NAMES]
    assert done.stdout.splitlines()[1] == "['-x', '--linenos', 'y'] __main__ True True"
    assert done.stderr == ""


def test_names_come_without_lines_on_request(tool: Path, script: Path) -> None:
    assert calls(run("gpuprof.nvtx", "--no-linenos", script, tool=tool)) == NAMES


@pytest.mark.skipif(
    importlib.util.find_spec("nvtx") is None, reason="the original package is not installed"
)
def test_the_nvtx_package_shows_the_same_calls(tool: Path, script: Path) -> None:
    theirs = calls(run("nvtx", "--no-linenos", script, tool=tool))
    # It also shows what runs the script, before its functions are called.
    assert "<module>" in theirs
    assert theirs[theirs.index("outer") :] == NAMES[1:]


def test_builtin_functions_are_shown_on_request(tool: Path, script: Path) -> None:
    shown = calls(run("gpuprof.nvtx", "--annotate-cfuncs", "--no-linenos", script, tool=tool))
    assert "sum" in shown
    assert [name for name in shown if name != ""].count("sum") == 1
    assert [name for name in shown if name in set(NAMES)].count("") == shown.count("")


def test_the_exit_status_and_the_traceback_are_the_scripts(tool: Path, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text("import sys\nsys.exit(7)\n", encoding="utf-8")
    assert run("gpuprof.nvtx", script, tool=tool).returncode == 7
    script.write_text("def f():\n    raise KeyError('mine')\nf()\n", encoding="utf-8")
    done = run("gpuprof.nvtx", script, tool=tool)
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith("KeyError: 'mine'")


def test_a_module_is_run_too(tool: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import sys\nprint(sys.argv[1:])\n", encoding="utf-8")
    done = run("gpuprof.nvtx", "-m", "program", "x", tool=tool, PYTHONPATH=_path(tmp_path))
    assert (done.returncode, done.stdout) == (0, "['x']\n"), done.stderr


def _path(folder: Path) -> str:
    return ":".join([str(folder), *sys.path])


def test_without_a_tool_the_script_runs_with_one_warning(script: Path, tmp_path: Path) -> None:
    script.write_text("print('ran')\n", encoding="utf-8")
    done = run("gpuprof.nvtx", script)
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert done.stderr.count("no tool listens") == 1


def test_calls_are_in_a_trace(tmp_path: Path) -> None:
    script, trace = tmp_path / "program.py", tmp_path / "trace.json"
    script.write_text("def f():\n    pass\nfor _ in range(3):\n    f()\n", encoding="utf-8")
    done = run("gpuprof.nvtx", script, GPUPROF_TRACE_OUT=str(trace))
    assert done.returncode == 0, done.stderr
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    assert [each["name"] for each in events if "(f)" in each["name"]] == ["program.py:1(f)"] * 3


def test_a_script_that_is_not_there_is_said_at_once() -> None:
    done = run("gpuprof.nvtx")
    assert done.returncode == 2
    assert "required: script" in done.stderr
    done = run("gpuprof.nvtx", "nowhere.py")
    assert done.returncode == 2
    assert "cannot read the script nowhere.py" in done.stderr


# The class


def test_a_profile_shows_calls_between_enable_and_disable(tool: Path) -> None:
    out = check_under_tool(
        tool,
        """
        from gpuprof import nvtx
        profile = nvtx.Profile(linenos=False, annotate_cfuncs=False)
        def f(n):
            return f(n - 1) if n else 0
        f(0)
        profile.enable()
        profile.enable()
        f(1)
        profile.disable()
        profile.disable()
        f(0)
        events = tool.events("push", "pop")
        print([e.text or "" for e in events], {e.domain for e in events})
        """,
    )
    assert out.strip() == "['f', 'f', '', ''] {'gpuprof.calls'}"


def test_what_returns_after_enable_pops_no_range(tool: Path) -> None:
    out = check_under_tool(
        tool,
        """
        from gpuprof import nvtx
        profile = nvtx.Profile(linenos=False, annotate_cfuncs=False)
        def start():
            profile.enable()
        def work():
            pass
        def stop():
            profile.disable()
        with gpuprof.annotate("mine", domain="gpuprof.calls"):
            start()
            work()
            stop()
            print(tool.calls())
        print(tool.calls()[-1])
        """,
    )
    shown, last = out.splitlines()
    assert shown == "['push mine', 'push work', 'pop', 'push stop', 'pop']"
    assert last == "pop"


def test_threads_and_coroutines_have_ranges_of_their_own(tool: Path) -> None:
    out = check_under_tool(
        tool,
        """
        import asyncio, threading
        from gpuprof import nvtx
        profile = nvtx.Profile(linenos=False, annotate_cfuncs=False)
        def work():
            pass
        async def step(gate):
            await gate
        async def main():
            gate = asyncio.get_running_loop().create_future()
            tasks = [asyncio.create_task(step(gate)) for _ in range(2)]
            await asyncio.sleep(0)
            gate.set_result(None)
            await asyncio.gather(*tasks)
        profile.enable()
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        asyncio.run(main())
        profile.disable()
        depth, steps = {}, []
        for e in tool.events("push", "pop"):
            depth[e.tid] = depth.get(e.tid, 0) + (1 if e.kind == "push" else -1)
            assert depth[e.tid] >= 0
            steps += [e.text] if e.text in {"work", "step"} else []
        print(set(depth.values()), steps.count("work"), steps.count("step"))
        """,
    )
    # Each step runs twice: to its await, and from there on.
    assert out.strip() == "{0} 3 4"


def test_builtin_functions_that_raise_are_closed(tool: Path) -> None:
    out = check_under_tool(
        tool,
        """
        from gpuprof import nvtx
        profile = nvtx.Profile(linenos=False)
        def work():
            try:
                int.from_bytes("x")
            except TypeError:
                pass
            return len([3].copy())
        profile.enable()
        work()
        profile.disable()
        texts = [e.text for e in tool.events("push")]
        assert [name for name in texts if name in {"work", "from_bytes", "copy", "len"}] == [
            "work", "from_bytes", "copy", "len"], texts
        print(len(texts) - len(tool.events("pop")))
        """,
    )
    assert out.strip() == "0"


def test_functions_of_gpuprof_are_left_out(tool: Path) -> None:
    out = check_under_tool(
        tool,
        """
        from gpuprof import nvtx
        profile = nvtx.Profile(linenos=False, annotate_cfuncs=False)
        def work():
            nvtx.push("mine")
            nvtx.pop()
            gpuprof.stats()
        profile.enable()
        work()
        profile.disable()
        print([e.text or "" for e in tool.events("push") if e.domain == "gpuprof.calls"])
        """,
    )
    assert "push" not in out
    assert out.startswith("['work'")


def test_nothing_is_installed_where_nobody_listens() -> None:
    profile = gpuprof.nvtx.Profile()
    before = sys.getprofile()
    profile.enable()
    try:
        assert sys.getprofile() is before
        assert profile._stop is None
    finally:
        profile.disable()
