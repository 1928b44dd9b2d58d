"""``python -m gpuprof.nvtx script.py``: run a script with every call of a function as a range.

The options are those of ``python -m nvtx``, and ``-m`` for a module. The script keeps its
arguments, its exit status and its ``__main__``.
"""

from __future__ import annotations

import argparse
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

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
    options = _parser().parse_args(arguments)
    sys.argv = [options.script, *options.args]
    enable()  # warns where no tool listens
    profile = Profile(linenos=options.linenos, annotate_cfuncs=options.annotate_cfuncs)
    profile.enable()
    try:
        if options.is_module:
            runpy.run_module(options.script, run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = str(Path(options.script).resolve().parent)
            runpy.run_path(options.script, run_name="__main__")
    finally:
        profile.disable()


if __name__ == "__main__":
    main()
