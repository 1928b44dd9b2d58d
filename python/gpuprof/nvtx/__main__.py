"""``python -m gpuprof.nvtx script.py``: run a script with every call of a function as a range.

The options are those of ``python -m nvtx``, and ``-m`` for a module. The script keeps its
arguments, its exit status and its ``__main__``.
"""

from __future__ import annotations

import argparse
import builtins
import runpy
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

from gpuprof.nvtx import Profile, enable


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m gpuprof.nvtx",
        description="Run a script with every call of a Python function as an NVTX range.",
    )
    parser.add_argument(
        "--linenos",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="name ranges file.py:12(function), else by the function alone (default: on)",
    )
    parser.add_argument(
        "--annotate-cfuncs",
        action="store_true",
        help="show calls of built-in functions and of extensions, too",
    )
    parser.add_argument("-m", dest="is_module", action="store_true", help="run a module")
    parser.add_argument("script", help="the script, or with -m the module")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="what the script gets in sys.argv")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the script of a command line. What it raises comes out, `SystemExit` too."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if not (options.is_module or Path(options.script).is_file()):
        parser.error(f"cannot read the script {options.script}: there is no such file")
    sys.argv = [options.script, *options.args]
    run = _module_runner(options.script) if options.is_module else _script_runner(options.script)
    enable()  # warns where no tool listens
    profile = Profile(linenos=options.linenos, annotate_cfuncs=options.annotate_cfuncs)
    profile.enable()
    try:
        run()
    finally:
        profile.disable()


def _module_runner(name: str) -> Callable[[], object]:
    return lambda: runpy.run_module(name, run_name="__main__", alter_sys=True)


def _script_runner(name: str) -> Callable[[], object]:
    """Return what runs a script as Python does, with all that has to be read read before."""
    path = Path(name)
    code = compile(path.read_bytes(), name, "exec")
    sys.path[0] = str(path.resolve().parent)
    module = ModuleType("__main__")
    module.__file__ = name
    module.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = module  # where pickle looks for the script's classes
    return lambda: exec(code, module.__dict__)


if __name__ == "__main__":
    main()
