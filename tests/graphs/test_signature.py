"""What a signature says of a graph: equal or not, and in words what another graph launches more."""

from __future__ import annotations

import copy
import json
import pickle

import pytest

import gpuprof
from gpuprof._graphs.signature import signature_of
from tests.fake_driver.control import FakeCuda
from tests.support.graph_nodes import Spec, chain, make

US = 1_000


def test_another_kernel_is_said_in_words() -> None:
    base, new = signature_of(chain("gemm", "add")), signature_of(chain("gemm", "add", "add"))
    assert base != new
    assert base.diff(new) == "+1 add, 2 -> 3 kernels"
    assert new.diff(base) == "-1 add, 3 -> 2 kernels"
    assert base.diff(signature_of(chain("gemm", "add"))) == ""


def test_copies_memsets_and_child_graphs_count() -> None:
    nodes = make(
        Spec("gemm"),
        Spec(type="memcpy", nbytes=8),
        Spec(type="memset", nbytes=8, value=0),
        Spec(type="event_record"),
        Spec(type="graph", children=chain("gemm", "add")),
    )
    launches = signature_of(nodes).launches
    assert dict(launches.kernels) == {"gemm": 2, "add": 1}
    assert (launches.copies, launches.memsets, launches.total) == (1, 1, 5)


def test_the_same_launches_in_another_shape_are_said_to_be_that() -> None:
    base = signature_of(make(Spec("add", grid=(8, 1, 1))))
    new = signature_of(make(Spec("add", grid=(9, 1, 1))))
    assert base.diff(new).startswith(
        "the same kernels, copies and memsets by name, but other grids"
    )


def test_it_is_text_in_every_respect() -> None:
    signature = signature_of(chain("gemm"))
    assert isinstance(signature, str)
    assert len(signature) == 16
    assert signature == str(signature)
    assert type(str(signature)) is str
    assert {signature: 1}[str(signature)] == 1
    assert json.loads(json.dumps(signature)) == signature
    for same in (pickle.loads(pickle.dumps(signature)), copy.deepcopy(signature)):
        assert same == signature
        assert same.launches == signature.launches


def test_digits_alone_do_not_tell_what_differs() -> None:
    signature = signature_of(chain("gemm"))
    with pytest.raises(
        TypeError, match=r"expected what signature\(\) of a graph returned, got str"
    ):
        signature.diff(str(signature))  # type: ignore[arg-type]


def test_stored_launches_are_compared_with_those_of_a_graph() -> None:
    stored = json.dumps(signature_of(chain("gemm", "add")).launches.to_dict())
    now = signature_of(chain("gemm", "add", "add")).launches
    assert (
        gpuprof.results.Launches.from_dict(json.loads(stored)).diff(now) == "+1 add, 2 -> 3 kernels"
    )


def test_a_captured_graph_has_one(fake: FakeCuda, stream: int) -> None:
    def captured(kernels: int) -> gpuprof.CapturedGraph:
        with gpuprof.capture(stream) as cap:
            for _ in range(kernels):
                fake.kernel(stream, "step_k", US)
        return cap.graph

    with captured(2) as base, captured(3) as new:
        assert base.signature().diff(new.signature()) == "+1 step_k, 2 -> 3 kernels"
        assert base.signature().launches.source == "graph"
