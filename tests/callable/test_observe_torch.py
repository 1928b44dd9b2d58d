"""What is observed of a function: tensors that it reads and writes, modules and optimizers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from gpuprof._callable.observe import Observation, merged
from gpuprof._frameworks.array_facts import extent, facts_by_attributes
from gpuprof._frameworks.torch import leaves_of, own_parameters
from gpuprof._frameworks.torch_dispatch import unwatched

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
nn = torch.nn


def place(tensor: Any) -> tuple[int, int]:
    return extent(facts_by_attributes(tensor))


def observed(body: Callable[[], Any], *arguments: Any, undo: bool = False) -> Observation:
    seen = Observation(arguments)
    with seen.of_block(undo=undo):
        body()
    return seen


def uses(seen: Observation, tensor: Any) -> tuple[set[Any], set[Any]]:
    """Return where the memory of a tensor was read and written."""
    storage = tensor.untyped_storage()._cdata
    found = [each for each in seen.externals if each.storage._cdata == storage]
    assert len(found) <= 1, "memory is listed once"
    return (found[0].reads, set(found[0].writes)) if found else (set(), set())


class Nodes:
    """Stands for a capture: how many nodes it has, and which of them do work."""

    def __init__(self) -> None:
        self.nodes: list[bool] = []

    def __call__(self, since: int) -> tuple[int, bool]:
        return len(self.nodes), any(self.nodes[since:])


def test_ranges_are_merged() -> None:
    assert merged([]) == []
    assert merged([(5, 7), (1, 3), (3, 4), (6, 9), (8, 8)]) == [(1, 4), (5, 9)]
    assert merged([(1, 9), (2, 3)]) == [(1, 9)]


# Tensors.


def test_the_layout_matters_where_random_numbers_are_drawn() -> None:
    x = torch.ones(2, 3)
    assert observed(lambda: torch.rand_like(x), x).depends_on_layout
    assert not observed(lambda: x * 2, x).depends_on_layout


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_attention_and_recurrent_layers_draw_only_for_their_dropout(dropout: float) -> None:
    x = torch.ones(1, 2, 4, 8)
    attend = torch.nn.functional.scaled_dot_product_attention
    seen = observed(lambda: attend(x, x, x, dropout_p=dropout), x)
    assert seen.depends_on_layout == (dropout > 0)
    layers = torch.nn.LSTM(8, 8, num_layers=2, dropout=dropout)
    rows = torch.ones(2, 4, 8)
    with torch.no_grad():
        assert observed(lambda: layers(rows)[0], rows).depends_on_layout == (dropout > 0)
        layers.eval()
        assert not observed(lambda: layers(rows)[0], rows).depends_on_layout


def test_external_tensors_are_those_that_are_neither_arguments_nor_made_in_the_run() -> None:
    x, weight, unused = torch.ones(3), torch.ones(3), torch.ones(3)
    seen = observed(lambda: x * weight + torch.zeros(3), x)
    assert [each.tensor is weight for each in seen.externals] == [True]
    assert uses(seen, weight) == ({place(weight)}, set())
    assert uses(seen, unused) == (set(), set())
    assert (seen.written, seen.depends_on_layout, seen.has_foreign_work) == (set(), False, False)
    assert not seen.externals[0].is_on_gpu
    assert (seen.state([]), seen.read) == ([], []), "of the GPU alone"
    assert seen.written_tensors() == []


def test_what_is_deep_in_closures_and_objects_is_found() -> None:
    table = {"a": [(torch.ones(2),)]}

    class Holder:
        inner = torch.ones(2)

    seen = observed(lambda: torch.cat([table["a"][0][0], Holder.inner]))
    assert [place(each.tensor) for each in seen.externals] == [
        place(table["a"][0][0]),
        place(Holder.inner),
    ]


def test_a_view_is_read_where_it_lies() -> None:
    whole = torch.zeros(10)
    seen = observed(lambda: whole[2:4] + whole[8:])
    assert uses(seen, whole) == ({place(whole[2:4]), place(whole[8:])}, set())


def test_memory_that_a_tensor_of_the_run_is_set_to_is_external() -> None:
    flat = torch.ones(6)
    storage = flat.untyped_storage()
    seen = observed(lambda: (torch.empty(0).set_(storage, 0, (6,)), flat.add_(1)))
    assert uses(seen, flat)[1] == {place(flat)}


def test_a_view_alone_reads_nothing() -> None:
    whole = torch.zeros(10)
    seen = observed(lambda: whole[2:4].view(2, 1))
    assert uses(seen, whole) == (set(), set())


def test_a_write_through_a_view_is_one_to_its_place() -> None:
    whole = torch.zeros(10)
    seen = observed(lambda: whole[2:4].fill_(1))
    assert uses(seen, whole)[1] == {place(whole[2:4])}
    (tensor,) = seen.externals[0].writes.values()
    assert tensor.tolist() == [1, 1]
    assert not tensor.requires_grad


@pytest.mark.parametrize(
    "write",
    [
        lambda x, _: x.add_(1),
        lambda x, _: x[1:].zero_(),
        lambda x, y: x.copy_(y),
        lambda x, y: torch.add(y, 1, out=x),
        lambda x, y: x.index_add_(0, torch.tensor([0]), y[:1]),
        lambda x, y: torch._foreach_add_([x], [y]),
        lambda x, _: x.__setitem__(0, 5),
        lambda x, _: nn.init.ones_(x),
    ],
)
def test_an_argument_that_is_written_to_is_named_by_its_number(write: Any) -> None:
    y, x = torch.ones(3), torch.zeros(3)
    seen = observed(lambda: write(x, y), y, x)
    assert seen.written == {1}
    assert seen.depends_on_layout
    assert all(not each.writes for each in seen.externals)


def test_arguments_in_one_memory_are_written_together() -> None:
    whole = torch.zeros(4)
    seen = observed(lambda: whole[:1].add_(1), whole[:2], torch.ones(1), whole[2:])
    assert seen.written == {0, 2}


def test_writes_to_what_the_run_has_made_are_nobody_elses() -> None:
    x = torch.ones(3)

    def body() -> None:
        made = x * 2
        made.add_(1)
        torch.zeros(3).copy_(made)

    seen = observed(body, x)
    assert (seen.written, seen.externals, seen.depends_on_layout) == (set(), [], False)


@pytest.mark.parametrize(
    ("make", "depends"),
    [
        (lambda x: x.contiguous(), True),
        (lambda x: x.t().reshape(-1), True),
        (lambda x: x.clone(), True),
        (lambda x: x + 0, False),
        (torch.empty_like, False),
    ],
)
def test_writes_to_what_may_be_a_copy_or_the_argument_depend_on_its_layout(
    make: Any, depends: bool
) -> None:
    x = torch.ones(2, 3)
    seen = observed(lambda: make(x).add_(1), x)
    assert seen.depends_on_layout == (depends or bool(seen.written))


def test_memory_that_is_given_out_again_is_not_taken_for_what_was_made() -> None:
    kept = [torch.ones(1000) for _ in range(20)]

    def body() -> None:
        for each in kept:
            torch.ones(1000).add_(1)
            each + 1

    seen = observed(body)
    assert len(seen.externals) == len(kept)


def test_a_tensor_that_operators_have_made_outside_is_told_from_views_made_inside() -> None:
    weight = torch.ones(4, requires_grad=True)
    assert observed(lambda: (weight[:2] * 2).sum() + weight.sum()).made_outside is None
    made = weight * 2
    assert observed(lambda: made + 1).made_outside is made


def test_what_runs_unwatched_is_not_observed() -> None:
    seen, hidden = torch.ones(2), torch.ones(2)

    def body() -> Any:
        with unwatched():
            hidden + 1
        return seen + 1

    assert [each.tensor is seen for each in observed(body).externals] == [True]


def test_a_backward_pass_is_observed() -> None:
    weight = torch.ones(4, requires_grad=True)
    weight.grad = torch.zeros(4)
    seen = observed(lambda: (weight * 3).sum().backward())
    assert uses(seen, weight.grad)[1] == {place(weight.grad)}
    assert weight.grad.tolist() == [3] * 4


# What a backward pass ends in.


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers_read_the_parameters_that_stand_in(kind: str) -> None:
    layer = getattr(torch.nn, kind)(2, 3, num_layers=2)
    weights = list(layer._flat_weights)
    with own_parameters([layer]) as owners:
        assert not layer._weights_have_changed(), "else it would give them other memory"
        leaves, _ = leaves_of([layer(torch.ones(1, 2))[0]])
        assert {id(owners[id(each)]) for each in leaves} == set(map(id, weights))
    assert all(a is b for a, b in zip(layer._flat_weights, weights, strict=True))
    assert not layer._weights_have_changed()
    assert {id(each) for each in leaves_of([layer(torch.ones(1, 2))[0]])[0]} == set(
        map(id, weights)
    )


def test_parameters_in_lists_of_a_module_have_one_that_stands_in_with_their_memory() -> None:
    layer = torch.nn.Linear(2, 1)
    layer.kept = [layer.weight, 3, None]
    layer.frozen = torch.nn.Parameter(torch.ones(2), requires_grad=False)
    weight, frozen = layer.weight, layer.frozen
    with own_parameters([layer]) as owners:
        assert layer.kept[0] is layer.weight
        assert owners[id(layer.weight)] is weight
        assert layer.weight.data_ptr() == weight.data_ptr()
        assert layer.frozen is frozen
        layer.kept[1] = 4
    assert layer.kept[0] is layer.weight is weight
    assert layer.kept[1:] == [4, None]


def test_the_leaves_of_results_are_all_that_they_depend_on() -> None:
    used, unused, alone = (torch.ones(2, requires_grad=True) for _ in range(3))
    made = (used * 2).sin()
    with torch.no_grad():
        hidden = unused * 2
    leaves, is_compiled = leaves_of([made + hidden, made.argmax(), alone, 3])
    assert {id(each) for each in leaves} == {id(used), id(alone)}
    assert not is_compiled
    assert leaves_of([hidden]) == ([], False)


# State of modules.


@pytest.mark.parametrize("training", [True, False])
def test_batch_norms_write_their_statistics_in_training(training: bool) -> None:
    norm = nn.BatchNorm1d(3).train(training)
    x = torch.randn(4, 3)
    seen = observed(lambda: norm(x), x)
    for buffer in (norm.running_mean, norm.running_var):
        assert uses(seen, buffer)[1] == ({place(buffer)} if training else set())
    assert bool(uses(seen, norm.num_batches_tracked)[1]) is training
    assert uses(seen, norm.weight) == ({place(norm.weight)}, set())
    assert [*seen.modules.values()] == [norm]


def test_modules_are_noted_once_and_in_the_order_of_their_calls() -> None:
    inner = nn.Linear(2, 2)
    model = nn.Sequential(inner, nn.ReLU(), inner)
    seen = observed(lambda: (model(torch.ones(2)), inner(torch.ones(2))))
    assert [
        each is other
        for each, other in zip(seen.modules.values(), (model, inner, model[1]), strict=True)
    ]
    assert len(seen.modules) == 3
    model(torch.ones(2))
    assert len(seen.modules) == 3, "the hooks are gone"


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        lambda p: torch.optim.AdamW(p, foreach=True),
        lambda p: torch.optim.AdamW(p, foreach=False),
    ],
)
def test_a_step_of_an_optimizer_is_seen_with_all_that_it_writes(make: Any) -> None:
    weight = nn.Parameter(torch.ones(3))
    weight.grad = torch.ones(3)
    optimizer = make([weight])
    optimizer.step()
    seen = observed(optimizer.step)
    assert [*seen.optimizers.values()] == [optimizer]
    assert uses(seen, weight)[1] == {place(weight)}
    assert place(weight.grad) in uses(seen, weight.grad)[0]
    for state in optimizer.state[weight].values():
        if torch.is_tensor(state):
            assert uses(seen, state)[1] == {place(state)}


def test_hooks_are_removed_after_an_error() -> None:
    model, seen = nn.Linear(2, 2), Observation()
    with pytest.raises(KeyError), seen.of_block(Nodes()):
        raise KeyError
    model(torch.ones(2))
    torch.ones(2) + torch.ones(2)
    assert (seen.modules, seen.modules_read, seen.externals) == ({}, [], [])
    assert "__getattribute__" not in vars(nn.Module)


READS: dict[str, Callable[[Any], Any]] = {
    "a parameter": lambda model: model.bias + 1,
    "all parameters": lambda model: [each + 1 for each in model.parameters()],
    "its dict": lambda model: model._parameters["bias"] + 1,
    "a buffer that is None": lambda model: model.scale,
    "a flag": lambda model: model.training,
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_modules_are_noted_that_a_capture_reads_and_does_not_call(read: Any) -> None:
    model, other = nn.Linear(2, 2), nn.Linear(2, 2)
    model.register_buffer("scale", None)
    seen = Observation()
    with seen.of_block(Nodes()):
        read(model)
        assert isinstance(other, nn.Module)
    assert seen.modules_read == [model]
    assert seen.modules == {}


def test_what_another_thread_reads_meanwhile_is_its_own() -> None:
    model, seen = nn.Linear(2, 2), Observation()
    with seen.of_block(Nodes()):
        thread = threading.Thread(target=lambda: model.bias)
        thread.start()
        thread.join()
    assert seen.modules_read == []


@pytest.mark.parametrize(
    ("holder", "key"), [(nn.ModuleList([nn.ReLU()]), 0), (nn.ModuleDict({"a": nn.ReLU()}), "a")]
)
def test_containers_of_modules_are_noted(holder: Any, key: Any) -> None:
    seen = Observation()
    with seen.of_block(Nodes()):
        holder[key](torch.ones(2))
    assert holder in seen.modules_read


def test_a_class_keeps_its_own_way_to_attributes() -> None:
    class Other:
        def __getattribute__(self, name: str) -> Any:
            return 5 if name == "five" else super().__getattribute__(name)

    class Both(nn.Module, Other):  # type: ignore[misc, name-defined]
        def __getattr__(self, name: str) -> Any:
            return 6 if name == "six" else super().__getattr__(name)

    both, seen = Both(), Observation()
    half_made = nn.Linear.__new__(nn.Linear)
    with seen.of_block(Nodes()):
        assert (both.five, both.six) == (5, 6)
        with pytest.raises(AttributeError):
            half_made.weight  # noqa: B018
    assert seen.modules_read == [both]


# Putting back.


def test_writes_are_undone_in_their_places() -> None:
    whole, x = torch.arange(6.0), torch.zeros(2)

    def body() -> None:
        whole[:2].add_(10)
        whole[1:4].mul_(3)
        whole[:2].sub_(1)
        x.add_(1)

    seen = observed(body, x, undo=True)
    assert whole.tolist() == [9, 32, 6, 9, 4, 5]
    seen.restore()
    assert whole.tolist() == [0, 1, 2, 3, 4, 5]
    assert x.tolist() == [1, 1], "arguments are the graph's own"
    seen.restore()
    assert whole.tolist() == [0, 1, 2, 3, 4, 5]


def test_a_module_s_statistics_and_an_optimizer_s_step_are_undone() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    before = [each.clone() for each in model.state_dict().values()]

    def body() -> None:
        model(torch.randn(4, 3)).square().sum().backward()
        optimizer.step()

    seen = observed(body, undo=True)
    changed = [
        not torch.equal(a, b) for a, b in zip(before, model.state_dict().values(), strict=True)
    ]
    assert sum(changed) >= 4
    seen.restore()
    assert all(torch.equal(a, b) for a, b in zip(before, model.state_dict().values(), strict=True))


def test_what_a_later_block_writes_is_put_back_too() -> None:
    first, second = torch.zeros(3), torch.zeros(3)
    kept: list[Any] = []

    def body() -> None:
        first.add_(1)
        if kept:
            second.add_(1)
            first[1:].add_(kept[0])
        kept.append(torch.ones(2))

    seen = Observation()
    for _ in range(3):
        with seen.of_block(undo=True):
            body()
    seen.restore()
    assert (first.tolist(), second.tolist()) == ([0] * 3, [0] * 3)


def test_what_a_block_has_made_is_known() -> None:
    kept, before = [], torch.ones(2)
    seen = observed(lambda: kept.append(before + 1))
    assert (seen.has_made(kept[0]), seen.has_made(before)) == (True, False)


def test_inference_tensors_are_put_back_too() -> None:
    with torch.inference_mode():
        made = torch.zeros(2)
        seen = observed(lambda: made.add_(1), undo=True)
    assert made.tolist() == [1, 1]
    seen.restore()
    assert made.tolist() == [0, 0]
    assert made.is_inference()


def test_without_undo_nothing_is_put_back() -> None:
    whole = torch.zeros(2)
    seen = observed(lambda: whole.add_(1))
    seen.restore()
    assert whole.tolist() == [1, 1]


# Foreign work and results.


@pytest.mark.parametrize("at", ["before", "between", "after"])
@pytest.mark.parametrize("works", [True, False])
def test_nodes_that_no_operator_launched_are_foreign_if_they_work(at: str, works: bool) -> None:
    nodes, seen = Nodes(), Observation()
    nodes.nodes.append(True)  # from before the block
    with seen.of_block(nodes):
        for moment in ("before", "between", "after"):
            if moment == at:
                nodes.nodes.append(works)
            if moment != "after":
                torch.ones(2) + 1
    assert seen.has_foreign_work is works


def test_results_on_the_host_are_not_noted() -> None:
    kept = torch.ones(2)
    seen = observed(lambda: None)
    seen.note_results([kept, 5])
    assert seen.externals == []


def test_sparse_tensors_are_let_through() -> None:
    matrix, dense = torch.eye(3).to_sparse(), torch.ones(3, 2)
    seen = Observation()
    with seen.of_block():
        result = torch.sparse.mm(dense.t().to_sparse(), matrix.to_dense())
    assert result.shape == (2, 3)
    assert [each.tensor is dense for each in seen.externals].count(True) == 1
