"""Files that a user names: the commands replace earlier ones of their own, and nothing else."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import gpuprof
from tests.support.benchmark_results import answer
from tests.support.programs import measured, script

Call = Callable[..., tuple[int, str]]
FOREIGN = {
    "train.py": b"import gpuprof\nprint('it ran')\n",
    "noext": b"import gpuprof\n",
    "conf.json": b'{"format": "mine"}',
    "torch.json": b'{"schemaVersion": 1, "traceEvents": [{"ph": "B"}]}',
    "xla.json": b'{"displayTimeUnit":"ns","metadata":{},"traceEvents":[]}',
    "other.json.gz": gzip.compress(b'{"traceEvents": []}'),
    "page.html": b"<!DOCTYPE html>\n<p>gpuprof</p>",
    "plot.svg": b'<svg xmlns="http://www.w3.org/2000/svg"/>',
}


@pytest.fixture
def call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Call:
    """Run the command in a folder with files of others, and one trace and one file of statistics.

    Return its exit code and what it said.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GPUPROF_TRACE_OUT", raising=False)
    for name, content in FOREIGN.items():
        Path(name).write_bytes(content)
    Path("s.json").write_text(gpuprof.Stats({}).to_json())
    with gpuprof.trace("t.json"):
        gpuprof.mark("here")

    def run(*arguments: str) -> tuple[int, str]:
        code, out, err = answer(capsys, *arguments)
        return code, " ".join((out + err).split())

    return run


def files() -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in Path().iterdir() if each.is_file()}


OTHERS = "is there and is not"
SAME = "name another file"
SUFFIX = "expected a name that ends in"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("run --html train.py train.py conf.json", SAME),
        ("run --html ./../{here}/train.py train.py", SAME),
        ("run --stats link train.py", SAME),
        ("run -o hard train.py", SAME),
        ("run --html conf.json train.py conf.json", SUFFIX),
        ("run --stats conf.json train.py conf.json", OTHERS),
        ("run --stats t.json train.py", OTHERS),
        ("run -o conf.json train.py", OTHERS),
        ("run -o torch.json train.py", OTHERS),
        ("run -o xla.json train.py", OTHERS),
        ("run -o other.json.gz train.py", OTHERS),
        ("run -o s.json train.py", OTHERS),
        ("run -o noext train.py", OTHERS),
        ("run -o other.py train.py", SUFFIX),
        ("run --stats new.json.gz train.py", SUFFIX),
        ("run --html page.html train.py", OTHERS),
        ("run --html . train.py", "got the folder"),
        ("run -o new.json --stats new.json train.py", SAME),
        ("run -o new.json --stats folder/new.json train.py", SAME),
        ("run --stats %q{{NONE}}s.json -o folder/s.json train.py", OTHERS),
        ("report s.json -o s.json", SAME),
        ("report s.json -o conf.json", SUFFIX),
        ("report s.json -o page.html", OTHERS),
        ("history --svg train.py", SUFFIX),
        ("history --svg plot.svg", OTHERS),
        ("trace merge t.json -o torch.json", OTHERS),
        ("trace merge t.json -o train.py", SUFFIX),
        ("trace repair t.json -o conf.json", OTHERS),
        ("demo --steps 1 --trace conf.json", OTHERS),
        ("demo --steps 1 --trace %x", "is no pattern"),
    ],
)
def test_what_is_not_its_own_is_refused_before_the_start(
    call: Call, tmp_path: Path, arguments: str, said: str
) -> None:
    Path("link").symlink_to("train.py")
    Path("hard").hardlink_to("train.py")
    Path("folder").symlink_to(".")
    before = files()
    code, text = call(*arguments.format(here=tmp_path.name).split())
    assert (code, said in text) == (2, True), text
    assert "it ran" not in text
    assert files() == before


def test_the_trace_of_the_environment_is_an_output_too(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUPROF_TRACE_OUT", "x.json")
    code, text = call("run", "--stats", "x.json", "train.py")
    assert (code, "GPUPROF_TRACE_OUT" in text) == (2, True)


def test_its_own_files_are_replaced(call: Call) -> None:
    Path("empty.json").touch()  # as `mktemp` makes it
    for _ in range(2):
        assert call("trace", "repair", "t.json")[0] == 0  # into t.repaired.json
        assert call("trace", "repair", "t.repaired.json", "-o", "again.json")[0] == 0
        assert call("trace", "merge", "t.json", "-o", "m.json.gz")[0] == 0
        assert call("trace", "merge", "--no-align", "torch.json", "-o", "n.json")[0] == 0
        assert call("trace", "repair", "torch.json", "-o", "empty.json")[0] == 0
        assert call("report", "s.json", "-o", "r.html")[0] == 0
        assert call("demo", "--steps", "1", "--trace", "d.json")[0] == 0
    for arguments in (("-o", "t.json", "--stats", "s.json", "--html", "r.html"), ("-o", "d.json")):
        name = script(Path(), "import gpuprof\nwith gpuprof.timer('again'): pass\n", "again.py")
        assert measured(Path(), *arguments, name, program=name).status == 0
    assert all(b"again" in Path(name).read_bytes() for name in ("t.json", "s.json", "r.html"))


def test_devices_and_pipes_take_any_bytes(call: Call) -> None:
    os.mkfifo("pipe.py")
    reader = os.open("pipe.py", os.O_RDONLY | os.O_NONBLOCK)
    assert call("report", "s.json", "-o", "pipe.py")[0] == 0
    assert os.read(reader, 9) == b"<!DOCTYPE"
    os.close(reader)
    options = ("--stats", "/dev/null", "--html", "/dev/null")
    assert measured(Path(), *options, "train.py", program="train.py").status == 0
    assert call("trace", "merge", "t.json", "-o", "/dev/null")[0] == 0


def test_what_the_program_writes_meanwhile_stays(call: Call) -> None:
    code = "for name in ('t.json', 's.json', 'r.html'):\n    open(name, 'w').write('mine')\n"
    name = script(Path(), code, "writes.py")
    options = ("-o", "t.json", "--stats", "s.json", "--html", "r.html")
    done = measured(Path(), *options, name, program=name)
    assert done.status == 0
    assert all(Path(name).read_text() == "mine" for name in ("t.json", "s.json", "r.html"))
    assert (done.err + done.report).count(OTHERS) == 3
    assert Path("t.json.part").is_file()


def test_a_trace_replaces_no_file_of_somebody_else(call: Call) -> None:
    with pytest.warns(RuntimeWarning, match=f"cannot write the trace .*{OTHERS}"):
        with gpuprof.trace("conf.json"):
            gpuprof.mark("here")
    name = script(Path(), "import gpuprof\nwith gpuprof.timer('x'): pass\n", "scoped.py")
    done = measured(Path(), name, program=name, GPUPROF_TRACE_OUT="torch.json")
    assert OTHERS in done.err + done.report
    assert {each: files()[each] for each in FOREIGN} == FOREIGN
