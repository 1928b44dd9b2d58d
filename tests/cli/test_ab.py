"""``gpuprof ab``: how commands are run in turns, what is read of them, and how it ends."""

from __future__ import annotations

import csv
import ctypes
import json
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gpuprof import BenchResult, Stats
from gpuprof.results import Launches, Row, Summary
from tests.cli.conftest import Call
from tests.support.benchmark_results import bench
from tests.support.processes import environment, run_command

GPU = {"gpu": "NVIDIA H200", "sms": 132}
COMMANDS = ("cp a.json {out}", "cp b.json {out}")


@pytest.fixture
def call(call: Call) -> Call:
    return partial(call, "ab")


def as_json(call: Call, *arguments: object) -> tuple[int, dict[str, Any]]:
    code, out, err = call(*arguments, "--format", "json")
    assert err == ""
    return code, json.loads(out)


def verdicts(found: dict[str, Any]) -> dict[str, str]:
    return {row["name"]: row["verdict"] for row in found["rows"]}


def save(path: str, *results: BenchResult) -> None:
    """Write what --gpu-benchmark-json would."""
    entries = [{"fullname": each.name, "gpuprof": {"result": each.to_dict()}} for each in results]
    Path(path).write_text(json.dumps({"benchmarks": entries}), encoding="utf-8")


def save_stats(path: str, **times_ms: float) -> None:
    nothing = Summary(0, *[0.0] * 8)
    rows = [
        Row(name, "cpu", nothing, Summary(5, 5 * ms, *[ms] * 7)) for name, ms in times_ms.items()
    ]
    Path(path).write_text(Stats(rows).to_json(), encoding="utf-8")


def test_the_slower_process_fails_by_its_wall_time(call: Call) -> None:
    code, out, err = call("true", "sleep 0.1", "--runs", 8, "--warmup", 0)
    assert (code, err) == (1, "")
    assert "SLOW wall time: takes" in out
    assert out.splitlines()[0] == "A: true (8 runs)"
    assert out.splitlines()[1] == "B: sleep 0.1 (8 runs)"


def test_a_speed_up_does_not_fail(call: Call) -> None:
    arguments = ("sleep 0.1", "true", "--runs", 8, "--warmup", 0, "--measure", "wall")
    code, found = as_json(call, *arguments)
    assert (code, verdicts(found)) == (0, {"wall time": "fast"})


def test_each_benchmark_of_the_files_has_its_verdict(call: Call) -> None:
    save("a.json", bench("add", [1.0] * 40), bench("mul", [2.0] * 40))
    save("b.json", bench("add", [1.0] * 40), bench("mul", [2.2] * 40))
    code, found = as_json(call, *COMMANDS, "--runs", 8)
    assert (code, found["measure"]) == (1, "json")
    assert verdicts(found) == {"add": "same", "mul": "slow"}
    assert found["times_ms"]["mul"] == {"A": [2.0] * 8, "B": [2.2] * 8}
    assert found["rows"][1]["ratio"] == pytest.approx(1.1)


def test_each_scope_of_saved_statistics_has_its_verdict(call: Call) -> None:
    save_stats("a.json", load=10.0, step=5.0)
    save_stats("b.json", load=8.0, step=6.0)
    code, found = as_json(call, *COMMANDS, "--runs", 8)
    assert (code, found["measure"]) == (1, "stats")
    assert verdicts(found) == {"load": "fast", "step": "slow"}


def test_memory_that_grew_fails(call: Call) -> None:
    result = bench("add", [1.0] * 40, memory={"peak_bytes": 10 << 20, "change_bytes": 0})
    save("a.json", result)
    save("b.json", replace(result, memory={"peak_bytes": 20 << 20, "change_bytes": 0}))
    code, out, _ = call(*COMMANDS, "--runs", 8)
    assert code == 1
    assert "MEMORY add: peak memory 10.0 MiB -> 20.0 MiB" in out
    assert "A memory" in out


def test_more_launches_fail(call: Call) -> None:
    result = bench("add", [1.0] * 40, machine={**GPU, "cpu": "Test CPU", "python": "3"})
    for path, kernels in (("a.json", 2), ("b.json", 3)):
        save(path, replace(result, launches=Launches({"gemm": kernels})))
    code, out, _ = call(*COMMANDS, "--runs", 8)
    assert code == 1
    assert "LAUNCHES add: launches more: +1 gemm, 2 -> 3 kernels" in out
    assert call(*COMMANDS, "--runs", 8, "--fail-on", "slow,memory")[0] == 0


def test_csv_has_a_line_for_each_name(call: Call) -> None:
    save("a.json", bench("add", [1.0] * 40), bench("old", [1.0] * 40))
    save("b.json", bench("add", [1.2] * 40))
    code, out, _ = call(*COMMANDS, "--runs", 8, "--format", "csv")
    add, old = csv.DictReader(out.splitlines())
    assert (code, add["name"], add["verdict"]) == (1, "add", "slow")
    assert float(add["ratio"]) == pytest.approx(1.2)
    assert (old["verdict"], old["rule"]) == ("nodata", "only in A")


def test_results_of_other_modes_are_not_compared(call: Call) -> None:
    save("a.json", bench("add", [1.0] * 40))
    save("b.json", bench("add", [9.0] * 40, mode="batched"))
    code, found = as_json(call, *COMMANDS, "--runs", 8)
    assert (code, verdicts(found)) == (3, {"add": "incomparable"})
    assert found["rows"][0]["rule"] == "the baseline has another mode: graph, not batched"


def test_names_that_one_side_lacks_are_listed(call: Call) -> None:
    save("a.json", bench("add", [1.0] * 40), bench("old", [1.0] * 40))
    save("b.json", bench("add", [1.0] * 40), bench("fresh", [1.0] * 40))
    code, out, _ = call(*COMMANDS, "--runs", 8)
    assert code == 0
    assert "note: only in A: old" in out
    assert "note: only in B: fresh" in out
    assert call(*COMMANDS, "--runs", 8, "--fail-on", "slow,nodata")[0] == 1


def test_sides_without_a_common_name_are_not_compared(call: Call) -> None:
    save("a.json", bench("old", [1.0] * 40))
    save("b.json", bench("fresh", [1.0] * 40))
    code, out, _ = call(*COMMANDS, "--runs", 1)
    assert code == 3
    assert "the two sides have no name in common" in out


def test_too_few_runs_have_no_verdict(call: Call) -> None:
    code, out, _ = call("true", "sleep 0.1", "--runs", 7, "--warmup", 0)
    assert code == 3
    assert "NODATA wall time, CPU time: 7 pairs of runs; a verdict needs 8" in out


def test_the_order_is_blocks_of_four_by_the_seed_that_is_shown(call: Call) -> None:
    _, found = as_json(call, "true", "true", "--runs", 9, "--warmup", 2, "--seed", 5)
    turns = found["order"]
    assert (found["seed"], len(turns), turns.count("A")) == (5, 18, 9)
    blocks = [turns[place : place + 4] for place in range(0, 18, 4)]
    assert {*blocks[:4]} == {"ABBA", "BAAB"}
    _, out, _ = call("true", "true", "--runs", 9, "--seed", 5)
    assert f"order: {' '.join(blocks)} (--seed 5)" in out


def log_of(tmp_path: Path) -> str:
    return (tmp_path / "log").read_text(encoding="utf-8")


def test_warm_up_runs_come_first_and_do_not_count(call: Call, tmp_path: Path) -> None:
    commands = [f"printf {side} >> {tmp_path}/log" for side in "AB"]
    _, found = as_json(call, *commands, "--shell", "--runs", 2, "--warmup", 2)
    assert log_of(tmp_path) == "ABAB" + found["order"]
    assert list(map(len, found["wall_s"].values())) == [2, 2]


@pytest.mark.parametrize("side", "AB")
def test_a_command_that_fails_is_shown_and_nothing_is_compared(call: Call, side: str) -> None:
    code = "import sys; print('the output'); sys.exit('the error')"
    bad = shlex.join([sys.executable, "-c", code])
    code, out, err = call(*((bad, "true") if side == "A" else ("true", bad)))
    assert (code, out) == (3, "")
    assert f"command {side} failed with exit code 1; nothing was compared" in err
    assert err.index("standard error:\n  the error") < err.index("standard output:\n  the output")


def test_a_command_that_fails_is_noticed_where_the_end_of_children_is_ignored() -> None:
    code = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN);"
    code += "os.execv(sys.executable, [sys.executable, '-m', 'gpuprof', 'ab', 'true', 'false'])"
    done = run_command(sys.executable, "-c", code)
    assert (done.returncode, done.stdout) == (3, "")
    assert "command B failed with exit code 1" in done.stderr


def test_a_command_that_fails_late_leaves_nothing_half_compared(call: Call, tmp_path: Path) -> None:
    late = f"printf x >> {tmp_path}/log; test $(wc -c < {tmp_path}/log) -lt 9"
    code, out, err = call("true", late, "--shell", "--warmup", 0, "--runs", 12)
    assert (code, out) == (3, "")
    assert "command B failed with exit code 1" in err


def test_a_command_that_dies_of_a_signal_names_it(call: Call) -> None:
    code, _, err = call("kill -SEGV $$", "true", "--shell")
    assert code == 3
    assert f"command A was ended by signal {int(signal.SIGSEGV)}" in err


def test_only_the_end_of_a_long_output_is_shown(call: Call) -> None:
    lines = "print(*range(200000), sep=chr(10)); raise SystemExit(2)"
    code, _, err = call(shlex.join([sys.executable, "-c", lines]), "true")
    assert code == 3
    assert "exit code 2" in err
    assert "199999" in err
    assert len(err.splitlines()) < 30


def test_a_run_that_takes_too_long_is_ended_with_its_children(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuprof._cli.ab_processes._GRACE_S", 0.05)
    stubborn = f"trap '' INT TERM; sleep 60 & echo $! > {tmp_path}/pid; wait; sleep 60"
    code, out, err = call(stubborn, "true", "--shell", "--timeout", "0.3")
    assert (code, out) == (3, "")
    assert "command A was ended after" in err
    assert "its time was up" in err
    assert gone(int((tmp_path / "pid").read_text()))


def gone(pid: int) -> bool:
    """Whether a process ends within some seconds; a zombie that init has not seen yet counts."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state in "ZX":
            return True
        time.sleep(0.01)
    return False


def test_what_a_run_leaves_behind_is_ended_before_the_next(call: Call, tmp_path: Path) -> None:
    code, _, err = call(
        f"sleep 60 & echo $! > {tmp_path}/pid", "true", "--shell", "--runs", 1, "--warmup", 0
    )
    assert (code, err) == (3, "")  # one pair is too few for a verdict
    assert gone(int((tmp_path / "pid").read_text()))


def test_what_has_left_the_process_group_is_ended_too(call: Call, tmp_path: Path) -> None:
    nested = f"echo $$ > {tmp_path}/pid; setsid sh -c 'echo $$ > {tmp_path}/inner; sleep 60' & wait"
    mine = subprocess.Popen(["sleep", "60"])
    left = f'setsid sh -c "{nested}" & while ! test -s {tmp_path}/inner; do sleep 0.01; done'
    code, _, err = call(left.replace("$$", "\\$\\$"), "true", "--shell", "--runs", 1, "--warmup", 0)
    assert (code, err) == (3, "")
    assert gone(int((tmp_path / "pid").read_text()))
    assert gone(int((tmp_path / "inner").read_text()))
    assert mine.poll() is None  # a child from before is not
    mine.kill()
    mine.wait()


def test_a_run_dies_with_gpuprof(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "gpuprof", "ab", "sh -c 'echo $$ > pid; exec sleep 60'", "true"],
        env=environment(None),
        stderr=subprocess.DEVNULL,
    )
    until = time.monotonic() + 60
    while not _has_text(tmp_path / "pid") and time.monotonic() < until:
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert gone(int((tmp_path / "pid").read_text()))


def _has_text(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGQUIT])
def test_a_signal_ends_the_run_and_reports_what_there_is(
    tmp_path: Path, number: signal.Signals
) -> None:
    count = f"printf x >> {tmp_path}/log; test $(wc -c < {tmp_path}/log) -lt 6 || "
    slow = f"{count} {{ echo $$ > {tmp_path}/pid; exec sleep 60; }}"
    arguments = ["ab", slow, "true", "--shell", "--warmup", "0", "--seed", "1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "gpuprof", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(None),
    )
    until = time.monotonic() + 60
    while not _has_text(tmp_path / "pid") and time.monotonic() < until:
        time.sleep(0.01)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (128 + number, "")
    assert f"stopped by signal {int(number)} after 5 pairs of runs" in out
    assert "NODATA wall time, CPU time: 5 pairs of runs; a verdict needs 8" in out
    assert gone(int((tmp_path / "pid").read_text()))


def test_handlers_and_who_adopts_orphans_are_put_back(call: Call) -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    before = [signal.getsignal(number) for number in numbers]
    call("true", "true", "--runs", 1, "--warmup", 0)
    assert [signal.getsignal(number) for number in numbers] == before
    is_subreaper = ctypes.c_int(1)
    assert ctypes.CDLL(None).prctl(37, ctypes.byref(is_subreaper), 0, 0, 0) == 0
    assert not is_subreaper.value


def test_folders_and_variables_differ_by_side(call: Call, tmp_path: Path) -> None:
    for side in "ab":
        (tmp_path / side).mkdir()
    command = f'echo "$(basename "$PWD") $SHARED $OWN" >> {tmp_path}/log'
    options = ["--cwd-a", "a", "--cwd-b", "b", "--env", "SHARED=1", "--env", "OWN=0"]
    options += ["--env-b", "OWN=b c"]
    call(command, command, "--shell", "--runs", 1, "--warmup", 0, "--seed", 1, *options)
    assert sorted(log_of(tmp_path).splitlines()) == ["a 1 0", "b 1 b c"]


@pytest.mark.parametrize("shell", [True, False])
def test_the_file_may_lie_in_a_folder_with_odd_characters(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: bool
) -> None:
    odd = tmp_path / "a 'b' $c"
    odd.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(odd))
    save("a.json", bench("add", [1.0] * 40))
    code, found = as_json(
        call, "cp a.json {out}", "cp a.json {out}", "--runs", 8, *["--shell"] * shell
    )
    assert (code, verdicts(found)) == (0, {"add": "same"})
    assert [*odd.iterdir()] == []


def test_the_variable_names_the_file_too(call: Call) -> None:
    save("a.json", bench("add", [1.0] * 40))
    command = 'cp a.json "$GPUPROF_AB_OUT"'
    code, found = as_json(call, command, command, "--shell", "--runs", 8)
    assert (code, verdicts(found)) == (0, {"add": "same"})
    code, found = as_json(call, command, command, "--shell", "--runs", 1, "--measure", "wall")
    assert [*verdicts(found)] == ["wall time"]


def test_a_file_of_an_earlier_run_is_not_read_again(call: Call, tmp_path: Path) -> None:
    save("a.json", bench("add", [1.0] * 40))
    once = f'test -e {tmp_path}/log || cp a.json "$GPUPROF_AB_OUT"; touch {tmp_path}/log'
    code, _, err = call(once, 'cp a.json "$GPUPROF_AB_OUT"', "--shell")
    assert code == 3
    assert "command A left no file, where the runs before it left a file of json" in err


def test_a_file_of_one_side_only_is_not_ignored(call: Call) -> None:
    save("b.json", bench("add", [1.0] * 40))
    code, out, err = call("true", COMMANDS[1])
    assert (code, out) == (3, "")
    assert "command B left a file of json, where the runs before it left no file" in err


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        (None, ["--measure", "json"], "--gpu-benchmark-json={out}"),
        (None, ["--measure", "stats"], "--stats {out}"),
        ("{", [], "cannot be used"),
        ('{"benchmarks": []}', [], "it holds no benchmark"),
        ('{"format": "gpuprof-stats", "version": 9}', [], "statistics cannot be read"),
        ('{"format": "gpuprof-stats", "version": 1}', [], "statistics cannot be read"),
        (
            '{"format": "gpuprof-stats", "version": 1, "unit": "ms", "created": "", "dropped": 0, '
            '"memory": [], "rows": []}',
            [],
            "nothing was measured",
        ),
        ('{"format": "gpuprof-stats"}', ["--measure", "json"], "left statistics of scopes"),
    ],
)
def test_what_cannot_be_read_is_said(
    call: Call, content: str | None, options: list[str], said: str
) -> None:
    command = "true"
    if content is not None:
        Path("a.json").write_text(content, encoding="utf-8")
        command = COMMANDS[0]
    code, out, err = call(command, command, *options)
    assert (code, out) == (3, "")
    assert said in err
    assert "command A cannot be read" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["no-such-program", "true"], "command A, 'no-such-program', cannot be started"),
        (["true", ""], "command B, '', cannot be split into words: it is empty"),
        (["true 'x", "true"], "No closing quotation"),
        (["true", "true", "--cwd-b", "nowhere"], "command B, 'true', cannot be started"),
        (["true", "true", "--runs", "0"], "expected a whole number"),
        (["true", "true", "--warmup", "-1"], "expected a whole number"),
        (["true", "true", "--max-time", "0"], "a number above 0"),
        (["true", "true", "--timeout", "nan"], "a number above 0"),
        (["true", "true", "--timeout", "1e300"], "a number above 0 and up to 86400"),
        (["true", "true", "--env", "X"], "NAME=VALUE"),
        (["true", "true", "--seed", "x"], "a whole number from 0"),
        (["true", "true", "--fail-on", "fast"], "expected never"),
        (["true"], "required"),
    ],
)
def test_wrong_usage_ends_with_two(call: Call, arguments: list[str], said: str) -> None:
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert said in err


def test_markdown_has_the_table_and_no_markup_of_the_commands(call: Call) -> None:
    save("a.json", bench("add", [1.0] * 40))
    _, out, _ = call("cp a.json {out}", "cp a.json {out} ", "--runs", 8, "--format", "markdown")
    assert "| benchmark | A | B | ratio | 95 % interval | floor | verdict |" in out
    assert "| add | 1.00 ms | 1.00 ms | 1.000 | 1.000 to 1.000 | 2.0 % | SAME |" in out


@pytest.mark.parametrize("command", ["ab", "compare"])
def test_it_needs_neither_numpy_nor_scipy(tmp_path: Path, command: str) -> None:
    save("a.json", bench("add", [1.0] * 40, machine=GPU))
    given = [*["cp a.json {out}"] * 2, "--runs", "8"] if command == "ab" else ["a.json"] * 2
    code = (
        "import sys; sys.modules['numpy'] = sys.modules['scipy'] = None\n"
        "import runpy; runpy.run_module('gpuprof', run_name='__main__')"
    )
    done = run_command(sys.executable, "-c", code, command, *given)
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 same" in done.stdout
