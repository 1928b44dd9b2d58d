"""Fail the driver calls of every scenario in turn, one process for each failure.

``python -m tests.support.sweep`` runs each scenario once to list its driver calls, then again for
each call with an error before and one after its effect. Of a function that is called over and
over, the first calls and the last are taken; the error codes rotate over the calls. ``--full``
takes every call with every code.

A run is good if it ends in success or in one of gpuprof's exceptions, if nothing is left behind,
and if the scenario then passes without a fault. Each run is a forked child of a process that has
not used the driver, so none can spoil another. SQLite's tests of lacking memory are the model.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import cycle, islice

import gpuprof
from tests.fake_driver.control import DriverCallError, FakeCuda
from tests.support.held import release_idle, scopes
from tests.support.scenarios import SCENARIOS, Stage

CODES = ["2", "201", "400", "700:sticky", "719:sticky", "801", "900", "901", "999", "4"]
# A process that met one of these has no driver any more: nothing can be given back, or run again.
FATAL = {"700:sticky", "719:sticky", "4"}
WORKERS = 2
PATIENCE_S = 20  # a run that takes longer hangs
CALLS_OF_A_FUNCTION = 3
CODES_OF_A_CALL = 3


@dataclass(frozen=True)
class Fault:
    scenario: str
    call: int
    code: str
    after: bool

    @property
    def script(self) -> str:
        return f"any@{self.call}={self.code}{':after' if self.after else ''}"


class SweepError(AssertionError):
    """A run left something behind, or failed without a fault."""


@cache
def fake_driver() -> FakeCuda:
    """Return the fake driver. Every run finds it loaded, and in a state that nobody has called."""
    return FakeCuda(os.environ["GPUPROF_CUDA_DRIVER"])


def perform(
    fake: FakeCuda, scenario: str, script: str = "", *, fatal: bool = False
) -> BaseException | None:
    """Run a scenario under a script; return gpuprof's exception, or None."""
    with fake.spared():
        stream = fake.stream_create()
    gpuprof.reset()
    fake.script(script)
    outcome: BaseException | None = None
    try:
        SCENARIOS[scenario](Stage(fake, stream))
    except gpuprof.errors.GpuprofError as error:
        error.__traceback__ = None  # its frames hold samples and timers
        outcome = error
    except DriverCallError as error:  # the scenario's own calls meet a poisoned driver
        if not fatal:
            raise
        outcome = error
    finally:
        fake.script("")
    if not fatal:
        fake.complete(stream)  # a replay that runs holds what its graph keeps alive
        with fake.spared():
            fake.stream_destroy(stream)
    return outcome


def clear() -> None:
    gc.collect()
    gpuprof.flush()
    scopes.clear()  # named scopes hold their last sample
    gc.collect()


def check_left_behind(fake: FakeCuda, lost: int, kept: int = 0) -> None:
    """Check the books: no handle but the context, no thread state changed.

    `lost` handles may be there that nobody can know of, and what `kept` graphs wait for.
    """
    clear()
    in_use = release_idle()
    if in_use > 2 * kept:  # its event, and that of the graphs that it takes turns with
        raise SweepError(f"{in_use} event pairs are still in use")
    report = fake.report()
    live = {kind: len(handles) for kind, handles in report["live"].items() if handles}
    live["primary"] -= 1
    if kept:
        live.pop("memory", None)
    left = sum(live.values())
    # A call that fails after its effect has made something that nobody can know of.
    if left > lost + 3 * kept:  # the events, and the context that they are of
        raise SweepError(f"left alive: {report['live']}")
    if report["thread_mode"] != 0 or report["context_depth"] != 1:
        raise SweepError(f"thread state: {report['thread_mode']=} {report['context_depth']=}")


def run_fault(fault: Fault) -> None:
    warnings.simplefilter("ignore")
    fake = fake_driver()
    with fake.spared():
        fake.use_primary()
    fatal = fault.code in FATAL
    first = perform(fake, fault.scenario, fault.script, fatal=fatal)
    # Of a replay: what its graph keeps stays, as nothing tells when it is over. Which call failed
    # is only known now: how often a stream is asked depends on the time.
    failed = fake.last_calls()[: fault.call][-2:]
    loses_track = failed == ["cuGraphLaunch", "cuEventRecord"]
    if fatal:
        clear()
        return
    check_left_behind(fake, lost=1 if fault.after else 0, kept=1 if loses_track else 0)
    again = perform(fake, fault.scenario)
    stays_unavailable = isinstance(first, gpuprof.errors.CudaUnavailableError)
    if again is not None and not stays_unavailable:
        raise SweepError(f"the run without a fault failed: {again!r}")


def list_calls(scenario: str) -> list[str]:
    """Return the driver functions that the scenario calls, in order, from a child of its own.

    What the child had to import is imported here too, so that none of the runs has to.
    """
    fake_driver()
    reading, writing = os.pipe()
    known = set(sys.modules)

    def work() -> None:
        fake = fake_driver()
        with fake.spared():
            fake.use_primary()
        outcome = perform(fake, scenario)
        if outcome is not None:
            raise outcome
        imported = [name for name in sys.modules if name not in known]
        os.write(writing, f"{' '.join(fake.last_calls())}\n{' '.join(imported)}".encode())
        check_left_behind(fake, lost=0)

    pid = start(work)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        calls, _, imported = pipe.read().partition("\n")
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0:
        raise SweepError(f"{scenario} fails without any fault")
    for name in imported.split():
        importlib.import_module(name)
    gc.freeze()  # a collection in a run would copy every page that is shared with it
    return calls.split()


def chosen(calls: list[str]) -> list[int]:
    """Return the numbers, from 1, of each function's first calls and its last."""
    places: dict[str, list[int]] = {}
    for number, function in enumerate(calls, 1):
        places.setdefault(function, []).append(number)
    return sorted({n for p in places.values() for n in [*p[:CALLS_OF_A_FUNCTION], p[-1]]})


def start(work: Callable[[], None]) -> int:
    """Run `work` in a forked child and return its process."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        status = 1
        gc.disable()  # a collection in a capture makes calls of its own, which shifts the numbers
        signal.alarm(PATIENCE_S)
        try:
            work()
            status = 0
        except BaseException as error:
            traceback.print_exception(error, limit=-2)
        finally:
            sys.stderr.flush()
            os._exit(status)
    return pid


def all_faults(scenarios: list[str], full: bool) -> Iterator[Fault]:
    codes = cycle(CODES)
    for scenario in scenarios:
        calls = list_calls(scenario)
        for call in range(1, len(calls) + 1) if full else chosen(calls):
            for after in (False, True):
                for code in CODES if full else islice(codes, CODES_OF_A_CALL):
                    yield Fault(scenario, call, code, after)


def sweep(scenarios: list[str], full: bool) -> tuple[int, int]:
    """Run all faults; return how many runs there were and how many were bad."""
    faults = all_faults(scenarios, full)
    running: dict[int, Fault] = {}
    runs = bad = 0
    while True:
        for fault in islice(faults, WORKERS - len(running)):
            running[start(lambda fault=fault: run_fault(fault))] = fault  # type: ignore[misc]
        if not running:
            return runs, bad
        pid, status = os.wait()
        fault = running.pop(pid)
        runs += 1
        if status != 0:
            bad += 1
            print(f"BAD {fault} ({os.waitstatus_to_exitcode(status)})", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenario", nargs="*", default=sorted(SCENARIOS))
    parser.add_argument("--full", action="store_true", help="every call with every code")
    options = parser.parse_args()
    runs, bad = sweep(options.scenario, options.full)
    print(f"{runs} runs, {bad} bad")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
