"""``--gpu-benchmark-compare-fail``: what is an expression, and which tests it fails."""

from __future__ import annotations

import pytest

from tests.support.pytest_projects import COMPARE, TWO_TESTS, Project


@pytest.fixture
def stored(project: Project) -> Project:
    """A project with a baseline of five runs of 1 ms."""
    project.pytester.makepyfile(test_it=TWO_TESTS)
    project.save_runs()
    return project


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("min:5%", "5.0 %"),
        ("max:5%", "5.0 %"),
        ("mean:0.00005", "50.0 µs"),
        ("median:.00005", "50.0 µs"),
        ("stddev:1e-7", "100 ns"),
        ("iqr:2.5%", "2.5 %"),
    ],
)
def test_it_fails_above_the_limit_of_the_figure_in_both_results(
    stored: Project, text: str, limit: str
) -> None:
    stored.times(1.0, test_a=[1.3, 1.2], test_b=[1.2, 1.0])
    done = stored.run(COMPARE, f"--gpu-benchmark-compare-fail={text}")
    done.assert_outcomes(failed=1, passed=1)
    field = text.partition(":")[0]
    said = f"REGRESSED: {field} is *, * above that of baseline 'main', *; {text} allows {limit}"
    done.stdout.fnmatch_lines([said])
    stored.times(0.5)
    stored.run(COMPARE, f"--gpu-benchmark-compare-fail={text}").assert_outcomes(passed=2)


@pytest.mark.parametrize(
    "text", ["min", "min:", "min:x", "best:5%", "min:-1", "min:1e999", "min:5%%"]
)
def test_anything_else_is_a_usage_error_that_says_what_is_expected(
    stored: Project, text: str
) -> None:
    done = stored.run(COMPARE, "--gpu-benchmark-compare-fail", text)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    expected = f"*--gpu-benchmark-compare-fail: expected min|max|mean|*, got '{text}'"
    done.stderr.fnmatch_lines([expected])


def test_a_baseline_of_zero_allows_nothing_above_it(project: Project) -> None:
    one = "def test_a(gpu_benchmark): gpu_benchmark.pedantic(sum, ([1],), rounds={})"
    options = (COMPARE, "--gpu-benchmark-compare-fail=stddev:50%")
    project.pytester.makepyfile(test_it=one.format(1))
    project.save_runs()
    project.run(*options).assert_outcomes(passed=1)
    project.pytester.makepyfile(test_it=one.format(40))
    project.run(*options).assert_outcomes(failed=1)


def test_the_test_that_regressed_fails_after_it_was_measured_again(stored: Project) -> None:
    stored.times(1.0, test_a=[1.3, 1.2], test_b=[1.3, 1.0])
    done = stored.run(COMPARE, "--gpu-benchmark-compare-fail=min:10%")
    done.assert_outcomes(failed=1, passed=1)
    done.stdout.fnmatch_lines(
        [
            "REGRESSED: min is 1.19 ms, 20.0 % above that of baseline 'main', 995 µs; min:10% "
            "allows 10.0 %",
            "*baseline 'main'*",
            "*measured again *",
            "FAILED *test_a - Failed: REGRESSED*",
        ]
    )
    names = [call["name"].rpartition("::")[2] for call in stored.calls()]
    assert names == ["test_a", "test_a", "test_b", "test_b"]


def test_expressions_compare_with_the_last_runs_of_a_trend_as_the_verdict_does(
    project: Project,
) -> None:
    project.pytester.makepyfile(TWO_TESTS)
    for place in range(12):
        project.times(1.0 + 0.1 * place)
        project.run("--gpu-benchmark-save=main").assert_outcomes(passed=2)
    project.times(2.1)  # 10 % above the median of the last five, and 35 % above that of all
    project.run(COMPARE, "--gpu-benchmark-compare-fail=min:15%").assert_outcomes(passed=2)
    project.run(COMPARE, "--gpu-benchmark-compare-fail=min:5%").assert_outcomes(failed=2)


def test_verdicts_fail_beside_expressions_only_if_they_are_named(project: Project) -> None:
    project.pytester.makepyfile(TWO_TESTS)
    project.save_runs()
    project.times(2.0)
    loose = "--gpu-benchmark-compare-fail=mean:0.1"
    done = project.run(COMPARE, loose)
    done.assert_outcomes(passed=2)
    done.stdout.fnmatch_lines(["compared with the baseline 'main': 2 SLOW"])
    project.run(COMPARE, loose, "--gpu-benchmark-fail-on=slow").assert_outcomes(failed=2)
    # Several expressions, in one option, in two, and in an ini file.
    both = ("--gpu-benchmark-compare-fail=max:0.1", "--gpu-benchmark-compare-fail=median:50%")
    project.run(COMPARE, *both).assert_outcomes(failed=2)
    key = "gpu_benchmark_compare_fail=max:0.1 median:50%"
    project.run(COMPARE, "-o", key).assert_outcomes(failed=2)


def test_new_tests_and_other_machines_are_not_checked(project: Project) -> None:
    project.pytester.makepyfile(TWO_TESTS)
    project.on_gpu(1.0)
    project.save_runs()
    project.on_gpu(9.0, gpu="Another GPU")
    expression = "--gpu-benchmark-compare-fail=min:1%"
    project.run(COMPARE, expression).assert_outcomes(passed=2)
    project.on_gpu(9.0)
    project.pytester.makepyfile(test_new=TWO_TESTS)
    project.run(COMPARE, expression, "test_new.py").assert_outcomes(passed=2)


def test_runs_of_another_mode_in_the_baseline_are_left_out(project: Project) -> None:
    project.pytester.makepyfile(TWO_TESTS)
    project.on_gpu(0.1, mode="isolated")
    project.save_runs(3)
    project.on_gpu(1.0)
    project.run("--gpu-benchmark-save=main").assert_outcomes(passed=2)
    project.run(COMPARE, "--gpu-benchmark-compare-fail=min:5%").assert_outcomes(passed=2)
    project.on_gpu(1.2)
    project.run(COMPARE, "--gpu-benchmark-compare-fail=min:5%").assert_outcomes(failed=2)


def test_without_something_to_compare_with_it_is_a_usage_error(project: Project) -> None:
    project.pytester.makepyfile(TWO_TESTS)
    for more, said in (
        ((), "give --gpu-benchmark-compare, too"),
        (("--gpu-benchmark-compare",), "no baseline is saved in"),
    ):
        done = project.run("--gpu-benchmark-compare-fail=min:5%", *more)
        assert done.ret == pytest.ExitCode.USAGE_ERROR
        done.stderr.fnmatch_lines([f"*compare-fail needs something to compare with: *{said}*"])
    done = project.run(COMPARE, "--gpu-benchmark-compare-fail", "min:5%", "tests")
    done.stderr.fnmatch_lines(["*--gpu-benchmark-compare-fail: expected min|max|*, got 'tests'"])
