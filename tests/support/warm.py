"""A Python that has imported what the tests' programs import, and forks for each of them.

A program finds what it would after a start of its own: its arguments, environment and folder, and
an interpreter with one thread that ends as any does. Nothing of gpuprof is imported before, since
that reads the environment. What a start itself reads there stays as it was for the first program.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

_START = """\
import sys
sys.path.insert(0, sys.argv[1])
from tests.support.warm import next_program
exec(next_program())
"""
_LARGEST = 1 << 17  # bytes of a program and its environment, in one message
_READ_BY_A_START = ("PYTHON", "LD_", "MALLOC_", "GLIBC_", "LC_", "LANG")


class WarmPython:
    """The process that forks."""

    def __init__(self, modules: tuple[str, ...]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._owner, self._started_with = os.getpid(), _read_by_a_start(os.environ)
        root = Path(__file__).parents[2]
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START, root, str(theirs.fileno()), *modules],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self.close)

    def takes(self, env: Mapping[str, str]) -> bool:
        """Return whether a start of its own would find nothing else in this environment."""
        # What is loaded before all else is a sanitizer's, which may not stand a fork.
        return "LD_PRELOAD" not in env and _read_by_a_start(env) == self._started_with

    def run(
        self, code: str, *arguments: str, env: Mapping[str, str], cwd: Path | None, timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Run `code` as ``python -c`` does, and return what it wrote and how it ended."""
        program = {"code": code, "argv": ["-c", *arguments], "env": {**env}}
        message = json.dumps({**program, "cwd": str(cwd or Path.cwd())}).encode()
        assert len(message) <= _LARGEST, "too long a program"
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            pid = 0
            try:
                socket.send_fds(self._socket, [message], [out.fileno(), err.fileno()])
                pid = int(self._socket.recv(64))
                self._socket.settimeout(timeout)
                status = int(self._socket.recv(64))
                self._socket.settimeout(None)
            except BaseException as error:
                if pid:
                    os.kill(pid, signal.SIGKILL)
                self.close()
                if isinstance(error, TimeoutError):
                    raise subprocess.TimeoutExpired(["-c", code], timeout) from error
                raise
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(
                ["-c", code], status, out.read().decode(), err.read().decode()
            )

    def close(self) -> None:
        """End the process; a later program gets another one."""
        if os.getpid() != self._owner:  # a fork of the tests' process
            return
        self._socket.close()
        self._process.wait()
        warm_python.cache_clear()


def _read_by_a_start(env: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in env.items() if k.startswith(_READ_BY_A_START)}


@cache
def warm_python(*modules: str) -> WarmPython:
    """Return the process that has imported `modules`; the tests of this process share it."""
    return WarmPython(modules)


def next_program() -> str:
    """Wait for programs; return in a process of each one, with its code."""
    fd, *modules = sys.argv[2:]
    for name in modules:
        importlib.import_module(name)
    del sys.path[0]
    gc.collect()
    connection = socket.socket(fileno=int(fd))
    while True:
        message, fds, _, _ = socket.recv_fds(connection, _LARGEST, 2)
        if not message:
            os._exit(0)
        pid = os.fork()
        if not pid:
            connection.close()
            return _become(json.loads(message), *fds)
        for each in fds:
            os.close(each)
        connection.send(b"%d" % pid)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with suppress(BrokenPipeError):  # nobody waits any more
            connection.send(b"%d" % status)


def _become(program: dict[str, Any], *fds: int) -> str:
    for number, fd in enumerate(fds, 1):
        os.dup2(fd, number)
        os.close(fd)
    os.environ.clear()
    os.environ.update(program["env"])
    os.chdir(program["cwd"])
    sys.argv[:] = program["argv"]
    return str(program["code"])
