"""Programs that use torch, as forks of one process that has imported it.

Torch and what its first optimizer imports take five seconds of CPU, far more than most programs of
the tests. A fork begins with torch's modules and without gpuprof. A program whose point is what is
imported when, or what is in the environment before, is for a process started from nothing:
`tests.support.programs` and `tests.support.processes`.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import types
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.processes import ROOT, environment
from tests.support.programs import Ended, parted

if TYPE_CHECKING:
    from typing_extensions import Self

_LONGEST_REQUEST = 1 << 17  # bytes; what a socket of packets takes at once


class WarmTorch:
    """The process, which starts with the first program; a context manager that ends it."""

    def __init__(self, *modules: str) -> None:
        self._modules = modules or ("torch", "torch._dynamo")  # the first optimizer imports it
        self._process: subprocess.Popen[bytes] | None = None

    def run(
        self, *arguments: str, folder: Path = ROOT, timeout: float = 240, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run ``[-W FILTER ...] (SCRIPT | -m MODULE | -c CODE) ...``, as Python itself would."""
        if self._process is None:
            self._start()
        driver = variables.pop("GPUPROF_CUDA_DRIVER", None)
        variables = environment(driver, **{"CUDA_VISIBLE_DEVICES": "", **variables})
        request = json.dumps([arguments, str(folder), variables]).encode()
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            self._socket.settimeout(timeout)
            try:
                socket.send_fds(self._socket, [request], [out.fileno(), err.fileno()])
                status = json.loads(self._socket.recv(_LONGEST_REQUEST))
            except (TimeoutError, ValueError):  # nothing comes where the process has ended
                self._end()
                raise
            texts = [os.pread(each.fileno(), 1 << 24, 0).decode() for each in (out, err)]
        return subprocess.CompletedProcess(arguments, status, *texts)

    def check(self, code: str, **variables: str) -> str:
        """Run `code`; it must end with status 0 and say nothing else. Return its output."""
        done = self.run("-c", textwrap.dedent(code), **variables)
        assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert done.stderr == "", done.stderr
        return done.stdout

    def plain(self, folder: Path, *arguments: str, **variables: str) -> Ended:
        """Run a program by `python` itself."""
        done = self.run(*arguments, folder=folder, **variables)
        return parted(done.returncode, done.stdout, done.stderr, "nobody")

    def measured(self, folder: Path, *arguments: str, program: str, **variables: str) -> Ended:
        """Run a program by ``gpuprof run``; the arguments are the command's."""
        done = self.run("-m", "gpuprof", "run", *arguments, folder=folder, **variables)
        return parted(done.returncode, done.stdout, done.stderr, program)

    def _start(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno()), *self._modules],
                cwd=ROOT,
                env=environment(None, PYTHONIOENCODING="utf-8", CUDA_VISIBLE_DEVICES=""),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def _end(self) -> None:
        if self._process is not None:
            self._socket.close()
            os.killpg(self._process.pid, signal.SIGKILL)  # a program that hangs, too
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()


def _serve(requests: socket.socket) -> list[str]:
    """Fork for each request until nobody is left to ask; return the arguments in each fork."""
    while True:
        request, descriptors, *_ = socket.recv_fds(requests, _LONGEST_REQUEST, 2)
        if not request:
            sys.exit()
        child = os.fork()
        if child == 0:
            requests.close()
            arguments, folder, variables = json.loads(request)
            for number, descriptor in enumerate(descriptors, 1):
                os.dup2(descriptor, number)
                os.close(descriptor)
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(variables)
            return list(arguments)
        for descriptor in descriptors:
            os.close(descriptor)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        requests.send(json.dumps(status).encode())


def _become(arguments: list[str]) -> None:
    """Be the interpreter that was asked for."""
    while arguments[0] == "-W":
        sys.warnoptions.append(arguments[1])
        del arguments[:2]
    setup: Any = warnings
    setup._processoptions(sys.warnoptions)
    if arguments[0] == "-m":
        sys.path[0], sys.argv = str(Path.cwd()), arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    main: Any = types.ModuleType("__main__")
    if arguments[0] == "-c":
        sys.path[0], sys.argv = "", ["-c", *arguments[2:]]
        code = compile(arguments[1], "<string>", "exec")
    else:
        script = Path(arguments[0]).absolute()
        sys.path[0], sys.argv, main.__file__ = str(script.parent), arguments, str(script)
        code = compile(script.read_bytes(), script, "exec")
    sys.modules["__main__"] = main
    try:
        exec(code, main.__dict__)
    except Exception as error:
        error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
        sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(1)


if __name__ == "__main__":
    for _module in sys.argv[2:]:
        importlib.import_module(_module)
    sys.modules["torch"].set_num_threads(1)
    gc.collect()
    gc.freeze()  # a fork whose garbage is collected would copy it all
    with socket.socket(fileno=int(sys.argv[1])) as asked:
        _program = _serve(asked)
    _become(_program)
