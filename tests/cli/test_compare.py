"""``gpuprof compare``: what it reads, what it says, and above all how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from statistics import NormalDist
from typing import Any

import pytest

from gpuprof import BenchResult, Stats
from tests.cli.conftest import Call, refusal
from tests.support.benchmark_results import bench, saved
from tests.support.processes import environment

H200: dict[str, Any] = {"gpu": "NVIDIA H200", "sms": 132, "driver": "580.1"}
H100: dict[str, Any] = {"gpu": "NVIDIA H100", "sms": 132, "driver": "580.1"}
# What a run of normal noise looks like, without chance.
NOISE = [NormalDist().inv_cdf((place * 7 % 40 + 0.5) / 40) for place in range(40)]  # in no order


def result(
    name: str,
    ms: float,
    *,
    spread: float = 0.005,
    count: int = 40,
    machine: dict[str, Any] = H200,
) -> BenchResult:
    samples = [ms * (1 + spread * noise) for noise in NOISE[:count]]
    return bench(name, samples, machine=machine, created="2026-11-20T00:00:00+00:00")


def save(name: str, *results: BenchResult, day: int = 1) -> None:
    saved(name, f"2026-11-{day:02d}T00:00:00+00:00", *results)


@pytest.fixture
def _main() -> None:
    """The baseline 'main': five runs of two benchmarks."""
    for day in range(1, 6):
        save("main", result("add", 1.0), result("mul", 2.0), day=day)


@pytest.fixture
def compare(_main: None, call: Call) -> Call:
    return partial(call, "compare")


def table(text: str) -> dict[str, str]:
    """The verdicts by name."""
    body = text.partition("---\n")[2].partition("\n\n")[0]
    return {line.split()[0]: line.split()[-1] for line in body.splitlines()}


def as_json(compare: Call, *arguments: object) -> tuple[int, dict[str, Any]]:
    code, out, err = compare(*arguments, "--format", "json")
    assert err == ""

    def refuse(name: str) -> None:
        pytest.fail(f"{name} in JSON")

    return code, json.loads(out, parse_constant=refuse)


@pytest.mark.parametrize(
    ("ms", "verdict", "code"),
    [(1.0, "SAME", 0), (1.2, "SLOW", 1), (0.8, "FAST", 0), (1.048, "AMBIGUOUS", 0)],
)
def test_only_a_slow_down_fails(compare: Call, ms: float, verdict: str, code: int) -> None:
    save("new", result("add", ms), result("mul", 2.0))
    found, out, err = compare("main", "new")
    assert (found, err) == (code, "")
    assert table(out) == {"add": verdict, "mul": "SAME"}


def test_the_table_has_the_figures_and_the_rule_that_decided(compare: Call) -> None:
    save("new", result("add", 1.2), result("mul", 2.0))
    _, out, _ = compare("main", "new")
    (line,) = (line for line in out.splitlines() if line.startswith("add"))
    assert line.split()[1:6] == ["1.00", "ms", "1.20", "ms", "1.200"]
    (rule,) = (line for line in out.splitlines() if line.startswith("SLOW add: "))
    assert "20.0 % more" in rule
    assert "SAME mul:" not in out
    assert "base: baseline 'main' in .gpuprof (5 runs, last 2026-11-05T00:00:00+00:00)" in out
    assert "new: baseline 'new' in .gpuprof (1 run, 2026-11-01T00:00:00+00:00)" in out
    assert "1 slow, 1 same, geometric mean of the ratios 1.095" in out
    assert out.index("new: ") < out.index("---") < out.index("SLOW add: ") < out.index("1 slow, ")


@pytest.mark.parametrize(
    ("fail_on", "code"),
    [
        ("never", 0),
        ("slow", 1),
        ("ambiguous", 1),
        ("Slow, ambiguous", 1),
        ("incomparable", 0),
        ("nodata,incomparable", 0),
    ],
)
def test_fail_on_names_what_fails(compare: Call, fail_on: str, code: int) -> None:
    save("new", result("add", 1.2), result("mul", 2.096))
    assert compare("main", "new", "--fail-on", fail_on)[0] == code


@pytest.mark.parametrize("new", [[result("add", 1.0)], [result(n, 2.0) for n in ("mul", "div")]])
def test_a_name_of_one_side_is_listed_and_fails_as_nodata(
    compare: Call, new: list[BenchResult]
) -> None:
    save("new", *new)
    code, out, _ = compare("main", "new")
    assert code == 0
    missing = {"add", "mul"} - {each.name for each in new}
    assert f"note: only in base: {missing.pop()}\n" in out
    assert ("note: only in new: div\n" in out) == (len(new) == 2)
    assert compare("main", "new", "--fail-on", "nodata")[0] == 1


def test_a_threshold_can_be_given(compare: Call) -> None:
    save("new", result("add", 1.08))
    assert compare("main", "new", "--threshold", "5%")[0] == 1
    assert compare("main", "new", "--threshold", "0.05")[0] == 1
    assert compare("main", "new", "--threshold", "10 %")[0] == 0


def test_all_new_runs_count(compare: Call) -> None:
    for ms in (1.00, 1.02, 1.04):
        save("new", result("add", ms))
    _, found = as_json(compare, "main", "new")
    assert found["new"]["runs"] == 3
    (row,) = found["rows"]
    assert row["new_ms"] == pytest.approx(1.02)


def test_the_test_on_the_samples_is_corrected_for_the_number_of_rows(
    tmp_path: Path, compare: Call
) -> None:
    save("old", result("add", 1.0, spread=0.2))
    save("new", result("add", 1.18, spread=0.2))
    assert table(compare("old", "new")[1]) == {"add": "SLOW"}
    others = [result(f"other{place}", 1.0) for place in range(20)]
    save("old20", result("add", 1.0, spread=0.2), *others)
    save("new20", result("add", 1.18, spread=0.2), *others)
    assert table(compare("old20", "new20")[1])["add"] == "AMBIGUOUS"


def test_machines_are_compared_each_with_its_own(compare: Call) -> None:
    save("main", result("add", 3.0, machine=H100))
    save("new", result("add", 1.0))
    save("new", result("add", 4.0, machine=H100))
    code, found = as_json(compare, "main", "new")
    assert code == 1
    assert {row["machine"]: row["verdict"] for row in found["rows"]} == {
        "NVIDIA-H200": "same",
        "NVIDIA-H100": "slow",
    }
    _, out, _ = compare("main", "new")
    assert "SLOW add (NVIDIA-H100): " in out


def test_another_gpu_cannot_be_compared_and_ends_with_3(compare: Call) -> None:
    save("new", result("add", 1.0, machine=H100))
    code, out, _ = compare("main", "new")
    assert code == 3
    assert table(out) == {"add": "INCOMPARABLE"}
    assert "NVIDIA H200" in out.partition("INCOMPARABLE add: ")[2]
    assert compare("main", "new", "--fail-on", "incomparable")[0] == 1


def test_too_few_samples_end_with_3(compare: Call) -> None:
    save("new", result("add", 1.0, count=10))
    code, out, _ = compare("main", "new")
    assert code == 3
    assert table(out) == {"add": "NODATA"}


def test_nothing_in_common_ends_with_3(compare: Call) -> None:
    save("new", result("div", 1.0))
    code, out, _ = compare("main", "new")
    assert code == 3
    assert "nothing to compare" in out
    code, found = as_json(compare, "main", "new")
    assert code == 3
    assert (found["rows"], found["only_in_base"], found["only_in_new"]) == (
        [],
        ["add", "mul"],
        ["div"],
    )


def test_one_row_that_can_be_compared_is_enough(compare: Call) -> None:
    save("new", result("add", 1.0), result("mul", 2.0, count=10))
    assert compare("main", "new")[0] == 0


def test_a_changed_driver_is_a_note_once(compare: Call) -> None:
    machine = {**H200, "driver": "590.2"}
    save("new", *(result(n, ms, machine=machine) for n, ms in [("add", 1.0)]))
    _, out, _ = compare("main", "new")
    (note,) = (line for line in out.splitlines() if line.startswith("note: driver"))
    assert "580.1" in note
    assert "590.2" in note


def test_an_unknown_name_lists_those_that_exist(compare: Call) -> None:
    err = refusal(compare("main", "nwe"))
    assert err == (
        "gpuprof: 'nwe' is neither a file nor a baseline saved in .gpuprof (there: 'main')\n"
    )


def test_a_name_too_long_for_a_file_ends_with_2(compare: Call) -> None:
    assert "is neither a file nor a baseline" in refusal(compare("main", "a" * 300))


def test_without_a_storage_folder_it_says_so(compare: Call) -> None:
    err = refusal(compare("main", "new", "--storage", "elsewhere"))
    assert "saved in elsewhere (there: none)" in err


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("main",),
        ("main", "main", "--threshold", "5"),
        ("main", "main", "--threshold", "-1%"),
        ("main", "main", "--threshold", "nan"),
        ("main", "main", "--threshold", "much"),
        ("main", "main", "--storage", ""),
        ("main", "main", "--fail-on", "fast"),
        ("main", "main", "--fail-on", ""),
        ("main", "main", "--fail-on", "never,slow"),
        ("main", "main", "--format", "xml"),
    ],
)
def test_wrong_usage_ends_with_2(compare: Call, arguments: tuple[str, ...]) -> None:
    assert "usage: gpuprof compare" in refusal(compare(*arguments))


def session(*results: BenchResult) -> str:
    """What ``--gpu-benchmark-json`` writes, as far as it is read."""
    entries = [
        {"name": each.name, "fullname": each.name, "gpuprof": {"result": each.to_dict()}}
        for each in results
    ]
    return json.dumps({"version": "5", "benchmarks": entries})


def test_files_are_read_in_each_form(compare: Call, tmp_path: Path) -> None:
    Path("session.json").write_text(session(result("add", 1.3), result("mul", 2.0)))
    Path("add.json").write_text(result("add", 1.3).to_json())
    for new in ("session.json", "add.json", tmp_path / "add.json"):
        code, out, _ = compare("main", new)
        assert code == 1, new
        assert table(out)["add"] == "SLOW"


def test_a_saved_name_wins_over_a_file_of_that_name(compare: Call) -> None:
    Path("main").write_text("no JSON")
    assert compare("main", "main")[0] == 0
    assert compare("main", "./main")[0] == 2


def test_two_single_results_are_compared_whatever_they_are_called(compare: Call) -> None:
    Path("a.json").write_text(result("old kernel", 1.0).to_json())
    Path("b.json").write_text(result("new kernel", 1.3).to_json())
    code, out, _ = compare("a.json", "b.json")
    assert code == 1
    assert "note: the base is called 'old kernel', the new one 'new kernel'" in out
    assert "only in" not in out


def test_of_saved_statistics_it_says_to_save_benchmarks(compare: Call) -> None:
    Path("stats.json").write_text(Stats([]).to_json())
    for sides in (("main", "stats.json"), ("stats.json", "stats.json")):
        err = refusal(compare(*sides))
        assert "stats.json" in err
        assert "save benchmarks instead, with pytest --gpu-benchmark-save=NAME" in err


HOSTILE = {
    "not_json": "add: 1.0",
    "deep": "[" * 100_000,
    "other": '{"format": "gpuprof-trace", "version": 1}',
    "newer_result": result("add", 1.0).to_json().replace('"version": 1', '"version": 99'),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_file_that_is_none_of_ours_is_named_and_left_alone(compare: Call, what: str) -> None:
    path = Path(f"{what}.json")
    path.write_text(HOSTILE[what])
    for arguments in (("main", path), (path, "main"), (path, path)):
        err = refusal(compare(*arguments))
        assert err.startswith("gpuprof: ")
        assert str(path) in err
        assert len(err.splitlines()) == 1
    assert path.read_text() == HOSTILE[what]


def test_what_is_no_readable_file_ends_with_2(compare: Call) -> None:
    Path("folder.json").mkdir()
    os.mkfifo("fifo.json")
    Path("bytes.json").write_bytes(b"\xff\xfe{")
    for path in ("absent.json", "folder.json", "fifo.json", "bytes.json", "a\0b/c.json"):
        err = refusal(compare("main", path))
        assert len(err.splitlines()) == 1


def test_a_damaged_baseline_ends_with_2(compare: Call, tmp_path: Path) -> None:
    (path,) = (tmp_path / ".gpuprof" / "baselines" / "main").glob("*.jsonl")
    path.write_text("{")
    assert path.name in refusal(compare("main", "main"))


NASTY = "a|b <script>\x1b[31m\nx\u202e`*`"


@pytest.mark.parametrize("form", ["text", "markdown", "csv", "json"])
def test_names_cannot_steer_the_output(compare: Call, form: str) -> None:
    save("old", result(NASTY, 1.0), result(f"{NASTY}1", 1.0))
    save("new", result(NASTY, 1.3), result(f"{NASTY}2", 1.0))
    code, out, _ = compare("old", "new", "--format", form)
    assert code == 1
    assert "\x1b" not in out
    assert "\u202e" not in out
    if form == "markdown":
        assert "<script>" not in out
        assert all(line.count("|") == 8 for line in out.splitlines() if line.startswith("|"))
    if form == "json":
        assert json.loads(out)["rows"][0]["name"] == NASTY


def test_a_long_name_keeps_its_end(compare: Call) -> None:
    name = f"tests/{'deep/' * 20}test_kernels.py::test_add[float32]"
    save("old", result(name, 1.0))
    _, out, _ = compare("old", "old")
    assert "test_kernels.py::test_add[float32] " in out
    assert name not in out
    assert name in compare("old", "old", "--format", "json")[1]


def test_markdown_is_a_table(compare: Call) -> None:
    save("new", result("add", 1.2), result("mul", 2.0))
    code, out, _ = compare("main", "new", "--format", "markdown")
    assert code == 1
    assert "| benchmark | base | new | ratio | 95 % interval | floor | verdict |" in out
    assert "- SLOW add: " in out


@pytest.mark.usefixtures("_main")
def test_a_reader_that_goes_away_does_not_hide_a_slow_down() -> None:
    save("new", result("add", 1.3))
    with subprocess.Popen(
        [sys.executable, "-m", "gpuprof", "compare", "main", "new"],
        env=environment(None),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 1
