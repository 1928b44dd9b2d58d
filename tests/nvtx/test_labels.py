"""Labels: the rule, and what becomes of hostile names and payloads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpuprof
from gpuprof import nvtx
from tests.nvtx_injection.processes import check_under_tool


def is_c_label(label: bytes) -> bool:
    """Say it in another way than the library: the bytes before the first NUL are all there is."""
    return len(label) >= 2 and label.partition(b"\0")[1:] == (b"\0", b"")


def generated_labels() -> list[bytes]:
    """Every label over a small alphabet up to a length, and those bytes at every place."""
    alphabet = [b"\0", b"a", b"/", b"\xff", b"\xc3\xa9"]
    labels = [b""]
    newest = [b""]
    for _ in range(5):
        newest = [label + letter for label in newest for letter in alphabet]
        labels += newest
    return labels


def test_thousands_of_generated_labels_are_judged_by_the_rule() -> None:
    labels = generated_labels()
    assert len(labels) >= 3000
    wrong = [label for label in labels if nvtx.valid_label(label) is not is_c_label(label)]
    assert not wrong
    assert sum(map(nvtx.valid_label, labels)) > 300


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1))
def test_the_label_of_a_spec_is_valid(name: str) -> None:
    label = gpuprof.nvtx.RangeSpec(name, "described").label
    assert nvtx.valid_label(label)
    assert label[:-1].decode() == name


@pytest.mark.parametrize("label", ["a\0", bytearray(b"a\0"), None])
def test_a_label_that_is_not_bytes_is_a_type_error(label: object) -> None:
    with pytest.raises(TypeError, match="label: expected bytes that end in a NUL"):
        nvtx.valid_label(label)  # type: ignore[arg-type]


HOSTILE = {
    "quotes": 'a "b" \\',
    "control": "a\n\t\x01b",
    "emoji": "\N{ROCKET}\N{GREEK SMALL LETTER PI}",
    "surrogate": "a\ud800b",
    "surrogate pair": "\ud83d\ude80",
    "percent": "%s%n%p",
}


def test_hostile_names_reach_the_tool_as_utf8(tool: Path) -> None:
    code = f"""
        import json
        for name in {list(HOSTILE.values())!r}:
            with gpuprof.annotate(name) as annotation:
                assert annotation.is_active
        print(json.dumps([e.text for e in tool.events("push")]))
    """
    assert json.loads(check_under_tool(tool, code)) == [
        HOSTILE["quotes"],
        HOSTILE["control"],
        HOSTILE["emoji"],
        "a\N{REPLACEMENT CHARACTER}b",
        "\N{ROCKET}",
        HOSTILE["percent"],
    ]


def test_a_name_of_ten_megabytes_is_cut_between_characters(tool: Path) -> None:
    code = """
        name = "\N{EURO SIGN}" * (10 << 20)
        with gpuprof.annotate(name), gpuprof.timer(name, backend="cpu"):
            pass
        for event in tool.events("push"):
            assert len(event.text.encode()) <= 4096
            assert event.text.lstrip("\N{EURO SIGN}") == "\N{HORIZONTAL ELLIPSIS}"
            print(event.registered)
    """
    assert check_under_tool(tool, code).split() == ["True", "True"]


def test_payloads_that_are_no_plain_numbers_arrive(tool: Path) -> None:
    code = """
        for payload in (float("nan"), float("inf"), 2**63, -2**63, 2**70, -10**400, True):
            with gpuprof.annotate("x", payload=payload):
                pass
        print([e.payload for e in tool.events("push")])
    """
    assert check_under_tool(tool, code).strip() == (
        "[nan, inf, 9223372036854775808, -9223372036854775808, 1.1805916207174113e+21, -inf, 1]"
    )
