"""The magics ``%gputime`` and ``%%gputime``, after ``%load_ext gpuprof``.

They time a statement, or a cell, with `gpuprof.benchmark`. IPython itself is not imported: the
shell that loads the extension is all that is used.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import linecache
import re
import sys
from collections.abc import Callable
from getopt import GetoptError, getopt
from typing import TYPE_CHECKING, Any

from gpuprof._common import checks
from gpuprof._common.text import write_text
from gpuprof._results.fields import REQUESTED_MODES

if TYPE_CHECKING:
    from gpuprof._results.result import BenchResult

_FILE = "<gputime>"
_FUNCTION = "gputime_statement"
_MAX_NAME = 60
_OPTIONS = "[-m MODE] [-c] [-s] [-n NAME] [-t SECONDS] [-o]"
USAGE = f"usage: %gputime {_OPTIONS} STATEMENT, or %%gputime {_OPTIONS} [SETUP] above a cell"
# A word of the line, and what quotes hold in one.
_WORD = re.compile(r"""(?:"[^"]*"|'[^']*'|\S)+""")
_QUOTED = re.compile(r"""(["'])(.*?)\1""")


def load_ipython_extension(ipython: Any) -> None:
    """Register ``%gputime`` and ``%%gputime``; ``%load_ext gpuprof`` calls this.

    Parameters
    ----------
    ipython : IPython.core.interactiveshell.InteractiveShell
        The shell.

    Raises
    ------
    AttributeError
        `ipython` is no shell.
    """

    def gputime(line: str, cell: str | None = None) -> BenchResult | None:
        """Time a statement, or a cell, as `gpuprof.benchmark` does.

        ``%gputime [options] STATEMENT``, or ``%%gputime [options] [SETUP]`` above a cell: SETUP
        then runs once, untimed. Names that the timed code assigns are local to it, as with
        ``%timeit``.

        Options: ``-m MODE`` (auto, graph, batched, isolated), ``-c`` with a cold L2 cache,
        ``-s`` with the code's own scopes on, ``-n NAME`` of the result, in quotes where it has
        blanks, ``-t SECONDS`` that all of it may take, 1 if left out, ``-o`` return the result in
        place of showing it, ``--`` ends the options.
        """
        return _gputime(ipython, line, cell)

    # IPython must not expand braces and dollars in the line: they are Python's.
    gputime._ipython_magic_no_var_expand = True  # type: ignore[attr-defined]
    ipython.register_magic_function(gputime, magic_kind="line_cell", magic_name="gputime")


def unload_ipython_extension(ipython: Any) -> None:
    """Take ``%gputime`` and ``%%gputime`` away again; ``%unload_ext gpuprof`` calls this.

    Parameters
    ----------
    ipython : IPython.core.interactiveshell.InteractiveShell
        The shell.

    Raises
    ------
    AttributeError
        `ipython` is no shell.
    """
    for magics in ipython.magics_manager.magics.values():
        magics.pop("gputime", None)


def _gputime(shell: Any, line: str, cell: str | None) -> BenchResult | None:
    from gpuprof._benchmark.api import benchmark

    options, rest = _options(line)
    returns = options.pop("returns")
    namespace = shell.user_ns
    code = rest if cell is None else cell
    if cell is not None and rest.strip():
        # The set-up's names must not end up among the user's, as they do not with %%timeit.
        namespace = dict(namespace)
        exec(compile(shell.transform_cell(rest), _FILE, "exec"), namespace)
    function = _function(shell.transform_cell(code), namespace)
    options["name"] = options["name"] or _name_of(code)
    result = benchmark(function, **options)
    if returns:
        return result
    if sys.modules.get("IPython"):
        importlib.import_module("IPython.display").display(result)
    else:
        write_text(sys.stdout, f"{result}\n")
    return None


def _options(line: str) -> tuple[dict[str, Any], str]:
    """Split the options off the beginning of the line."""
    words = [*_WORD.finditer(line)]
    try:
        pairs, left = getopt([word[0] for word in words], "m:csn:t:o")
        given = {option: _QUOTED.sub(r"\2", value) for option, value in pairs}
        mode = checks.choice("mode", given.get("-m", "auto"), REQUESTED_MODES)
        seconds = checks.number("-t", float(given.get("-t", 1)), 0, checks.MOST_S, above=True)
    except (GetoptError, ValueError) as error:
        message = f"{error}; {USAGE}; a statement that begins with - needs --"
        raise _usage_error(message) from None
    options: dict[str, Any] = {"mode": mode, "name": given.get("-n"), "cold_l2": "-c" in given}
    options |= {"scopes": "-s" in given, "returns": "-o" in given}
    # A warm-up may take five times its least, and capturing takes time, too.
    options |= {"warmup_s": 0.06 * seconds, "max_time_s": 0.6 * seconds}
    return options, line[words[-len(left)].start() :].strip() if left else ""


def _function(code: str, namespace: dict[str, Any]) -> Callable[[], object]:
    """Compile `code` into a function of no arguments in `namespace`, which it does not change."""
    body = ast.parse(code, _FILE).body
    if not body:
        message = f"there is nothing to time; {USAGE}"
        raise _usage_error(message)
    if isinstance(body[-1], ast.Expr):
        body[-1] = ast.copy_location(ast.Return(body[-1].value), body[-1])
    module = ast.parse(f"def {_FUNCTION}(): pass", _FILE)
    definition = module.body[0]
    assert isinstance(definition, ast.FunctionDef)
    definition.body = body
    made: dict[str, Any] = {}
    compiled = compile(ast.fix_missing_locations(module), _FILE, "exec")
    # Tracebacks show the lines of this source.
    linecache.cache[_FILE] = (len(code), None, code.splitlines(keepends=True), _FILE)
    exec(compiled, namespace, made)
    function: Callable[[], object] = made[_FUNCTION]
    if inspect.isgeneratorfunction(function):
        message = "the code yields, so calling it would run none of it"
        raise _usage_error(message)
    return function


def _name_of(code: str) -> str:
    first = next((line.strip() for line in code.splitlines() if line.strip()), "")
    return first if len(first) <= _MAX_NAME else f"{first[: _MAX_NAME - 1]}…"


def _usage_error(message: str) -> Exception:
    """Return the error that IPython shows without a traceback, else a ValueError."""
    if "IPython" in sys.modules:
        error: Exception = importlib.import_module("IPython.core.error").UsageError(message)
        return error
    return ValueError(message)
