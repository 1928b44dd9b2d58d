"""What a signature says of a graph: equal or not, and in words what another graph launches more."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable

import pytest

import gpuprof
from gpuprof.results import GraphSignature, Launches
from tests.fake_driver.control import FakeCuda
from tests.support.captures import captured

HOSTILE = "evil\x1b[31m\nk"
Signed = Callable[..., GraphSignature]


@pytest.fixture
def signed(fake: FakeCuda, stream: int) -> Signed:
    """Capture kernels of these names, and sign their graph."""

    def sign(*kernels: str) -> GraphSignature:
        with captured(fake, stream, *kernels) as graph:
            return graph.signature()

    return sign


def test_another_kernel_is_said_in_words(signed: Signed) -> None:
    base, new = signed("gemm", "add"), signed("gemm", "add", "add")
    assert base != new
    assert base.diff(new) == "+1 add, 2 -> 3 kernels"
    assert new.diff(base) == "-1 add, 3 -> 2 kernels"
    assert base.diff(signed("gemm", "add")) == ""
    assert base.launches.source == "graph"


def test_copies_memsets_and_child_graphs_count(fake: FakeCuda, stream: int) -> None:
    address, event = fake.memory_allocate(4096), fake.event_create()
    with captured(fake, stream, "gemm", "add") as child, gpuprof.capture(stream) as cap:
        fake.kernel(stream, "gemm")
        fake.copy(stream, 8)
        fake.call("cuMemsetD8Async", address, 0, 8, stream)
        fake.event_record(event, stream)
        fake.add_child(fake.captured_graph(stream), child.raw_graph)
    with cap.graph as graph:
        launches = graph.signature().launches
    assert dict(launches.kernels) == {"gemm": 2, "add": 1}
    assert (launches.copies, launches.memsets, launches.total) == (1, 1, 5)
    fake.event_destroy(event)
    fake.memory_free(address)


def test_the_same_launches_in_another_shape_are_said_to_be_that(
    fake: FakeCuda, stream: int
) -> None:
    def shaped(width: int) -> GraphSignature:
        with gpuprof.capture(stream) as cap:
            fake.kernel(stream, "add", grid=(width, 1, 1))
        with cap.graph as graph:
            return graph.signature()

    words = shaped(8).diff(shaped(9))
    assert words.startswith("the same kernels, copies and memsets by name, but other grids")


def test_it_is_text_in_every_respect(signed: Signed) -> None:
    signature = signed("gemm")
    assert isinstance(signature, str)
    assert len(signature) == 16
    assert signature == str(signature)
    assert type(str(signature)) is str
    assert {signature: 1}[str(signature)] == 1
    assert json.loads(json.dumps(signature)) == signature
    for same in (pickle.loads(pickle.dumps(signature)), copy.deepcopy(signature)):
        assert same == signature
        assert same.launches == signature.launches


def test_digits_alone_do_not_tell_what_differs(signed: Signed) -> None:
    signature = signed("gemm")
    expected = r"expected what signature\(\) of a graph returned, got str"
    with pytest.raises(TypeError, match=expected):
        signature.diff(str(signature))  # type: ignore[arg-type]


def test_stored_launches_are_compared_with_those_of_a_graph(signed: Signed) -> None:
    stored = json.dumps(signed("gemm", "add").launches.to_dict())
    now = signed("gemm", "add", "add").launches
    assert Launches.from_dict(json.loads(stored)).diff(now) == "+1 add, 2 -> 3 kernels"


def test_names_of_any_characters_are_shown_on_a_line_and_survive_json(signed: Signed) -> None:
    found = signed(HOSTILE, "", "\xfc", "\xfc").launches
    assert sorted(found.kernels.values()) == [1, 1, 2]
    assert "" not in found.kernels
    words = Launches().diff(found)
    assert "\x1b" not in words
    assert "\n" not in words
    assert Launches.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_very_long_names_stay_apart(signed: Signed) -> None:
    long = "k" * 5_000
    found = signed(f"{long}a", f"{long}b", f"{long}b").launches.kernels
    assert sorted(found.values()) == [1, 2]
    assert all(len(name) < 600 for name in found)
