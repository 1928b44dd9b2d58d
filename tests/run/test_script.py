"""A program under ``gpuprof run`` is the program that it is without: its names, end and output."""

from __future__ import annotations

import signal
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest

from tests.support.programs import both, end, measured, plain, script, start

SCOPE = """
import gpuprof
with gpuprof.timer("work"):
    pass
"""


def test_the_module_is_main_as_python_makes_it(tmp_path: Path) -> None:
    name = script(
        tmp_path,
        """
        import sys
        names = dict(globals())
        print(sorted(names))
        print({key: names[key] for key in sorted(names) if key not in {"sys", "__loader__"}})
        print(type(__loader__).__name__, sys.modules["__main__"].__dict__ is globals())
        print(sys.argv, sys.path)
        """,
    )
    _, found = both(tmp_path, name, "a", "--", "-o", "--stats", "-m", "")
    assert "'__name__': '__main__'" in found.out
    assert "'--', '-o', '--stats', '-m', ''" in found.out


def test_a_module_has_the_names_that_minus_m_gives_it(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    script(package, "import sys\nprint('parent', sys.argv)\n", "__init__.py")
    script(
        package,
        """
        import sys
        from . import other
        print(__name__, __package__, __spec__.name, __file__, __cached__, sys.argv, sys.path[0])
        """,
        "__main__.py",
    )
    script(package, "print('other', __name__)\n", "other.py")
    both(tmp_path, "-m", "package", "-x", "--", "y")
    both(tmp_path, "-m", "package.other")


@pytest.mark.parametrize("kind", ["folder", "archive"])
def test_a_folder_and_an_archive_run_as_python_runs_them(tmp_path: Path, kind: str) -> None:
    code = "import sys, helper\nprint(__name__, repr(__package__), __file__, sys.argv, sys.path[0])"
    if kind == "folder":
        (tmp_path / "app").mkdir()
        script(tmp_path / "app", code, "__main__.py")
        script(tmp_path / "app", "", "helper.py")
    else:
        with zipfile.ZipFile(tmp_path / "app", "w") as archive:
            archive.writestr("__main__.py", code)
            archive.writestr("helper.py", "")
    both(tmp_path, "app", "x")


def test_a_link_to_a_script_finds_what_is_beside_the_script(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    script(tmp_path / "real", "VALUE = 3\n", "helper.py")
    script(tmp_path / "real", "import helper, sys\nprint(helper.VALUE, __file__, sys.argv)\n")
    (tmp_path / "link.py").symlink_to(tmp_path / "real" / "script.py")
    both(tmp_path, "link.py")


def test_what_is_defined_in_main_can_be_pickled_and_given_to_spawned_processes(
    tmp_path: Path,
) -> None:
    name = script(
        tmp_path,
        """
        import multiprocessing, pickle

        class Thing:
            value = 3

        def work(number):
            return number * 2

        if __name__ == "__main__":
            print(pickle.loads(pickle.dumps(Thing())).value)
            print(pickle.loads(pickle.dumps(work)) is work)
            for method in ("spawn", "fork"):
                with multiprocessing.get_context(method).Pool(1) as pool:
                    print(method, pool.map(work, [1, 2]))
        """,
    )
    both(tmp_path, name)


def test_a_coding_line_and_the_script_own_futures_count(tmp_path: Path) -> None:
    path = tmp_path / "latin.py"
    path.write_bytes(
        "# -*- coding: latin-1 -*-\nprint(ascii('\xe9'))\n"
        "def f(x: int) -> None: ...\nprint(f.__annotations__)\n".encode("latin-1")
    )
    _, found = both(tmp_path, "latin.py")
    assert "xe9" in found.out


@pytest.mark.parametrize(
    "ending",
    [
        "sys.exit(7)",
        "sys.exit()",
        "sys.exit('a text')",
        "sys.exit(-1)",
        "raise SystemExit([1])",
        "raise ValueError('wrong')",
        "raise KeyboardInterrupt",
        "raise type('Stop', (KeyboardInterrupt,), {})",
        "raise BrokenPipeError('by the script')",
        "raise __import__('gpuprof').GpuprofError('by the script')",
        "os._exit(5)",
        "os.abort()",
        "os.kill(os.getpid(), signal.SIGTERM)",
        "os.kill(os.getpid(), signal.SIGKILL)",
        "sys.stdout.close()",
        "sys.stderr.close()",
        "sys.stderr = None",
        "os.close(1)",
        "pass",
    ],
)
def test_the_end_is_the_program_own(tmp_path: Path, ending: str) -> None:
    name = script(
        tmp_path,
        f"""
        import os, signal, sys
        import gpuprof
        print("begins", flush=True)

        def inner():
            with gpuprof.timer("work"):
                {ending}

        inner()
        """,
    )
    expected, found = both(tmp_path, name)
    if "os." not in ending and ending != "sys.stderr.close()":
        assert "work" in found.report
    if ending == "raise KeyboardInterrupt":
        assert expected.status == -signal.SIGINT


def test_the_end_of_minus_m_and_of_a_chained_exception_is_the_same(tmp_path: Path) -> None:
    name = script(
        tmp_path,
        """
        def inner():
            try:
                raise KeyError("first")
            except KeyError as error:
                raise ValueError("second") from error
        inner()
        """,
    )
    both(tmp_path, name)
    script(tmp_path, "raise KeyboardInterrupt\n", "interrupted.py")
    expected = plain(tmp_path, "-m", "interrupted")
    found = measured(tmp_path, "-m", "interrupted", program="interrupted")
    assert found.status == expected.status == -signal.SIGINT
    # Python's own traceback begins with the frames of its runpy.
    own = found.err.removeprefix("Traceback (most recent call last):\n")
    assert "interrupted.py" in own
    assert expected.err.endswith(own)


def test_a_syntax_error_is_shown_without_a_traceback(tmp_path: Path) -> None:
    name = script(tmp_path, "x = (\n")
    _, found = both(tmp_path, name)
    assert "Traceback" not in found.err
    assert found.status == 1


def test_the_programs_own_hook_shows_its_exception(tmp_path: Path) -> None:
    name = script(
        tmp_path,
        """
        import sys, traceback
        def show(kind, value, trace):
            print("hook", kind.__name__, [each.name for each in traceback.extract_tb(trace)])
            print(sys.last_traceback is trace, value.__traceback__ is trace)
        sys.excepthook = show
        def inner():
            raise ValueError
        inner()
        """,
    )
    both(tmp_path, name)


def test_exit_handlers_and_threads_outlive_the_last_line(tmp_path: Path) -> None:
    name = script(
        tmp_path,
        """
        import atexit, threading, time
        import gpuprof
        value = "still there"
        def late():
            time.sleep(0.1)
            with gpuprof.timer("in thread"):
                print(value)
        def at_exit():
            with gpuprof.timer("at exit"):
                print(value, __name__)
        atexit.register(at_exit)
        threading.Thread(target=late).start()
        """,
    )
    _, found = both(tmp_path, name)
    assert "in thread" in found.report
    assert "at exit" in found.report


def test_ctrl_c_shows_the_table_and_ends_by_the_signal(tmp_path: Path) -> None:
    name = script(
        tmp_path,
        """
        import time
        import gpuprof
        with gpuprof.timer("work"):
            pass
        print("ready", flush=True)
        time.sleep(100)
        """,
    )
    process = start(tmp_path, "-m", "gpuprof", "run", "-o", "t.json", name)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    found = end(process, name)
    assert found.status == -signal.SIGINT
    assert "KeyboardInterrupt" in found.err
    assert "gpuprof" not in found.err
    assert "work" in found.report
    assert (tmp_path / "t.json").is_file()


def test_a_forked_child_reports_nothing(tmp_path: Path) -> None:
    name = script(
        tmp_path,
        """
        import os, sys
        import gpuprof
        with gpuprof.timer("work"):
            pass
        child = os.fork()
        if child == 0:
            sys.exit(3)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """,
    )
    done = measured(tmp_path, "-o", "t.json", "--stats", "s.json", name, program=name)
    assert (done.status, done.out, done.err) == (0, "3\n", "")
    assert done.report.count("ran for") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.json", name, "t.json"]


def test_a_subprocess_is_not_measured(tmp_path: Path) -> None:
    script(tmp_path, SCOPE, "inner.py")
    name = script(
        tmp_path,
        """
        import subprocess, sys
        done = subprocess.run([sys.executable, "inner.py"], capture_output=True, text=True)
        print(repr(done.stdout), repr(done.stderr))
        """,
    )
    both(tmp_path, name)


def test_the_installed_command_runs_programs_too(tmp_path: Path) -> None:
    name = script(tmp_path, "import sys\nprint(sys.path[0])\nraise KeyboardInterrupt\n")
    entry = textwrap.dedent(
        """
        import sys
        from importlib.metadata import entry_points
        (command,) = entry_points(group="console_scripts", name="gpuprof")
        main = command.load()
        if __name__ == "__main__":
            sys.exit(main())
        """
    )
    (tmp_path / "bin").mkdir()
    script(tmp_path / "bin", entry, "gpuprof")
    expected = plain(tmp_path, name)
    found = end(start(tmp_path, "bin/gpuprof", "run", name), name)
    assert found[:3] == expected[:3]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="-P needs another Python version")
def test_pythons_safe_path_stays_safe(tmp_path: Path) -> None:
    script(tmp_path, "raise AssertionError\n", "helper.py")
    name = script(tmp_path, "import sys\nprint(sys.path)\n")
    both(tmp_path, name, PYTHONSAFEPATH="1")


def test_frames_of_the_command_are_below_the_script_alone(tmp_path: Path) -> None:
    name = script(tmp_path, "import sys\nprint(sys.exc_info(), __import__('gc').isenabled())\n")
    both(tmp_path, name)
