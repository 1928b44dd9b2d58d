"""Baselines in tests: what is saved, what is compared, and what fails a test."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pytest

from gpuprof._results import baselines, verdict
from gpuprof.errors import BaselineError
from tests.support.pytest_projects import COMPARE, TWO_TESTS, Project, marked

SAVE = "--gpu-benchmark-save=main"


@pytest.fixture
def stored(project: Project) -> Project:
    """A project with a baseline ``main`` of five runs of 1 ms."""
    project.pytester.makepyfile(test_it=TWO_TESTS)
    project.on_gpu(1.0)
    project.save_runs()
    return project


def test_saving_appends_a_run_under_the_gpus_name(stored: Project) -> None:
    ((machine, runs),) = stored.saved().items()
    assert machine == "Test-GPU"
    assert len(runs) == 5
    assert set(runs[0].results) == {"test_it.py::test_a", "test_it.py::test_b"}
    assert len(runs[0].results["test_it.py::test_a"].samples_ms) == 45


def test_unchanged_tests_pass_and_are_counted(stored: Project) -> None:
    shown = stored.check(COMPARE, passed=2)
    shown.fnmatch_lines(
        [
            "*gpu_benchmark: 2 benchmarks: Test GPU*",
            "*baseline *ratio *verdict",
            "test_a *1.00 ms *1.000 *SAME",
            "compared with the baseline 'main': 2 SAME",
        ]
    )
    assert len(stored.calls()) == 2


def test_without_comparing_nothing_is_judged(stored: Project) -> None:
    stored.on_gpu(9.0)
    shown = stored.check(SAVE, passed=2)
    assert "verdict" not in shown.str()


def test_the_test_that_got_slower_fails_and_says_by_how_much_and_why(stored: Project) -> None:
    stored.times(1.0, fields=stored.plan()["fields"], test_b=[1.5, 1.4])
    shown = stored.check(COMPARE, passed=1, failed=1)
    shown.fnmatch_lines(
        [
            "*_ test_b _*",
            "SLOW: 1.40 times the time of baseline 'main': 1.40 ms, was 1.00 ms",
            "*median *95 % interval *min *samples",
            "*baseline 'main' *1.00 ms *5 runs",
            "*now *1.50 ms *1.4* to 1.5* ms *45",
            "*measured again *1.40 ms *45",
            "*measured again *1.40 ms *45",
            "*ratio        1.400*95 % interval 1.3* to 1.4*",
            "*noise floor*5.0 %",
            "*decided by *takes 40.0 % more time: more than the noise floor of 5.0 %*",
            "*last saved *T*",
            "*measured     graph mode, CUDA event times, L2 hot, on Test GPU",
            "test_b *1.00 ms *1.4* *SLOW",
            "*: 1 SLOW, 1 SAME",
            "FAILED test_it.py::test_b - Failed: SLOW: 1.40 times*",
        ]
    )
    shown.no_fnmatch_line("*Traceback*")
    shown.no_re_match_line(r".*_pytest_\w+\.py")


def test_what_is_slow_only_once_does_not_fail(stored: Project) -> None:
    stored.times(1.0, fields=stored.plan()["fields"], test_b=[1.5, 1.0])
    stored.check(COMPARE, SAVE, passed=2).fnmatch_lines(["*: 1 SAME, 1 AMBIGUOUS"])
    names = [call["name"].rpartition("::")[2] for call in stored.calls()]
    assert names == ["test_a", "test_b", "test_b"]
    last = stored.saved()["Test-GPU"][-1].results["test_it.py::test_b"]
    assert last.median_ms == pytest.approx(1.0)


def test_a_failing_body_comes_first_and_its_time_is_not_saved(stored: Project) -> None:
    stored.pytester.makepyfile(test_it=f'{TWO_TESTS}    assert "the body" == "right"\n')
    stored.times(1.0, fields=stored.plan()["fields"], test_b=2.0)
    shown = stored.check(COMPARE, SAVE, "--gpu-benchmark-json=out.json", passed=1, failed=1)
    shown.fnmatch_lines(["*AssertionError*", "not saved, because the test did not pass: 1"])
    shown.no_fnmatch_line("*SLOW: *")
    assert set(stored.saved()["Test-GPU"][-1].results) == {"test_it.py::test_a"}
    outcomes = [each["gpuprof"]["outcome"] for each in stored.written()["benchmarks"]]
    assert outcomes == ["passed", "failed"]


def test_a_failing_teardown_keeps_the_time_out_too(project: Project) -> None:
    project.pytester.makepyfile("""
        import pytest

        @pytest.fixture
        def breaks():
            yield
            raise OSError

        def test_a(gpu_benchmark, breaks):
            gpu_benchmark(sum, [1])
    """)
    project.check(SAVE, passed=1, errors=1)
    assert not (project.path / ".gpuprof").exists()


def test_comparing_and_saving_compares_with_the_old_and_appends_the_new(stored: Project) -> None:
    stored.on_gpu(0.5)
    done = stored.run(COMPARE, SAVE)
    done.stdout.fnmatch_lines(
        ["compared with the baseline 'main': 2 FAST", "saved 2 in the baseline 'main': *.jsonl"]
    )
    medians = [run.results["test_it.py::test_a"].median_ms for run in stored.saved()["Test-GPU"]]
    assert medians == pytest.approx([1.0] * 5 + [0.5])


def test_slow_tests_are_not_saved(stored: Project) -> None:
    stored.on_gpu(2.0)
    stored.run(COMPARE, SAVE).assert_outcomes(failed=2)
    assert len(stored.saved()["Test-GPU"]) == 5


def test_never_lets_slow_tests_pass_and_says_so(stored: Project) -> None:
    stored.on_gpu(2.0)
    shown = stored.check(COMPARE, SAVE, "--gpu-benchmark-fail-on=never", passed=2)
    shown.fnmatch_lines(["*: 2 SLOW"])
    assert len(stored.calls()) == 2
    assert len(stored.saved()["Test-GPU"]) == 6


def test_a_change_within_the_noise_is_ambiguous_and_fails_where_asked(stored: Project) -> None:
    stored.on_gpu(1.04)
    stored.run(COMPARE).assert_outcomes(passed=2)
    shown = stored.check(COMPARE, "--gpu-benchmark-fail-on=slow,AMBIGUOUS", failed=2)
    shown.fnmatch_lines(["AMBIGUOUS: 1.04 times the time of baseline 'main'*"])


def test_a_new_test_passes_and_is_counted(stored: Project) -> None:
    stored.pytester.makepyfile(
        test_it=f"{TWO_TESTS}\ndef test_new(gpu_benchmark):\n    gpu_benchmark(sum, [1])\n"
    )
    stored.check(COMPARE, passed=3).fnmatch_lines(["test_new *NODATA", "*: 2 SAME, 1 NODATA"])
    shown = stored.check(COMPARE, "--gpu-benchmark-fail-on=nodata", passed=2, failed=1)
    shown.fnmatch_lines(["NODATA: a new benchmark: the baseline 'main' does not have it yet"])


def test_what_was_measured_otherwise_is_incomparable(stored: Project) -> None:
    stored.on_gpu(3.0, gpu="Other GPU")
    stored.check(COMPARE, passed=2).fnmatch_lines(["*: 2 INCOMPARABLE"])
    shown = stored.check(COMPARE, "--gpu-benchmark-fail-on=incomparable", failed=2)
    shown.fnmatch_lines(["INCOMPARABLE: *another GPU: Test GPU, not Other GPU"])


def test_a_changed_driver_is_noted_in_the_failure(stored: Project) -> None:
    stored.on_gpu(2.0, driver="2.0")
    done = stored.run(COMPARE)
    done.stdout.fnmatch_lines(["*note         driver changed: 1.0 in the baseline, now 2.0"])


def test_the_markers_threshold_counts(stored: Project) -> None:
    stored.pytester.makepyfile(test_it=marked("test_a", "threshold=0.5"))
    stored.on_gpu(1.3)
    stored.check(COMPARE, passed=1, failed=1).fnmatch_lines(["FAILED test_it.py::test_b*"])


def test_every_collected_benchmark_counts_as_a_comparison(
    stored: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    judge = verdict.judge

    def watched(*args: object, comparisons: int, **options: object) -> object:
        seen.append(comparisons)
        return judge(*args, comparisons=comparisons, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(verdict, "judge", watched)
    stored.run(COMPARE)
    assert seen == [2, 2]
    stored.run(COMPARE, "-k", "test_a")
    assert seen == [2, 2, 1]


def test_a_baseline_that_is_not_there_is_a_usage_error_that_lists_those_that_are(
    stored: Project,
) -> None:
    stored.save_runs(1, "other")
    said = stored.refuse("--gpu-benchmark-compare=mian")
    said.fnmatch_lines(
        ["*--gpu-benchmark-compare: no baseline is called 'mian' in *: there are main, other"]
    )


@pytest.mark.parametrize("option", ["save", "compare"])
def test_a_damaged_baseline_is_a_usage_error_and_stays_as_it_is(
    stored: Project, option: str
) -> None:
    (file,) = (stored.path / ".gpuprof").rglob("*.jsonl")
    file.write_text("{", encoding="utf-8")
    said = stored.refuse(f"--gpu-benchmark-{option}=main")
    said.fnmatch_lines([f"*--gpu-benchmark-{option}: *Test-GPU.jsonl, line 1 cannot*"])
    assert file.read_text(encoding="utf-8") == "{"


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--gpu-benchmark-fail-on=slow,wrong", "*expected never, or some of * got 'slow,wrong'"),
        ("--gpu-benchmark-fail-on=slow,never", "*expected never, or some of * got 'slow,never'"),
        ("--gpu-benchmark-fail-on=,", "*expected never, or some of * got ''"),
        ("--gpu-benchmark-save=a/b", "*--gpu-benchmark-save: a baseline cannot be called 'a/b'*"),
        ("--gpu-benchmark-json=.", "*--gpu-benchmark-json: expected a file, got the folder*"),
    ],
)
def test_options_that_cannot_be_followed_are_usage_errors(
    stored: Project, option: str, said: str
) -> None:
    stored.refuse(COMPARE, option).fnmatch_lines([said])


@pytest.mark.parametrize("option", ["save=other", "json=new/out.json"])
def test_a_folder_that_cannot_be_written_is_a_usage_error_before_anything_is_measured(
    stored: Project, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored.calls()
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write in any folder
    said = stored.refuse(f"--gpu-benchmark-{option}")
    said.fnmatch_lines([f"*--gpu-benchmark-{option[:4]}: the folder * cannot be written"])


def test_ini_keys_do_what_the_options_do(stored: Project, tmp_path_factory: object) -> None:
    stored.on_gpu(1.04)
    stored.pytester.makeini("""
        [pytest]
        gpu_benchmark_compare = main
        gpu_benchmark_save = other
        gpu_benchmark_storage = .gpuprof
        gpu_benchmark_json = sub/out.json
        gpu_benchmark_fail_on = ambiguous
    """)
    (stored.path / "deep").mkdir()
    stored.pytester.makepyfile(**{"deep/test_it": TWO_TESTS})
    stored.check("test_it.py", failed=2)
    assert len(stored.written("sub/out.json")["benchmarks"]) == 2
    stored.check("test_it.py", "--gpu-benchmark-fail-on=never", passed=2)
    assert list(stored.saved("other")) == ["Test-GPU"]


def test_why_there_is_no_verdict_stands_in_the_terminal(stored: Project) -> None:
    stored.on_gpu(1.04)
    shown = stored.check(COMPARE, passed=2)
    shown.fnmatch_lines(
        [
            "AMBIGUOUS *::test_a, *::test_b: takes 4.0 % more time: within the noise floor of "
            "5.0 % (the threshold with 5 baseline runs); 3.0 % more to 5.0 % more time is possible*"
        ]
    )
    stored.on_gpu(1.0, mode="batched")
    done = stored.run(COMPARE)
    done.stdout.fnmatch_lines(
        ["INCOMPARABLE *: the baseline has another mode: graph, not batched*"]
    )


@pytest.mark.parametrize("key", ["save", "fail_on"])
def test_an_ini_key_that_is_no_text_is_a_usage_error(project: Project, key: str) -> None:
    text = f'[tool.pytest.ini_options]\ngpu_benchmark_{key} = ["slow"]\n'
    (project.path / "pyproject.toml").write_text(text, encoding="utf-8")
    project.pytester.makepyfile(TWO_TESTS)
    with warnings.catch_warnings(record=True):  # newer releases of pytest warn of it too
        done = project.run("-c", "pyproject.toml")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines([f"*gpu_benchmark_{key}* expect*"])


def test_a_storage_folder_of_ones_own(project: Project, tmp_path: Path) -> None:
    project.pytester.makepyfile(TWO_TESTS)
    project.run(SAVE, "--gpu-benchmark-storage=kept/here").assert_outcomes(passed=2)
    assert (project.path / "kept" / "here" / "baselines" / "main").is_dir()
    assert not (project.path / ".gpuprof").exists()


def test_on_the_cpu_clock_results_are_kept_by_cpu_and_the_table_says_so(project: Project) -> None:
    project.pytester.makepyfile(TWO_TESTS)
    project.save_runs()
    assert list(project.saved()) == ["cpu-Test-CPU"]
    project.times(1.3)
    done = project.run(COMPARE)
    done.stdout.fnmatch_lines(
        ["*gpu_benchmark: 2 benchmarks on the CPU clock, no GPU time: Test CPU*", "*: 2 SLOW"]
    )
    project.times(1.04)
    project.run(COMPARE).assert_outcomes(passed=2)


def test_the_cpu_clock_has_the_same_baseline_where_the_process_uses_a_gpu(
    project: Project,
) -> None:
    project.pytester.makepyfile(TWO_TESTS)
    project.save_runs()
    project.on_gpu(1.0)
    fields = {**project.plan()["fields"], "mode": "cpu", "clock": "cpu", "l2": "n/a"}
    project.times(1.0, fields=fields)
    project.run(COMPARE).stdout.fnmatch_lines(["*: 2 SAME"])


@pytest.mark.parametrize(
    ("how", "status"),
    [
        ("raise KeyboardInterrupt", pytest.ExitCode.INTERRUPTED),
        ("pytest.exit('enough', returncode=0)", pytest.ExitCode.OK),
    ],
)
def test_a_run_that_was_cut_short_is_not_saved(
    project: Project, how: str, status: pytest.ExitCode
) -> None:
    project.pytester.makepyfile(f"""
        import pytest

        def test_a(gpu_benchmark):
            gpu_benchmark(sum, [1])

        def test_b():
            {how}
    """)
    done = project.run(SAVE, "--gpu-benchmark-json=out.json")
    assert done.ret == status
    done.stdout.fnmatch_lines(["nothing was saved: the run was cut short"])
    assert not (project.path / ".gpuprof").exists()
    assert len(project.written()["benchmarks"]) == 1


def test_a_run_without_benchmarks_is_not_said_to_be_cut_short(project: Project) -> None:
    done = project.run(SAVE, "--gpu-benchmark-json=out.json")
    assert done.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    done.stdout.no_fnmatch_line("*cut short*")


def test_stopping_at_the_first_failure_saves_what_passed(project: Project) -> None:
    project.pytester.makepyfile(f"{TWO_TESTS}\ndef test_c():\n    assert False\n")
    project.run("-x", SAVE).assert_outcomes(passed=2, failed=1)
    assert len(project.saved()["cpu-Test-CPU"][0].results) == 2


def test_a_baseline_that_cannot_be_written_fails_the_session(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        text = "the disk is full"
        raise BaselineError(text)

    project.pytester.makepyfile(TWO_TESTS)
    monkeypatch.setattr(baselines.Baselines, "append", full)
    done = project.run(SAVE)
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    done.stdout.fnmatch_lines(["the baseline 'main' was not saved: the disk is full"])


def test_groups_have_tables_of_their_own(project: Project) -> None:
    project.pytester.makepyfile(marked("test_a", "group='sums'"))
    done = project.run("-v")
    done.stdout.fnmatch_lines(
        [
            "benchmark *",
            "test_b *",
            "group sums",
            "benchmark *",
            "test_a *",
            "*: 45 samples",
            "* |#*",
        ]
    )


def test_warnings_of_measurements_are_below_the_table(project: Project) -> None:
    project.times(1.0, fields={"warnings": ["measured somehow else"]})
    project.pytester.makepyfile(TWO_TESTS)
    project.run().stdout.fnmatch_lines(["warning: measured somehow else"])
