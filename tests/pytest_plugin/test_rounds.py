"""``pedantic`` with all its steps, and the figures of the fixture."""

from __future__ import annotations

import pytest

from tests.support.pytest_projects import COMPARE, Project


def test_each_set_up_has_one_teardown_with_the_same_arguments(project: Project) -> None:
    project.pytester.makepyfile("""
        def test_a(gpu_benchmark):
            did = []

            def setup():
                did.append("setup")
                return (len(did),), {"by": 2}

            def target(number, by):
                did.append(("call", number))
                return number

            def teardown(number, by):
                did.append(("teardown", number))

            value = gpu_benchmark.pedantic(
                target, setup=setup, teardown=teardown, rounds=5, warmup_rounds=2
            )
            assert value == 3 * (2 + 5 - 1) + 1
            rounds = [did[place : place + 3] for place in range(0, len(did), 3)]
            assert len(rounds) == 2 + 5
            for place, each in enumerate(rounds):
                number = 3 * place + 1
                assert each == ["setup", ("call", number), ("teardown", number)]
    """)
    project.run().assert_outcomes(passed=1)


def test_a_teardown_without_a_set_up_gets_the_arguments_given(project: Project) -> None:
    project.pytester.makepyfile("""
        import pytest

        def test_a(gpu_benchmark):
            torn = []
            gpu_benchmark.pedantic(
                target=sorted,
                args=([2, 1],),
                kwargs={"reverse": True},
                teardown=lambda values, reverse: torn.append((values, reverse)),
                rounds=3,
            )
            assert torn == [([2, 1], True)] * 3

        def test_positions(gpu_benchmark):
            torn = []
            # In pytest-benchmark's order.
            gpu_benchmark.pedantic(sum, ([1],), {}, None, torn.append, 2, 1, 1)
            assert torn == [[1]] * (1 + 2)

        def test_raises(gpu_benchmark):
            torn = []
            with pytest.raises(ZeroDivisionError):
                gpu_benchmark.pedantic(lambda: 1 / 0, teardown=lambda: torn.append(1))
            assert torn == []

        def test_its_own_error(gpu_benchmark):
            with pytest.raises(KeyError):
                gpu_benchmark.pedantic(sum, ([1],), teardown=lambda values: {}["missing"])
    """)
    project.run().assert_outcomes(passed=4)
    project.run("--gpu-benchmark-disable", "-k", "test_raises or its_own").assert_outcomes(
        passed=2, deselected=2
    )


def test_arguments_come_from_one_place(project: Project) -> None:
    project.pytester.makepyfile("""
        import pytest

        def test_a(gpu_benchmark):
            with pytest.raises(TypeError, match="^setup returned arguments, and pedantic was"):
                gpu_benchmark.pedantic(sum, ([1],), setup=lambda: (([2],), {}))

        def test_none(gpu_benchmark):
            assert gpu_benchmark.pedantic(sum, ([1],), setup=lambda: None) == 1

        def test_wrong(gpu_benchmark):
            with pytest.raises(TypeError, match="^setup: expected it to return None or"):
                gpu_benchmark.pedantic(sum, setup=lambda: 5, teardown=print)

        def test_wrong_alone(gpu_benchmark):
            with pytest.raises(TypeError, match="^setup: expected it .*, got int"):
                gpu_benchmark.pedantic(sum, setup=lambda: 5)
    """)
    project.run().assert_outcomes(passed=4)


def test_the_function_is_called_as_often_as_asked_for(project: Project) -> None:
    project.pytester.makepyfile("""
        import pytest

        # Above one iteration a last call gives the value.
        @pytest.mark.parametrize(
            ("counts", "calls"),
            [
                ({}, 1),
                ({"rounds": 1, "iterations": 1}, 1),
                ({"rounds": 15}, 15),
                ({"rounds": 5, "warmup_rounds": 4}, 9),
                ({"iterations": 10}, 11),
                ({"rounds": 3, "warmup_rounds": 2, "iterations": 10}, 51),
                ({"rounds": 40}, 40),
            ],
        )
        def test_a(gpu_benchmark, counts, calls):
            called = []
            def function(value):
                called.append(value)
                return len(called)
            assert gpu_benchmark.pedantic(function, ("x",), **counts) == calls
            assert called == ["x"] * calls
            result = gpu_benchmark.result
            assert result.count == counts.get("rounds", 1)
            assert result.calls_per_sample == counts.get("iterations", 1)

        def test_teardown_is_one_a_round(gpu_benchmark):
            did = []
            gpu_benchmark.pedantic(
                lambda: did.append("call"), teardown=lambda: did.append("end"), iterations=3
            )
            assert did == ["call"] * 3 + ["end", "call", "end"]

        def test_names_that_are_keywords(gpu_benchmark):
            assert gpu_benchmark.pedantic(dict, kwargs={"if": 1, "b": 2}) == {"if": 1, "b": 2}

        @pytest.mark.parametrize(
            ("name", "wrong"),
            [
                *(("iterations", wrong) for wrong in (0, 1.5, True, "2", None)),
                *(("rounds", wrong) for wrong in (0, 1.5, True)),
                ("warmup_rounds", -1),
            ],
        )
        def test_wrong(gpu_benchmark, name, wrong):
            with pytest.raises(ValueError, match=f"^{name}: expected a whole number"):
                gpu_benchmark.pedantic(None, **{name: wrong})
            gpu_benchmark(sum, [1])

        def test_steps(gpu_benchmark):
            with pytest.raises(ValueError, match="^iterations is 2, and setup is a step of a"):
                gpu_benchmark.pedantic(None, setup=print, iterations=2)
            gpu_benchmark(sum, [1])
    """)
    options = ("--gpu-benchmark-save=main", COMPARE)
    project.run(options[0]).assert_outcomes(passed=19)
    project.check(*options, passed=19).fnmatch_lines(["test_a[[]counts0-1[]] * NODATA"])


def test_a_single_call_is_a_whole_measurement_on_a_real_clock(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile("""
        import time

        def test_a(gpu_benchmark):
            called = []
            def function():
                called.append(1)
                time.sleep(0.02)
                return "value"
            assert gpu_benchmark.pedantic(function) == "value"
            assert called == [1]
            assert gpu_benchmark.result.samples_ms[0] >= 20
            assert gpu_benchmark.result.count == 1
    """)
    plugin = ("-p", "gpuprof._pytest.plugin")
    pytester.runpytest_subprocess(*plugin).assert_outcomes(passed=1)


def test_the_fixture_has_the_attributes_of_pytest_benchmarks(project: Project) -> None:
    project.times(2.0)
    project.pytester.makepyfile(
        test_it="""
        import pytest

        @pytest.mark.parametrize("size", [4])
        def test_a(gpu_benchmark, size):
            assert gpu_benchmark.stats is None
            assert (gpu_benchmark.name, gpu_benchmark.param) == ("test_a[4]", "4")
            assert gpu_benchmark.fullname == "test_it.py::test_a[4]"
            assert gpu_benchmark.params == {"size": 4}
            assert (gpu_benchmark.enabled, gpu_benchmark.disabled) == (True, False)
            gpu_benchmark.group = "one"
            gpu_benchmark.extra_info["note"] = "text"
            gpu_benchmark(sum, [size])
            stats = gpu_benchmark.stats
            assert stats["median"] == 0.002
            assert stats["min"] < stats["mean"] < stats["max"]
            assert stats["rounds"] == len(stats["data"]) == 45
            assert (gpu_benchmark.group, gpu_benchmark.extra_info) == ("one", {"note": "text"})

        def test_plain(gpu_benchmark):
            assert (gpu_benchmark.name, gpu_benchmark.param) == ("test_plain", None)
            assert gpu_benchmark.params is None
            gpu_benchmark(sum, [1])
        """
    )
    project.run().assert_outcomes(passed=2)


def test_switched_off_it_has_no_figures(project: Project) -> None:
    project.pytester.makepyfile("""
        def test_a(gpu_benchmark):
            torn = []
            gpu_benchmark.pedantic(sum, ([1],), teardown=torn.append, rounds=9)
            assert (gpu_benchmark.stats, gpu_benchmark.enabled) == (None, False)
            assert torn == [[1]]
    """)
    project.run("--gpu-benchmark-disable").assert_outcomes(passed=1)


@pytest.mark.parametrize("option", ["--gpu-benchmark-disable-gc", "--gpu-benchmark-min-rounds=3"])
def test_the_collector_is_as_before_also_after_an_error(project: Project, option: str) -> None:
    project.pytester.makepyfile("""
        import gc
        import pytest

        def test_a(gpu_benchmark):
            calls = []
            def fail():
                calls.append(1)
                if len(calls) == 2:
                    raise LookupError
            with pytest.raises(LookupError):
                gpu_benchmark(fail)
            assert gc.isenabled()

        def test_off_before(gpu_benchmark):
            gc.disable()
            try:
                gpu_benchmark(sum, [1])
                assert not gc.isenabled()
            finally:
                gc.enable()
    """)
    project.run(option).assert_outcomes(passed=2)
