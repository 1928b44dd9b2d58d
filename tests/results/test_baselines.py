"""Baselines: runs that are kept, files that are not trusted, and two writers at once."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from gpuprof import BenchResult
from gpuprof._common import machine as common_machine
from gpuprof._results import baselines, result_files
from gpuprof._results.baselines import Baselines, check_name
from gpuprof._results.git_store import opened
from gpuprof._results.result_files import Run, load_kind
from gpuprof.errors import BaselineError
from tests.support.benchmark_results import bench
from tests.support.processes import ROOT, environment, run_python
from tests.support.threads import in_threads

H200 = {"gpu": "NVIDIA H200", "cpu": "Some CPU", "driver": "580.1"}
A100 = H200 | {"gpu": "NVIDIA A100"}


def load_file(path: Path | str) -> Run:
    return load_kind(path)[1]


def result(name: str = "x", median: float = 1.0, **facts: Any) -> BenchResult:
    samples = [median + place / 1000 for place in range(30)]
    return bench(name, samples, **({"machine": H200} | facts))


def run(number: int = 0, machine: dict[str, Any] = H200) -> Run:
    created = f"2026-01-01T00:00:{number:02}+00:00"
    return Run(created, machine, {"x": result(created=created, machine=machine)}, f"c{number}")


@pytest.fixture
def store(tmp_path: Path) -> Baselines:
    return opened(tmp_path / "kept")


def damaged(store: Baselines, content: bytes) -> Path:
    """Return a baseline's file with these contents."""
    path = store.place(("main", "NVIDIA-H200"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_a_run_comes_back_as_it_was(store: Baselines) -> None:
    path = store.append("main", run(3))
    assert path == store.root / "baselines" / "main" / "NVIDIA-H200.jsonl"
    assert store.runs("main") == {"NVIDIA-H200": [run(3)]}
    (line,) = path.read_text(encoding="ascii").splitlines()
    assert json.loads(line)["results"]["x"]["samples_ms"] == list(result().samples_ms)


def test_each_kind_of_machine_has_its_file(store: Baselines) -> None:
    store.append("main", run(1))
    store.append("main", run(2, A100))
    store.append("main", run(3, {"gpu": None, "cpu": "Some CPU @ 2 GHz/x"}))
    found = store.runs("main")
    assert list(found) == ["NVIDIA-A100", "NVIDIA-H200", "cpu-Some-CPU-2-GHz-x"]
    assert found[common_machine.key(A100)] == [run(2, A100)]


def test_names_are_those_under_which_something_is_saved(store: Baselines) -> None:
    assert store.names() == []
    for name in ("main", "v1.2", "a-b_c"):
        store.append(name, run())
    (store.root / "baselines" / "empty").mkdir()
    (store.root / "baselines" / ".hidden").mkdir()
    (store.root / "baselines" / "file").write_text("", encoding="utf-8")
    assert store.names() == ["a-b_c", "main", "v1.2"]


def test_a_name_that_is_not_there_is_an_error_that_lists_those_that_are(store: Baselines) -> None:
    with pytest.raises(BaselineError, match=r"no baseline is called 'main' .*: there are none"):
        store.runs("main")
    store.append("nightly", run())
    store.append("v1", run())
    with pytest.raises(BaselineError, match=r"'main' .*: there are nightly, v1"):
        store.runs("main")
    assert store.names() == ["nightly", "v1"], "asking made nothing"


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../x",
        "a/b",
        "/abs",
        "a\\b",
        ".hidden",
        "-x",
        "a b",
        "a\n",
        "ä",
        "x" * 101,
        7,
    ],
)
def test_names_that_are_no_safe_file_names_are_refused(name: Any, store: Baselines) -> None:
    for use in (check_name, store.runs, lambda each: store.append(each, run())):
        with pytest.raises(ValueError, match="letters A to Z and a to z, digits"):
            use(name)
    assert not store.root.exists()


def test_names_that_are_safe_are_taken() -> None:
    for name in ("main", "v1.2.3", "2026-01-31", "A_b", "x" * 100):
        assert check_name(name) == name


GOOD = run(1).to_dict()


def changed(*path: Any, to: Any) -> bytes:
    """Return a good line with one member changed."""
    data = json.loads(json.dumps(GOOD))
    inner = data
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = to
    return json.dumps(data).encode()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b" ", "Expecting value"),
        (b"\xff\xfe", "utf-8"),
        (b"[]", "neither a run nor one that was dropped"),
        (b"{}", "neither a run nor one that was dropped"),
        (b'{"created": "2026", "results": {', "Expecting"),
        (json.dumps(GOOD).encode()[:-200], "Unterminated|Expecting"),
        (json.dumps(GOOD).encode() + b"more", "Extra data"),
        (b"[" * 100_000, "nested deeper than 32"),
        (b"[" * 40 + b"]" * 40, "nested deeper than 32"),
        (b'{"x": ' * 40 + b"1" + b"}" * 40, "nested deeper than 32"),
        (b"[NaN]", "NaN, which is no JSON"),
        (b"[1e999]", "too large"),
        (b"[" + b"9" * 5000 + b"]", r"4300|integer|neither a run"),
        (changed("more", to=1), "Run: 'more' is unknown"),
        (changed("created", to=7), "neither a run nor one that was dropped"),
        (changed("commit", to=[]), r"Run.commit: .*, got \[\]"),
        (changed("machine", to="H200"), "Run.machine: .*, got 'H200'"),
        (changed("results", to=[1]), "neither a run nor one that was dropped"),
        (changed("results", "x", to=3), r"results\['x'\]: expected what .*, got 3"),
        (changed("results", "x", "samples_ms", 4, to="fast"), r"\[4\]: .*, got 'fast'"),
        (changed("results", "x", "samples_ms", to=[]), "at least one sample"),
        (changed("results", "x", "mode", to="warp"), "mode: .*, got 'warp'"),
        (changed("results", "x", "version", to=9), "gpuprof-result"),
    ],
)
def test_a_damaged_file_is_named_with_what_is_wrong_and_left_as_it_is(
    content: bytes, says: str, store: Baselines
) -> None:
    content = b"\n".join([json.dumps(GOOD).encode(), content, json.dumps(GOOD).encode()])
    path = damaged(store, content)
    uses: list[Any] = [lambda: store.runs("main"), lambda: store.append("main", run(2))]
    for use in uses:
        with pytest.raises(BaselineError, match=says) as caught:
            use()
        assert str(caught.value).startswith(f"{path}, line 2 cannot be used: ")
        assert len(str(caught.value)) < 1000
    assert path.read_bytes() == content
    assert sorted(each.name for each in path.parent.iterdir()) == [".lock", path.name]


def test_a_file_over_the_size_is_refused_and_not_written(
    store: Baselines, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = store.append("main", run())
    one = path.stat().st_size
    monkeypatch.setattr(result_files, "MAX_BYTES", 3 * one)
    for number in range(5):
        store.append("main", run(number))
    assert path.stat().st_size <= 3 * one
    assert [each.commit for each in store.runs("main")["NVIDIA-H200"]] == ["c2", "c3", "c4"]
    monkeypatch.setattr(result_files, "MAX_BYTES", one // 2)
    with pytest.raises(BaselineError, match="larger than"):
        store.runs("main")
    with pytest.raises(BaselineError, match="a run is larger than"):
        store.append("other", run())


def test_a_file_of_many_short_lines_takes_no_more_memory_than_others(
    store: Baselines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_files, "MAX_BYTES", 4 << 20)
    damaged(store, b"12\n" * (1 << 20))
    for use in (lambda: store.runs("main"), lambda: store.append("main", run())):
        tracemalloc.start()
        try:
            with pytest.raises(BaselineError, match="line 1 cannot be used"):
                use()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 16 << 20


@pytest.mark.timeout(20)
def test_what_is_no_regular_file_is_refused_without_waiting_for_it(store: Baselines) -> None:
    path = damaged(store, b"")
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(BaselineError, match="not a regular file"):
        store.runs("main")
    path.unlink()
    path.mkdir()
    with pytest.raises(BaselineError, match=r"not a regular file|directory"):
        store.append("main", run())
    with pytest.raises(BaselineError, match="cannot be read"):
        load_file(store.root / "absent.json")
    with pytest.raises(BaselineError, match="cannot be read"):
        load_file("a\0b")


def test_nothing_outside_is_written_through_links(store: Baselines, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("mine", encoding="utf-8")
    path = store.append("main", run())
    path.unlink()
    path.symlink_to(secret)
    with pytest.raises(BaselineError):
        store.append("main", run())
    path.unlink()
    lock = path.parent / ".lock"
    lock.unlink()
    lock.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BaselineError, match="cannot be written"):
        store.append("main", run())
    assert secret.read_text(encoding="utf-8") == "mine"
    assert not (tmp_path / "elsewhere").exists()


def test_a_write_that_fails_leaves_the_old_file_alone(
    store: Baselines, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = store.append("main", run(1))
    before = path.read_bytes()

    def full(_file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BaselineError, match="cannot be written: No space left"):
        store.append("main", run(2))
    assert path.read_bytes() == before
    assert sorted(each.name for each in path.parent.iterdir()) == [".lock", path.name]


def test_a_root_that_is_a_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("", encoding="utf-8")
    with pytest.raises(BaselineError, match="kept"):
        opened(tmp_path / "kept").append("main", run())


def test_the_permissions_of_a_file_are_kept(store: Baselines) -> None:
    path = store.append("main", run(1))
    path.chmod(0o664)
    store.append("main", run(2))
    assert path.stat().st_mode & 0o777 == 0o664


def test_a_baseline_that_is_a_link_stays_one(store: Baselines, tmp_path: Path) -> None:
    path = store.append("main", run(1))
    kept = tmp_path / "kept.jsonl"
    path.rename(kept)
    kept.chmod(0o640)
    path.symlink_to(kept)
    store.append("main", run(2))
    assert path.is_symlink()
    assert kept.stat().st_mode & 0o777 == 0o640
    assert store.runs("main") == {"NVIDIA-H200": [run(1), run(2)]}
    assert sorted(each.name for each in path.parent.iterdir()) == [".lock", path.name]


APPEND = """
import sys
from gpuprof._results.git_store import opened
from tests.results.test_baselines import run
store = opened(sys.argv[1])
print("ready", flush=True)
for number in range(int(sys.argv[2])):
    store.append("main", run(number))
"""


def _appender(store: Baselines, count: int) -> subprocess.Popen[str]:
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n" + textwrap.dedent(APPEND)
    return subprocess.Popen(
        [sys.executable, "-c", code, str(store.root), str(count)],
        env=environment(None),
        stdout=subprocess.PIPE,
        text=True,
    )


def test_two_processes_that_append_at_once_lose_nothing(store: Baselines) -> None:
    count = baselines.KEPT_RUNS // 2
    children = [_appender(store, count) for _ in range(2)]
    assert [child.wait(60) for child in children] == [0, 0]
    for child in children:
        child.communicate()
    kept = store.runs("main")["NVIDIA-H200"]
    assert sorted(each.commit or "" for each in kept) == sorted(
        f"c{number}" for number in [*range(count), *range(count)]
    )


def test_threads_that_append_at_once_lose_nothing(store: Baselines) -> None:
    in_threads(*[lambda: [store.append("main", run(n)) for n in range(4)]] * 4)
    assert len(store.runs("main")["NVIDIA-H200"]) == 16


def test_a_kill_in_the_middle_leaves_a_whole_file_and_no_lock(store: Baselines) -> None:
    for delay in (0.0, 0.003, 0.01, 0.03):
        child = _appender(store, 1000)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(delay)
        child.send_signal(signal.SIGKILL)
        child.communicate()
        assert child.returncode == -signal.SIGKILL
        path = store.append("main", run(59))
        assert store.runs("main")["NVIDIA-H200"][-1] == run(59)
        assert sorted(each.name for each in path.parent.iterdir()) == [".lock", path.name]


def test_what_a_killed_writer_left_behind_is_never_read_and_removed(store: Baselines) -> None:
    code = f"""
        import os
        from pathlib import Path
        from gpuprof._results.git_store import opened
        from tests.results.test_baselines import run
        Path.replace = lambda *_: os.kill(os.getpid(), 9)
        store = opened({str(store.root)!r})
        store.append("main", run(2))
    """
    path = store.append("main", run(1))
    assert run_python(code).returncode == -signal.SIGKILL
    left = [each.name for each in path.parent.iterdir() if each.name.endswith(".tmp")]
    assert len(left) == 1
    assert store.runs("main") == {"NVIDIA-H200": [run(1)]}
    store.append("main", run(3))
    assert store.runs("main") == {"NVIDIA-H200": [run(1), run(3)]}
    assert sorted(each.name for each in path.parent.iterdir()) == [".lock", path.name]


def test_a_lock_that_stays_taken_is_an_error_in_the_end(
    store: Baselines, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = store.append("main", run(1))
    monkeypatch.setattr(baselines, "LOCK_TIMEOUT_S", 0.05)
    with (path.parent / ".lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(BaselineError, match="locked by another process"):
            store.append("main", run(2))
    store.append("main", run(2))
    assert len(store.runs("main")["NVIDIA-H200"]) == 2


def test_a_single_result_is_a_file_of_one_run(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    one = result("kernel", created="2026-01-01", machine=A100)
    path.write_text(one.to_json(), encoding="utf-8")
    assert load_file(str(path)) == Run("2026-01-01", A100, {"kernel": one})


def _session(**entry: Any) -> dict[str, Any]:
    own = {"result": result(created="2026-01-02").to_dict(), "decision": None}
    benchmark = {"name": "test_x", "fullname": "tests/test_a.py::test_x", "gpuprof": own} | entry
    return {"benchmarks": [benchmark], "commit_info": {"id": "abc"}, "format_version": 1}


def test_a_sessions_file_is_a_run_by_the_full_names_of_the_tests(tmp_path: Path) -> None:
    path = tmp_path / "session.json"
    path.write_text(json.dumps(_session()), encoding="utf-8")
    expected = {"tests/test_a.py::test_x": result(created="2026-01-02")}
    assert load_file(path) == Run("2026-01-02", H200, expected, "abc")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (_session(gpuprof=None), "gpuprof did not measure it"),
        (_session(gpuprof={"result": 1}), r"benchmarks\[0\].gpuprof.result: .*, got 1"),
        (_session() | {"benchmarks": []}, "holds no benchmark"),
        (_session() | {"benchmarks": [1]}, r"benchmarks\[0\] has no object"),
        (_session() | {"format_version": 2}, "format_version: .*, got 2"),
        ({"format": "gpuprof-stats"}, "statistics of scopes.*: save benchmarks instead"),
        ({"format": ["gpuprof-stats"]}, "neither a file of"),
        (7, "neither a file of"),
    ],
)
def test_other_files_are_refused_with_what_they_are(data: Any, says: str, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(BaselineError, match=says):
        load_file(path)


def test_a_machine_with_odd_facts_can_be_saved(store: Baselines) -> None:
    odd = H200 | {"clock": float("nan"), "path": Path("/x"), "nested": {"list": (1, 2.5, None)}}
    store.append("main", Run("now", odd, {"x": result()}))
    (found,) = store.runs("main")["NVIDIA-H200"]
    assert found.machine == H200 | {
        "clock": None,
        "path": "/x",
        "nested": {"list": [1, 2.5, None]},
    }
