"""The tables at the end as options ask for them."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.support.pytest_projects import Project

TESTS = """
import pytest

@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("kind", ["x", "y"])
def test_b(gpu_benchmark, size, kind):
    gpu_benchmark(sum, [size])

@pytest.mark.gpu_benchmark(group="some / <group>")
def test_a(gpu_benchmark):
    gpu_benchmark(sum, [1])
"""
TIMES = {"test_b[x-1]": 4.0, "test_b[x-2]": 3.0, "test_b[y-1]": 2.0, "test_b[y-2]": 1.0}


@pytest.fixture
def tests(project: Project) -> Project:
    project.pytester.makepyfile(test_it=TESTS)
    project.times(0.5, **TIMES)
    return project


def tables(done: pytest.RunResult) -> list[tuple[str | None, list[str], list[str]]]:
    """Return each table's group, its columns and the names in it."""
    found: list[tuple[str | None, list[str], list[str]]] = []
    group, lines = None, done.outlines
    for line, following in pairwise(lines):
        if line.startswith("group "):
            group = line.removeprefix("group ")
        elif line.startswith("benchmark ") and set(following) == {"-"}:
            found.append((group, line.split()[1:], []))
        elif found and line.startswith(("test_", "b[", "a ")):
            found[-1][2].append(line.split()[0])
    return found


def test_the_columns_asked_for_are_there_in_their_order(tests: Project) -> None:
    columns = "min,max,mean,stddev,median,iqr,outliers,ops,rounds,iterations"
    done = tests.run(f"--gpu-benchmark-columns={columns}")
    headings = [*columns.replace("iqr", "IQR").replace("ops", "OPS").split(",")]
    assert [found[1] for found in tables(done)] == [headings, headings]
    done.stdout.fnmatch_lines(
        ["test_a *498 µs *502 µs *500 µs *1.46 µs *500 µs *2.44 µs *18;0  2.00 k/s *45 *1"]
    )


def test_gpuprofs_own_columns_may_be_empty(tests: Project) -> None:
    own = "interval,precision,p10,p90,p99,host,samples,mode,l2,bytes,flops,memory,distribution"
    done = tests.run(f"--gpu-benchmark-columns={own},baseline,ratio,floor,verdict", "-k", "test_a")
    (head,) = (line for line in done.outlines if line.startswith("benchmark "))
    assert " ".join(head.split()) == (
        "benchmark 95 % interval precision p10 p90 p99 host samples mode L2 bytes flops memory "
        "distribution baseline ratio floor verdict"
    )
    done.stdout.fnmatch_lines(["test_a *µs*0.49 %  49? µs  50? µs  50? µs * 45  cpu *"])


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        (None, ["x-1", "x-2", "y-1", "y-2"]),
        ("min", ["y-2", "y-1", "x-2", "x-1"]),
        ("MEAN", ["y-2", "y-1", "x-2", "x-1"]),
        ("p99", ["y-2", "y-1", "x-2", "x-1"]),
        ("ops", ["x-1", "x-2", "y-1", "y-2"]),
        ("name", ["x-1", "x-2", "y-1", "y-2"]),
        ("fullname", ["x-1", "x-2", "y-1", "y-2"]),
    ],
)
def test_the_order_asked_for(tests: Project, sort: str | None, order: list[str]) -> None:
    done = tests.run(*([f"--gpu-benchmark-sort={sort}"] if sort else []))
    assert tables(done)[0][2] == [f"test_b[{each}]" for each in order]


@pytest.mark.parametrize(
    ("group_by", "groups"),
    [
        ("group", [None, "some / <group>"]),
        ("func", ["test_a", "test_b"]),
        ("fullfunc", ["test_it.py::test_a", "test_it.py::test_b"]),
        ("param", [None, "x-1", "x-2", "y-1", "y-2"]),
        ("param:size", [None, "size=1", "size=2"]),
        ("func,param:kind", ["test_a", "test_b kind=x", "test_b kind=y"]),
        ("param:nothing", [None]),
        ("name", ["test_a", *TIMES]),
        ("fullname", [f"test_it.py::{name}" for name in ["test_a", *TIMES]]),
    ],
)
def test_the_groups_asked_for(tests: Project, group_by: str, groups: list[str | None]) -> None:
    done = tests.run(f"--gpu-benchmark-group-by={group_by}")
    assert [found[0] for found in tables(done)] == groups


def test_without_a_terminal_everything_is_written(tests: Project) -> None:
    done = tests.run("-p", "no:terminal", "--gpu-benchmark-json=out.json")
    assert done.ret == 0
    assert len(tests.written()["benchmarks"]) == 5
