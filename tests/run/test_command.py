"""The options of ``gpuprof run``, the files that it writes, and wrong usage."""

from __future__ import annotations

import gzip
import html
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

import gpuprof
from tests.support.benchmark_results import answer
from tests.support.processes import SETUP_CUDA, run_command
from tests.support.programs import Ended, both, counts, measured, plain, rows, script

WORK = """
import sys
import gpuprof
for _ in range(3):
    with gpuprof.timer("work"):
        pass
if sys.argv[1:]:
    raise ValueError("wrong")
"""


@pytest.mark.parametrize("failing", [(), ("fail",)])
def test_the_trace_and_the_statistics_are_there_at_the_end(
    tmp_path: Path, failing: tuple[str, ...]
) -> None:
    name = script(tmp_path, WORK)
    done = measured(tmp_path, "-o", "t.json.gz", "--stats", "s.json", name, *failing, program=name)
    assert done.status == len(failing)
    assert counts(tmp_path / "s.json") == {"work": 3}
    with gzip.open(tmp_path / "t.json.gz", "rt") as file:
        events = json.load(file)["traceEvents"]
    assert sum(event.get("name") == "work" for event in events) == 3
    assert not list(tmp_path.glob("*.part"))
    assert "s.json" in done.report
    assert "t.json.gz" in done.report


def test_the_run_is_named_in_table_report_and_trace(tmp_path: Path) -> None:
    name = script(tmp_path, WORK.replace("if sys.argv[1:]:", "if False:"))
    done = measured(tmp_path, "-o", "t.json", "--html", "r.html", name, "a b", "--c", program=name)
    line = next(line for line in done.report.splitlines() if line.startswith("gpuprof: process "))
    version = platform.python_version()
    expected = f" on {platform.node()}: {name} 'a b' --c; Python {version}"
    assert line.endswith(expected)
    number = int(line.removesuffix(expected).removeprefix("gpuprof: process "))
    events = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))["traceEvents"]
    assert {event["pid"] for event in events} == {number}
    about = next(event["args"]["args"] for event in events if "args" in event.get("args", {}))
    assert about.pop("torch", None) == torch_version()
    assert about == {
        "process": number,
        "command": f"{name} 'a b' --c",
        "machine": platform.node(),
        "python": version,
    }
    page = html.unescape((tmp_path / "r.html").read_text(encoding="utf-8"))
    assert f"{line.removeprefix('gpuprof: ')}; in scopes " in page


def test_a_run_of_several_ranks_says_which_one_it_is(tmp_path: Path) -> None:
    name = script(tmp_path, "pass")
    for world_size, said in (("4", ", rank 2 of 4"), ("1", "")):
        done = measured(tmp_path, name, program=name, RANK="2", WORLD_SIZE=world_size)
        assert re.search(rf"^gpuprof: process \d+{said} on ", done.report, re.M)


def torch_version() -> str | None:
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None


def test_the_share_of_scopes_and_imports_is_said(tmp_path: Path) -> None:
    script(tmp_path, "import time, inner\ntime.sleep(0.2)\n", "outer.py")
    script(tmp_path, "import time\ntime.sleep(0.2)\n", "inner.py")
    code = """
    import time, gpuprof, outer
    for _ in range(2):
        with gpuprof.timer("a"), gpuprof.timer("b"):
            time.sleep(0.3)
    with gpuprof.timer("c"):
        time.sleep(0.1)
    """
    name = script(tmp_path, code)
    report = measured(tmp_path, name, program=name).report
    found = re.search(r"^gpuprof: in scopes (.+) ms of (.+) s; imports (.+) ms$", report, re.M)
    assert found is not None, report
    scopes, whole, imports = map(float, found.groups())
    assert 700 <= scopes < 1e3 * whole
    assert 400 <= imports < 1e3 * whole - scopes + 10  # which is rounded


def test_an_import_that_fails_has_the_traceback_that_it_has_without(tmp_path: Path) -> None:
    script(tmp_path, "import nothing_of_this_name\n", "missing.py")
    script(tmp_path, "raise ValueError('while it is imported')\n", "wrong.py")
    code = """
    import importlib, traceback
    for find in (__import__, importlib.import_module):
        for each in ("missing", "wrong"):
            try:
                find(each)
            except Exception:
                print(traceback.format_exc())
    import wrong
    """
    both(tmp_path, script(tmp_path, code))


def test_files_are_named_by_patterns_and_stay_where_the_run_began(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    name = script(tmp_path, WORK + "import os\nos.chdir('elsewhere')\n")
    done = measured(
        tmp_path,
        "-o",
        "t.%r.json",
        "--stats=s.%q{KIND}.json",
        name,
        program=name,
        RANK="2",
        KIND="x",
    )
    assert done.status == 0
    assert counts(tmp_path / "s.x.json") == {"work": 3}
    assert (tmp_path / "t.2.json").is_file()


def test_a_program_without_scopes_is_told_how_to_have_some(tmp_path: Path) -> None:
    name = script(tmp_path, "pass\n")
    done = measured(tmp_path, name, program=name)
    assert "gpuprof.timer" in done.report
    assert ("--scopes" in done.report) == (sys.version_info >= (3, 12))
    done = measured(tmp_path, name, program=name, GPUPROF_DISABLE="1")
    assert "GPUPROF_DISABLE is set" in done.report


def test_what_cannot_be_written_at_the_end_leaves_the_exit_code(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    name = script(tmp_path, WORK + "import shutil\nshutil.rmtree('folder')\nsys.exit(4)\n")
    done = measured(tmp_path, "--stats", "folder/s.json", name, program=name)
    assert done.status == 4
    assert "cannot write the statistics to" in done.report
    assert "No such file" in done.report


def test_a_trace_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "t.json")
    name = script(tmp_path, WORK)
    done = measured(tmp_path, "-o", "t.json", name, program=name)
    assert done.status == 0
    assert "cannot write the trace" in done.err
    assert "work" in done.report
    assert "the trace is" not in done.report


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing.py"], "can't open file 'missing.py': [Errno 2] No such file or directory"),
        (["--stats", "missing/s.json", "script.py"], "make that folder first"),
        (["-o", "missing/t.json", "script.py"], "make that folder first"),
        (["--stats", ".", "script.py"], "expected a file, got the folder"),
        (["--stats", "-", "script.py"], "standard output is the program's"),
        (["-o", "%x.json", "script.py"], "'%x' in '%x.json' is no pattern"),
        (["--watch", "-1", "script.py"], "expected a whole number from 0 to 100"),
        (["--watch", "many", "script.py"], "expected a whole number from 0 to 100"),
        (["--scopes", "", "script.py"], "expected a non-empty str"),
        (["--unknown", "script.py"], "unrecognized arguments: --unknown"),
        ([], "SCRIPT"),
        (["-m"], "SCRIPT"),
        (["-o"], "-o"),
    ],
)
def test_wrong_usage_ends_before_the_program_begins(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    script(tmp_path, "raise AssertionError('it ran')\n")
    monkeypatch.chdir(tmp_path)
    status, out, err = answer(capsys, "run", *arguments)
    assert (status, out) == (2, "")
    assert said in " ".join(err.split())


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="needs another Python version")
def test_an_older_python_refuses_before_the_program_begins(tmp_path: Path) -> None:
    done = measured(tmp_path, "--scopes", "x.*", script(tmp_path, "print(1)"), program="nobody")
    assert (done.status, done.out) == (2, "")
    assert "needs Python 3.12" in done.err


def test_a_module_that_is_not_there_is_said_as_python_says_it(tmp_path: Path) -> None:
    done = measured(tmp_path, "-m", "no_such_module", program="no_such_module")
    assert done.status == 1
    assert done.err == f"{sys.executable}: No module named no_such_module\n"


def test_options_end_at_the_name_of_the_program(tmp_path: Path) -> None:
    script(tmp_path, "import sys\nprint(sys.argv)\n", "-odd.py")
    done = measured(tmp_path, "--", "-odd.py", "--", "-h", program="-odd.py")
    assert (done.status, done.out) == (0, "['-odd.py', '--', '-h']\n")


def test_the_help_is_that_of_the_command(tmp_path: Path) -> None:
    done = measured(tmp_path, "--help", program="nobody")
    assert done.status == 0
    for option in ("--stats", "--html", "--watch", "--scopes", "-m"):
        assert option in done.out
    assert "%p (process)" in done.out
    assert "%%" not in done.out


def test_the_report_stands_after_what_the_program_printed(tmp_path: Path) -> None:
    name = script(tmp_path, WORK + "print('the last line')\n")
    out = tmp_path / "all.txt"
    with out.open("w") as file:
        done = subprocess.run(
            [sys.executable, "-m", "gpuprof", "run", name],
            cwd=tmp_path,
            stdout=file,
            stderr=subprocess.STDOUT,
            check=False,
        )
    assert done.returncode == 0
    text = out.read_text()
    assert text.index("the last line") < text.index("ran for")


def test_a_descriptor_takes_the_statistics_and_is_not_replaced(tmp_path: Path) -> None:
    name = script(tmp_path, WORK + "print('the last line')\n")
    out = tmp_path / "all.txt"
    with out.open("w") as file:
        done = subprocess.run(
            [sys.executable, "-m", "gpuprof", "run", "--stats", "/dev/stdout", name],
            cwd=tmp_path,
            stdout=file,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 0
    first, second = out.read_text().splitlines()
    assert first == "the last line"
    assert json.loads(second)["rows"][0]["path"] == "work"


def test_a_pipe_takes_the_statistics_and_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    name = script(tmp_path, WORK)
    done = measured(tmp_path, "--stats", "pipe", name, program=name)
    text = os.read(reader, 1 << 16)
    os.close(reader)
    assert done.status == 0
    assert json.loads(text)["rows"][0]["path"] == "work"
    assert (tmp_path / "pipe").is_fifo()


def test_a_relative_name_in_a_folder_that_is_gone_is_wrong_usage(tmp_path: Path) -> None:
    name = script(tmp_path, WORK)
    gone = tmp_path / "gone"
    gone.mkdir()
    leave = "import os, sys; os.rmdir(os.getcwd()); os.execv(sys.executable, sys.argv[1:])"
    command = [sys.executable, "-m", "gpuprof", "run", "--stats", "s.json", str(tmp_path / name)]
    done = run_command(sys.executable, "-c", leave, *command, cwd=gone)
    assert done.returncode == 2
    assert "'s.json' is relative, and the working directory is gone" in done.stderr


def _failed_on_a_gpu(folder: Path, driver: Path, body: str) -> Ended:
    root = Path(__file__).parents[2]
    setup = f"import sys\nsys.path.insert(0, {str(root)!r})\n{SETUP_CUDA}"
    name = script(folder, setup + body)
    files = ("-o", "t.json", "--stats", "s.json", "--html", "r.html")
    done = measured(folder, *files, name, program=name, GPUPROF_CUDA_DRIVER=str(driver))
    assert done.status == 1
    return done


def test_a_gpu_that_is_never_done_is_not_waited_for_after_a_failure(
    tmp_path: Path, fake_path: Path
) -> None:
    body = """
with gpuprof.timer("done", stream=stream):
    pass
fake.complete(stream)
with gpuprof.timer("hangs", stream=stream):
    fake.work(stream, 10**15)
raise ValueError("the program fails")
"""
    done = _failed_on_a_gpu(tmp_path, fake_path, body)
    assert "the program fails" in done.err
    found = rows(tmp_path / "s.json")
    assert found["done"]["gpu"]["count"] == 1
    assert found["hangs"]["pending"] == 1
    assert "1 pending" in (tmp_path / "r.html").read_text(encoding="utf-8")
    assert not (tmp_path / "t.json").exists()
    assert (tmp_path / "t.json.part").is_file()
    assert "t.json.part" in done.report


def test_after_a_broken_driver_what_was_read_before_is_there(
    tmp_path: Path, fake_path: Path
) -> None:
    body = """
with gpuprof.timer("good", stream=stream):
    fake.work(stream, 1000)
gpuprof.flush()
with gpuprof.timer("bad", stream=stream):
    fake.trap(stream)
    try:
        fake.stream_synchronize(stream)  # which tells the program
    except AssertionError:
        pass
raise ValueError("the program fails")
"""
    _failed_on_a_gpu(tmp_path, fake_path, body)
    found = rows(tmp_path / "s.json")
    assert found["good"]["gpu"]["count"] == 1
    assert found["bad"]["failed"] == 1
    assert "1 failed" in (tmp_path / "r.html").read_text(encoding="utf-8")
    assert (tmp_path / "t.json").is_file()


def test_a_torch_that_is_not_known_is_a_warning(tmp_path: Path) -> None:
    script(tmp_path, "get_default_dtype = nn = None\n", "torch.py")
    name = script(tmp_path, WORK + "import torch\nprint(torch.nn)\n")
    done = measured(tmp_path, name, program=name)
    assert (done.status, done.out) == (0, "None\n")
    assert done.err.count("torch has no scopes any more") == 1
    assert "work" in done.report


def test_report_and_ab_read_the_statistics(tmp_path: Path) -> None:
    name = script(tmp_path, WORK)
    assert measured(tmp_path, "--stats", "s.json", name, program=name).status == 0
    text = (tmp_path / "s.json").read_text(encoding="utf-8")
    assert gpuprof.Stats.from_json(text)["work"].host.count == 3
    done = plain(tmp_path, "-m", "gpuprof", "report", "s.json", "-o", "r.html")
    assert (done.status, "work" in (tmp_path / "r.html").read_text(encoding="utf-8")) == (0, True)
    command = f"{sys.executable} -m gpuprof run --stats {{out}} {name}"
    compare = ("ab", "--runs", "1", "--warmup", "0", "--format", "json", command, command)
    done = plain(tmp_path, "-m", "gpuprof", *compare)
    assert done.out.count('"work"') >= 1, done.err
