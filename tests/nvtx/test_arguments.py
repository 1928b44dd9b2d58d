"""What annotate, mark, range_start and range_end accept, and what they say of the rest."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gpuprof
from tests.nvtx_injection.processes import check_under_tool


def test_annotate_by_name_is_one_object_per_name() -> None:
    assert gpuprof.annotate("one") is gpuprof.annotate("one")
    assert gpuprof.annotate("one") is not gpuprof.annotate("two")
    assert gpuprof.annotate("one", payload=1) is not gpuprof.annotate("one")
    assert gpuprof.annotate("one").name == "one"
    assert repr(gpuprof.annotate("one")) == "<gpuprof.annotate 'one'>"


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"color": "octarine"}, ValueError, "color: expected '#rrggbb'.*green.*got 'octarine'"),
    ({"color": "#12345"}, ValueError, "color: expected '#rrggbb'"),
    ({"color": 2**32}, ValueError, "color: expected a number from 0 to 0xFFFFFFFF"),
    ({"color": -1}, ValueError, "color: expected a number"),
    ({"color": "a" + "\N{GREEK SMALL LETTER PI}" * 80}, ValueError, "color: expected '#rrggbb'"),
    ({"color": 1.5}, TypeError, "color: expected a str, an int or None, got float"),
    ({"category": 3}, TypeError, "category: expected a str or None, got int"),
    ({"category": ""}, ValueError, "category: expected a non-empty str"),
    ({"domain": b"x"}, TypeError, "domain: expected a str or None, got bytes"),
    ({"payload": "3"}, TypeError, "payload: expected an int, a float, an array of numbers"),
    ({"args": [1]}, TypeError, "args: expected a dict or None, got list"),
    ({"args": {1: 2}}, TypeError, "args: expected a dict whose keys are str, got int"),
    ({"colour": "red"}, TypeError, "has no argument 'colour'; it takes name, color, category"),
]


@pytest.mark.parametrize("function", ["annotate", "mark", "range_start"])
@pytest.mark.parametrize(("given", "error", "message"), WRONG, ids=str)
def test_a_wrong_argument_is_an_error_at_the_call_that_says_what_fits(
    function: str, given: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        getattr(gpuprof, function)("name", **given)


@pytest.mark.parametrize("function", ["annotate", "mark", "range_start"])
@pytest.mark.parametrize("name", [3, b"bytes", 1.5])
def test_a_name_that_is_no_str_is_a_type_error(function: str, name: object) -> None:
    with pytest.raises(TypeError, match=f"name: expected a str.*gpuprof.{function}"):
        getattr(gpuprof, function)(name)


@pytest.mark.parametrize("function", [gpuprof.mark, gpuprof.range_start])
def test_a_mark_and_a_started_range_need_a_name(function: Callable[[], object]) -> None:
    with pytest.raises(TypeError, match="name: expected a str, got NoneType"):
        function()


def test_a_second_positional_argument_is_refused() -> None:
    with pytest.raises(TypeError, match="got 2 positional arguments"):
        gpuprof.annotate("name", "red")  # type: ignore[call-overload]


@pytest.mark.parametrize("number", ["1", None, 1.0])
def test_range_end_takes_an_int(number: Any) -> None:
    with pytest.raises(TypeError, match="id: expected the int that range_start returned"):
        gpuprof.range_end(number)


def test_names_of_domains_and_categories_are_cut_and_have_no_nul(tool: Path) -> None:
    code = """
        with gpuprof.annotate("x", domain="d\\0e", category="c\\0" + "\\u03c0" * 5000):
            pass
        (category,) = [e for e in tool.events("category") if e.domain != "gpuprof"]
        print(ascii(category.domain), ascii(category.text[:3]), len(category.text.encode()) <= 4096)
    """
    assert check_under_tool(tool, code).split() == [r"'d\ufffde'", r"'c\ufffd\u03c0'", "True"]


def test_a_colour_that_python_cannot_write_out_is_refused_like_any_other() -> None:
    with pytest.raises(ValueError, match="color: expected a number from 0 to 0xFFFFFFFF"):
        gpuprof.annotate("x", color=10**5000)


def test_an_awaitable_cannot_be_made_out_of_nothing() -> None:
    kind = type(gpuprof.annotate("x").__aenter__())
    with pytest.raises(TypeError, match="cannot create"):
        kind()


class FakeArray:
    """Like an array on a GPU: reading it would wait."""

    def __dlpack__(self) -> None: ...

    def __float__(self) -> float:
        raise AssertionError("the array was read")

    def __repr__(self) -> str:
        raise AssertionError("the array was read")


def test_an_array_on_a_gpu_is_no_payload_because_reading_it_would_wait() -> None:
    with pytest.raises(TypeError, match=r"in host memory.*copied first: x.cpu\(\).numpy\(\)"):
        gpuprof.annotate("x", payload=FakeArray())  # type: ignore[call-overload]


class Scalar:
    """Like a scalar of NumPy's."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __float__(self) -> float:
        return self.value


def test_a_scalar_is_a_payload(tool: Path) -> None:
    code = """
        from tests.nvtx.test_arguments import Scalar
        with gpuprof.annotate("x", payload=Scalar(2.5)):
            print(tool.events("push")[0].payload)
    """
    assert check_under_tool(tool, code).strip() == "2.5"


@pytest.mark.parametrize("name", ["", "a\0b", "\0"])
def test_an_invalid_label_warns_once_and_shows_nothing(tool: Path, name: str) -> None:
    code = f"""
        import warnings
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                with gpuprof.annotate({name!r}) as annotation:
                    assert not annotation.is_active
                gpuprof.mark({name!r})
                assert gpuprof.range_start({name!r}) == 0
        print(len(caught), caught[0].message)
        print(tool.calls())
    """
    out = check_under_tool(tool, code)
    first, second = out.splitlines()
    assert first.startswith("1 gpuprof: the name of an annotation is empty or has a NUL")
    assert second == "[]"


def test_an_annotation_without_a_name_is_a_decorator_only() -> None:
    with pytest.warns(RuntimeWarning, match="without a name was entered"), gpuprof.annotate():
        pass


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_an_annotation_pickles_as_its_arguments(protocol: int) -> None:
    before = gpuprof.annotate("x", color="red", category="c", payload=3, domain="d", args={"a": 1})
    after = pickle.loads(pickle.dumps(before, protocol))
    assert (after.name, after._options) == (before.name, before._options)
    plain_one = gpuprof.annotate("pickled")
    assert pickle.loads(pickle.dumps(plain_one, protocol)) is plain_one
