"""``--scopes``: functions of a program as scopes, where Python tells of single functions."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.programs import counts, measured, rows, script

pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 12), reason="--scopes needs another Python version"
)


def count(folder: Path, code: str, *patterns: str, **variables: str) -> dict[str, int]:
    """Run a script with patterns and return the count of each row; it must end well."""
    name = script(folder, code)
    given = [f"--scopes={pattern}" for pattern in patterns]
    done = measured(folder, *given, "--stats", "s.json", name, program=name, **variables)
    assert (done.status, done.err) == (0, "")
    return counts(folder / "s.json")


def test_functions_that_match_are_rows_with_their_nesting(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    script(tmp_path / "package", "from .inner import work\n", "__init__.py")
    script(
        tmp_path / "package",
        """
        class Thing:
            size = [n for n in range(3)]
            def method(self):
                return helper(1) + (lambda: 1)()
            @staticmethod
            def still():
                def within():
                    return 1
                return within()
        def helper(number):
            return number
        def work():
            return Thing().method() + Thing.still()
        """,
        "inner.py",
    )
    code = """
        import package
        def step():
            package.work()
            package.work()
        step()
        """
    found = count(tmp_path, code, "package.inner.*", "__main__.st*")
    inner = "package.inner."
    assert found == {
        "step": 1,
        f"step/{inner}work": 2,
        f"step/{inner}work/{inner}Thing.method": 2,
        f"step/{inner}work/{inner}Thing.method/{inner}helper": 2,
        f"step/{inner}work/{inner}Thing.method/{inner}Thing.method.<locals>.<lambda>": 2,
        f"step/{inner}work/{inner}Thing.still": 2,
        f"step/{inner}work/{inner}Thing.still/{inner}Thing.still.<locals>.within": 2,
    }
    assert count(tmp_path, code, "*.helper") == {f"{inner}helper": 2}


def test_recursion_nests_in_itself(tmp_path: Path) -> None:
    code = """
        def down(n):
            if n:
                down(n - 1)
        down(2)
        down(0)
        """
    assert count(tmp_path, code, "__main__.down") == {
        "down": 2,
        "down/down": 1,
        "down/down/down": 1,
    }


def test_an_exception_closes_what_it_leaves(tmp_path: Path) -> None:
    code = """
        def fails():
            raise ValueError
        def passes_on():
            fails()
        def catches():
            try:
                passes_on()
            except ValueError:
                after()
        def after():
            pass
        for _ in range(2):
            catches()
        after()
        """
    found = count(tmp_path, code, "__main__.*")
    assert found["catches"] == 2
    assert found["catches/after"] == 2
    assert found["after"] == 1
    failed = {name: row["failed"] for name, row in rows(tmp_path / "s.json").items()}
    assert failed["catches/passes_on"] == 2
    assert failed["catches/passes_on/fails"] == 2


def test_a_generator_is_open_while_it_runs(tmp_path: Path) -> None:
    code = """
        def numbers():
            try:
                got = yield 1
                between()
                yield got
            except ValueError:
                yield 3
        def between():
            pass
        for _ in numbers():
            between()          # not inside of the generator, which is suspended
        thrown = numbers()
        next(thrown)
        thrown.throw(ValueError)
        thrown.close()         # GeneratorExit is no failure
        dropped = numbers()
        next(dropped)
        del dropped
        between()
        """
    found = count(tmp_path, code, "__main__.*")
    # 3 resumes of the loop; first, throw and close of the second; first and close of the third.
    assert found == {"numbers": 8, "numbers/between": 1, "between": 3}
    assert not any(row["failed"] for row in rows(tmp_path / "s.json").values())


def test_a_delegating_generator_keeps_the_nesting(tmp_path: Path) -> None:
    code = """
        def inner():
            yield 1
            yield 2
        def outer():
            yield from inner()
            yield 3
        print(list(outer()))
        """
    assert count(tmp_path, code, "__main__.*") == {"outer": 4, "outer/inner": 3}


def test_a_coroutine_has_its_awaits_and_tasks_do_not_mix(tmp_path: Path) -> None:
    code = """
        import asyncio
        async def leaf(seconds):
            await asyncio.sleep(seconds)
        async def branch(seconds):
            await leaf(seconds)
            await leaf(0)
        async def items():
            for n in range(2):
                await asyncio.sleep(0.01)
                yield n
        async def cancelled():
            await asyncio.sleep(100)
        async def main():
            await asyncio.gather(branch(0.02), branch(0.01), branch(0))
            assert [n async for n in items()] == [0, 1]
            task = asyncio.create_task(cancelled())
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        asyncio.run(main())
        """
    patterns = [f"__main__.{name}" for name in ("leaf", "branch", "items", "cancelled")]
    found = count(tmp_path, code, *patterns)
    assert found == {"branch": 3, "branch/leaf": 6, "items": 3, "cancelled": 0}
    measured_rows = rows(tmp_path / "s.json")
    assert measured_rows["branch"]["host"]["total_ms"] >= 30  # the awaits are in it
    assert measured_rows["items"]["host"]["total_ms"] >= 20
    assert measured_rows["cancelled"]["failed"] == 1


def test_threads_nest_each_for_itself(tmp_path: Path) -> None:
    code = """
        import threading
        def leaf():
            pass
        def work():
            for _ in range(200):
                leaf()
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        """
    found = count(tmp_path, code, "__main__.leaf", "__main__.work")
    assert found == {"work": 4, "work/leaf": 800}


def test_scopes_of_the_program_nest_with_functions(tmp_path: Path) -> None:
    code = """
        import gpuprof
        def step():
            with gpuprof.timer("written"):
                leaf()
        def leaf():
            pass
        with gpuprof.timer("around"):
            step()
        """
    assert count(tmp_path, code, "__main__.*") == {
        "around": 1,
        "around/step": 1,
        "around/step/written": 1,
        "around/step/written/leaf": 1,
    }


def test_a_tool_number_that_is_taken_is_left_alone(tmp_path: Path) -> None:
    taken = "import sys\nfor n in (3, 4): sys.monitoring.use_tool_id(n, f'other {n}')\n"
    script(tmp_path, taken, "sitecustomize.py")
    code = """
        import sys, cProfile
        def work():
            pass
        with cProfile.Profile():
            work()
        work()
        assert sys.monitoring.get_tool(3) == "other 3"
        """
    found = count(tmp_path, code, "__main__.work", PYTHONPATH=f"{tmp_path}:{':'.join(sys.path)}")
    assert found == {"work": 2}


def test_without_a_tool_number_the_program_does_not_begin(tmp_path: Path) -> None:
    taken = "import sys\nfor n in range(6): sys.monitoring.use_tool_id(n, f'other {n}')\n"
    script(tmp_path, taken, "sitecustomize.py")
    path = f"{tmp_path}:{':'.join(sys.path)}"
    name = script(tmp_path, "print(1)\n")
    done = measured(tmp_path, "--scopes", "__main__.*", name, program=name, PYTHONPATH=path)
    assert (done.status, done.out) == (2, "")
    assert "all tool ids of sys.monitoring are taken, by other 0, other 1" in done.err


def test_a_pattern_that_matched_nothing_is_said(tmp_path: Path) -> None:
    name = script(tmp_path, "def work(): pass\nwork()\n")
    done = measured(tmp_path, "--scopes=__main__.work", "--scopes=no.such", name, program=name)
    assert "no function that ran matches --scopes 'no.such'" in done.report
    assert "__main__" not in done.report


def test_a_forked_child_and_the_module_body_have_no_scopes(tmp_path: Path) -> None:
    code = """
        import os, sys
        def work():
            pass
        child = os.fork()
        if child == 0:
            work()
            os._exit(0 if sys.monitoring.get_tool(3) is None else 1)
        assert os.waitpid(child, 0)[1] == 0
        work()
        """
    assert count(tmp_path, code, "*").items() >= {"work": 1}.items()


def test_frames_are_let_go(tmp_path: Path) -> None:
    code = """
        import gc, weakref
        class Thing: ...
        def work():
            thing = Thing()
            return weakref.ref(thing)
        def fails():
            thing = Thing()
            kept.append(weakref.ref(thing))
            raise ValueError
        kept = [work()]
        try:
            fails()
        except ValueError:
            pass
        assert [each() for each in kept] == [None, None]
        """
    assert count(tmp_path, code, "__main__.*")["work"] == 1
