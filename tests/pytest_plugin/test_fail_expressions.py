"""``--gpu-benchmark-compare-fail``: what is an expression, and which tests it fails."""

from __future__ import annotations

import pytest

from gpuprof._pytest.fail_expression import FailExpression
from tests.support.pytest_projects import Project, made_up

TESTS = """
def test_a(gpu_benchmark):
    gpu_benchmark(sum, [1])

def test_b(gpu_benchmark):
    gpu_benchmark(sum, [1])
"""
COMPARE = "--gpu-benchmark-compare=main"


@pytest.mark.parametrize(
    ("text", "limit", "is_relative"),
    [
        ("min:5%", 0.05, True),
        ("mean:0.001", 0.001, False),
        ("median:.5", 0.5, False),
        ("stddev:1e-6", 1e-6, False),
        ("iqr:2.5%", 0.025, True),
        ("max:100%", 1.0, True),
    ],
)
def test_what_pytest_benchmark_accepts_is_an_expression(
    text: str, limit: float, is_relative: bool
) -> None:
    found = FailExpression.parse(text)
    assert (found.field, found.limit) == (text.partition(":")[0], pytest.approx(limit))
    assert found.is_relative is is_relative


@pytest.mark.parametrize(
    "text", ["", "min", "min:", "min:x", "best:5%", "min:-1", "min:1e999", "min:5%%"]
)
def test_anything_else_is_an_error_that_says_what_is_expected(text: str) -> None:
    with pytest.raises(ValueError, match=r"^--gpu-benchmark-compare-fail: expected min\|max\|mean"):
        FailExpression.parse(text)


@pytest.mark.parametrize("text", ["min:5%", "max:5%", "mean:5%", "median:5%", "median:0.00005"])
def test_it_fails_above_the_limit_of_the_figure_in_both_results(text: str) -> None:
    expression, base = FailExpression.parse(text), [made_up(1.0), made_up(1.01)]
    slow, slower, same = made_up(1.2), made_up(1.3), made_up(1.01)
    field = text.partition(":")[0]
    found = expression.failure(base, [slower, slow], "main")
    assert found is not None
    assert found.startswith(f"REGRESSED: {field} is 1.")
    assert "above that of baseline 'main', 1." in found
    assert text in found
    assert expression.failure(base, [slow, same], "main") is None
    assert expression.failure(base, [same], "main") is None
    assert expression.failure(base, [made_up(0.5)], "main") is None


def test_a_baseline_of_zero_allows_nothing_above_it() -> None:
    expression = FailExpression.parse("stddev:50%")
    assert expression.failure([made_up(1.0, count=1)], [made_up(1.0, count=1)], "main") is None
    assert expression.failure([made_up(1.0, count=1)], [made_up(1.0)], "main") is not None


def test_the_test_that_regressed_fails_after_it_was_measured_again(project: Project) -> None:
    project.pytester.makepyfile(test_it=TESTS)
    project.save_runs()
    project.times(1.0, test_a=[1.3, 1.2], test_b=[1.3, 1.0])
    done = project.run(COMPARE, "--gpu-benchmark-compare-fail=min:10%")
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
    names = [call["name"].rpartition("::")[2] for call in project.calls()]
    assert names == ["test_a", "test_a", "test_b", "test_b"]


def test_expressions_compare_with_the_last_runs_of_a_trend_as_the_verdict_does(
    project: Project,
) -> None:
    project.pytester.makepyfile(TESTS)
    for place in range(12):
        project.times(1.0 + 0.1 * place)
        project.run("--gpu-benchmark-save=main").assert_outcomes(passed=2)
    project.times(2.1)  # 10 % above the median of the last five, and 35 % above that of all
    project.run(COMPARE, "--gpu-benchmark-compare-fail=min:15%").assert_outcomes(passed=2)
    project.run(COMPARE, "--gpu-benchmark-compare-fail=min:5%").assert_outcomes(failed=2)


def test_verdicts_fail_beside_expressions_only_if_they_are_named(project: Project) -> None:
    project.pytester.makepyfile(TESTS)
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
    project.pytester.makepyfile(TESTS)
    project.on_gpu(1.0)
    project.save_runs()
    project.on_gpu(9.0, gpu="Another GPU")
    expression = "--gpu-benchmark-compare-fail=min:1%"
    project.run(COMPARE, expression).assert_outcomes(passed=2)
    project.on_gpu(9.0)
    project.pytester.makepyfile(test_new=TESTS)
    project.run(COMPARE, expression, "test_new.py").assert_outcomes(passed=2)


def test_runs_of_another_mode_in_the_baseline_are_left_out(project: Project) -> None:
    project.pytester.makepyfile(TESTS)
    project.on_gpu(0.1, mode="isolated")
    project.save_runs(3)
    project.on_gpu(1.0)
    project.run("--gpu-benchmark-save=main").assert_outcomes(passed=2)
    project.run(COMPARE, "--gpu-benchmark-compare-fail=min:5%").assert_outcomes(passed=2)
    project.on_gpu(1.2)
    project.run(COMPARE, "--gpu-benchmark-compare-fail=min:5%").assert_outcomes(failed=2)


def test_without_something_to_compare_with_it_is_a_usage_error(project: Project) -> None:
    project.pytester.makepyfile(TESTS)
    for more, said in (
        ((), "give --gpu-benchmark-compare, too"),
        (("--gpu-benchmark-compare",), "no baseline is saved in"),
    ):
        done = project.run("--gpu-benchmark-compare-fail=min:5%", *more)
        assert done.ret == pytest.ExitCode.USAGE_ERROR
        done.stderr.fnmatch_lines([f"*compare-fail needs something to compare with: *{said}*"])
    done = project.run(COMPARE, "--gpu-benchmark-compare-fail", "min:5%", "tests")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["*--gpu-benchmark-compare-fail: expected min|max|*, got 'tests'"])
