"""Scopes and samples on the CPU clock: objects, switches, exceptions, and copies of them."""

from __future__ import annotations

import contextlib
import copy
import json
import math
import pickle
from dataclasses import dataclass, field
from typing import Any

import pytest

import gpuprof
from gpuprof.errors import InvalidStateError
from tests.support.ids import short
from tests.support.processes import check_python
from tests.support.scopes import cpu


def measured(name: str) -> gpuprof.Sample:
    with cpu(name) as sample:
        pass
    return sample


# One object per name


def test_a_name_is_one_object() -> None:
    assert gpuprof.timer("one") is gpuprof.timer("one")
    assert gpuprof.timer("one") is not gpuprof.timer("two")


def test_options_at_their_defaults_are_no_options() -> None:
    plain = gpuprof.timer("plain")
    defaults: dict[str, Any] = {"enabled": None, "stream": None, "backend": "auto", "flops": None}
    assert gpuprof.timer(name="plain", **defaults) is plain


@pytest.mark.parametrize(
    "options",
    [
        *({"backend": "cpu"}, {"enabled": True}, {"stream": 0}, {"in_capture": "record"}),
        *({"memory": True}, {"flops": 1}, {"nbytes": 1}),
    ],
    ids=str,
)
def test_options_make_a_scope_of_its_own(options: dict[str, Any]) -> None:
    assert gpuprof.timer("own", **options) is not gpuprof.timer("own")
    assert gpuprof.timer("own", **options).name == "own"


def test_scopes_of_one_name_feed_one_row() -> None:
    for options in ({}, {"enabled": True}, {"in_capture": "record"}):
        with cpu("shared", **options):
            pass
    host = gpuprof.stats()["shared"].host
    assert host is not None
    assert host.count == 3


def test_unnamed_scopes_measure_and_stay_out_of_the_statistics() -> None:
    with cpu() as sample:
        pass
    assert sample.ms >= 0.0
    assert sample.path == ""
    assert len(gpuprof.stats()) == 0


def test_an_unnamed_scope_adds_nothing_to_the_path() -> None:
    with cpu("outside"), cpu() as unnamed, cpu("inside") as sample:
        pass
    assert (unnamed.path, sample.path) == ("outside", "outside/inside")


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"enabled": 1}, TypeError, "enabled: expected True, False or None, got 1"),
        ({"verify_stream": None}, TypeError, "verify_stream: expected True or False"),
        *(({"memory": given}, TypeError, "memory: expected True or False") for given in (1, None)),
        ({"in_capture": "later"}, ValueError, "in_capture: expected one of .*got 'later'"),
        ({"stream": object()}, TypeError, "stream: expected None, an int handle"),
        ({"stream": True}, TypeError, "stream: expected None, an int handle"),
        ({"stream": -1}, ValueError, "stream: an int must be .* got -1"),
    ],
    ids=short,
)
def test_a_wrong_option_names_the_argument(
    options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        gpuprof.timer("x", **options)


# Leaving a scope


def test_return_break_and_continue_close_the_scope() -> None:
    scope = cpu("left")

    def returns() -> int:
        with scope:
            return 7

    assert returns() == 7
    for _ in range(3):
        with scope:
            continue
    while True:
        with scope:
            break
    row = gpuprof.stats()["left"]
    assert row.host is not None
    assert (row.host.count, row.failed) == (5, 0)


def test_a_scope_can_be_entered_twice_by_one_exit_stack() -> None:
    scope = cpu("again")
    with contextlib.ExitStack() as stack:
        outer = stack.enter_context(scope)
        inner = stack.enter_context(scope)
    assert (outer.path, inner.path) == ("again", "again/again")
    assert outer.host_ms >= inner.host_ms


def test_scope_last_is_the_sample_of_the_last_exit() -> None:
    scope = cpu("last")
    with scope as outer, scope as inner:
        assert scope.last is None
    assert scope.last == outer
    assert scope.last != inner
    assert scope.ms == outer.ms


def test_reading_a_scope_before_its_first_exit_is_an_invalid_state() -> None:
    scope = cpu("unread")
    with pytest.raises(InvalidStateError, match="not been left yet"):
        _ = scope.ms
    assert scope.last is None


# The body's exception


class CustomStop(BaseException):
    pass


BODY_EXCEPTIONS = [
    KeyboardInterrupt,
    SystemExit,
    GeneratorExit,
    CustomStop,
    ValueError,
    StopIteration,
    MemoryError,
]


@pytest.mark.parametrize("kind", BODY_EXCEPTIONS)
def test_the_bodys_exception_passes_unchanged(kind: type[BaseException]) -> None:
    context, raised = KeyError("context"), kind("raised")
    try:
        raise context
    except KeyError:
        with pytest.raises(kind) as caught, cpu("raises"):
            raise raised  # noqa: B904
    assert caught.value is raised
    assert raised.__context__ is context
    assert raised.__cause__ is None
    assert not getattr(raised, "__notes__", [])


def test_a_sample_whose_body_raised_is_failed_and_not_in_the_statistics() -> None:
    scope = cpu("failing")
    with pytest.raises(ZeroDivisionError), scope as sample:
        _ = 1 // 0
    with scope as good:
        pass
    row = gpuprof.stats()["failing"]
    assert (sample.failed, good.failed) == (True, False)
    assert sample.ms == sample.host_ms >= 0.0
    assert "body raised" in repr(sample)
    assert row.host is not None
    assert (row.failed, row.host.count, row.host.total_ms) == (1, 1, good.host_ms)


# The switch


def test_disable_and_enable_reach_scopes_made_earlier() -> None:
    scope = cpu("switched")
    gpuprof.disable()
    with scope as off:
        pass
    gpuprof.enable()
    with scope as on:
        pass
    assert (off.state, on.state) == ("disabled", "done")


def test_the_enabled_option_overrides_the_switch() -> None:
    gpuprof.disable()
    with cpu("on", enabled=True) as on:
        pass
    gpuprof.enable()
    with cpu("off", enabled=False) as off:
        pass
    assert (on.state, off.state) == ("done", "disabled")
    assert list(gpuprof.stats()) == ["on"]


def test_timing_switched_on_inside_a_scope_leaves_that_entry_out() -> None:
    gpuprof.disable()
    with cpu("late") as sample:
        gpuprof.enable()
        with cpu("inside") as inside:
            pass
    assert sample.state == "disabled"
    assert inside.path == "inside"
    assert list(gpuprof.stats()) == ["inside"]


def test_timing_switched_off_inside_a_scope_still_measures_that_entry() -> None:
    with cpu("early") as sample:
        gpuprof.disable()
    assert sample.state == "done"
    assert list(gpuprof.stats()) == ["early"]


def test_an_entry_made_while_timing_is_off_does_not_close_an_open_one() -> None:
    scope = cpu("mixed")
    with scope as outer:
        gpuprof.disable()
        with scope as inner:
            pass
        assert (outer.state, inner.state) == ("open", "disabled")
    assert outer.state == "done"


def test_an_entry_made_while_timing_was_off_may_hold_an_open_one_of_its_scope() -> None:
    scope = cpu("mixed")
    gpuprof.disable()
    with scope as outer:
        gpuprof.enable()
        with scope as inner:
            pass
        assert inner.state == "done"
    assert outer.state == "disabled"
    assert measured("after").path == "after"


def test_a_disabled_sample_is_one_shared_object_that_reads_nan() -> None:
    with cpu("a", enabled=False) as first, cpu("b", enabled=False) as second:
        assert math.isnan(first.ms)
    assert first is second
    assert math.isnan(first.host_ms)
    assert first.try_ms() is not None
    assert math.isnan(first.try_ms() or 0.0)
    assert (first.ready, first.failed, first.dropped, first.path) == (False, False, False, "")


def test_the_repr_of_a_scope_says_that_it_is_off() -> None:
    scope = cpu("off", enabled=False)
    assert repr(scope) == "<gpuprof.timer 'off', disabled>"
    assert repr(cpu("on")) == "<gpuprof.timer 'on'>"


def test_the_environment_switches_everything_off_for_good() -> None:
    check_python(
        """
        import gpuprof, math
        gpuprof.enable()
        for options in ({}, {"enabled": True}, {"backend": "cpu"}):
            with gpuprof.timer("off", **options) as sample:
                pass
            assert sample.state == "disabled" and math.isnan(sample.ms), options
        assert gpuprof.start_probe_timer_if(True, backend="cpu") is None
        with gpuprof.on_sample(print) as handle, gpuprof.timer("unheard", backend="cpu"):
            gpuprof.flush()
        assert handle.closed and handle.dropped == 0
        stats = gpuprof.stats()
        assert len(stats) == 0
        why = "timing is switched off (GPUPROF_DISABLE is set)"
        assert str(stats) == f"no samples: {why}", stats
        """,
        GPUPROF_DISABLE="1",
    )


def test_the_environment_switch_may_be_set_to_no_and_without_cuda_the_clock_is_the_cpus() -> None:
    check_python(
        """
        import gpuprof
        with gpuprof.timer("on") as sample:
            pass
        assert (sample.state, sample.clock) == ("done", "cpu"), sample
        assert gpuprof.Timer().clock == "cpu"
        stats = gpuprof.stats()
        assert sample.ms >= 0 and len(stats) == 1 and stats.memory == []
        assert not {"torch", "gpuprof._timing.listeners"} & sys.modules.keys()
        """,
        GPUPROF_DISABLE="0",
    )


# Reading a sample


def test_an_open_sample_answers_what_does_not_need_its_end() -> None:
    with cpu("open") as sample:
        for name in ("ms", "host_ms"):
            with pytest.raises(InvalidStateError, match="still open"):
                getattr(sample, name)
        assert (sample.state, sample.ready, sample.try_ms()) == ("open", False, None)
        assert (sample.path, sample.clock, sample.failed) == ("open", "cpu", False)
        assert "open" in repr(sample)


def test_a_closed_sample_has_its_time() -> None:
    sample = measured("closed")
    assert (sample.state, sample.ready, sample.clock, sample.stream) == ("done", True, "cpu", 0)
    assert sample.ms == sample.host_ms == sample.try_ms() > 0.0


def test_samples_are_read_only_and_made_by_scopes_only() -> None:
    sample = measured("fixed")
    with pytest.raises(AttributeError):
        sample.ms = 3.0  # type: ignore[misc]
    with pytest.raises(TypeError):
        gpuprof.Sample()


def test_html_escapes_names() -> None:
    html = measured("<script>&\"'")._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;&amp;&quot;&#x27;" in html


def test_to_dict_is_json_in_every_state() -> None:
    with cpu("open") as sample:
        still_open = sample.to_dict()
    with cpu(enabled=False) as disabled:
        pass
    dicts = [still_open, sample.to_dict(), disabled.to_dict()]
    json.dumps(dicts, allow_nan=False)
    assert [d["state"] for d in dicts] == ["open", "done", "disabled"]
    assert dicts[1]["ms"] == dicts[1]["host_ms"] == sample.ms
    assert dicts[0]["ms"] is dicts[0]["host_ms"] is dicts[2]["ms"] is dicts[2]["host_ms"] is None


def test_samples_are_equal_if_they_are_of_one_entry() -> None:
    scope = cpu("equal")
    with scope as first:
        pass
    again = scope.last
    with scope as second:
        pass
    assert again is not None
    assert (again == first, again != first, hash(again) == hash(first)) == (True, False, True)
    assert (first == second, first == "equal", len({first, again, second})) == (False, False, 2)
    with pytest.raises(TypeError):
        _ = first < second  # type: ignore[operator]


# Copies


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_samples_pickle_with_all_they_measured(protocol: int) -> None:
    with cpu("pickled"):
        sample = measured("a/sample")
    back = pickle.loads(pickle.dumps(sample, protocol))
    assert back.names == sample.names == ("pickled", "a/sample")
    assert back.to_dict() == sample.to_dict()
    assert back != sample


def test_a_failed_body_and_a_disabled_sample_survive_pickling() -> None:
    with pytest.raises(ValueError, match="x"), cpu("failed") as failed:
        raise ValueError("x")
    with cpu(enabled=False) as disabled:
        pass
    assert pickle.loads(pickle.dumps(failed)).failed is True
    assert pickle.loads(pickle.dumps(disabled)).state == "disabled"


def test_an_open_sample_refuses_to_be_pickled() -> None:
    with cpu("open") as sample, pytest.raises(InvalidStateError, match="still open"):
        pickle.dumps(sample)


def test_a_scope_pickles_with_its_options() -> None:
    options: dict[str, Any] = {"in_capture": "record", "stream": 7, "memory": True, "nbytes": 4}
    scope = gpuprof.timer("off", backend="cpu", enabled=False, flops=3, **options)
    back = pickle.loads(pickle.dumps(scope))
    assert (back.name, back._options) == (scope.name, scope._options)
    with back as sample:
        pass
    assert sample.state == "disabled"


@dataclass
class Model:
    scope: gpuprof.Scope
    weights: list[float] = field(default_factory=lambda: [1.0])


def test_objects_that_hold_scopes_can_be_copied_and_pickled() -> None:
    model = Model(cpu("held"))
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert twin.weights == [1.0]
        with twin.scope as sample:
            pass
        assert sample.path == "held"
