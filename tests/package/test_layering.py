"""The rules of the house: who may import or include whom, and how files are named and how long."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "gpuprof"
SOURCES = ROOT / "src"
HEADERS = ROOT / "include" / "gpuprof"
TESTS = ROOT / "tests"
FOLDER = Path(__file__).parent

# Python, from the ground up. A package may import what stands in a lower line, and itself.
LAYERS = (
    {"errors", "_core"},
    {"_common"},
    {"_display"},
    {"_trace", "_trace_tools", "_frameworks"},
    {"_startup"},
    {"nvtx", "_timing"},
    {"_graphs", "_results"},
    {"_kernels"},
    {"_distributed"},
    {"_callable", "_benchmark", "_idle", "_report", "_watch"},
    {"_run"},
    {"_training"},
    {"_pytest", "_cli"},
    {"_probes", "compat", "distributed", "exporters", "integrations", "results"},
    {"__init__", "__main__"},
)
LEVEL = {part: level for level, parts in enumerate(LAYERS) for part in parts}

# The plugin is imported by every run of pytest, so it may import no more than this at its top.
PLUGIN = "_pytest.plugin"
PLUGIN_MAY_IMPORT = {"_pytest.options", "_pytest.settings"}

# C++: what each component may include besides itself. Arrows point one way, towards the driver.
# "gpuprof" are the public headers, which include nothing of src.
MAY_INCLUDE = {
    "driver": {"gpuprof"},
    "timing": {"driver"},
    "nvtx": {"driver"},
    "trace": {"driver"},
    "graphs": {"timing", "driver", "gpuprof"},
    "text": {"graphs", "timing", "gpuprof"},
    "cupti": {"driver"},
    "ranges": {"timing", "trace", "driver"},
    "api": {"gpuprof", "text", "ranges", "graphs", "timing", "nvtx", "trace", "driver"},
    "bindings": {
        *("gpuprof", "text", "ranges", "graphs", "timing", "nvtx", "trace", "cupti", "driver"),
    },
}
# Packages that users import from; all others have an underscore, and an empty `__init__`.
PUBLIC_PACKAGES = {"compat", "integrations", "nvtx"}
MAX_LINES = 500
MOST_OF_INTEGRATIONS = 100
# A shorter file joins a neighbour, unless it is a package's `__init__`. A C++ header and its source
# count as one. small_files.txt lists those that were there before the rule, and tables; what is not
# in it may not be shorter.
MIN_LINES = 60

INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]', re.MULTILINE)
PYTHON_HEADER = re.compile(r"^(Python|structmember|frameobject|pybind11/.*|cpython/.*)(\.h)?$")
# At exit these abort the process beside a daemon thread: waits go through without_gil().
GIL_GUARD = re.compile(r"\b(gil_scoped_release|call_guard)\b")
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
# Also in the programs that tests run in processes of their own, which are text.
PRIVATE_IMPORT = re.compile(r"\b(?:from|import)\s+gpuprof(?:\.|\s+import\s+)(_\w+)")


# Python


def modules() -> dict[str, str]:
    """Return the text of each module by its dotted name below gpuprof."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)
        found[name] = path.read_text(encoding="utf-8")
    return found


def imports(text: str, known: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    """Yield (line, module below gpuprof) for each import, also those inside functions."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            for each in node.names:
                if each.name.partition(".")[0] == "gpuprof":
                    yield node.lineno, each.name.partition(".")[2] or "__init__"
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            name = ast.unparse(node.args[0]).strip("'\"")
            if name.partition(".")[0] == "gpuprof":
                yield node.lineno, name.partition(".")[2] or "__init__"
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                yield node.lineno, "relative"
            elif module == "gpuprof":
                yield node.lineno, "__init__"
            elif module.startswith("gpuprof."):
                below = module.removeprefix("gpuprof.")
                for each in node.names:
                    inner = f"{below}.{each.name}"
                    yield node.lineno, inner if inner in known else below


def violations(name: str, text: str, known: Mapping[str, str]) -> list[str]:
    """Return what module `name` imports against the rules."""
    part = name.partition(".")[0]
    if part not in LEVEL:
        return [f"{name}: {part!r} is in no layer"]
    found = []
    for line, target in imports(text, known):
        other = target.partition(".")[0]
        if other == "relative":
            found.append(f"{name}:{line} imports relatively")
        elif other == part != "__init__":
            continue
        elif other == "__init__":
            found.append(f"{name}:{line} imports from gpuprof itself, the door")
        elif other not in LEVEL:
            found.append(f"{name}:{line} imports {target}, which is in no layer")
        elif LEVEL[other] >= LEVEL[part]:
            found.append(f"{name}:{line} imports {target}, which is no layer below {part}")
    return found


def circles(texts: Mapping[str, str]) -> list[str]:
    """Return the groups of modules that import each other, by Tarjan's algorithm."""
    graph = {
        name: {target for _, target in imports(text, texts) if target in texts and target != name}
        for name, text in texts.items()
    }
    found: list[str] = []
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []

    def visit(name: str) -> None:
        number[name] = lowest[name] = len(number)
        stack.append(name)
        for target in graph[name]:
            if target not in number:
                visit(target)
                lowest[name] = min(lowest[name], lowest[target])
            elif target in stack:
                lowest[name] = min(lowest[name], number[target])
        if lowest[name] == number[name]:
            group = [stack.pop()]
            while group[-1] != name:
                group.append(stack.pop())
            if len(group) > 1:
                found.append(" <-> ".join(sorted(group)))

    for name in graph:
        if name not in number:
            visit(name)
    return found


def test_imports_point_downwards() -> None:
    texts = modules()
    assert not [found for name, text in texts.items() for found in violations(name, text, texts)]


def test_no_modules_import_each_other() -> None:
    assert not circles(modules())


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("_timing.scope", "from gpuprof._graphs.capture import capture"),
        ("_timing.scope", "def f() -> None:\n    from gpuprof._cli import main"),
        ("_results.result", "if TYPE_CHECKING:\n    from gpuprof._benchmark.api import benchmark"),
        ("_trace.writer", "from gpuprof._timing import scope"),
        ("_common.text", "import gpuprof"),
        ("_common.text", "from gpuprof import __version__"),
        ("errors", "from gpuprof._common.text import clean_text"),
        ("_common.text", "from . import units"),
        ("_common.text", "importlib.import_module('gpuprof._timing.scope')"),
        ("_elsewhere.thing", "import os"),
    ],
)
def test_a_forbidden_import_would_be_found(name: str, line: str) -> None:
    texts = modules()
    assert violations(name, f"import sys\n{line}\n", texts)


def test_a_circle_would_be_found() -> None:
    texts = {
        "_common.a": "from gpuprof._common import b",
        "_common.b": "def f() -> None:\n    from gpuprof._common.a import x",
        "_common.c": "from gpuprof._common import a, b",
    }
    assert circles(texts) == ["_common.a <-> _common.b"]


def badly_named(paths: Iterable[Path]) -> list[str]:
    """Return the packages without, and the modules of packages with, an underscore before them.

    Public packages have none; ``__init__`` and ``__main__`` are Python's names.
    """
    found = []
    for path in paths:
        *packages, name = path.parts
        found += [
            str(path)
            for package in packages
            if package.startswith("_") == (package in PUBLIC_PACKAGES)
        ]
        is_pythons = name in {"__init__.py", "__main__.py"}
        found += [str(path)] if packages and name.startswith("_") and not is_pythons else []
    return found


def test_packages_have_an_underscore_and_their_files_have_none() -> None:
    assert not badly_named(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))
    inits = list(PACKAGE.glob("_*/**/__init__.py"))
    assert not [path for path in inits if path.read_text(encoding="utf-8")]


@pytest.mark.parametrize(
    "name",
    ["_timing/_scope.py", "timing/scope.py", "_timing/more/x.py", "nvtx/_x.py", "_nvtx/_y.py"],
)
def test_a_bad_name_would_be_found(name: str) -> None:
    assert badly_named([Path(name)])


def plugin_imports(text: str) -> set[str]:
    """Return what of gpuprof the plugin imports at its top, `text` being its source."""
    top = [node for node in ast.parse(text).body if isinstance(node, (ast.Import, ast.ImportFrom))]
    found = "\n".join(ast.unparse(node) for node in top)
    return {target for _, target in imports(found, modules())}


def test_the_plugin_imports_nothing_but_pytest_and_its_settings() -> None:
    text = modules()[PLUGIN]
    assert plugin_imports(text) <= PLUGIN_MAY_IMPORT
    assert plugin_imports(f"from gpuprof._pytest import fixture\n{text}") - PLUGIN_MAY_IMPORT


def private_imports(text: str) -> set[str]:
    """Return the private parts of gpuprof that a file of tests imports from."""
    return set(PRIVATE_IMPORT.findall(text))


def test_tests_take_from_private_modules_what_is_listed() -> None:
    lines = (FOLDER / "private_imports.txt").read_text(encoding="utf-8").splitlines()
    listed = {
        name: set(parts.split()) for name, _, parts in (line.partition(":") for line in lines)
    }
    found = {
        name: taken
        for path in TESTS.rglob("*.py")
        if (name := path.relative_to(TESTS).as_posix()) != "package/test_layering.py"
        and (taken := private_imports(path.read_text(encoding="utf-8")))
    }
    assert found == listed, "test what is public instead; the list only shrinks"


@pytest.mark.parametrize(
    "line",
    ["from gpuprof._graphs import diff", "import gpuprof._core", "from gpuprof import _core"],
)
def test_a_private_import_would_be_found(line: str) -> None:
    assert private_imports(f"import gpuprof\ncheck_python('{line}')\n")
    assert not private_imports("from gpuprof import exporters, nvtx\nfrom gpuprof.errors import x")


# C++


def cpp_files() -> list[Path]:
    return sorted(p for p in SOURCES.rglob("*") if p.suffix in {".hpp", ".cpp", ".h", ".cc"})


def includes(text: str) -> Iterator[tuple[bool, str]]:
    """Yield (is quoted, what is included)."""
    for mark, name in INCLUDE.findall(text):
        yield mark == '"', name


def public_violations(text: str) -> list[str]:
    """Return what `text`, a public header, includes besides its like and the standard library."""
    return [
        name
        for quoted, name in includes(text)
        if (not name.startswith("gpuprof/") if quoted else "/" in name or "." in name)
    ]


def test_public_headers_include_each_other_and_the_standard_library() -> None:
    violations = {
        path.name: found
        for path in HEADERS.iterdir()
        if (found := public_violations(path.read_text(encoding="utf-8")))
    }
    assert not violations


@pytest.mark.parametrize("name", ['"timing/sample.hpp"', "<cuda.h>", "<pybind11/pybind11.h>"])
def test_a_public_header_that_needs_more_would_be_found(name: str) -> None:
    assert public_violations(f"#include <vector>\n#include {name}\n")
    assert not public_violations('#include <vector>\n#include "gpuprof/timer.hpp"\n')


def test_the_umbrella_includes_every_public_header() -> None:
    text = (HEADERS / "gpuprof.hpp").read_text(encoding="utf-8")
    others = {path.name.removesuffix(".in") for path in HEADERS.iterdir()} - {"gpuprof.hpp"}
    assert {name for _, name in includes(text)} == {f"gpuprof/{name}" for name in others}


def component(path: Path) -> str:
    return path.relative_to(SOURCES).parts[0]


def include_violations(of: str, text: str) -> list[str]:
    """Return what `text`, a file of component `of`, includes against the rules."""
    found = []
    for quoted, name in includes(text):
        target = name.split("/")[0]
        if quoted and target not in {of, *MAY_INCLUDE[of]}:
            found.append(f"{of} may not include {name!r}")
        if of != "bindings" and PYTHON_HEADER.match(name):
            found.append(f"{name!r} is a Python header, which only bindings may include")
    return found


def test_src_holds_only_known_components() -> None:
    folders = {path.name for path in SOURCES.iterdir() if path.is_dir()} - {"__pycache__"}
    assert folders <= MAY_INCLUDE.keys()
    assert {"driver", "timing", "bindings"} <= folders


def test_includes_point_towards_the_driver() -> None:
    violations = [
        f"{path.relative_to(ROOT)}: {violation}"
        for path in cpp_files()
        for violation in include_violations(component(path), path.read_text(encoding="utf-8"))
    ]
    assert not violations


@pytest.mark.parametrize(
    ("of", "line"),
    [
        ("driver", '#include "timing/sample.hpp"'),
        ("timing", '#include "nvtx/range.hpp"'),
        ("timing", '#include "graphs/capture.hpp"'),
        ("timing", '#include "trace/writer.hpp"'),
        ("timing", "#include <Python.h>"),
        ("timing", "#  include <pybind11/pybind11.h>"),
        ("graphs", '#include "bindings/errors.hpp"'),
        ("driver", "#include <structmember.h>"),
    ],
)
def test_a_forbidden_include_would_be_found(of: str, line: str) -> None:
    assert include_violations(of, f"#include <vector>\n{line}\n")


def test_gil_is_given_up_in_one_place_only() -> None:
    guards = [
        f"{path.relative_to(ROOT)}: {found.group()}"
        for path in cpp_files()
        for found in GIL_GUARD.finditer(COMMENT.sub("", path.read_text(encoding="utf-8")))
    ]
    savers = {
        str(path.relative_to(SOURCES))
        for path in cpp_files()
        if "PyEval_SaveThread" in path.read_text(encoding="utf-8")
    }
    assert not guards
    assert savers == {"bindings/python/gil.hpp"}


def test_timing_knows_cuda_by_its_cuda_files_only() -> None:
    violations = [
        str(path.relative_to(ROOT))
        for path in cpp_files()
        if component(path) in {"driver", "timing"} and not path.name.startswith("cuda_")
        for _, name in includes(path.read_text(encoding="utf-8"))
        if Path(name).name.startswith("cuda")
    ]
    assert not violations


# All files


def own_files() -> list[Path]:
    folders = ("include", "src", "python", "tests", "benchmarks")
    suffixes = {".hpp", ".cpp", ".h", ".py"}
    return sorted(
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.suffix in suffixes and path.is_file()
    )


def test_no_file_is_two_ideas_long() -> None:
    long = {
        str(path.relative_to(ROOT)): count
        for path in own_files()
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > MAX_LINES
    }
    assert not long, f"split these files (at most {MAX_LINES} lines)"


def test_an_integration_fits_on_two_screens() -> None:
    lengths = {
        path.name: len(path.read_text(encoding="utf-8").splitlines())
        for path in (PACKAGE / "integrations").glob("*.py")
    }
    assert {"lightning.py", "dataloader.py"} < lengths.keys()
    assert not {name: count for name, count in lengths.items() if count > MOST_OF_INTEGRATIONS}


def small(lengths: Mapping[str, int]) -> list[str]:
    """Return the files that are too short, a header and its source taken together."""
    units: dict[str, int] = {}
    for name, count in lengths.items():
        unit = name if name.endswith(".py") else name.rpartition(".")[0]
        units[unit] = units.get(unit, 0) + count
    return sorted(
        unit
        for unit, count in units.items()
        if count < MIN_LINES and not unit.endswith("/__init__.py")
    )


def test_no_file_is_shorter_than_an_idea() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in own_files()
        if path.is_relative_to(PACKAGE) or path.is_relative_to(SOURCES)
    }
    listed = (FOLDER / "small_files.txt").read_text(encoding="utf-8").split()
    assert not [name for name in small(lengths) if name not in listed]


def test_a_small_file_would_be_found() -> None:
    few = {"src/a/x.hpp": 20, "src/a/x.cpp": 30, "python/gpuprof/_a/x.py": 59}
    assert small(few) == ["python/gpuprof/_a/x.py", "src/a/x"]
    assert not small({"src/a/x.hpp": 20, "src/a/x.cpp": 40, "python/gpuprof/_a/__init__.py": 0})


def test_nothing_is_left_for_later() -> None:
    # Spelt in two parts so that this file does not find itself.
    marks = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX)\b")
    left = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in own_files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if marks.search(line)
    ]
    assert not left


def test_the_bindings_name_python_modules_in_one_file_only() -> None:
    named = re.compile(r'"gpuprof\._(?!core\b)|import(?:_|Module)?\w*\(\s*"gpuprof\.(?!_core\b)')
    files = {
        str(path.relative_to(SOURCES))
        for path in cpp_files()
        if named.search(COMMENT.sub("", path.read_text(encoding="utf-8")))
    }
    assert files == {"bindings/python/callbacks.hpp"}
