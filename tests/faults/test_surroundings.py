"""What surrounds a process: filtered system calls, folders that are read-only, spawned programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.processes import check_cuda, check_python, run_python
from tests.support.trace_events import names

# A filter by which the kernel answers perf_event_open with an error, as containers' profiles do.
FORBID = """
import ctypes, os, struct
number = {"x86_64": 298, "aarch64": 241}[os.uname().machine]
rules = (0x20, 0, 0, 0), (0x15, 0, 1, number), (6, 0, 0, 0x50000 | %d), (6, 0, 0, 0x7FFF0000)
code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *rule) for rule in rules))
program = ctypes.create_string_buffer(struct.pack("@HP", len(rules), ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
assert libc.prctl(22, 2, program, 0, 0) == 0, ctypes.get_errno()  # PR_SET_SECCOMP
"""


@pytest.mark.parametrize(
    ("error", "said"), [(1, "a container's seccomp profile forbids it"), (38, "no perf_event_open")]
)
def test_where_counting_instructions_is_forbidden_the_time_is_measured_and_it_says_so(
    error: int, said: str
) -> None:
    out = check_python(
        FORBID % error
        + """
import gpuprof
result = gpuprof.benchmark(lambda: sum(range(100)), max_time_s=0.05)
print(result.median_ms > 0, result.instructions)
"""
    )
    assert out.startswith("True not counted: E")
    # Not where the level of the machine alone forbids it: that is what is said then.
    assert said in out or (error == 1 and "perf_event_paranoid is" in out)


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
