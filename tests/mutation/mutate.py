"""How many small mistakes the tests notice: plant them one at a time, and run the tests.

``python tests/mutation/mutate.py`` copies the tree of git to a temporary folder, plants mutants in
the modules of ROOMS there, and prints for each room how many its tests caught, and where those are
that survived. Which ones are planted depends on the seed and the sources alone. A survivor may also
be a mutant that changes nothing that can be seen.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "python/gpuprof"

# A room's modules, and the tests that are theirs and quick: patterns from the root.
ROOMS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "common": (("_common/*.py",), ("common/test_*.py",)),
    "display": (
        ("_display/series_plot.py", "_display/table.py"),
        ("display/test_*.py",),
    ),
    "report": (("_report/*.py",), ("report/test_*.py",)),
    "results": (
        (
            *("_results/change_point.py", "_results/history*.py", "_results/stored_rule.py"),
            *("_results/*verdict.py", "_results/result.py", "_results/statistics.py"),
        ),
        (
            *("results/test_change_point.py", "results/test_history.py", "results/test_result.py"),
            *("results/test_statistics.py", "results/test_*verdict.py", "results/test_formats.py"),
        ),
    ),
    "timing": (("_timing/stats*.py", "_timing/rows.py"), ("timing/test_stat*.py",)),
    "graphs": (
        ("_graphs/diff.py", "_graphs/drawing.py", "_graphs/signature.py"),
        ("graphs/test_drawing.py", "graphs/test_signature.py", "graphs/test_view.py"),
    ),
    "trace_tools": (
        ("_trace_tools/[!d]*.py",),
        ("trace/test_slices.py", "trace/test_tools.py", "trace/test_tools_odd.py"),
    ),
    "callable": (
        ("_callable/buckets.py", "_callable/mismatch.py", "_callable/pytree.py"),
        ("callable/test_buckets.py", "callable/test_mismatch.py", "callable/test_structure.py"),
    ),
}

FLIPPED: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}


@dataclass(frozen=True, order=True)
class Mutant:
    """One change: bytes `start` to `stop` of the file become `text`."""

    path: str
    line: int
    kind: str
    start: int
    stop: int
    text: str


@dataclass(frozen=True)
class Source:
    """The bytes of a module, and where its nodes stand in them."""

    path: str
    data: bytes

    def offset(self, line: int, column: int) -> int:
        return sum(map(len, self.data.splitlines(keepends=True)[: line - 1])) + column

    def span(self, node: Any) -> tuple[int, int]:
        start = self.offset(node.lineno, node.col_offset)
        return start, self.offset(node.end_lineno, node.end_col_offset)

    def text(self, node: ast.AST) -> str:
        start, stop = self.span(node)
        return self.data[start:stop].decode()

    def replaced(self, kind: str, node: Any, text: str) -> Mutant:
        return Mutant(self.path, node.lineno, kind, *self.span(node), text)

    def between(self, kind: str, nodes: tuple[ast.expr, ast.expr], old: str, new: str) -> Mutant:
        """Return the mutant that replaces the operator between two operands."""
        start, stop = self.span(nodes[0])[1], self.span(nodes[1])[0]
        gap = self.data[start:stop].decode()
        text = re.sub(rf"(?<!\w){re.escape(old)}(?!\w)", new, gap, count=1)
        return Mutant(self.path, nodes[0].lineno, kind, start, stop, text)


def code_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes below that run, except in f-strings, whose columns Python 3.11 gets wrong."""
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    if isinstance(node, ast.JoinedStr):
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns"}:
            continue
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, ast.AST):
                yield from code_nodes(each)


def mutants_of(source: Source) -> Iterator[Mutant]:
    """Yield every mutant of a module."""
    for node in code_nodes(ast.parse(source.data)):
        match node:
            case ast.Compare(left, [op], [right]):
                yield source.between("comparison", (left, right), *FLIPPED[type(op)])
            case ast.BoolOp(op, [first, second, *_]):
                words = ("and", "or") if isinstance(op, ast.And) else ("or", "and")
                yield source.between("and/or", (first, second), *words)
            case ast.Constant(int() as number) if not isinstance(number, bool):
                yield source.replaced("number", node, str(number + 1))
                yield source.replaced("number", node, f"({number - 1})")
            case ast.Return(ast.expr() as value) if source.text(value) != "None":
                yield source.replaced("return", value, "None")
            case ast.Expr(ast.Call()) | ast.AugAssign() | ast.Raise():
                yield source.replaced("removed", node, "pass")
            case _:
                pass
        if isinstance(node, ast.Call) and len(node.args) > 1:
            first, second = node.args[:2]
            one, two = source.text(first), source.text(second)
            unpacked = isinstance(first, ast.Starred) or isinstance(second, ast.Starred)
            if one != two and not unpacked:
                start, stop = source.span(first)[0], source.span(second)[1]
                yield Mutant(source.path, node.lineno, "swapped", start, stop, f"{two}, {one}")


def chosen(tree: Path, room: str, count: int, seed: int) -> list[Mutant]:
    """Return `count` mutants of a room, as many of one kind as of another where there are."""
    found: dict[str, list[Mutant]] = {}
    paths = {path for each in ROOMS[room][0] for path in (tree / PACKAGE).glob(each)}
    for path in sorted(paths):
        for mutant in mutants_of(Source(path.relative_to(tree).as_posix(), path.read_bytes())):
            found.setdefault(mutant.kind, []).append(mutant)
    draw = random.Random(f"{seed} {room}")
    for each in found.values():
        draw.shuffle(each)
    picked: list[Mutant] = []
    while found and len(picked) < count:
        for kind in sorted(found):
            if len(picked) < count:
                picked.append(found[kind].pop())
            if not found[kind]:
                del found[kind]
    return picked


def copy_of_the_tree(folder: Path) -> Path:
    """Copy what git tracks, with the compiled parts of the installed package, and return where."""
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    spec = importlib.util.find_spec("gpuprof")
    assert spec is not None, "build and install gpuprof first"
    assert spec.submodule_search_locations is not None
    for path in Path(spec.submodule_search_locations[0]).glob("_core*"):
        shutil.copy2(path, folder / PACKAGE / path.name)
    return folder


def run_tests(tree: Path, arguments: list[str], timeout: float | None) -> tuple[int, str]:
    """Run pytest in a copy of the tree and return its exit status, 124 if it took too long."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=tree,
        env=os.environ | {"PYTHONPATH": str(tree / "python"), "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=timeout)
        return process.returncode, output
    except subprocess.TimeoutExpired:
        return 124, ""
    finally:
        if process.poll() is None:
            os.killpg(process.pid, 9)
            process.wait()


def examine(room: str, count: int, seed: int, until: float) -> dict[str, Any]:
    """Plant the mutants of a room in a copy of the tree; return which ones were caught."""
    with tempfile.TemporaryDirectory(prefix=f"gpuprof-mutants-{room}-") as folder:
        tree = copy_of_the_tree(Path(folder))
        tests = sorted(
            path.relative_to(tree).as_posix()
            for each in ROOMS[room][1]
            for path in (tree / "tests").glob(each)
        )
        run_tests(tree, ["--collect-only", *tests], None)  # builds the fake driver
        start = time.monotonic()
        _, output = run_tests(tree, tests, None)
        took = time.monotonic() - start
        # What fails here without a mutant says nothing of one.
        failing = re.findall(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
        arguments = ["-x", *tests, *(f"--deselect={name}" for name in failing)]
        caught = 0
        planted = 0
        survivors = []
        for mutant in chosen(tree, room, count, seed):
            if time.monotonic() > until:
                break
            planted += 1
            path = tree / mutant.path
            data = path.read_bytes()
            path.write_bytes(data[: mutant.start] + mutant.text.encode() + data[mutant.stop :])
            try:
                status, _ = run_tests(tree, arguments, 3 * took + 20)
            finally:
                path.write_bytes(data)
            if status == 0:
                old = data[mutant.start : mutant.stop].decode()
                where = f"{mutant.path}:{mutant.line}"
                survivors.append(f"{where}: {mutant.kind}: {old!r} -> {mutant.text!r}")
            else:
                caught += 1
    found = {"room": room, "mutants": planted, "caught": caught, "survivors": survivors}
    print(f"{room:12} {planted:4} planted {caught:4} caught", file=sys.stderr, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("rooms", nargs="*", help=f"of: {', '.join(ROOMS)} (all)")
    parser.add_argument("--count", type=int, default=25, help="mutants a room (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="which mutants (%(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="rooms at a time (%(default)s)")
    parser.add_argument("--minutes", type=float, default=35.0, help="at most (%(default)s)")
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    options = parser.parse_args()
    if unknown := set(options.rooms) - set(ROOMS):
        parser.error(f"no such room: {', '.join(sorted(unknown))}")
    until = time.monotonic() + 60 * options.minutes
    with ThreadPoolExecutor(options.jobs) as pool:
        rooms = list(
            pool.map(
                lambda room: examine(room, options.count, options.seed, until),
                options.rooms or ROOMS,
            )
        )
    total = {key: sum(each[key] for each in rooms) for key in ("mutants", "caught")}
    for each in [*rooms, {"room": "all", **total}]:
        share = each["caught"] / max(each["mutants"], 1)
        print(f"{each['room']:12} {each['caught']:4} of {each['mutants']:4} caught, {share:.0%}")
    print(*(line for each in rooms for line in each["survivors"]), sep="\n")
    if options.json:
        found = {"seed": options.seed, "rooms": rooms, **total}
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
