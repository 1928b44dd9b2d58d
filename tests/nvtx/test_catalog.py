"""Catalogs of ranges: declared once, checked at declaration, used by name."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import gpuprof
from gpuprof import nvtx
from gpuprof.nvtx import RangeCatalog, RangeSpec
from tests.nvtx_injection.processes import check_under_tool

DECODE = RangeSpec("catalog_test.decode", "one step of decoding")
PREFILL = RangeSpec("catalog_test.prefill", "the prompt")


def test_a_label_is_the_name_in_utf8_with_a_final_nul() -> None:
    spec = RangeSpec("n.\N{GREEK SMALL LETTER PI}", "circles")
    assert spec.label == b"n.\xcf\x80\0"
    assert nvtx.valid_label(spec.label)


@pytest.mark.parametrize(
    ("name", "description", "error", "message"),
    [
        ("", "x", ValueError, "name: expected non-empty text without NUL, got ''"),
        ("a\0b", "x", ValueError, "name: expected non-empty text without NUL"),
        ("a\ud800", "x", ValueError, "name: .* has a lone surrogate"),
        (b"a", "x", TypeError, "name: expected a str, got b'a'"),
        ("a", "", ValueError, "description: say what the range 'a' is"),
        ("a", "  ", ValueError, "description: say what"),
        ("a", None, TypeError, "description: expected a str, got None"),
    ],
)
def test_a_wrong_spec_is_an_error_when_it_is_made(
    name: Any, description: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        RangeSpec(name, description)


@pytest.mark.parametrize(
    ("namespace", "specs", "error", "message"),
    [
        ("a", [RangeSpec("b.x", "x")], ValueError, "'b.x' is not in the namespace; write 'a...."),
        ("a", [RangeSpec("a.", "x")], ValueError, "'a.' is not in the namespace"),
        ("a", [RangeSpec("a.x", "x"), RangeSpec("a.x", "y")], ValueError, "'a.x' is there twice"),
        ("a", [], ValueError, "the catalog 'a' has no ranges"),
        ("a", ["a.x"], TypeError, "specs: expected RangeSpec objects, got 'a.x'"),
        ("", [RangeSpec("a.x", "x")], ValueError, "namespace: expected text like 'engine', got ''"),
        ("a.", [RangeSpec("a.x", "x")], ValueError, "namespace: expected text like"),
        (3, [RangeSpec("a.x", "x")], TypeError, "namespace: expected a str, got 3"),
    ],
)
def test_a_wrong_catalog_is_an_error_when_it_is_made(
    namespace: Any, specs: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        RangeCatalog(namespace, specs)
    assert not [c for c in nvtx.catalogs() if c.namespace == namespace]


def test_a_catalog_maps_names_with_and_without_the_namespace_to_annotations() -> None:
    catalog = RangeCatalog("catalog_test", [DECODE, PREFILL])
    assert isinstance(catalog, Mapping)
    assert list(catalog) == ["catalog_test.decode", "catalog_test.prefill"]
    assert catalog["decode"] is catalog["catalog_test.decode"]
    assert isinstance(catalog["decode"], gpuprof.Annotation)
    assert "prefill" in catalog
    with pytest.raises(KeyError, match="'encode'; the catalog 'catalog_test' has catalog_test"):
        catalog["encode"]


def test_a_catalog_describes_itself() -> None:
    catalog = RangeCatalog("catalog_test", [DECODE, PREFILL])
    assert repr(catalog) == "<RangeCatalog 'catalog_test': 2 ranges>"
    assert catalog.describe().splitlines() == [
        "catalog_test.decode   one step of decoding",
        "catalog_test.prefill  the prompt",
    ]


def test_declared_again_by_its_own_module_the_new_one_counts() -> None:
    RangeCatalog("catalog_test", [DECODE])
    newer = RangeCatalog("catalog_test", [DECODE, PREFILL])
    assert [c for c in nvtx.catalogs() if c.namespace == "catalog_test"] == [newer]


def test_another_module_cannot_declare_other_ranges_in_a_namespace() -> None:
    here = [RangeSpec("taken.here", "declared here")]
    RangeCatalog("taken", here)
    specs = [RangeSpec("taken.there", "declared elsewhere")]
    elsewhere = {"__name__": "elsewhere", "RangeCatalog": RangeCatalog, "specs": specs}
    with pytest.raises(ValueError, match=r"'tests\.nvtx\.test_catalog' has declared other ranges"):
        exec("RangeCatalog('taken', specs)", elsewhere)
    elsewhere["specs"] = here
    exec("RangeCatalog('taken', specs)", elsewhere)


def test_specs_and_catalogs_pickle() -> None:
    catalog = RangeCatalog("catalog_test", [DECODE, PREFILL])
    assert pickle.loads(pickle.dumps(DECODE)) == DECODE
    assert pickle.loads(pickle.dumps(catalog)) is catalog


def test_names_are_given_to_the_tool_at_declaration_or_when_nvtx_comes_on(tool: Path) -> None:
    code = """
        from gpuprof.nvtx import RangeCatalog, RangeSpec
        early = RangeCatalog("early", [RangeSpec("early.x", "x")], domain="mine")
        assert tool.events() == []
        gpuprof.nvtx.enable()
        late = RangeCatalog("late", [RangeSpec("late.y", "y")])
        known = {(e.domain, e.text) for e in tool.events("register")}
        assert known >= {("mine", "early.x"), ("gpuprof", "late.y"), ("gpuprof", "gpuprof.drain")}
        with early["x"], late["y"]:
            pass
        print(*tool.calls(), sep=", ")
        print({(e.domain, e.text) for e in tool.events("register")} == known)
    """
    out = check_under_tool(tool, code, nvtx="0")
    assert out.splitlines() == ["push early.x, push late.y, pop, pop", "True"]


def test_gpuprofs_own_ranges_are_a_catalog() -> None:
    own = nvtx.CATALOG
    assert own in nvtx.catalogs()
    wanted = {"capture", "instantiate", "replay", "drain", "flush"}
    assert {name.removeprefix("gpuprof.") for name in own} == wanted


def test_what_gpuprof_pushes_itself_is_in_its_catalog(tool: Path) -> None:
    code = """
        gpuprof.stats()
        pushed = [e.text for e in tool.events("push")]
        print(len(pushed), set(pushed) <= set(gpuprof.nvtx.CATALOG))
    """
    assert check_under_tool(tool, code).split() == ["2", "True"]
