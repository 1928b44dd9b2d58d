"""Options that pytest-benchmark has: which tests run, and how long they measure."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from gpuprof._benchmark.options import Options
from gpuprof._pytest.options import ALIASES, ARGUMENTS, COLUMNS, OPTIONS, SORT, WARM_UP_S
from tests.support.pytest_projects import Project

DOCS = Path(__file__).resolve().parents[2] / "docs"

TESTS = """
import pytest

def test_a(gpu_benchmark):
    gpu_benchmark(sum, [1])

def test_late(request):
    request.getfixturevalue("gpu_benchmark")(sum, [1])

def test_other():
    pass
"""
ONE_TEST = "def test_a(gpu_benchmark): gpu_benchmark(sum, [1])"


@pytest.mark.parametrize("how", ["options", "ini keys"])
def test_only_and_skip_choose_the_tests(project: Project, how: str) -> None:
    def run(*switches: str) -> pytest.RunResult:
        if how == "options":
            return project.run(*(f"--gpu-benchmark-{switch}" for switch in switches), "-rs")
        keys = (("-o", f"gpu_benchmark_{switch}=true") for switch in switches)
        return project.run(*(part for key in keys for part in key), "-rs")

    project.pytester.makepyfile(TESTS)
    only = run("only")
    only.assert_outcomes(passed=1, skipped=2)
    only.stdout.fnmatch_lines(["SKIPPED*--gpu-benchmark-only is given"])
    # A test that asks for the fixture while it runs is not known before.
    skip = run("skip")
    skip.assert_outcomes(passed=1, skipped=2)
    skip.stdout.fnmatch_lines(["SKIPPED*--gpu-benchmark-skip is given"])
    run("only", "skip").assert_outcomes(passed=1, skipped=2)
    assert len(project.calls()) == 2


def test_enable_undoes_disable_and_not_the_environment(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.pytester.makepyfile(ONE_TEST)
    project.pytester.makeini("[pytest]\ngpu_benchmark_disable = true\n")
    project.run("--gpu-benchmark-enable").assert_outcomes(passed=1)
    assert len(project.calls()) == 1
    monkeypatch.setenv("GPUPROF_DISABLE", "1")
    project.run("--gpu-benchmark-enable").assert_outcomes(passed=1)
    assert project.calls() == []


def test_only_and_disable_contradict_each_other(project: Project) -> None:
    project.pytester.makepyfile(ONE_TEST)
    both = ("--gpu-benchmark-only", "--gpu-benchmark-disable")
    said = project.refuse(*both)
    said.fnmatch_lines(["*--gpu-benchmark-only and --gpu-benchmark-disable contradict*"])
    project.run(*both, "--gpu-benchmark-enable").assert_outcomes(passed=1)


def test_options_say_how_long_to_measure_and_the_marker_wins(project: Project) -> None:
    project.pytester.makepyfile("""
        import gc
        import pytest

        def test_plain(gpu_benchmark):
            gpu_benchmark(sum, [1])

        @pytest.mark.gpu_benchmark(
            min_rounds=50, max_time=2, warmup=True, precision=0.1, disable_gc=False
        )
        def test_marked(gpu_benchmark):
            seen = []
            gpu_benchmark(lambda: seen.append(gc.isenabled()))
            assert all(seen)
            assert gpu_benchmark.result.count == 50

        def test_collector(gpu_benchmark):
            seen = []
            gpu_benchmark(lambda: seen.append(gc.isenabled()))
            assert seen == [True, False]  # the first call is not measured
            assert gc.isenabled()
    """)
    switches = ("min-rounds=7", "max-time=0.5", "warmup=off", "precision=0.02", "disable-gc")
    project.check(*(f"--gpu-benchmark-{switch}" for switch in switches), passed=3)
    plain, marked, _ = project.calls()
    plain.pop("name")
    assert plain == {
        "mode": "auto",
        "cold_l2": False,
        "scopes": False,
        "warmup_s": 0.0,
        "max_time_s": 0.5,
        "rel_precision": 0.02,
        "min_samples": 30,  # as many as a verdict needs, where there is time for them
    }
    assert (marked["min_samples"], marked["max_time_s"]) == (50, 2)
    assert (marked["warmup_s"], marked["rel_precision"]) == (WARM_UP_S, 0.1)


def test_a_warm_up_that_is_on_is_the_usual_one() -> None:
    assert Options().warmup_s == WARM_UP_S


def test_min_rounds_are_taken_even_beyond_the_time(tmp_path: Path) -> None:
    import time

    from gpuprof._benchmark import api

    with api.prepare(time.sleep, (0.002,), warmup_s=0.0, max_time_s=0.001) as measurer:
        assert measurer.measure(3).count == 3
        assert measurer.measure().count == 1


WRONG = {
    "min-rounds=0": "expected a whole number of at least 1, got 0",
    "min-rounds=1.5": "expected a whole number of at least 1, got '1.5'",
    "max-time=-1": "expected a number above 0 and up to 86400, got -1.0",
    "max-time=nan": "expected a number above 0 and up to 86400, got nan",
    "max-time=1e300": "expected a number above 0 and up to 86400, got 1e+300",
    "precision=2": "expected a number above 0 and up to 1, got 2.0",
    "memory-threshold=200%": "expected a number from 0 to 1, got 2.0",
    "warmup=maybe": "expected one of 'on', 'off', 'auto', got 'maybe'",
    "sort=slowest": "expected one of 'min', 'max', 'mean',",
    "columns=min,best": "expected one of 'min', 'max', 'mean',",
    "columns=,": "expected one of 'min', 'max', 'mean',",
    "group-by=param:": "expected one of 'group', 'name',",
}


@pytest.mark.parametrize("option", WRONG)
@pytest.mark.parametrize("how", ["option", "ini key"])
def test_a_wrong_value_is_a_usage_error(project: Project, option: str, how: str) -> None:
    project.pytester.makepyfile(ONE_TEST)
    name, _, value = option.partition("=")
    ini = ("-o", f"gpu_benchmark_{name.replace('-', '_')}={value}")
    said = project.refuse(*([f"--gpu-benchmark-{option}"] if how == "option" else ini))
    assert f"--gpu-benchmark-{name}: {WRONG[option]}" in said.str()


def test_compare_without_a_name_takes_what_was_saved_last(project: Project) -> None:
    project.pytester.makepyfile(ONE_TEST)
    first = project.run("--gpu-benchmark-compare")
    assert first.ret == 0
    first.stdout.fnmatch_lines(["nothing to compare with: no baseline is saved in *.gpuprof yet"])
    project.save_runs(name="early")
    _set_created(project, "early", "2026-01-01T00:00:00+00:00")
    project.times(2.0)
    project.save_runs(name="late")
    for given in ("--gpu-benchmark-compare", "--gpu-benchmark-compare=@latest"):
        project.check(given, passed=1).fnmatch_lines(["compared with the baseline 'late': 1 SAME"])
    project.run("--gpu-benchmark-compare=early").assert_outcomes(failed=1)


def test_a_damaged_baseline_stops_a_comparison_with_the_latest(project: Project) -> None:
    project.pytester.makepyfile(ONE_TEST)
    project.save_runs()
    (file,) = (project.path / ".gpuprof").glob("baselines/main/*.jsonl")
    file.write_text("{", encoding="utf-8")
    said = project.refuse("--gpu-benchmark-compare")
    said.fnmatch_lines(["*--gpu-benchmark-compare: *cannot be used*"])


def _set_created(project: Project, name: str, created: str) -> None:
    for file in (project.path / ".gpuprof" / "baselines" / name).glob("*.jsonl"):
        text = re.sub(
            r'"created": "[^"]*", "commit"',
            f'"created": "{created}", "commit"',
            file.read_text(encoding="utf-8"),
        )
        file.write_text(text, encoding="utf-8")


def test_autosave_names_the_baseline_after_the_commit(project: Project) -> None:
    project.pytester.makepyfile(ONE_TEST)

    def git(*arguments: str) -> str:
        who = ("-c", "user.name=A", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
        command = ["git", *who, *arguments]
        return subprocess.check_output(command, cwd=project.path, text=True).strip()

    def names() -> list[str]:
        folder = project.path / ".gpuprof" / "baselines"
        return sorted(path.name for path in folder.iterdir())

    project.run("--gpu-benchmark-autosave").assert_outcomes(passed=1)
    (name,) = names()
    assert re.fullmatch(r"unversioned_\d{8}_\d{6}", name)
    git("init", "--quiet")
    git("add", "tox.ini")
    git("commit", "--quiet", "-m", "first")
    for _ in range(2):
        project.run("--gpu-benchmark-autosave").assert_outcomes(passed=1)
    commit = git("rev-parse", "HEAD")
    (runs,) = project.saved(commit).values()
    assert len(runs) == 2
    (project.path / "tox.ini").write_text("[pytest]\nminversion = 1\n", encoding="utf-8")
    project.run("-o", "gpu_benchmark_autosave=true").assert_outcomes(passed=1)
    (changed,) = set(names()) - {name, commit}
    assert re.fullmatch(rf"{commit}_\d{{8}}_\d{{6}}_uncommitted-changes", changed)
    project.run("--gpu-benchmark-autosave", "--gpu-benchmark-save=given")
    assert len(names()) == 4


def test_every_option_has_an_ini_key_and_help(project: Project) -> None:
    shown = project.run("--help").stdout.str()
    for option in OPTIONS:
        assert option.flag in shown
        assert f"{option.key} " in shown
    assert "--gpu-benchmark-netrc" not in shown


def test_the_page_has_every_option_and_argument_of_the_marker() -> None:
    page = (DOCS / "pytest.md").read_text(encoding="utf-8")
    marker, _, options = page.partition("## The marker")[2].partition("## Options")
    assert not [name for name in (*ARGUMENTS, *ALIASES) if f"`{name}" not in marker]
    assert not [each.name for each in OPTIONS if f"-{each.name}" not in options]


def test_workers_take_the_same_options(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    workers = ("-p", "xdist.plugin", "-p", "xdist.looponfail", "-n2")
    project.pytester.makepyfile(TESTS)
    project.save_runs()
    shown = project.check(
        *workers,
        "--gpu-benchmark-only",
        "--gpu-benchmark-compare",
        "--gpu-benchmark-columns=mean,baseline,verdict",
        "--gpu-benchmark-min-rounds=31",
        passed=1,
        skipped=2,
    )
    shown.fnmatch_lines(["benchmark * mean  baseline  verdict", "test_a * 1.00 ms * SAME"])
    (call,) = project.calls()
    assert call["min_samples"] == 31


def test_each_of_pytest_benchmarks_options_is_on_the_page(project: Project) -> None:
    pytest.importorskip("pytest_benchmark")
    shown = project.run("-p", "pytest_benchmark.plugin", "--help").stdout.str()
    theirs = set(re.findall(r"--benchmark-([a-z-]+)", shown))
    assert len(theirs) > 30
    page = (DOCS / "coming_from_pytest_benchmark.md").read_text(encoding="utf-8")
    table = page.partition("## The options")[2].partition("## The command")[0]
    for name in theirs:
        assert f"`{name}" in table or name.startswith("cprofile-"), name
    as_theirs = "min max mean stddev median iqr outliers ops rounds iterations name fullname"
    for name in {*COLUMNS, *SORT} - {*as_theirs.split()}:
        assert f"`{name}`" in table, name
