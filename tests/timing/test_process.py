"""Scopes and the process around them: exit, signals, the interpreter's lock, subinterpreters."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.processes import SETUP_CUDA, check_cuda, check_python, run_python

DROP_AT_EXIT = """
if WHAT == "graphs":
    def make():
        with gpuprof.capture(stream) as cap:
            fake.work(stream, 500)
        return cap.graph
else:
    def make():
        return _core.DeviceBuffer(64)
objects = [make() for _ in range(400)]
def drop():
    fake.set_current(context)
    while objects:
        objects.pop()
for _ in range(4):
    threading.Thread(target=drop, daemon=True).start()
until = time.monotonic() + DELAY
while time.monotonic() < until:
    pass
"""


@pytest.mark.parametrize("what", ["graphs", "buffers"])
def test_daemon_threads_that_drop_what_is_freed_without_the_lock_do_not_abort(
    fake_path: Path, what: str
) -> None:
    for number in range(8):
        check_cuda(fake_path, f"WHAT, DELAY = {what!r}, {0.02 + 0.003 * number}\n{DROP_AT_EXIT}")


def test_daemon_threads_waiting_at_exit_do_not_abort(fake_path: Path) -> None:
    for _ in range(10):
        done = run_python(
            SETUP_CUDA
            + """
fake.configure("mode=manual")
fake.work(stream, 10**12)
def wait():
    with gpuprof.timer("daemon", stream=stream) as sample:
        pass
    sample.ms
for _ in range(8):
    threading.Thread(target=wait, daemon=True).start()
time.sleep(0.05)
""",
            driver=fake_path,
        )
        assert (done.returncode, done.stderr) == (0, "")


READ_AT_EXIT = """
def read():
    fake.set_current(context)
    with scope:
        pass
    while True:
        gpuprof.stats()
for _ in range(2):
    threading.Thread(target=read, daemon=True).start()
time.sleep(0.03)
"""


def test_daemon_threads_that_read_statistics_at_exit_do_not_abort(fake_path: Path) -> None:
    for _ in range(8):
        check_cuda(fake_path, READ_AT_EXIT)


def test_ctrl_c_ends_a_wait_and_leaves_the_sample_usable(fake_path: Path) -> None:
    out = check_cuda(
        fake_path,
        """
        import signal
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
        fake.configure("mode=manual")
        with scope as sample:
            fake.work(stream, 1000)
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        began = time.monotonic()
        try:
            sample.ms
        except KeyboardInterrupt:
            print("interrupted", time.monotonic() - began < 0.7)
        fake.complete(stream)
        print(sample.ms > 0)
        """,
    )
    assert out.split() == ["interrupted", "True", "True"]


@pytest.mark.parametrize("first", ["main", "subinterpreter"])
@pytest.mark.parametrize("kind", ["isolated", "legacy"])
def test_a_subinterpreter_gets_a_clear_import_error_and_the_main_one_goes_on(
    kind: str, first: str
) -> None:
    inside = (
        "try:\n    from gpuprof import timer\n"
        "except ImportError as error:\n    print('ImportError', 'subinterpreters' in str(error))\n"
    )
    out = check_python(
        f"""
        import sys
        if {first!r} == "main":
            import gpuprof
            gpuprof.timer("main")
        if sys.version_info >= (3, 13):
            import _interpreters as interpreters
            create = lambda: interpreters.create({kind!r})
        else:
            import _xxsubinterpreters as interpreters
            create = lambda: interpreters.create(isolated={kind == "isolated"})
        for _ in range(2):
            one = create()
            interpreters.run_string(one, {inside!r})
            interpreters.destroy(one)
        import gpuprof
        with gpuprof.timer("after", backend="cpu"):
            pass
        print(gpuprof.stats()["after"].host.count)
        """
    )
    assert out.split() == ["ImportError", "True"] * 2 + ["1"]


def test_release_gil_lets_other_threads_run_at_every_record(fake_path: Path) -> None:
    out = check_cuda(
        fake_path,
        """
        fake.script("cuEventRecord@1=0:block")
        threading.Timer(0.05, fake.release).start()
        with scope:
            print("entered")
        """,
        GPUPROF_RELEASE_GIL="1",
    )
    assert out.strip() == "entered"


def test_a_timer_that_a_thread_waits_for_may_be_closed_and_is_refused_to_others(
    fake_path: Path,
) -> None:
    out = check_cuda(
        fake_path,
        """
        from gpuprof.errors import InvalidStateError
        fake.configure(mode="manual")
        timer = gpuprof.Timer("cuda", stream)
        timer.record_start()
        fake.work(stream, 2_000_000)
        timer.record_end()
        before, found = fake.calls("cuEventQuery"), []
        thread = threading.Thread(target=lambda: found.append(timer.elapsed_ms()))
        thread.start()
        while fake.calls("cuEventQuery") < before + 3:
            time.sleep(0.001)
        def refusal(call):
            try:
                return call()
            except InvalidStateError as error:
                return str(error)
        for call in (timer.record_start, timer.record_end, timer.elapsed_ms):
            assert "a call of another thread" in refusal(call)
        assert timer.ready is False and "pending" in repr(timer)
        timer.close()
        assert "is closed" in refusal(timer.elapsed_ms) and "closed" in repr(timer)
        fake.complete(stream)
        thread.join()
        assert "is closed" in refusal(timer.record_start)
        print(round(found[0]))
        """,
    )
    assert out == "2\n"


def test_a_scope_shows_its_last_sample_while_another_thread_leaves_it(fake_path: Path) -> None:
    out = check_cuda(
        fake_path,
        """
        with scope:
            fake.work(stream, 3_000_000)
        def leave():
            fake.set_current(context)
            with scope:
                entered.set()
                leaves.wait()
        entered, leaves = threading.Event(), threading.Event()
        thread = threading.Thread(target=leave)
        thread.start()
        entered.wait()
        fake.script("cuEventRecord@1=0:block")
        leaves.set()
        while not fake.report()["blocked_calls"]:
            time.sleep(0.001)
        print(round(scope.ms), scope.last.state)
        fake.release()
        thread.join()
        print(round(scope.ms))
        """,
        GPUPROF_RELEASE_GIL="1",
    )
    assert out == "3 done\n0\n"


def test_a_process_may_end_with_anchors_alive(fake_path: Path) -> None:
    check_cuda(
        fake_path,
        """
        _core._timeline_want(True)
        with scope:
            pass
        _core._timeline_refresh()
        """,
    )
