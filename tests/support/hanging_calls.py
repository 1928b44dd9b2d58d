"""Let each driver call that gpuprof makes block for ever, one process for each.

``python -m tests.support.hanging_calls [CALL ...]`` takes the calls from the table of entry points,
so that a new one is covered by itself, and for each the shortest scenario that makes it, and those
of `ALSO`. A thread runs into the call. Then other threads must go on, Ctrl-C must be answered, the
process must end by itself, and stderr must name the call, also where the call keeps Python's lock:
there nothing else goes on, and a signal must end the process. Each process is a fork of one that
has not used the driver, with ``GPUPROF_HANG_S`` set to a fraction of a second.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import re
import signal
import sys
import threading
import time
import warnings
from itertools import islice

import gpuprof
from tests.fake_driver.control import FakeCuda
from tests.support.processes import ROOT
from tests.support.scenarios import SCENARIOS, Scenario, Stage
from tests.support.sweep import WORKERS, list_calls

TABLE = ROOT / "src" / "driver" / "cuda_entry_points.hpp"
# Calls on what the driver has on the host: docs/design/timing.md says why they keep the lock. For
# the first two another thread waits with it, which asks whether CUDA is in use.
KEEPS_LOCK = frozenset(
    {
        "cuDriverGetVersion",
        "cuDeviceGetCount",
        "cuGetErrorName",
        "cuGetErrorString",
        "cuLogsDumpToMemory",
        "cuEventQuery",
        "cuEventElapsedTime",
        "cuStreamEndCapture",
        "cuGraphDestroy",
        "cuGraphGetNodes",
        "cuGraphGetEdges",
        "cuGraphNodeGetType",
        "cuGraphKernelNodeGetParams",
        "cuGraphMemcpyNodeGetParams",
        "cuGraphMemsetNodeGetParams",
        "cuGraphEventRecordNodeGetEvent",
        "cuGraphChildGraphNodeGetGraph",
        "cuGraphMemAllocNodeGetParams",
        "cuFuncGetName",
        "cuKernelGetName",
    }
)
# What opens the driver; nobody has initialised CUDA then.
OPENS_DRIVER = frozenset({"cuDriverGetVersion", "cuInit", "cuDeviceGetCount"})
NEWEST = "driver_version=13010"  # a driver with all entry points
PATIENCE_S = 20.0


def table() -> list[str]:
    """Return the names of all entry points."""
    return re.findall(r"^  [XFS]\((cu\w+),", TABLE.read_text(encoding="utf-8"), re.MULTILINE)


def scopes_beside_a_busy_thread(stage: Stage) -> None:
    """Time scopes until the thread `gpuprof-calls` makes their calls, as the lock comes back late.

    When that begins depends on the time, so the sweep cannot have this scenario.
    """

    def be_busy() -> None:
        while True:
            pass

    threading.Thread(target=be_busy, daemon=True).start()
    while True:
        with gpuprof.timer("scenario", stream=stage.stream, backend="cuda"):
            pass


# Ways to a call besides the shortest scenario's: `close` of a graph, and calls of another thread.
ALSO: dict[str, list[Scenario]] = {
    "cuGraphExecDestroy": [SCENARIOS["captured_bodies_that_fail"]],
    "cuCtxSetCurrent": [scopes_beside_a_busy_thread],
}


def scenarios_of() -> dict[str, list[Scenario]]:
    """Return the scenario with the fewest driver calls for each call that one makes, and `ALSO`."""
    made = {name: list_calls(name) for name in sorted(SCENARIOS)}
    found = {call: [SCENARIOS["what_there_is"]] for call in OPENS_DRIVER}
    for name in sorted(made, key=lambda each: len(made[each])):
        for symbol in made[name]:
            found.setdefault(re.sub(r"_v\d+$", "", symbol), [SCENARIOS[name]])
    for call, others in ALSO.items():
        found[call] = [*found.get(call, []), *others]
    return found


def until(condition: object, what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():  # type: ignore[operator]
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.002)


def hang(call: str, scenario: Scenario, said: int) -> None:
    """Have a thread run into the call, and go on beside it."""
    os.dup2(said, 2)
    signal.alarm(int(2 * PATIENCE_S))
    warnings.simplefilter("ignore")
    fake = FakeCuda(os.environ["GPUPROF_CUDA_DRIVER"])
    opens = call in OPENS_DRIVER
    context, stream, other = 0, 0, 0
    if not opens:
        with fake.spared():
            context = fake.use_primary()
            stream, other = fake.stream_create(), fake.stream_create()
    fake.script(f"{call}@1=0:block")

    def run() -> None:
        if not opens:
            with fake.spared():
                fake.set_current(context)
        scenario(Stage(fake, stream))

    def go_on() -> None:
        if not opens:
            fake.set_current(context)
        for _ in range(40):
            with gpuprof.timer("beside", stream=None if opens else other) as sample:
                pass
        assert sample.ms >= 0

    threading.Thread(target=run, daemon=True).start()
    until(lambda: fake.report()["blocked_calls"], "the call was not made")
    beside = threading.Thread(target=go_on, daemon=True)
    beside.start()
    beside.join(PATIENCE_S)
    assert not beside.is_alive(), "another thread does not go on"
    try:
        os.kill(os.getpid(), signal.SIGINT)
        until(lambda: False, "Ctrl-C was not answered")
    except KeyboardInterrupt:
        pass
    until(lambda: os.fstat(said).st_size, "nothing was said")
    atexit.register(os.write, said, b"exit\n")


def start(call: str, scenario: Scenario, said: int) -> int:
    """Return the process that hangs; it ends as a program does."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        hang(call, scenario, said)
        sys.exit(0)
    return pid


def wrong_in(call: str, status: int, said: str) -> str:
    """Return what is wrong with how a process ended, empty if nothing is."""
    expected = -signal.SIGTERM if call in KEEPS_LOCK else 0
    if status != expected:
        return f"it ended with {status}"
    lines = said.splitlines()
    if [line for line in lines if f"gpuprof: {call} has not returned for" in line] != lines[:1]:
        return "it did not say once which call hangs"
    return "" if call in KEEPS_LOCK or lines[1:] == ["exit"] else "it did not end as a program does"


def main(calls: list[str]) -> int:
    os.environ["FAKECUDA_CONFIG"] = NEWEST
    found = scenarios_of()
    calls = calls or table()
    absent = sorted(set(calls) - set(found))
    waiting = iter([(call, way) for call in calls for way in found.get(call, [])])
    running: dict[int, tuple[str, Scenario, int]] = {}
    bad = [f"{call}: no scenario makes it" for call in absent]
    while True:
        for call, scenario in islice(waiting, WORKERS - len(running)):
            said = os.memfd_create(call)
            # Two threads write to it, and a memfd has no lock on its position.
            fcntl.fcntl(said, fcntl.F_SETFL, os.O_APPEND)
            running[start(call, scenario, said)] = call, scenario, said
        if not running:
            break
        for pid, (call, _, said) in list(running.items()):
            if call in KEEPS_LOCK and os.fstat(said).st_size:
                os.kill(pid, signal.SIGTERM)
        pid, ended = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            time.sleep(0.005)
            continue
        call, scenario, said = running.pop(pid)
        text = os.pread(said, 1 << 16, 0).decode()
        os.close(said)
        wrong = wrong_in(call, os.waitstatus_to_exitcode(ended), text)
        if wrong:
            bad.append(f"{call} in {scenario.__name__}: {wrong}\n{text}")
    print("\n".join([*bad, f"{len(calls)} calls, {len(bad)} bad"]))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
