"""The first use of the package, cut in two by a signal handler, an exception or a fork."""

from __future__ import annotations

import pytest

from tests.support.processes import check_python, run_fresh_python

# Runs `use` in a child for each of many moments of it. At the moment, `at_moment` is called as a
# signal handler would be: between two lines of Python, on the thread that imports.
HARNESS = """
import os, random, sys, signal, threading, time
import gpuprof

def children(count, use, at_moment, after, around=lambda go: go()):
    def traced(at_line):
        lines, over = [0], []
        def trace(frame, event, argument):
            lines[0] += 1
            # A handler that imports while its thread takes a module's lock leaves CPython with a
            # KeyError there (gh-106176), so the moment is the next one.
            inside = "importlib" in frame.f_code.co_filename and frame.f_code.co_name == "acquire"
            if lines[0] >= at_line > 0 and not over and not inside:
                over.append(at_line)
                at_moment()
            return trace
        def go():
            sys.settrace(trace)
            use()
            sys.settrace(None)
        around(go)
        return lines[0]
    begin, end = os.pipe()
    if not run(lambda: os.write(end, str(traced(-1)).encode())):
        raise SystemExit("the use itself fails")
    total = int(os.read(begin, 20))
    moments = [1 + total * number // count for number in range(count)]
    def body(moment):
        traced(moment)
        after()
    print(total, [moment for moment in moments if not run(lambda: body(moment))])

def forked(body):
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        signal.alarm(30)
        body()
        status = 0
    except BaseException:
        import traceback
        traceback.print_exc()
    os._exit(status)

def run(body):
    return os.waitpid(forked(body), 0)[1] == 0

def scope(name):
    with gpuprof.timer(name, backend="cpu"):
        pass

def count(name):
    return gpuprof.stats()[name].host.count
"""


def check(script: str) -> None:
    total, failed = check_python(HARNESS + script, run_fresh_python).split(maxsplit=1)
    assert int(total) > 100
    assert failed.strip() == "[]"


@pytest.mark.parametrize(
    ("use", "moments"),
    [("scope('body')", 25), ("gpuprof.stats()", 10), ("gpuprof.annotate('a')", 10)],
)
def test_a_signal_handler_may_use_scopes_during_the_first_use(use: str, moments: int) -> None:
    check(f"""
def after():
    scope("after")
    assert count("handler") == count("after") == 1

children({moments}, lambda: {use}, lambda: scope("handler"), after)
""")


def test_a_signal_handler_may_use_annotations_during_the_first_use() -> None:
    check("""
def annotated():
    gpuprof.mark("seen")
    with gpuprof.annotate("handler"):
        pass

children(10, lambda: scope("body"), annotated, lambda: scope("after"))
""")


def test_a_first_use_that_was_interrupted_leaves_the_package_usable() -> None:
    check("""
def interrupted():
    try:
        scope("body")
    except KeyboardInterrupt:
        pass

def interrupt():
    # Not inside the import system itself: it prints what is raised in a callback of its own.
    if not sys._getframe(2).f_code.co_filename.startswith("<"):
        raise KeyboardInterrupt

def after():
    sys.settrace(None)
    scope("after")
    assert count("after") == 1

children(25, interrupted, interrupt, after)
""")


@pytest.mark.parametrize(("use", "moments"), [("scope('body')", 15), ("gpuprof.stats()", 5)])
def test_a_fork_during_another_threads_first_use_leaves_the_child_usable(
    use: str, moments: int
) -> None:
    # The thread stops at the moment, until the fork has begun.
    check(f"""
forking, stopped = threading.Event(), threading.Event()
os.register_at_fork(before=lambda: stopped.is_set() and forking.set())

def stop():
    stopped.set()
    forking.wait()

def child():
    scope("child")
    assert count("child") == 1

def around(go):
    thread = threading.Thread(target=lambda: (go(), stopped.set()))
    thread.start()
    stopped.wait()
    assert run(child)
    thread.join()

children({moments}, lambda: {use}, stop, lambda: scope("after"), around)
""")


# Children with one real signal each, at a random moment of the first use; the moments are denser
# where the compiled part is loaded, which comes first.
SIGNALLED = """
def duration():
    begin, end = os.pipe()
    def body():
        begun = time.perf_counter()
        scope("body")
        os.write(end, str(time.perf_counter() - begun).encode())
    run(body)
    return float(os.read(begin, 40))

longest = duration()
failed = 0
for number in range(COUNT):
    moment = longest * random.random() ** 3 + 1e-5
    failed += one_child(moment) != 0
print(failed)
"""


def check_children(one_child: str) -> None:
    # CPython prints what a handler raises inside of a callback of its import system.
    done = run_fresh_python(HARNESS + one_child + SIGNALLED.replace("COUNT", "30"))
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


def test_one_alarm_at_any_moment_of_the_first_use_leaves_the_package_usable() -> None:
    check_children("""
def one_child(moment):
    seen = []
    def handler(number, frame):
        signal.alarm(30)
        scope("handler")
        seen.append(number)
    def body():
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, moment)
        scope("body")
        while not seen:
            time.sleep(0.001)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        scope("after")
        assert [count(name) for name in ("body", "handler", "after")] == [1, 1, 1]
    return os.waitpid(forked(body), 0)[1]
""")


def test_ctrl_c_at_any_moment_of_the_first_use_leaves_the_package_usable() -> None:
    check_children("""
def one_child(moment):
    seen = []
    def handler(number, frame):
        seen.append(number)
        scope("handler")
        raise KeyboardInterrupt
    begin, end = os.pipe()
    def body():
        signal.signal(signal.SIGINT, handler)
        try:
            os.write(end, b"!")
            scope("body")
            while not seen:
                time.sleep(0.001)
        except KeyboardInterrupt:
            pass
        except RuntimeError as error:  # Python 3.11 and older, while a class is made
            assert isinstance(error.__cause__, KeyboardInterrupt)
        scope("after")
        assert count("after") == 1
    pid = forked(body)
    os.read(begin, 1)
    time.sleep(moment)
    os.kill(pid, signal.SIGINT)
    os.close(begin), os.close(end)
    return os.waitpid(pid, 0)[1]
""")


def test_a_first_scope_imports_nothing_that_displays() -> None:
    out = check_python("""
        import sys, gpuprof
        with gpuprof.timer("step", backend="cpu") as sample:
            pass
        sample.ms, gpuprof.stats()
        print(*(name for name in sys.modules if name.startswith("gpuprof._display.")))
        """)
    assert set(out.split()) <= {"gpuprof._display.shown"}
