"""What graphs are by their nodes alone, without a driver: names, signatures, differences."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuprof import GraphNode, _core
from gpuprof._graphs import diff as graphs_diff
from gpuprof._graphs.diff import compare as diff
from gpuprof._graphs.signature import digits
from tests.support.graph_nodes import HOSTILE, Spec, chain, make
from tests.support.processes import check_python


def renumbered(specs: Sequence[Spec], order: Sequence[int]) -> tuple[GraphNode, ...]:
    """Make the same graph with its nodes listed in another order."""
    place = {old: new for new, old in enumerate(order)}
    return make(
        *(
            Spec(**{**vars(specs[old]), "after": [place[i] for i in specs[old].after]})
            for old in order
        )
    )


# Graphs of a few nodes, each of which waits for some of those before it.
@st.composite
def graph_specs(draw: st.DrawFn) -> list[Spec]:
    size = draw(st.integers(0, 8))
    return [
        Spec(
            draw(st.sampled_from(["add", "mul"])),
            after=sorted(draw(st.sets(st.integers(0, index - 1)))) if index else [],
            grid=(draw(st.sampled_from([1, 2])), 1, 1),
        )
        for index in range(size)
    ]


# Nodes


def test_nodes_are_equal_hashed_and_pickled_by_what_they_hold() -> None:
    nodes = chain("add", "mul")
    assert nodes == chain("add", "mul")
    assert nodes != chain("add", "add")
    assert len({*nodes, *chain("add", "mul")}) == 2
    assert pickle.loads(pickle.dumps(nodes)) == nodes
    assert nodes[0] != "add"


def test_nodes_are_immutable() -> None:
    with pytest.raises(AttributeError):
        chain("add")[0].name = "mul"  # type: ignore[misc]


def test_a_node_as_plain_data_is_json_and_complete() -> None:
    inner = chain("add")
    node = make(Spec(type="graph", children=inner))[0]
    data = json.loads(json.dumps(node.to_dict()))
    assert data["type"] == "graph"
    assert data["children"][0]["grid"] == [8, 1, 1]
    assert data["grid"] is None
    assert data.keys() == {name for name in dir(GraphNode) if name[0] != "_"} - {"to_dict"}


def test_a_nodes_repr_says_what_it_is() -> None:
    assert repr(chain("add")[0]) == "<GraphNode 0 kernel 'add' grid=(8, 1, 1) block=(256, 1, 1)>"
    assert "\n" not in repr(chain(HOSTILE)[0])


def test_children_must_be_nodes() -> None:
    with pytest.raises((TypeError, RuntimeError)):
        GraphNode(0, "graph", children=("add",))


# Names


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("add_k", "add_k"),
        ("void add_k<float>(float*, int)", "add_k<...>"),
        (
            "void at::native::add<4, at::Functor<float>, std::array<char*, 2ul> >(int)",
            "at::native::add<...>",
        ),
        ("void (anonymous namespace)::k<(int)3>(float)", "{anonymous}::k<...>"),
        ("cudapy::__main__::add[abi:v1](Array<float, 1>)", "cudapy::__main__::add"),
        ("void at::k<128, at::copy(int)::{lambda()#3}>(at::f()::{lambda(int)#1})", "at::k<...>"),
        ("f()::{lambda(int)#1}::operator()(float)", "f"),
        ("{lambda(int)#1}::go<4>(float)", "{lambda(int)#1}::go<...>"),
        ("(", "("),
        ("", ""),
    ],
)
def test_short_names_keep_what_tells_kernels_apart(name: str, short: str) -> None:
    assert _core._short_name(name) == short


@given(st.text())
@example(HOSTILE)
@example("operator<")
@example("}{)(][><")
def test_short_names_are_short_and_on_one_line(name: str) -> None:
    short = _core._short_name(name)
    assert len(short) <= 60
    assert short.isprintable() or not name.isprintable()
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]", short)


def test_kernel_names_are_in_launch_order_with_those_of_child_graphs() -> None:
    inner = chain("b", "c")
    nodes = make(
        Spec("d", after=[2]),
        Spec("a"),
        Spec(type="graph", after=[1], children=inner),
        Spec(type="memset", after=[1], nbytes=4, value=0),
    )
    assert _core._kernel_names(nodes) == ["a", "b", "c", "d"]
    assert _core._kernel_names(()) == []


def test_kernels_that_do_not_wait_for_each_other_stay_in_the_drivers_order() -> None:
    nodes = make(*(Spec(name) for name in "abcde"), Spec("f", after=[0]), Spec("g", after=[4]))
    assert _core._kernel_names(nodes) == list("abcdefg")


# Signatures


@given(graph_specs(), st.randoms(use_true_random=False))
def test_a_signature_does_not_depend_on_how_nodes_are_listed(
    specs: list[Spec], random: Any
) -> None:
    order = list(range(len(specs)))
    random.shuffle(order)
    assert digits(renumbered(specs, order)) == digits(make(*specs))
    assert not diff(make(*specs), renumbered(specs, order))


@given(graph_specs(), graph_specs(), st.none() | st.integers(0, 20))
def test_graphs_with_different_signatures_have_a_difference_to_show(
    one: list[Spec], two: list[Spec], bound: int | None
) -> None:
    a, b = make(*one), make(*two)
    with pytest.MonkeyPatch.context() as patch:
        if bound is not None:
            patch.setattr(graphs_diff, "MAX_COMPARED", bound)
        found = diff(a, b)
    assert bool(found) == (digits(a) != digits(b))
    assert bool(found) == bool(found.lines)
    assert len(a) - len(found.removed) == len(b) - len(found.added)


def test_a_signature_is_the_same_in_another_process() -> None:
    code = """
    from gpuprof._core import GraphNode
    from gpuprof._graphs.signature import digits
    print(digits([GraphNode(0, "kernel", "add", "add", (8, 1, 1), (256, 1, 1), 0)]))
    """
    expected = digits(chain("add"))
    assert check_python(code, PYTHONHASHSEED="7") == f"{expected}\n"
    assert re.fullmatch("[0-9a-f]{16}", expected)


_BASE = [Spec("add"), Spec("mul", after=[0]), Spec("mul", after=[0]), Spec("sub", after=[1, 2])]
_CHANGES: dict[str, list[Spec]] = {
    "a programmatic edge": [_BASE[0], Spec("mul", after=[0], programmatic=[0]), *_BASE[2:]],
    "another type": [Spec(type="memset", nbytes=4, value=0), *_BASE[1:]],
}


@pytest.mark.parametrize("change", _CHANGES)
def test_what_a_graph_does_is_in_its_signature_and_its_difference(change: str) -> None:
    before, after = make(*_BASE), make(*_CHANGES[change])
    assert digits(before) != digits(after)
    assert diff(before, after)


def test_one_node_that_two_wait_for_is_not_two_nodes() -> None:
    shared = make(Spec("a"), Spec("a"), Spec("b", after=[0]), Spec("b", after=[0]))
    apart = make(Spec("a"), Spec("a"), Spec("b", after=[0]), Spec("b", after=[1]))
    assert digits(shared) != digits(apart)


def test_what_is_in_a_child_graph_counts() -> None:
    one = make(Spec(type="graph", children=chain("add")))
    two = make(Spec(type="graph", children=chain("mul")))
    assert digits(one) != digits(two)
    assert diff(one, two).lines == (
        "node 0 graph: in its child graph: node 0 add: kernel add -> mul",
    )


# Differences


def test_no_difference_is_said_with_what_was_not_compared() -> None:
    same = diff(chain("add", "mul"), chain("add", "mul"))
    assert not same
    assert same == graphs_diff.GraphDiff()
    assert str(same).startswith("no difference (kernel arguments")
    assert same.to_dict()["different"] is False


def test_a_changed_field_is_named_with_both_values() -> None:
    before = make(Spec("add_k"), Spec(type="memset", after=[0], nbytes=4096, value=0))
    after = make(
        Spec("add_k", grid=(16, 1, 1)), Spec(type="memset", after=[0], nbytes=8192, value=1)
    )
    assert diff(before, after).lines == (
        "node 0 add_k: grid (8,1,1) -> (16,1,1)",
        "node 1 memset: nbytes 4,096 -> 8,192, value 0 -> 1",
    )


def test_a_node_put_in_between_is_an_added_node_and_no_change_of_the_others() -> None:
    found = diff(chain("a", "b", "c"), chain("a", "x", "b", "c"))
    assert found.lines == (
        "added: node 1 x, kernel, grid (8,1,1) block (256,1,1)",
        "edge removed: node 0 a -> node 1 b",
    )
    assert [node.name for node in found.added] == ["x"]
    assert not found.removed
    assert not found.changed


def test_long_names_that_differ_in_a_template_argument_are_shown_where_they_differ() -> None:
    long = "void at::native::kernel<" + "std::array<char*, 2ul>, " * 20 + "{}Functor<float>>(int)"
    (line,) = diff(chain(long.format("Add")), chain(long.format("Mul"))).lines
    assert "AddFunctor" in line
    assert "MulFunctor" in line
    assert line.count("…") == 2  # where both names begin
    assert len(line) < 300


def test_another_kind_of_edge_is_a_change_of_the_edge() -> None:
    before = make(Spec("a"), Spec("b", after=[0]))
    after = make(Spec("a"), Spec("b", after=[0], programmatic=[0]))
    found = diff(before, after)
    assert found.lines == ("edge node 0 a -> node 1 b: full -> programmatic",)
    assert found.edges_changed == ((0, 1),)


def test_kernels_stay_at_their_place_where_that_costs_no_pair() -> None:
    found = diff(chain(*"axbyc"), chain(*"azbac"))
    assert found.lines == ("node 1 x: kernel x -> z", "node 3 y: kernel y -> a")


@pytest.mark.parametrize(("other", "changed"), [("aaba", 100), ("baaa", 300)])
def test_past_a_bound_kernels_are_paired_by_place(
    monkeypatch: pytest.MonkeyPatch, other: str, changed: int
) -> None:
    monkeypatch.setattr(graphs_diff, "MAX_COMPARED", 1_000)
    found = diff(chain(*"abba" * 100), chain(*other * 100))
    assert (len(found.changed), found.added, found.removed) == (changed, (), ())


@pytest.mark.parametrize("count", [300, 3000])
def test_large_graphs_are_compared_at_both_ends_and_in_the_middle(count: int) -> None:
    before = ["same"] * count
    after = ["first", *before[1:-1], "last"]
    after[count // 2] = "middle"
    found = diff(chain(*before), chain(*after))
    names = {change.other.name for change in found.changed}
    assert names == {"first", "middle", "last"}
    assert not found.added
    assert not found.removed


@pytest.mark.parametrize("count", [40, 1200])
def test_kernels_put_in_front_and_behind_are_all_that_is_added(count: int) -> None:
    before = [f"layer {i % 12}" for i in range(count)]
    found = diff(chain(*before), chain("first", *before, "last"))
    assert [node.name for node in found.added] == ["first", "last"]
    assert len(found.lines) == 2


def test_a_kernel_put_in_front_of_many_that_changed_is_all_that_is_added() -> None:
    names = [f"layer {i % 12}" for i in range(1200)]
    wide = (16, 1, 1)
    after = [Spec("first"), *(Spec(name, after=[i], grid=wide) for i, name in enumerate(names))]
    found = diff(chain(*names), make(*after))
    assert [node.name for node in found.added] == ["first"]
    assert len(found.changed) == len(names)
    assert all(change.fields.keys() == {"grid"} for change in found.changed)


def test_a_long_difference_is_cut_where_it_is_shown_and_whole_in_its_lines() -> None:
    found = diff(chain(*["a"] * 150), chain(*["b"] * 150))
    assert len(found.lines) == 150
    shown = str(found).splitlines()
    assert len(shown) == 101
    assert shown[-1] == "and 50 more differences; .lines has them all"
    shown = repr(found).splitlines()
    assert shown[:20] == list(found.lines[:20])
    assert shown[20:] == ["and 130 more differences; .lines has them all"]


def test_a_differences_repr_is_its_text() -> None:
    found = diff(chain("a", "b"), chain("a", "c"))
    assert repr(found) == str(found) == "node 1 b: kernel b -> c"
    assert repr(found.changed[0]) == "<gpuprof.results.NodeChange node 1 b: kernel b -> c>"
    assert repr(diff(chain("a"), chain("a"))).startswith("no difference")


def test_a_change_with_many_differences_inside_has_a_short_repr() -> None:
    own, other = (
        make(Spec(type="graph", children=chain(*[name] * 500))) for name in ("<a>", "<b>")
    )
    (change,) = diff(own, other).changed
    assert repr(change).startswith(
        "<gpuprof.results.NodeChange node 0 graph: in its child graph: node 0"
    )
    assert repr(change).endswith(", and more>")
    assert len(repr(change)) < 300
    assert "<a>" not in change._repr_html_()


def test_a_difference_is_plain_data_and_pickles() -> None:
    found = diff(chain("a", "b"), chain("a", "c", "d"))
    data = json.loads(json.dumps(found.to_dict()))
    assert data["different"] is True
    assert data["lines"] == list(found.lines)
    assert data["changed"][0]["fields"] == {"symbol": ["b", "c"]}
    assert pickle.loads(pickle.dumps(found)) == found


def test_hostile_names_reach_no_output_of_a_difference_as_they_are() -> None:
    found = diff(chain("a"), chain(HOSTILE))
    assert all(line.isprintable() for line in found.lines)
    page = found._repr_html_()
    assert "<b>" not in page
    assert "\x1b" not in page


# Updates


@pytest.mark.parametrize("result", range(9))
def test_every_result_of_an_update_has_its_name_and_a_meaning(result: int) -> None:
    nodes = chain("add", "mul")
    reason = _core._update_reason(result, nodes, -1, nodes, -1)
    assert re.match(r"CU_GRAPH_EXEC_UPDATE_[A-Z_]+: \w.{10,}", reason)


def test_a_result_that_is_not_known_is_shown_as_its_number() -> None:
    assert _core._update_reason(77, (), -1, (), -1).startswith("update result 77: ")


def test_the_reason_names_the_nodes_and_how_they_differ() -> None:
    own = chain("add", "mul")
    other = make(Spec("add"), Spec("mul", after=[0], grid=(16, 1, 1)), Spec("x", after=[1]))
    reason = _core._update_reason(5, own, 1, other, 1)
    assert "node 1 mul, in the other graph node 1 mul: grid (8,1,1) -> (16,1,1)" in reason
    assert reason.endswith("; 2 nodes here, 3 in the other graph")


@pytest.mark.parametrize(
    ("index", "index_other", "text"),
    [(0, -1, "; node 0 add"), (-1, 0, "; node 0 add of the other graph"), (9, -1, "")],
)
def test_the_reason_says_the_node_that_is_known(index: int, index_other: int, text: str) -> None:
    nodes = chain("add")
    reason = _core._update_reason(1, nodes, index, nodes, index_other)
    assert reason.endswith(text)
    assert ("node 0" in reason) == bool(text)


def test_equal_nodes_of_a_refused_update_are_said_to_be_equal() -> None:
    nodes = chain("add")
    reason = _core._update_reason(8, nodes, 0, nodes, 0)
    assert "nothing that can be shown differs" in reason
