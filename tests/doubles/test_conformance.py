"""The fake driver answers what the real one answered, row for row, and the real one still does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance import build as conformance_build
from tests.conformance import golden
from tests.fake_driver.own import exported_entry_points
from tests.gpu.support.alone import needs_the_gpu_alone
from tests.support.processes import run_command

# The most that may rest on nothing but the fake's own word.
LARGEST_UNRECORDED_SHARE = 0.15
FAKE_ENVIRONMENT = {"FAKECUDA_CONFIG": "reuse=1", "FAKECUDA_SCRIPT": ""}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return conformance_build.build(tmp_path_factory.mktemp("conformance"))


def answers(program: Path, library: Path | str) -> tuple[golden.Recording, str]:
    """Return what a driver answers to every case, and what it said on stderr."""
    done = run_command(program, library, timeout=250, **FAKE_ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    return golden.parse(done.stdout), done.stderr


@pytest.fixture(scope="module")
def fake_answers(program: Path, fake_path: Path) -> tuple[golden.Recording, str]:
    return answers(program, fake_path)


def test_the_fake_answers_every_recorded_row(
    fake_answers: tuple[golden.Recording, str],
) -> None:
    actual = golden.expressed(fake_answers[0])
    expected = golden.expressed(golden.recorded())
    assert sum(map(len, expected.values())) > 900
    assert golden.differences(expected, actual) == []


def test_every_crash_on_the_fake_says_which_call_was_misused(
    fake_answers: tuple[golden.Recording, str],
) -> None:
    recording, stderr = fake_answers
    crashes = sum("SIGNAL" in row or "sig 11" in row for rows in recording.values() for row in rows)
    reports = stderr.splitlines()
    assert crashes >= 10
    assert len(reports) == crashes
    assert all(report.startswith("FAKECUDA MISUSE cu") for report in reports)


def test_every_entry_point_of_the_fake_has_a_recorded_row(
    fake_path: Path,
) -> None:
    with_rows = {symbol for symbol, _ in golden.rules(golden.expressed(golden.recorded()))}
    assert exported_entry_points(fake_path) - with_rows == set()


def test_few_rules_of_the_fake_rest_on_its_own_word(capsys: pytest.CaptureFixture[str]) -> None:
    known = golden.rules(golden.expressed(golden.recorded()))
    unrecorded = golden.fake_only()
    with capsys.disabled():
        print(f"\nfake driver: {len(known)} recorded rules, {len(unrecorded)} of its own")
    assert unrecorded & known == set(), "recorded by now; take it out of FAKE_ONLY.txt"
    assert len(unrecorded) / len(known | unrecorded) < LARGEST_UNRECORDED_SHARE


def test_every_exception_still_covers_a_recorded_row() -> None:
    recorded = golden.recorded()
    unused = [
        exception
        for exception in golden.not_expressed()
        if not any(exception.covers(exception.case, row) for row in recorded[exception.case])
    ]
    assert unused == []


@needs_the_gpu_alone
@pytest.mark.gpu
def test_the_real_driver_answers_every_recorded_row(program: Path) -> None:
    actual = answers(program, "libcuda.so.1")[0]
    # The program asks nothing of what the fake does not express.
    cases = set(golden.expressed(golden.recorded()))
    recorded = {case: rows for case, rows in golden.recorded().items() if case in cases}
    found = golden.differences(golden.defined(recorded), golden.defined(actual))
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("  ms=20.0166721", "  ms=22.5"),
        ("  ms=20.0166721", "  ms=-20.0166721"),
        ("  v1 vs v2: 0.00128 0.00128", "  v1 vs v2: 0.00128 0.00125"),
        ("  cuEventQuery(e) -> 0 SUCCESS", "  cuEventQuery(e) -> 600 ERROR_NOT_READY"),
        ("  nodes=1 types: 0", "  nodes=2 types: 0 0"),
        ("  ids 13 14 null=7", "  ids 13 15 null=7"),
    ],
)
def test_rows_that_differ_compare_unequal(one: str, other: str) -> None:
    assert golden.normalised(one) != golden.normalised(other)


def test_a_missing_row_and_a_missing_case_are_differences() -> None:
    expected = {"a": ["one", "two"], "b": []}
    assert len(golden.differences(expected, {"a": ["one"]})) == 2
    assert golden.differences(expected, {**expected, "c": []}) == ["c: never recorded"]
