"""Names and arguments of scopes: what is taken, what is refused, and what outputs show of it."""

from __future__ import annotations

from typing import Any

import pytest

import gpuprof
from tests.support.ids import short
from tests.support.scopes import cpu

TEN_MEGABYTES = 10_000_000
OUTPUT_BYTES = 4096


def measured(name: str) -> gpuprof.Sample:
    with cpu(name) as sample:
        pass
    return sample


@pytest.mark.parametrize("name", [3, 2.5, b"fwd", ["fwd"], ("fwd",), {}, object()])
def test_a_name_that_is_not_text_is_a_type_error_that_says_what_was_given(name: Any) -> None:
    with pytest.raises(TypeError, match=f"name: expected a str.*got {type(name).__name__}"):
        gpuprof.timer(name)


def test_an_empty_name_is_a_value_error_that_says_what_to_do() -> None:
    with pytest.raises(ValueError, match="leave it out for an unnamed scope"):
        gpuprof.timer("")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a\0b", "a\ufffdb"),
        ("\0", "\ufffd"),
        ("a\ud800b", "a\ufffdb"),
        ("\udfff", "\ufffd"),
        ("a\ud800", "a\ufffd"),
        ("\ud83d\ude00", "\U0001f600"),
        ("\ufeffmark", "\ufeffmark"),
    ],
    ids=ascii,
)
def test_nul_and_lone_surrogates_become_the_replacement_character(name: str, shown: str) -> None:
    assert measured(name).path == shown
    assert list(gpuprof.stats()) == [shown]


@pytest.mark.parametrize("name", ["🔥", "前向", "a b", "a\nb", "  ", "(x)", "%s", "e\u0301"])
def test_any_other_text_is_kept_as_it_is(name: str) -> None:
    assert measured(name).path == name
    assert gpuprof.stats()[name].host is not None


def test_a_huge_name_is_cut_in_outputs() -> None:
    sample = measured("x" * TEN_MEGABYTES)
    assert len(sample.path.encode()) <= OUTPUT_BYTES
    assert [len(str(key).encode()) <= OUTPUT_BYTES for key in gpuprof.stats()] == [True]
    for each in (sample, cpu("x" * TEN_MEGABYTES)):
        assert len(repr(each).encode()) < 2 * OUTPUT_BYTES


def test_a_huge_name_is_cut_between_characters() -> None:
    path = measured("é" * TEN_MEGABYTES).path
    assert path.startswith("ééé")
    assert "\ufffd" not in path


def test_huge_names_that_differ_only_at_the_end_stay_apart() -> None:
    long = "x" * TEN_MEGABYTES
    assert measured(long + "1").path != measured(long + "2").path
    assert len(gpuprof.stats()) == 2


def test_nesting_and_a_slash_in_a_name_are_rows_of_their_own() -> None:
    flat = measured("slash/inner")
    for _ in range(2):
        with cpu("slash"), cpu("inner") as nested:
            pass
    assert (nested.path, nested.names) == ("slash/inner", ("slash", "inner"))
    stats = gpuprof.stats()
    counts = {names: stats[names, "cpu"].time.count for names in (flat.names, nested.names)}
    assert counts == {("slash/inner",): 1, ("slash", "inner"): 2}


def test_an_argument_that_timer_does_not_have_is_timers_error() -> None:
    with pytest.raises(TypeError, match=r"^timer\(\) got an .*'sync'; .* reading sample.ms"):
        gpuprof.timer("x", sync=True)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^timer\(\) got an unexpected keyword argument 'color'$"):
        gpuprof.timer("x", color="red")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^timer\(\) takes .* positional"):
        gpuprof.timer("x", "cpu")  # type: ignore[misc]


@pytest.mark.parametrize("decorator", [gpuprof.timer, gpuprof.annotate, cpu("x")], ids=short)
def test_a_class_is_refused_with_the_method_to_decorate(decorator: Any) -> None:
    class Plain:
        pass

    class Model:
        def forward(self) -> None:
            pass

    for kind, method in ((Plain, "Plain.__init__"), (Model, "Model.forward")):
        with pytest.raises(TypeError, match=f"got the class .*; decorate a method .*{method}$"):
            decorator(kind)
