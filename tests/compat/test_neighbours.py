"""Programs and libraries that run beside gpuprof in one process, as they are installed.

Each test needs one of them, and runs in processes of its own, because they patch the process.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from tests.support.benchmark_results import command
from tests.support.processes import ROOT
from tests.support.programs import counts, plain, script
from tests.support.torch_blocks import Run


def need(module: str) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"the neighbour {module} is not installed")


def test_scopes_of_greenlets_on_one_thread_nest_each_in_its_own(in_cuda: Run) -> None:
    need("greenlet")
    out = in_cuda("""
        import random
        import greenlet
        main, draw, made, live = greenlet.getcurrent(), random.Random(1), {}, []

        def visit(depth, above):
            path = f"{above}/n{depth}".lstrip("/")
            with gpuprof.timer(f"n{depth}", stream=stream):
                made[path] = made.get(path, 0) + 1
                main.switch()
                if depth < 4 and draw.random() < 0.8:
                    visit(depth + 1, path)
                    main.switch()

        for _ in range(1000):
            if len(live) < 40:
                live.append(greenlet.greenlet(visit))
            one = draw.choice(live)
            one.switch(*(() if one else (0, "")))
            live = [each for each in live if not each.dead]
        while live:
            live.pop().throw()
        entered = {path: row.host.count + row.failed for path, row in gpuprof.stats().items()}
        print(entered == made, len(made))
        """)
    assert out.split() == ["True", "5"]


GEVENT = """
from gevent import monkey
monkey.patch_all()
import os, sys, threading, time
import gevent
import gpuprof
from tests.fake_driver.control import FakeCuda

fake = FakeCuda(os.environ["GPUPROF_CUDA_DRIVER"])
fake.use_primary()
stream = fake.stream_create()

def request(number):
    with gpuprof.timer("request", stream=stream):
        gevent.sleep(0.001 * (number % 3))
        with gpuprof.timer("query", stream=stream):
            time.sleep(0.001)

with gpuprof.trace("t.json"):
    threads = [threading.Thread(target=request, args=(number,)) for number in range(10)]
    for each in threads:
        each.start()
    gevent.joinall([gevent.spawn(request, number) for number in range(20)], raise_error=True)
    for each in threads:
        each.join()
print({path: row.gpu.count for path, row in gpuprof.stats().items()})

def spin():
    until = time.monotonic() + 0.2
    while time.monotonic() < until:
        pass

with gpuprof.idle() as found:
    with gpuprof.timer("step", stream=stream):
        pass
    gevent.spawn(spin).join()
print(os.path.basename(found.rows[0].file))

child = os.fork()
if child == 0:
    with gpuprof.timer("child", backend="cpu"):
        pass
    os._exit(gpuprof.stats()["child"].host.count + 10)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_gevent_may_patch_everything(fake_path: Path, tmp_path: Path) -> None:
    need("gevent")
    name = script(tmp_path, GEVENT)
    done = plain(tmp_path, name, GPUPROF_CUDA_DRIVER=str(fake_path), PYTHONPATH=str(ROOT))
    assert done.err == ""
    assert done.out == f"{{'request': 30, 'request/query': 30}}\n{name}\n11\n"
    assert command("trace", "validate", tmp_path / "t.json") == 0


WORK = """
import gpuprof

@gpuprof.timer("step", backend="cpu")
def step(number):
    return sum(range(number))

def main():
    for number in range(300):
        step(number)

main()
"""


@pytest.mark.parametrize("core", ["ctrace", "sysmon"])
@pytest.mark.parametrize("outer", ["gpuprof", "coverage"])
def test_a_run_and_coverage_see_the_same_program(tmp_path: Path, core: str, outer: str) -> None:
    need("coverage")
    name = script(tmp_path, WORK)
    run, expected = ["-m", "gpuprof", "run", "--idle", "--stats", "s.json"], {"step": 300}
    if sys.version_info >= (3, 12):
        run += ["--scopes", "__main__.main"]
        expected = {"main": 1, "main/step": 300}
    cover = ["-m", "coverage", "run", "--include", str(tmp_path / name)]
    both = [*run, *cover, name] if outer == "gpuprof" else [*cover, *run, name]
    done = plain(tmp_path, *both, COVERAGE_CORE=core)
    assert done.status == 0, done.err
    assert counts(tmp_path / "s.json") == expected
    assert "100%" in plain(tmp_path, "-m", "coverage", "report").out


CLIENT = """
import json, socket, sys
port, path, line = sys.argv[1:]
link = socket.create_connection(("127.0.0.1", int(port)))
answers, number, stops = link.makefile("rb"), 0, 0

def ask(command, **arguments):
    global number
    number += 1
    asked = {"seq": number, "type": "request", "command": command, "arguments": arguments}
    body = json.dumps(asked).encode()
    link.sendall(b"Content-Length: %d\\r\\n\\r\\n" % len(body) + body)

def stop_at(*lines):
    lines = [{"line": int(each)} for each in lines]
    ask("setBreakpoints", source={"path": path}, breakpoints=lines)

ask("initialize", adapterID="test")
ask("attach", justMyCode=False)
while head := answers.readline():
    answers.readline()
    told = json.loads(answers.read(int(head.split(b":")[1])))
    if told.get("event") == "initialized":
        stop_at(line)
        ask("configurationDone")
    elif told.get("event") == "stopped":
        stops += 1
        if stops == 3:
            stop_at()
        command = "stepIn" if 3 <= stops < 9 else "continue"
        ask(command, threadId=told["body"]["threadId"])
        if stops == 9:
            print("stopped 9 times", flush=True)
    elif told.get("event") == "terminated":
        break
"""
DEBUGGED = """
import os, subprocess, sys
import debugpy
import gpuprof
from tests.fake_driver.control import FakeCuda

port = debugpy.listen(("127.0.0.1", 0))[1]
client = subprocess.Popen([sys.executable, "client.py", str(port), __file__, "21"])
debugpy.wait_for_client()
fake = FakeCuda(os.environ["GPUPROF_CUDA_DRIVER"])
fake.use_primary()
stream = fake.stream_create()

@gpuprof.timer("inner", stream=stream)
def inner(number):
    return number + 1

def main():
    for number in range(100):
        with gpuprof.timer("outer", stream=stream):
            inner(number)

with gpuprof.idle(), gpuprof.trace("t.json"):
    main()
print({path: row.gpu.count for path, row in gpuprof.stats().items()})
"""


def test_a_debugger_may_stop_and_step_through_scopes(fake_path: Path, tmp_path: Path) -> None:
    need("debugpy")
    script(tmp_path, CLIENT, "client.py")
    name = script(tmp_path, DEBUGGED)
    done = plain(
        tmp_path,
        "-Xfrozen_modules=off",
        name,
        GPUPROF_CUDA_DRIVER=str(fake_path),
        PYTHONPATH=str(ROOT),
        PYDEVD_DISABLE_FILE_VALIDATION="1",
    )
    assert done.out == "stopped 9 times\n{'outer': 100, 'outer/inner': 100}\n", done.err
    assert command("trace", "validate", tmp_path / "t.json") == 0


DASK = """
import os
import gpuprof

def work(number):
    with gpuprof.timer("task", backend="cpu"):
        with gpuprof.timer("inner"):
            pass
    return os.getpid()

def counts():
    return {path: row.host.count for path, row in gpuprof.stats().items()}

if __name__ == "__main__":
    import dask
    from dask.distributed import Client, LocalCluster
    for processes in (False, True):
        options = {"n_workers": 2, "threads_per_worker": 2, "dashboard_address": None}
        with LocalCluster(processes=processes, **options) as cluster, Client(cluster) as client:
            client.gather(client.map(work, range(20), pure=False))
            found = client.run(counts).values()
            done = sum(each.get("task", 0) for each in found) / (1 if processes else 2)
            print(done, all(each.get("task") == each.get("task/inner") for each in found))
    gpuprof.reset()
    jobs = [dask.delayed(work)(number) for number in range(20)]
    dask.compute(jobs, scheduler="threads", num_workers=4)
    print(counts())
    pids = set(dask.compute(jobs, scheduler="processes", num_workers=2)[0])
    print(os.getpid() in pids, counts())
"""


def test_the_threads_and_processes_of_dask_count_each_for_itself(tmp_path: Path) -> None:
    need("distributed")
    done = plain(tmp_path, script(tmp_path, DASK))
    here = "{'task': 20, 'task/inner': 20}"
    assert done.out == f"20.0 True\n20.0 True\n{here}\nFalse {here}\n", done.err
