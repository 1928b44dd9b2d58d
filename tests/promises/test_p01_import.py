"""P1: import calls no driver, starts no thread, reads no file of its own, and is lazy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.processes import check_python, run_fresh_python

_WATCH_IMPORT = """
import json, os, threading
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
import gpuprof
maps = open("/proc/self/maps").read()
print(json.dumps({
    "opened": opened,
    "threads": len(os.listdir("/proc/self/task")),
    "driver_mapped": "cuda" in maps,
    "modules": [name for name in sys.modules if name.startswith("gpuprof.")],
}))
"""


def test_import_calls_no_driver_starts_no_thread_and_opens_and_imports_nothing_else(
    fake_path: Path,
) -> None:
    facts = json.loads(check_python(_WATCH_IMPORT, run_fresh_python, driver=fake_path))
    assert facts["driver_mapped"] is False
    assert facts["threads"] == 1
    own = (".py", ".pyc", "/proc/self/maps")
    assert [path for path in facts["opened"] if not path.endswith(own)] == []
    assert facts["modules"] == []


def test_a_timer_on_the_cpu_clock_does_not_load_the_driver(fake_path: Path) -> None:
    out = check_python(
        """
        import gpuprof
        with gpuprof.timer("step"):
            pass
        gpuprof.stats()
        print("cuda" in open("/proc/self/maps").read())
        """,
        driver=fake_path,
    )
    assert out.strip() == "False"


def test_using_the_driver_starts_no_thread(fake_path: Path) -> None:
    out = check_python(
        """
        import os
        import gpuprof
        with gpuprof.timer("step", backend="cuda") as sample:
            pass
        sample.ms
        print(len(os.listdir("/proc/self/task")))
        """,
        driver=fake_path,
    )
    assert out.strip() == "1"


@pytest.mark.parametrize("block", ["gpuprof.trace({!r})", "gpuprof.idle()"])
def test_an_open_trace_or_idle_block_has_one_thread_and_an_ended_one_none(
    fake_path: Path, tmp_path: Path, block: str
) -> None:
    out = check_python(
        f"""
        import os
        import time
        import gpuprof
        def threads(): return len(os.listdir("/proc/self/task"))
        with {block.format(str(tmp_path / "run.json"))}:
            with gpuprof.timer("step", backend="cuda"):
                pass
            print(threads())
        for _ in range(250):  # a joined thread leaves /proc a moment after its join
            if threads() == 1:
                break
            time.sleep(0.02)
        print(threads())
        """,
        driver=fake_path,
    )
    assert out.split() == ["2", "1"]
