"""What surrounds a process: folders that are read-only, programs that it spawns."""

from __future__ import annotations

from pathlib import Path

from tests.support.processes import check_cuda, run_python
from tests.support.trace_events import names


def test_where_nothing_can_be_written_scopes_and_benchmarks_go_on_and_files_are_warned_of() -> None:
    # Nobody may make files in /sys, not even root.
    done = run_python(
        """
        import os
        os.chdir("/sys")
        import gpuprof
        with gpuprof.trace("t.json"), gpuprof.flight_recorder("f.json") as recorder:
            with gpuprof.timer("step", backend="cpu"):
                pass
            recorder.dump()
        gpuprof.benchmark(lambda: None, max_time_s=0.01)
        print(gpuprof.stats()["step"].host.count, os.listdir("/sys").count("t.json"))
        """,
        HOME="/sys",
        TMPDIR="/sys",
    )
    assert (done.returncode, done.stdout) == (0, "1 0\n"), done.stderr
    assert "cannot write the trace /sys/t.json" in done.stderr
    assert "a dump of the flight recorder failed" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_program_that_is_spawned_inherits_no_file_and_leaves_its_parents_trace_whole(
    fake_path: Path, tmp_path: Path
) -> None:
    child = """\
import os
print([path for fd in os.listdir("/proc/self/fd") if int(fd) > 2
       for path in [os.path.realpath(f"/proc/self/fd/{fd}")] if "t.json" in path])
import gpuprof
with gpuprof.timer("child", backend="cpu"):
    pass
print(list(gpuprof.stats()), flush=True)
"""
    out = check_cuda(
        fake_path,
        f"""
        import sys
        with gpuprof.trace({str(tmp_path / "t.json")!r}):
            with scope:
                pid = os.posix_spawn(sys.executable, [sys.executable, "-c", {child!r}], os.environ)
                print(os.waitpid(pid, 0)[1], flush=True)
        print(gpuprof.stats()["step"].gpu.count)
        """,
    )
    assert out.splitlines() == ["[]", "['child']", "0", "1"]
    written = names(tmp_path / "t.json")
    assert "step" in written
    assert "child" not in written
