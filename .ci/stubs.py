"""Write the type stubs: of the extension, and of the package's public names.

    python .ci/stubs.py                                        # for an editor and mypy
    python .ci/stubs.py --extension _core.so --output FOLDER   # as each build does

Without options they are those of the installed gpuprof, and go beside the sources, where git
ignores them. Needs pybind11-stubgen. The signatures are those of the module itself; the tables
below add what C++ cannot say.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import re
import sys
import tempfile
import textwrap
import types
from collections.abc import Iterator
from pathlib import Path

import pybind11_stubgen

MODULE = "gpuprof._core"
PACKAGE = Path(__file__).resolve().parents[1] / "python" / "gpuprof"
WIDTH = 100

HEADER = "# Made by .ci/stubs.py from the built module.\n"

PREAMBLE = """\
from gpuprof._timing.backends import SyncBackend
from gpuprof._timing.memory import MemoryUse
_Function = typing.TypeVar("_Function", bound=typing.Callable[..., typing.Any])
"""

_TIMER_OPTIONS = (
    "*, stream: object = None, backend: str | SyncBackend = 'auto', enabled: bool | None = None, "
    "verify_stream: bool = False, in_capture: typing.Literal['auto', 'record', 'skip'] = 'auto', "
    "memory: bool = False, flops: float | None = None, nbytes: float | None = None, "
    "labels: collections.abc.Mapping[str, str | float] | None = None"
)

_RANGE_OPTIONS = (
    "*, color: str | int | None = None, category: str | None = None, "
    "payload: int | typing.SupportsFloat | None = None, domain: str | None = None, "
    "args: dict[str, typing.Any] | None = None"
)

_NUMBER = "typing.SupportsFloat | typing.SupportsIndex"

# Signatures that replace the generated ones; two or more are overloads.
SIGNATURES: dict[str, tuple[str, ...]] = {
    "Annotation.__aenter__": ("(self) -> typing.Awaitable[Annotation]",),
    "Annotation.__aexit__": (
        "(self, type: typing.Any, value: typing.Any, traceback: typing.Any)"
        " -> typing.Awaitable[None]",
    ),
    "Annotation.__call__": ("(self, function: _Function) -> _Function",),
    "Annotation.__reduce__": ("(self) -> tuple[typing.Any, ...]",),
    "Annotation._options": ("(self) -> dict[str, typing.Any]",),
    "Annotation.name": ("(self) -> str | None",),
    "_paused": (
        "(work: collections.abc.Callable[..., typing.Any], *args: typing.Any) -> typing.Any",
    ),
    "CallBase.__call__": ("(self, *args: typing.Any, **kwargs: typing.Any) -> typing.Any",),
    "Sample.__eq__": ("(self, value: object) -> bool",),
    "Sample.__ne__": ("(self, value: object) -> bool",),
    "Sample.__hash__": ("(self) -> int",),
    "Sample.__repr__": ("(self) -> str",),
    "Scope.__call__": ("(self, function: _Function) -> _Function",),
    "_WatchHook.__call__": ("(self, *arguments: typing.Any) -> None",),
    "_CacheEntry.__init__": ("(self, **given: typing.Any) -> None",),
    "_Watch.__init__": ("(self, **functions: typing.Any) -> None",),
    "_WatchedEntry.__init__": ("(self, module: typing.Any, caller: _WatchedEntry | None) -> None",),
    "Scope.__reduce__": ("(self) -> tuple[typing.Any, ...]",),
    "Scope._options": ("(self) -> dict[str, typing.Any]",),
    "Scope.last": ("(self) -> Sample | None",),
    "GraphBase.launch": ("(self, stream: object = None) -> None",),
    "GraphBase.upload": ("(self, stream: object = None) -> None",),
    "_DeviceScalar.__init__": (f"(self, value: {_NUMBER}, dtype: str, stream: object) -> None",),
    "_DeviceScalar.get": ("(self, stream: object = None) -> bool | int | float",),
    "_DeviceScalar.update": (
        f"(self, value: {_NUMBER}, stream: object = None, *, record: bool = False) -> None",
    ),
    "_TraceEvents.span": (
        "(self, name: str, duration_ms: float, *, begin_ns: int | None = None, "
        "cat: str | None = None, tid: int | None = None, "
        "args: typing.Mapping[str, object] | None = None) -> None",
    ),
    "_array_facts": ("(object: object) -> ArrayDesc | None",),
    "annotate": (
        f"(name: str | None = None, {_RANGE_OPTIONS}) -> Annotation",
        f"(name: _Function, {_RANGE_OPTIONS}) -> _Function",
    ),
    "_cupti_load": ("(candidates: collections.abc.Sequence[str]) -> dict[str, typing.Any]",),
    "_cupti_start": (
        "(max_records: int = 1000000, candidates: collections.abc.Sequence[str] = ()) -> None",
    ),
    "_cupti_stop": ("(release: bool = True, timeout_s: float = 60.0) -> dict[str, typing.Any]",),
    "build_info": ("() -> dict[str, str]",),
    "calibrate": ("(device: typing.SupportsInt | typing.SupportsIndex) -> dict[str, typing.Any]",),
    "devices": ("() -> list[dict[str, typing.Any]]",),
    "driver_info": ("() -> dict[str, typing.Any]",),
    "mark": (f"(name: str, {_RANGE_OPTIONS}) -> None",),
    "range_end": ("(id: int, /) -> None",),
    "range_start": (f"(name: str, {_RANGE_OPTIONS}) -> int",),
    "stats_snapshot": ("(wait: bool, bins: bool = False) -> dict[str, typing.Any]",),
    "timer": (
        f"(name: str | None = None, {_TIMER_OPTIONS}) -> Scope",
        f"(name: _Function, {_TIMER_OPTIONS}) -> _Function",
    ),
    "trace_span": (
        "(name: str, duration_ms: float, *, cat: str | None = None, "
        "tid: int | None = None) -> None",
    ),
}

# The types of attributes that are C getters, and of variables.
ATTRIBUTES = {
    "CallBase._entries": "tuple[typing.Any, ...]",
    "CallBase._hits": "int",
    "Sample.clock": "str",
    "Sample.cuda_started_inside": "bool",
    "Sample.dropped": "bool",
    "Sample.failed": "bool",
    "Sample.flops": "float | None",
    "Sample.host_begin_ns": "int",
    "Sample.host_end_ns": "int",
    "Sample.host_ms": "float",
    "Sample.memory": "MemoryUse | None",
    "Sample.ms": "float",
    "Sample.names": "tuple[str, ...]",
    "Sample.nbytes": "float | None",
    "Sample.one_in": "int",
    "Sample.path": "str",
    "Sample.ready": "bool",
    "Sample.state": "str",
    "Sample.stream": "int",
    "Sample.thread_id": "int",
    "_scopes": "dict[str, Scope]",
}

# Of these, the ones that can be set.
WRITABLE = {"Sample.flops", "Sample.nbytes"}

# Classes made of named fields by CPython, with the fields' types.
NAMED_TUPLES = {
    "ArrayDesc": {
        "address": "int",
        "device_type": "int",
        "device": "int",
        "dtype": "tuple[int, int, int]",
        "shape": "tuple[int, ...]",
        "strides": "tuple[int, ...]",
    },
}

# What a checker knows itself, and order comparisons that only answer NotImplemented.
LEFT_OUT = {"CallBase.__new__", "Sample.__ge__", "Sample.__gt__", "Sample.__le__", "Sample.__lt__"}

# Types without a Python name; SIGNATURES has the annotation.
_NAMELESS = r"detail::accessor<.*"


def render() -> str:
    """Return the stub of the extension that can be imported now."""
    module = ast.parse(_generate())
    _check_tables(module)
    lines = [HEADER.rstrip()]
    for node in module.body:
        lines += _render(node, "", "")
        if _is_import(node, "typing"):
            lines += PREAMBLE.splitlines()
    return "\n".join(lines) + "\n"


def _generate() -> str:
    arguments = ["--exit-code", "--ignore-invalid-expressions", _NAMELESS]
    with tempfile.TemporaryDirectory() as folder:
        pybind11_stubgen.main([MODULE, "--output-dir", folder, *arguments])
        path = Path(folder, *MODULE.split(".")).with_suffix(".pyi")
        return path.read_text(encoding="utf-8")


def _is_import(node: ast.stmt, name: str) -> bool:
    return isinstance(node, ast.Import) and node.names[0].name == name


def _names(body: list[ast.stmt], owner: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _names(node.body, f"{node.name}.")
            yield from (f"{node.name}.{name}" for name in _getters(node.name))
        elif isinstance(node, ast.FunctionDef):
            yield owner + node.name
        elif isinstance(node, ast.AnnAssign):
            yield owner + ast.unparse(node.target)


def _check_tables(module: ast.Module) -> None:
    known = set(_names(module.body, ""))
    unknown = sorted(({*SIGNATURES, *ATTRIBUTES} | LEFT_OUT) - known)
    if unknown:
        message = (
            f"the tables of {Path(__file__).name} name {', '.join(unknown)}, which {MODULE} does "
            "not have; take them out or correct them"
        )
        raise LookupError(message)


def _getters(class_name: str) -> dict[str, str]:
    """Return the docstrings of a class's C getters, by name."""
    members = vars(getattr(importlib.import_module(MODULE), class_name))
    return {
        name: member.__doc__ or ""
        for name, member in sorted(members.items())
        if isinstance(member, types.GetSetDescriptorType)
    }


def _render(node: ast.stmt, owner: str, indent: str) -> list[str]:
    if isinstance(node, ast.ClassDef):
        return _render_class(node)
    if isinstance(node, ast.FunctionDef):
        return _render_function(node, owner, indent)
    if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) in ATTRIBUTES:
        name = ast.unparse(node.target)
        return [f"{name}: {ATTRIBUTES[name]}"]
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return _docstring(str(node.value.value), indent)
    return _wrapped(ast.unparse(node), indent)


def _render_class(node: ast.ClassDef) -> list[str]:
    if node.name in NAMED_TUPLES:
        return _render_named_tuple(node)
    lines = ["", f"class {node.name}:"]
    for member in node.body:
        lines += _render(member, f"{node.name}.", "    ")
    for name, text in _getters(node.name).items():
        qualified = f"{node.name}.{name}"
        if qualified not in ATTRIBUTES:
            message = f"{qualified} is a C getter without a type; add it to ATTRIBUTES"
            raise LookupError(message)
        lines.append("    @property")
        lines += _definition(name, f"(self) -> {ATTRIBUTES[qualified]}", text, "    ")
        if qualified in WRITABLE:
            lines.append(f"    @{name}.setter")
            signature = f"(self, value: {ATTRIBUTES[qualified]}) -> None"
            lines += _definition(name, signature, "", "    ")
    return lines


def _render_named_tuple(node: ast.ClassDef) -> list[str]:
    lines = ["", f"class {node.name}(typing.NamedTuple):"]
    lines += _docstring(ast.get_docstring(node) or "", "    ")
    fields = NAMED_TUPLES[node.name]
    made = getattr(importlib.import_module(MODULE), node.name)
    if made.__match_args__ != tuple(fields):
        message = f"{node.name} has the fields {made.__match_args__}; correct NAMED_TUPLES"
        raise LookupError(message)
    return lines + [f"    {name}: {kind}" for name, kind in fields.items()]


def _render_function(node: ast.FunctionDef, owner: str, indent: str) -> list[str]:
    qualified = owner + node.name
    if qualified in LEFT_OUT:
        return []
    generated, text = _signature(node)
    signatures = SIGNATURES.get(qualified, (generated,))
    decorators = [f"@{ast.unparse(decorator)}" for decorator in node.decorator_list]
    if len(signatures) > 1:
        decorators.append("@typing.overload")
    lines = [""] if not owner else []
    for signature in signatures:
        lines += [indent + decorator for decorator in decorators]
        lines += _definition(node.name, signature, text, indent)
        text = ""  # overloads share the first one's
    return lines


def _signature(node: ast.FunctionDef) -> tuple[str, str]:
    """Return the signature and the rest of the docstring.

    From Python 3.13 on a C method without arguments has a signature of its own, without types, and
    the typed one stays where it was written: in the first line of the docstring.
    """
    text = ast.get_docstring(node) or ""
    first, _, rest = text.partition("\n")
    written = re.fullmatch(rf"{node.name}\(self(?:: [\w.]+)?([,)].*)", first)
    if written:
        return "(self" + written[1].replace(f"{MODULE}.", ""), rest.strip()
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"({ast.unparse(node.args)}){returns}", text


def _definition(name: str, signature: str, text: str, indent: str) -> list[str]:
    head = _wrapped(f"def {name}{signature}:", indent)
    if not text:
        return [*head[:-1], f"{head[-1]} ..."]
    return [*head, *_docstring(text, indent + "    ")]


def _wrapped(code: str, indent: str) -> list[str]:
    # Lines may end only inside the parentheses, so the arrow sticks to what is around it.
    lines = textwrap.wrap(
        code.replace(") -> ", ")\0->\0"),
        WIDTH - len(" ..."),
        initial_indent=indent,
        subsequent_indent=indent + "    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace("\0", " ") for line in lines]


def _docstring(text: str, indent: str) -> list[str]:
    escaped = inspect.cleandoc(text).replace("\\", r"\\").replace('"""', r"\"\"\"")
    lines = escaped.splitlines()
    if len(lines) == 1:
        return [f'{indent}"""{lines[0]}"""']
    body = [f"{indent}{line}".rstrip() for line in lines[1:]]
    return [f'{indent}"""{lines[0]}', *body, f'{indent}"""']


def render_names(source: str) -> str:
    """Return the stub of the package whose ``__init__.py`` is `source`: its table of names."""
    table: dict[str, str] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_NAMES":
            table = ast.literal_eval(node.value)
    lines = ["# Made by .ci/stubs.py from __init__.py."]
    everyday: list[str] = []
    for module, names in table.items():
        everyday += names.partition("|")[0].split()
        path = f"gpuprof.{module}" if module else "gpuprof"
        public = sorted(names.replace("|", "").split())
        lines += [f"from {path} import {name} as {name}" for name in public]
    lines += ["", "__version__: str", "__all__ = ["]
    lines += [f'    "{name}",' for name in sorted(everyday)]
    return "\n".join([*lines, "]", "", "def __dir__() -> list[str]: ...", ""])


def main() -> None:
    """Write both stubs."""
    parser = argparse.ArgumentParser(description="Write the type stubs of gpuprof.")
    parser.add_argument("--extension", type=Path, help="the built module (default: the installed)")
    parser.add_argument("--output", type=Path, default=PACKAGE, help="the folder to write to")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.extension is not None:
            package = Path(folder, PACKAGE.name)
            package.mkdir()
            for path in (*PACKAGE.iterdir(), options.extension.resolve()):
                if path.suffix not in {".pyi", ".so"} or path == options.extension.resolve():
                    package.joinpath(path.name).symlink_to(path)
            sys.path.insert(0, folder)
        made = render()
    options.output.joinpath("_core.pyi").write_text(made, encoding="utf-8")
    names = render_names((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    options.output.joinpath("__init__.pyi").write_text(names, encoding="utf-8")


if __name__ == "__main__":
    main()
