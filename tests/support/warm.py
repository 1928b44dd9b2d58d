"""A Python that has imported modules, and forks for each program of the tests.

A program finds what a start of its own would give it: its arguments, environment and folder, and
an interpreter with one thread that ends as any does. Nothing of gpuprof is imported before, since
that reads the environment. Where the environment asks for another start, there is one.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import io
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
import types
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_READ_BY_A_START = ("PYTHON", "LD_", "MALLOC_", "GLIBC_", "LC_", "LANG")


class WarmPython:
    """The process that forks. It starts with the first program and ends with this process."""

    def __init__(self, *modules: str, env: Mapping[str, str] = os.environ) -> None:
        self._modules, self._env = modules, dict(env)
        self._owner = 0  # the process whose child it is
        atexit.register(self.close)

    def takes(self, env: Mapping[str, str]) -> bool:
        """Return whether a fork finds in this environment what a start would."""
        # What is loaded before all else is a sanitizer's, which may not stand a fork.
        is_safe = sys.platform == "linux" and "LD_PRELOAD" not in env
        return is_safe and _read_by_a_start(env) == _read_by_a_start(self._env)

    def run(
        self, *arguments: str, env: Mapping[str, str], cwd: Path | None = None, timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Run ``[-W FILTER ...] (SCRIPT | -m MODULE | -c CODE) ...``, as Python itself would."""
        if not self.takes(env):
            return subprocess.run(
                [sys.executable, *arguments],
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                timeout=timeout,
                check=False,
            )
        if self._owner != os.getpid():  # none yet, or the child of what this process is a fork of
            self._start()
        until = time.monotonic() + timeout
        ends = [os.pipe(), os.pipe()]  # of standard output and error
        with tempfile.TemporaryFile("w+", encoding="utf-8") as program:
            json.dump([arguments, str(cwd or Path.cwd()), dict(env)], program)
            program.seek(0)
            try:
                fds = [program.fileno(), *(theirs for _, theirs in ends)]
                try:
                    socket.send_fds(self._socket, [b"run"], fds)
                finally:
                    for _, theirs in ends:
                        os.close(theirs)
                texts = _read([ours for ours, _ in ends], until)
                self._socket.settimeout(max(until - time.monotonic(), 1.0))
                answer = self._socket.recv(16)
                if not answer:
                    message = f"the Python with {', '.join(self._modules)} has ended"
                    raise RuntimeError(message)
                status = int(answer)
            except BaseException as error:
                self.close()
                if isinstance(error, TimeoutError):
                    raise subprocess.TimeoutExpired(arguments, timeout) from error
                raise
            finally:
                for ours, _ in ends:
                    os.close(ours)
        return subprocess.CompletedProcess(arguments, status, *texts)

    def close(self) -> None:
        """End the process, with a program that hangs; a later program starts another one."""
        if self._owner == os.getpid():
            self._owner = 0
            self._socket.close()
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _start(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno()), *self._modules],
                cwd=Path(__file__).parents[2],
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._owner = os.getpid()


def _read(pipes: list[int], until: float) -> list[str]:
    """Return what is written until nobody has the other ends, not even a program's children."""
    found = {pipe: bytearray() for pipe in pipes}
    with selectors.DefaultSelector() as selector:
        for pipe in pipes:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(until - time.monotonic(), 0.0))
            if not ready:
                raise TimeoutError
            for key, _ in ready:
                part = os.read(key.fd, 1 << 16)
                found[key.fd] += part
                if not part:
                    selector.unregister(key.fd)
    return [io.StringIO(found[pipe].decode(), newline=None).read() for pipe in pipes]


def _read_by_a_start(env: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in env.items() if k.startswith(_READ_BY_A_START)}


def _next_program(requests: socket.socket) -> list[str]:
    """Fork for each program until nobody is left to ask; return its arguments in the fork."""
    while True:
        message, fds, *_ = socket.recv_fds(requests, 16, 3)
        if not message:
            os._exit(0)
        child = os.fork()
        if child == 0:
            requests.close()
            with os.fdopen(fds[0], encoding="utf-8") as program:
                arguments, folder, variables = json.load(program)
            for number, fd in enumerate(fds[1:], 1):
                os.dup2(fd, number)
                os.close(fd)
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(variables)
            return list(arguments)
        for fd in fds:
            os.close(fd)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        requests.send(b"%d" % status)


def _become(arguments: list[str]) -> None:
    """Be the interpreter that was asked for."""
    while arguments[0] == "-W":
        sys.warnoptions.append(arguments[1])
        del arguments[:2]
    warnings._processoptions(sys.warnoptions)  # type: ignore[attr-defined]
    main: Any = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    program, sys.argv = arguments[0], arguments
    try:
        if program == "-m":
            sys.path[0] = str(Path.cwd())
            runpy._run_module_as_main(arguments.pop(1))  # type: ignore[attr-defined]
            return
        if program == "-c":
            sys.path[0] = ""
            code = compile(arguments.pop(1), "<string>", "exec", dont_inherit=True)
        else:
            script = Path(program).absolute()
            sys.path[0], main.__file__ = str(script.parent), str(script)
            code = compile(script.read_bytes(), script, "exec", dont_inherit=True)
        exec(code, main.__dict__)
    except Exception as error:
        error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next  # without this
        sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(1)


if __name__ == "__main__":
    for _name in sys.argv[2:]:
        importlib.import_module(_name)
    gc.collect()
    gc.freeze()  # a fork whose garbage is collected would copy it all
    _become(_next_program(socket.socket(fileno=int(sys.argv[1]))))
