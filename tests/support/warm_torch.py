"""Programs that use torch, as forks of one process that has imported it.

Torch and what its first optimizer imports take five seconds of CPU, far more than most programs of
the tests. A fork begins with torch's modules and without gpuprof. A program whose point is what is
imported when, or what is in the environment before, is for a process started from nothing:
`tests.support.programs` and `tests.support.processes`.
"""

from __future__ import annotations

import subprocess
import textwrap
from pathlib import Path

from tests.support.processes import ROOT, environment
from tests.support.programs import Ended, parted
from tests.support.warm import WarmPython

_ALWAYS = {"PYTHONIOENCODING": "utf-8", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}


class WarmTorch:
    """Runs programs; `close` ends the process before the session does."""

    def __init__(self, *modules: str) -> None:
        modules = modules or ("torch", "torch._dynamo")  # the first optimizer imports it
        self._python = WarmPython(*modules, env=environment(None, **_ALWAYS))
        self.close = self._python.close

    def run(
        self, *arguments: str, folder: Path = ROOT, timeout: float = 240, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run ``[-W FILTER ...] (SCRIPT | -m MODULE | -c CODE) ...``, as Python itself would."""
        env = environment(None, **{**_ALWAYS, **variables})
        return self._python.run(*arguments, env=env, cwd=folder, timeout=timeout)

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
