"""Four processes of torch.distributed on Gloo, which run what tests ask of them.

The pool starts ``python -m tests.support.rank_pool`` for each rank, sends the name of a function of
`tests.support.rank_checks` with its arguments to all of them, and returns what each answers. Each
rank's clocks are shifted by a library of the tests, as those of several hosts would be.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
import traceback
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
        shifted = build_shifted_clocks(folder)
        self._errors = [folder / f"rank{rank}.err" for rank in range(SIZE)]
        self.processes = [self._start(rank, folder, shifted) for rank in range(SIZE)]

    def _start(self, rank: int, folder: Path, shifted: Path) -> subprocess.Popen[bytes]:
        variables = environment(
            None,
            RANK=str(rank),
            WORLD_SIZE=str(SIZE),
            LD_PRELOAD=str(shifted),
            SHIFT_MONOTONIC_NS=str(rank * MONOTONIC_STEP_NS),
            SHIFT_REALTIME_NS=str(rank * REALTIME_STEP_NS),
            OMP_NUM_THREADS="1",
        )
        with self._errors[rank].open("wb") as errors:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.support.rank_pool", str(folder / "meeting")],
                cwd=ROOT,
                env=variables,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )

    def run(self, name: str, *args: Any, ranks: Collection[int] = range(SIZE)) -> dict[int, Any]:
        """Run a check on ranks at once, and return what each of them answers."""
        for rank in ranks:
            stdin = self.processes[rank].stdin
            assert stdin is not None
            stdin.write(json.dumps([name, args]).encode() + b"\n")
            stdin.flush()
        answers = {rank: self._answer(rank, time.monotonic() + LIMIT_S) for rank in ranks}
        failed = {rank: answer["error"] for rank, answer in answers.items() if answer["error"]}
        if failed:
            raise RankError("\n".join(f"rank {rank}: {text}" for rank, text in failed.items()))
        return {rank: answer["value"] for rank, answer in answers.items()}

    def _answer(self, rank: int, until: float) -> dict[str, Any]:
        stdout = self.processes[rank].stdout
        assert stdout is not None
        with selectors.DefaultSelector() as ready:
            ready.register(stdout, selectors.EVENT_READ)
            line = stdout.readline() if ready.select(until - time.monotonic()) else b""
        if not line:
            said = self._errors[rank].read_text(encoding="utf-8", errors="replace")[-4000:]
            raise RankError(f"rank {rank} gave no answer: {said}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def kill(self, rank: int) -> None:
        """End a rank, as a machine that fails does."""
        self.processes[rank].kill()
        self.processes[rank].wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.communicate()


def _serve(meeting: str) -> None:
    """Be one rank: run what comes on standard input until it ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a check prints is no answer
    import torch

    from tests.support import rank_checks

    torch.set_num_threads(1)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = _store(torch, meeting, rank, size)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=size)
    for line in sys.stdin.buffer:
        name, args = json.loads(line)
        answer = {"error": None, "value": None}
        try:
            answer["value"] = getattr(rank_checks, name)(*args)
        except BaseException:
            answer["error"] = traceback.format_exc()
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()


def _store(torch: Any, meeting: str, rank: int, size: int) -> Any:
    """Return a TCPStore; its port, which rank 0 gets from the system, is in a file."""
    file = Path(meeting)
    if rank == 0:
        store = torch.distributed.TCPStore("127.0.0.1", 0, size, True, wait_for_workers=False)
        file.with_suffix(".new").write_text(str(store.port), encoding="ascii")
        file.with_suffix(".new").replace(file)
        return store
    until = time.monotonic() + LIMIT_S
    while not file.exists() and time.monotonic() < until:
        time.sleep(0.02)
    port = int(file.read_text(encoding="ascii"))
    return torch.distributed.TCPStore("127.0.0.1", port, size, False)


if __name__ == "__main__":
    _serve(sys.argv[1])
