"""Four processes of torch.distributed on Gloo, which run what tests ask of them.

The pool starts ``python -m tests.support.rank_pool``, which imports torch and forks a process for
each rank. It sends the name of a function of `tests.support.rank_checks` with its arguments to all
of them, and returns what each answers. Each rank's clocks are shifted by a library of the tests, as
those of several hosts would be.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from tests.fake_driver.build import compiler
from tests.support.processes import ROOT, environment

if TYPE_CHECKING:
    from typing_extensions import Self

SIZE = 4
LIMIT_S = 120.0
MONOTONIC_STEP_NS, REALTIME_STEP_NS = 5_000_000, -7_000_000  # from one rank to the next
SHIFTED_CLOCKS = ROOT / "tests" / "support" / "shifted_clocks.c"


def build_shifted_clocks(folder: Path) -> Path:
    """Build the library that shifts a process's clocks."""
    library = folder / "shifted_clocks.so"
    command = [compiler(), "-x", "c++", "-shared", "-fPIC", "-O1", "-o", library, SHIFTED_CLOCKS]
    subprocess.run(command, check=True, capture_output=True)
    return library


class RankError(AssertionError):
    """A check has raised on a rank, or the rank has ended."""


class RankPool:
    """The processes; a context manager that ends them."""

    def __init__(self, folder: Path) -> None:
        self._errors = [folder / f"rank{rank}.err" for rank in range(SIZE)]
        pairs = [socket.socketpair() for _ in range(SIZE)]
        self._ranks = [ours for ours, _ in pairs]
        theirs = [each for _, each in pairs]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.rank_pool", str(folder)]
            + [str(each.fileno()) for each in theirs],
            cwd=ROOT,
            env=environment(
                None,
                WORLD_SIZE=str(SIZE),
                LD_PRELOAD=str(build_shifted_clocks(folder)),
                OMP_NUM_THREADS="1",
            ),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=[each.fileno() for each in theirs],
        )
        for each in theirs:
            each.close()

    def run(self, name: str, *args: Any, ranks: Collection[int] = range(SIZE)) -> dict[int, Any]:
        """Run a check on ranks at once, and return what each of them answers."""
        for rank in ranks:
            with contextlib.suppress(BrokenPipeError):  # no answer comes
                self._ranks[rank].sendall(json.dumps([name, args]).encode() + b"\n")
        answers = {rank: self._answer(rank, time.monotonic() + LIMIT_S) for rank in ranks}
        failed = {rank: answer["error"] for rank, answer in answers.items() if answer["error"]}
        if failed:
            raise RankError("\n".join(f"rank {rank}: {text}" for rank, text in failed.items()))
        return {rank: answer["value"] for rank, answer in answers.items()}

    def _answer(self, rank: int, until: float) -> dict[str, Any]:
        self._ranks[rank].settimeout(max(until - time.monotonic(), 0.01))
        line = b""
        with contextlib.suppress(TimeoutError, ConnectionResetError):
            while not line.endswith(b"\n") and (part := self._ranks[rank].recv(1 << 16)):
                line += part
        if not line.endswith(b"\n"):
            said = self._errors[rank].read_text(encoding="utf-8", errors="replace")[-4000:]
            raise RankError(f"rank {rank} gave no answer: {said}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def kill(self, rank: int) -> None:
        """End a rank, as a machine that fails does."""
        (process,) = self.run("own_process", ranks=[rank]).values()
        os.kill(process, signal.SIGKILL)
        assert self._ranks[rank].recv(1) == b""  # its end of the connection is closed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._process.communicate(timeout=LIMIT_S)
        finally:
            self._process.kill()
            for each in self._ranks:
                each.close()


def _start_ranks(folder: Path, descriptors: list[int]) -> None:
    """Fork the ranks, each with its connection, and kill them when standard input ends."""
    import pytest  # noqa: F401
    import torch
    import torch._dynamo  # DistributedDataParallel imports it

    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()  # a fork whose garbage is collected would copy it all
    ranks = []
    for rank, descriptor in enumerate(descriptors):
        ranks.append(os.fork())
        if ranks[-1] == 0:
            for other in set(descriptors) - {descriptor}:
                os.close(other)
            with (folder / f"rank{rank}.err").open("wb") as errors:
                os.dup2(errors.fileno(), 1)  # what a check prints is no answer
                os.dup2(errors.fileno(), 2)
            _shift("monotonic_shift", rank * MONOTONIC_STEP_NS)
            _shift("realtime_shift", rank * REALTIME_STEP_NS)
            os.environ["RANK"] = str(rank)
            _serve(folder / "meeting", rank, socket.socket(fileno=descriptor))
    for descriptor in descriptors:
        os.close(descriptor)
    sys.stdin.read()
    for process in ranks:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)


def _shift(clock: str, nanoseconds: int) -> None:
    """Shift a clock of this process, as the preloaded library lets it."""
    ctypes.c_longlong.in_dll(ctypes.CDLL(None), clock).value = nanoseconds


def _serve(meeting: Path, rank: int, connection: socket.socket) -> NoReturn:
    """Be one rank: run what comes until it ends."""
    import torch

    from tests.support import rank_checks

    store = _store(torch, meeting, rank)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=SIZE)
    for line in connection.makefile("rb"):
        name, args = json.loads(line)
        answer = {"error": None, "value": None}
        try:
            answer["value"] = getattr(rank_checks, name)(*args)
        except BaseException:
            answer["error"] = traceback.format_exc()
        connection.sendall(json.dumps(answer).encode() + b"\n")
    os._exit(0)


def _store(torch: Any, file: Path, rank: int) -> Any:
    """Return a TCPStore; its port, which rank 0 gets from the system, is in a file."""
    if rank == 0:
        store = torch.distributed.TCPStore("127.0.0.1", 0, SIZE, True, wait_for_workers=False)
        file.with_suffix(".new").write_text(str(store.port), encoding="ascii")
        file.with_suffix(".new").replace(file)
        return store
    until = time.monotonic() + LIMIT_S
    while not file.exists() and time.monotonic() < until:
        time.sleep(0.02)
    port = int(file.read_text(encoding="ascii"))
    return torch.distributed.TCPStore("127.0.0.1", port, SIZE, False)


if __name__ == "__main__":
    _start_ranks(Path(sys.argv[1]), [int(each) for each in sys.argv[2:]])
