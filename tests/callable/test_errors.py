"""What goes wrong in a graphed callable: told as it is, and nothing is left open."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import gpuprof
from gpuprof import errors
from tests.fake_driver import control
from tests.fake_driver.control import RELAXED, DriverCallError, FakeCuda
from tests.support.callables import Counted, make, twice
from tests.support.held import open_captures, relaxed_collections
from tests.support.processes import check_cuda, check_python


def check_usable(cupy: Any) -> None:
    """Check that nothing is open, and that another capture works."""
    assert open_captures() == []
    assert relaxed_collections() == 0
    assert cupy.fake.exchange_mode(0) == 0
    assert make(twice(cupy), cupy.array([1.0]))(cupy.array([2.0])).tolist() == [2, 2]


# What is given.


def test_one_array_is_no_tuple_of_arguments(cupy: Any) -> None:
    x = cupy.array([1.0])
    with pytest.raises(TypeError, match=r"sample_args: expected a tuple.*write \(x,\)"):
        gpuprof.make_graphed_callable(twice(cupy), x)


def test_what_cannot_be_called_is_refused(cupy: Any) -> None:
    with pytest.raises(TypeError, match=r"fn: expected a function or a module, got a .*ndarray"):
        gpuprof.make_graphed_callable(cupy.array([1.0]))


def test_an_array_in_host_memory_is_refused_by_its_path(cupy: Any) -> None:
    numpy = pytest.importorskip("numpy")
    with pytest.raises(TypeError, match=r"args\[0\]\['x'\]\[1\]: a NumPy array"):
        make(lambda _: None, {"x": (cupy.array([1.0]), numpy.zeros(2))})
    fast = make(twice(cupy), cupy.array([1.0]))
    with pytest.raises(TypeError, match=r"args\[0\]: a NumPy array"):
        fast(numpy.zeros(1))


def test_a_callable_is_made_by_the_function_alone() -> None:
    with pytest.raises(TypeError, match=r"gpuprof.make_graphed_callable\(\)"):
        gpuprof.GraphedCallable()


# The body.


class MineError(Exception):
    pass


@pytest.mark.parametrize("at_run", [1, 3], ids=["warming up", "in the capture"])
@pytest.mark.parametrize("error", [MineError("mine"), KeyboardInterrupt(), SystemExit(3)])
def test_the_body_s_errors_pass_unchanged(cupy: Any, at_run: int, error: BaseException) -> None:
    runs = Counted()

    def body(x: Any) -> Any:
        runs.note()
        result = x.copy()
        if runs() == at_run:
            raise error
        return result

    with pytest.raises(type(error)) as caught:
        make(body, cupy.array([1.0]), warmup=2)
    assert caught.value is error
    assert error.__cause__ is None
    assert runs() == at_run
    error.__traceback__ = None
    check_usable(cupy)


def test_an_error_in_a_call_leaves_the_graphs_there_are(cupy: Any) -> None:
    def body(x: Any) -> Any:
        if x.shape[0] > 2:
            message = "too long"
            raise MineError(message)
        return x.copy()

    fast = make(body, cupy.array([1.0]), max_graphs=2)
    fast(cupy.array([1.0, 2.0]))
    for _ in range(2):
        with pytest.raises(MineError, match="too long"):
            fast(cupy.array([1.0, 2.0, 3.0]))
    assert len(fast.graphs) == 2
    assert fast(cupy.array([3.0])).tolist() == [3]
    assert (fast.stats().captures, fast.stats().replays) == (2, 2)


@pytest.mark.parametrize("result", [object(), {1, 2}], ids=["object", "set"])
def test_a_result_that_cannot_be_made_again_is_refused_by_its_path(
    cupy: Any, result: object
) -> None:
    with pytest.raises(TypeError, match=r"result\[1\]: an? "):
        make(lambda x: (x, result), cupy.array([1.0]))
    check_usable(cupy)


def test_a_function_that_replaces_an_array_of_its_arguments_is_refused(cupy: Any) -> None:
    def body(table: dict[str, Any]) -> None:
        table["x"] = table["x"].copy()

    with pytest.raises(TypeError, match=r"\['x'\]: the function replaces it"):
        make(body, {"x": cupy.array([1.0])})
    check_usable(cupy)


# Captures that fail.


def synchronizing(cupy: Any, runs: Counted | None = None) -> Callable[[Any], Any]:
    """Return a function that no graph can have inside."""

    def body(x: Any) -> Any:
        if runs is not None:
            runs.note()
        result = x.copy()
        cupy.cuda.get_current_stream().synchronize()
        return result

    return body


def test_a_capture_that_fails_is_an_error(cupy: Any) -> None:
    x = cupy.array([1.0])
    with pytest.raises(DriverCallError, match="900"):
        make(synchronizing(cupy), x)
    fast = gpuprof.make_graphed_callable(synchronizing(cupy), warmup=1)
    assert fast(x).tolist() == [1]
    for failures in (1, 2):
        with pytest.raises(DriverCallError, match="900"):
            fast(x)
        assert fast.stats().failures == failures
    check_usable(cupy)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have no notes")
def test_a_call_that_breaks_a_capture_is_named_with_its_line(cupy: Any) -> None:
    with pytest.raises(DriverCallError) as caught:
        make(synchronizing(cupy), cupy.array([1.0]), name="step")
    (note,) = caught.value.__notes__
    assert note.startswith("gpuprof: capture 'step' (stream ")
    assert f" broke at {control.__file__}:" in note  # which raises, as CuPy's own code would not
    assert "First refused call: cuStreamSynchronize on this thread" in note


def test_a_body_that_passes_over_what_broke_its_capture_is_told(cupy: Any) -> None:
    def body(x: Any) -> Any:
        result = x.copy()
        with suppress(DriverCallError):
            cupy.cuda.get_current_stream().synchronize()
        return result

    with pytest.raises(errors.CaptureError, match="First refused call: cuStreamSynchronize"):
        make(body, cupy.array([1.0]))
    check_usable(cupy)


def test_a_capture_that_fails_can_run_eagerly_and_warns_once(cupy: Any) -> None:
    runs = Counted()
    body = synchronizing(cupy, runs)
    with pytest.warns(RuntimeWarning, match="step: the capture failed.*run eagerly") as told:
        fast = gpuprof.make_graphed_callable(
            body, (cupy.array([1.0]),), name="step", warmup=1, on_capture_error="eager"
        )
    assert len(told) == 1
    assert told[0].filename == __file__
    assert runs() == 2
    for value in (2.0, 3.0):
        assert fast(cupy.array([value])).tolist() == [value]
    assert fast(cupy.array([1.0, 2.0])).tolist() == [1, 2]  # without another word
    stats = fast.stats()
    assert (stats.failures, stats.eager_calls, stats.captures, stats.graphs) == (2, 3, 0, ())
    assert repr(fast) == "<gpuprof.GraphedCallable 'step': 0 graphs, 0 replays>"
    check_usable(cupy)


def test_one_kind_of_call_may_fail_while_another_replays(cupy: Any) -> None:
    def body(x: Any) -> Any:
        if x.shape[0] > 1:
            cupy.cuda.get_current_stream().synchronize()
        return x.copy()

    fast = make(body, cupy.array([1.0]), on_capture_error="eager")
    with pytest.warns(RuntimeWarning, match="run eagerly"):
        assert fast(cupy.array([1.0, 2.0])).tolist() == [1, 2]
    for _ in range(2):
        assert fast(cupy.array([1.0, 2.0])).tolist() == [1, 2]
        assert fast(cupy.array([5.0])).tolist() == [5]
    assert (fast.stats().replays, fast.stats().eager_calls) == (2, 3)


def test_an_error_while_warming_up_is_no_failed_capture(cupy: Any) -> None:
    def body(x: Any) -> Any:
        raise MineError

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(MineError):
            make(body, cupy.array([1.0]), on_capture_error="eager")
    check_usable(cupy)


def test_a_sealed_pool_refuses(cupy: Any) -> None:
    pool = gpuprof.CapturePool()
    pool.seal()
    with pytest.raises(errors.InvalidStateError, match="sealed"):
        make(twice(cupy), cupy.array([1.0]), pool=pool)
    check_usable(cupy)


def test_a_driver_without_room_for_the_graph_is_an_error_of_it(cupy: Any) -> None:
    x = cupy.array([1.0])
    for function in ("cuGraphAddMemcpyNode", "cuGraphInstantiateWithFlags", "cuGraphLaunch"):
        fast = gpuprof.make_graphed_callable(twice(cupy), warmup=0)
        with cupy.fake.faults(f"{function}@1=2"), pytest.raises(errors.CudaError, match=function):
            fast(x)
        assert fast(x).tolist() == [1, 1], "the next call works"
    check_usable(cupy)


# Without CUDA.


NO_CUDA = """
import gpuprof
runs = []
def body(x):
    runs.append(x)
    return x + 1
"""


def test_without_cuda_it_is_refused_when_it_is_made_or_runs_eagerly_and_says_so_once() -> None:
    check_python(
        NO_CUDA
        + """
for options in ({}, {"sample_args": (1,)}):
    try:
        gpuprof.make_graphed_callable(body, **options)
    except gpuprof.errors.CudaUnavailableError:
        continue
    raise SystemExit(1)
assert runs == []
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    fast = gpuprof.make_graphed_callable(body, (1,), on_capture_error="eager")
    assert [fast(value) for value in (1, 2)] == [2, 3]
(only,) = told
assert only.category is RuntimeWarning
assert "every call runs the function itself" in str(only.message)
assert runs == [1, 2]
stats = fast.stats()
assert (stats.eager_calls, stats.captures, stats.graphs) == (2, 0, ())
fast.reset()
assert fast(3) == 4
assert fast.eager is body
""",
        GPUPROF_CUDA_DRIVER="/nonexistent/libcuda.so.1",
    )


def test_switched_off_it_runs_the_function_without_a_word(fake_path: Path) -> None:
    check_cuda(
        fake_path,
        NO_CUDA
        + """
before = fake.calls()
fast = gpuprof.make_graphed_callable(body, (1,))
assert runs == []
assert fast(x=1) == 2
assert runs == [1]
assert fast.stats().captures == 0
assert fake.calls() == before
""",
        GPUPROF_DISABLE="1",
    )


def test_a_call_after_the_context_is_gone_is_an_error_and_no_crash(fake_path: Path) -> None:
    check_cuda(
        fake_path,
        """
from gpuprof import errors
from tests.support.callables import twice
from tests.support.stand_in_cupy import installed
with installed(fake) as cupy:
    fast = gpuprof.make_graphed_callable(twice(cupy), (cupy.array([1.0]),))
    x = cupy.array([2.0])
    assert fast(x).tolist() == [2, 2]
    fake.stream_synchronize(cupy.cuda.get_current_stream().ptr)
    fake.destroy_context(context)
    for _ in range(3):
        try:
            fast(x)
        except (errors.GpuprofError, AssertionError):
            continue
        raise SystemExit(1)
    assert "1 graph" in repr(fast) and fast._repr_html_()
    assert [each.num_nodes for each in fast.stats().graphs] == [None]
    fast.reset()
    del fast
    os._exit(0)
""",
    )


def test_a_forked_child_is_told(fake_path: Path) -> None:
    check_cuda(
        fake_path,
        """
warnings.simplefilter("ignore", DeprecationWarning)
from gpuprof import errors
from tests.support.callables import twice
from tests.support.stand_in_cupy import installed
with installed(fake) as cupy:
    fast = gpuprof.make_graphed_callable(twice(cupy), (cupy.array([1.0]),))
    closure = gpuprof.make_graphed_callable(lambda: cupy.launch() and None, ())
    x = cupy.array([2.0])
    fast(x)
    with cupy.cuda.using_allocator(lambda size: x.data):
        pid = os.fork()
        if pid == 0:
            told = 0
            for use in (lambda: fast(x), closure, closure.launch):
                try:
                    use()
                except errors.ForkedProcessError:
                    told += 1
            os._exit(told)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
    assert fast(x).tolist() == [2, 2]
    del fast, closure, x
""",
    )


def test_a_call_in_relaxed_thread_mode_leaves_the_mode(cupy: Any) -> None:
    fast = make(twice(cupy), cupy.array([1.0]))
    before = cupy.fake.exchange_mode(RELAXED)
    try:
        assert fast(cupy.array([2.0])).tolist() == [2, 2]
        fast(cupy.array([2.0, 3.0]))
    finally:
        assert cupy.fake.exchange_mode(before) == RELAXED


def test_interrupted_calls_leave_a_callable_that_works(cupy: Any) -> None:
    fast = make(twice(cupy), cupy.array([1.0]))

    def interrupting(_: object) -> Any:
        raise KeyboardInterrupt

    with cupy.cuda.using_allocator(interrupting), pytest.raises(KeyboardInterrupt):
        fast(cupy.ndarray((1,), "f4", cupy.array([1.0]).data))
    assert fast(cupy.array([2.0])).tolist() == [2, 2]
    assert fast.stats().replays == 1


def test_the_driver_s_refusals_of_a_launch_are_told_and_the_next_call_works(
    cupy: Any,
) -> None:
    fake: FakeCuda = cupy.fake
    fast = make(twice(cupy), cupy.array([1.0]))
    x, other = cupy.array([2.0]), cupy.array([3.0])
    fast(x)
    for function in ("cuGraphExecMemcpyNodeSetParams", "cuGraphNodeSetEnabled", "cuGraphLaunch"):
        fast.graph.launch()  # leaves all copies out, so that the next call points them anew
        with fake.faults(f"{function}@1=999"), pytest.raises(errors.CudaError, match=function):
            fast(other)
        assert fast(x).tolist() == [2, 2]
