"""Running a script or a module as ``python`` does, in a process that runs already.

The program is a new module ``__main__``, which stays in `sys.modules`: pickles, children of
`multiprocessing`, exit handlers and threads that outlive the last line find it there. An exception
goes on to the interpreter, which knows how a process ends by each kind; only the frames of gpuprof
are taken out of what is shown.
"""

from __future__ import annotations

import builtins
import importlib.machinery
import io
import os
import pkgutil
import runpy
import sys
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import Any, NamedTuple

_OWN_FOLDER = os.path.join(os.path.dirname(__file__), "")  # noqa: PTH118, PTH120


class Target(NamedTuple):
    """What the user named: a file, a folder or an archive with ``__main__.py``, or a module."""

    name: str
    is_module: bool
    arguments: tuple[str, ...] = ()

    def complaint(self) -> str | None:
        """Return why it cannot be run, in `python`'s words; None if nothing is seen."""
        if self.is_module:  # to look for it would import the packages around it
            return None
        try:
            if not Path(self.name).is_dir():
                with io.open_code(os.path.abspath(self.name)):  # noqa: PTH100
                    return None
        except OSError as error:
            return f"can't open file {self.name!r}: [Errno {error.errno}] {error.strerror}"
        except ValueError as error:  # a NUL in it
            return f"can't open file {self.name!r}: {error}"
        return None


class _NotFoundError(ImportError):
    """There is no such module to run; the text is `runpy`'s."""


def run(target: Target) -> None:
    """Run the program, with `sys.argv`, `sys.path` and ``__main__`` for good; its errors go on."""
    try:
        code, names = _load(target)
        main = ModuleType("__main__")
        main.__dict__.update(names)
        sys.modules["__main__"] = main
        exec(code, main.__dict__)
    except SystemExit:
        raise
    except _NotFoundError as error:
        shown = f"{sys.executable}: {error}"  # as python says it
        raise SystemExit(shown) from None
    except BaseException as error:
        _show_without_own_frames(error)
        raise


def _load(target: Target) -> tuple[CodeType, dict[str, Any]]:
    """Set `sys.argv` and `sys.path`, and return the code with what its module begins with."""
    find: Any = runpy  # Python's own way, with its own texts, which is public in no other form
    if target.is_module:
        sys.argv = ["-m", *target.arguments]
        _set_first_path(os.getcwd())  # noqa: PTH109
        _, spec, code = find._get_module_details(target.name, _NotFoundError)
        sys.argv[0] = spec.origin
        return code, _names(spec.loader, spec.origin, spec)
    sys.argv = [target.name, *target.arguments]
    path = os.path.abspath(target.name)  # noqa: PTH100 (links stay as they were given)
    if pkgutil.get_importer(path) is not None:  # a folder, or an archive
        _set_first_path(path, is_always=True)
        _, spec, code = find._get_main_module_details(_NotFoundError)
        return code, _names(spec.loader, spec.origin, spec)
    _set_first_path(os.path.dirname(os.path.realpath(path)))  # noqa: PTH120
    loader: Any
    if path.endswith(".pyc"):
        loader = importlib.machinery.SourcelessFileLoader("__main__", path)
        code = loader.get_code("__main__")
    else:
        loader = importlib.machinery.SourceFileLoader("__main__", path)
        with io.open_code(path) as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
    return code, _names(loader, path, None)


def _names(loader: Any, file: str, spec: Any) -> dict[str, Any]:
    names = {
        "__name__": "__main__",
        "__doc__": None,
        "__package__": spec and spec.parent,
        "__loader__": loader,
        "__spec__": spec,
        "__builtins__": builtins,
        "__file__": file,
        "__cached__": spec and spec.cached,
    }
    if sys.version_info < (3, 14):
        names["__annotations__"] = {}
    return names


def _set_first_path(folder: str, *, is_always: bool = False) -> None:
    """Put the program's folder where the command's is; Python's safe mode has none."""
    has_own = not getattr(sys.flags, "safe_path", sys.flags.isolated)
    if has_own and sys.path:
        sys.path[0] = folder
    elif is_always:
        sys.path.insert(0, folder)


def _show_without_own_frames(error: BaseException) -> None:
    """Have the program's `sys.excepthook` show the error that ends it as if gpuprof were not."""
    beyond = error.__traceback__ and error.__traceback__.tb_next  # after `run`
    shown = _without_own_frames(beyond)
    hook = sys.excepthook

    def show(
        kind: type[BaseException], value: BaseException, traceback: TracebackType | None
    ) -> None:
        sys.excepthook = hook
        if value is error:
            traceback = sys.last_traceback = value.__traceback__ = shown
            _clean_chain(value)
        hook(kind, value, traceback)

    sys.excepthook = show


def _clean_chain(error: BaseException) -> None:
    """Take gpuprof's frames out of what the exception came from."""
    seen = {id(error)}
    waiting = [error.__cause__, error.__context__]
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        each.__traceback__ = _without_own_frames(each.__traceback__)
        waiting += [each.__cause__, each.__context__]


def _without_own_frames(traceback: TracebackType | None) -> TracebackType | None:
    kept = []
    while traceback is not None:
        if not traceback.tb_frame.f_code.co_filename.startswith(_OWN_FOLDER):
            kept.append(traceback)
        traceback = traceback.tb_next
    found: TracebackType | None = None
    for each in reversed(kept):
        found = TracebackType(found, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return found
