"""Scopes and annotations in functions that `torch.compile` compiles."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import gpuprof
from gpuprof._frameworks import torch_compile
from tests.support.processes import check_python, run_python
from tests.support.warm_torch import WarmTorch

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

FORMS: list[Callable[..., Any]] = [gpuprof.timer, gpuprof.annotate]
form = pytest.mark.parametrize("form", FORMS, ids=["timer", "annotate"])


@pytest.fixture
def torch() -> Iterator[Any]:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("torch._dynamo", reason="torch is not installed")
    torch._dynamo.reset()
    yield torch
    torch._dynamo.reset()


@pytest.fixture
def one_graph(torch: Any) -> Callable[..., Any]:
    """Compile a function whole and call it; what it gives must be what it gives uncompiled."""

    def run(function: Callable[..., Any]) -> Any:
        given = torch.arange(4.0)
        found = torch._dynamo.explain(function)(given)
        assert (found.graph_count, found.graph_break_count) == (1, 0), found.break_reasons
        gpuprof.reset()
        result = torch.compile(function, fullgraph=True, backend="aot_eager")(given)
        assert not gpuprof.stats(), "something was measured inside the graph"
        assert torch.equal(result, function(given))
        return result

    return run


@form
def test_a_block_is_traced_out(form: Callable[..., Any], one_graph: Callable[..., Any]) -> None:
    def function(x: Any) -> Any:
        with form("outer"):
            y = x + 1
            for i in range(3):
                with form(f"layer{i}"):
                    y = y * 2
        return y.sin()

    one_graph(function)


@form
def test_one_object_entered_several_times_is_traced_out(
    form: Callable[..., Any], one_graph: Callable[..., Any]
) -> None:
    def function(x: Any) -> Any:
        again = form("again")
        with again:
            x = x + 1
        with again, again:
            return x * 2

    one_graph(function)


@form
@pytest.mark.parametrize("on", [True, False])
def test_a_decorated_function_is_traced_as_the_function(
    form: Callable[..., Any], one_graph: Callable[..., Any], on: bool
) -> None:
    decorated = form("double")(lambda x: x * 2)

    try:
        if not on:
            gpuprof.disable()
        one_graph(decorated)
        one_graph(lambda x: decorated(x) + 1)
    finally:
        gpuprof.enable()


@form
def test_a_function_decorated_without_parentheses_is_traced_as_the_function(
    form: Callable[..., Any], one_graph: Callable[..., Any]
) -> None:
    @form
    def decorated(x: Any) -> Any:
        return x * 2

    one_graph(decorated)


@form
def test_a_function_decorated_inside_the_region_is_traced_as_the_function(
    form: Callable[..., Any], one_graph: Callable[..., Any]
) -> None:
    def function(x: Any) -> Any:
        @form("named")
        def double(y: Any) -> Any:
            return y * 2

        @form
        def increment(y: Any) -> Any:
            return y + 1

        return increment(double(x))

    one_graph(function)


@form
def test_a_decorated_generator_is_traced_as_the_generator(
    form: Callable[..., Any], one_graph: Callable[..., Any]
) -> None:
    @form("terms")
    def terms(x: Any) -> Iterator[Any]:
        for power in range(3):
            yield x**power

    one_graph(lambda x: sum(terms(x)))


@form
def test_a_modules_decorated_method_is_traced(
    form: Callable[..., Any], torch: Any, one_graph: Callable[..., Any]
) -> None:
    class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
        @form("forward")
        def forward(self, x: Any) -> Any:
            with form("body"):
                return x * 3

    one_graph(Model())


@form
def test_gradients_of_a_region_are_those_of_the_function(
    form: Callable[..., Any], torch: Any
) -> None:
    def function(x: Any) -> Any:
        with form("square"):
            return (x * x).sum()

    x, y = (torch.arange(4.0, requires_grad=True) for _ in range(2))
    torch.compile(function, fullgraph=True, backend="aot_eager")(x).backward()
    function(y).backward()
    assert torch.equal(x.grad, y.grad)


@form
def test_an_exception_that_the_region_handles_leaves_the_block(
    form: Callable[..., Any], one_graph: Callable[..., Any]
) -> None:
    def function(x: Any) -> Any:
        try:
            with form("fails"):
                raise ValueError
        except ValueError:
            return x + 1

    one_graph(function)


def test_the_sample_of_a_traced_out_scope_says_what_a_disabled_ones_says(torch: Any) -> None:
    def function(x: Any) -> Any:
        with gpuprof.timer("off", enabled=False) as sample:
            pass
        return x + 1, sample, math.isnan(sample.ms)

    compiled = torch.compile(function, fullgraph=True, backend="eager")
    _, traced_out, was_nan = compiled(torch.ones(1))
    _, disabled, _ = function(torch.ones(1))
    assert was_nan
    assert isinstance(traced_out, torch_compile.TracedOutSample)
    public = [name for name in dir(disabled) if not name.startswith("_")]
    assert [name for name in dir(traced_out) if not name.startswith("_")] == public
    for name in set(public) - {"ms", "host_ms", "try_ms", "to_dict"}:
        assert getattr(traced_out, name) == getattr(disabled, name), name
    assert all(math.isnan(ms) for ms in (traced_out.ms, traced_out.host_ms, traced_out.try_ms()))
    assert traced_out.to_dict() == disabled.to_dict()


@form
def test_what_stands_for_an_object_has_what_a_user_reads_of_it(
    form: Callable[..., Any], torch: Any
) -> None:
    def function(x: Any) -> Any:
        return x + 1, form("kept")

    _, traced_out = torch.compile(function, fullgraph=True, backend="eager")(torch.ones(1))
    real = {name for name in dir(form("kept")) if not name.startswith("_")}
    assert real <= set(dir(traced_out))
    assert traced_out.name == "kept"


@form
def test_around_a_compiled_call_it_works_as_ever(form: Callable[..., Any], torch: Any) -> None:
    compiled = torch.compile(lambda x: x + 1, fullgraph=True, backend="eager")
    with form("call"):
        assert compiled(torch.ones(1)).item() == 2
    assert list(gpuprof.stats()) == (["call"] if "timer" in form.__name__ else [])


@pytest.mark.parametrize("make", [gpuprof.timer, gpuprof.annotate])
def test_where_the_graph_breaks_inside_the_block_it_works_as_ever(
    make: Callable[..., Any], torch: Any
) -> None:
    seen = []

    def function(x: Any) -> Any:
        with make("broken") as entered:
            y = x + 1
            torch._dynamo.graph_break()
            seen.append(entered)
            return y * 2

    assert torch.compile(function, backend="eager")(torch.ones(1)).item() == 4
    assert type(seen[0]) in {gpuprof.Sample, gpuprof.Annotation}
    assert list(gpuprof.stats()) == (["broken"] if make is gpuprof.timer else [])


@pytest.mark.parametrize("make", [gpuprof.timer, gpuprof.annotate])
def test_an_object_from_outside_breaks_the_graph_and_works(
    make: Callable[..., Any], torch: Any
) -> None:
    outside = make("outside")

    def function(x: Any) -> Any:
        with outside:
            return x + 1

    assert torch.compile(function, backend="eager")(torch.ones(1)).item() == 2
    assert list(gpuprof.stats()) == (["outside"] if make is gpuprof.timer else [])
    torch._dynamo.reset()
    with pytest.raises(
        torch._dynamo.exc.Unsupported, match=r"(?s)context manager.*created outside"
    ):
        torch.compile(function, backend="eager", fullgraph=True)(torch.ones(1))


def test_it_works_with_the_default_compiler(torch: Any) -> None:
    def function(x: Any) -> Any:
        with gpuprof.timer("fused"), gpuprof.annotate("also"):
            return (x * 2 + 1).sin()

    x = torch.arange(8.0)
    assert torch.allclose(torch.compile(function, fullgraph=True)(x), function(x))


def test_it_is_said_once(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: Any) -> Any:
        with gpuprof.timer("a"), gpuprof.annotate("b"):
            return x + 1

    monkeypatch.setattr(torch_compile, "_said", False)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for backend in ("eager", "aot_eager"):
            torch._dynamo.reset()
            compiled = torch.compile(function, fullgraph=True, backend=backend)
            compiled(torch.ones(1))
            compiled(torch.ones(1))
    texts = [str(warning.message) for warning in said if warning.category is RuntimeWarning]
    assert len(texts) == 1
    assert "torch.compile" in texts[0]
    assert "around the call" in texts[0]
    monkeypatch.setattr(torch_compile, "_said", False)
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # which does not stop the compiler
        assert torch.compile(function, fullgraph=True, backend="eager")(torch.ones(1)).item() == 2


# In a process started from nothing: gpuprof, torch and the compiler come one after the other.
GPUPROF_FIRST = """
import json, types
import gpuprof
with gpuprof.timer("step"), gpuprof.annotate("step"):
    pass
@gpuprof.timer("double")
@gpuprof.annotate("double")
def double(x):
    return x * 2
assert double(2) == 4
found = {"of torch": [name for name in sys.modules if name.split(".")[0] == "torch"]}

import torch
with gpuprof.timer("step"), gpuprof.annotate("step"):
    pass
found["has the compiler"] = "torch._dynamo" in sys.modules

one = torch.ones(1)
def twice(x):
    return double(double(x))
found["values"] = []
for switch in (gpuprof.enable, gpuprof.disable):
    switch()
    for function in (double, twice):
        torch._dynamo.reset()
        compiled = torch.compile(function, fullgraph=True, backend="eager")
        found["values"].append([compiled(one).item(), function(one).item()])
found["is a function"] = type(double) is types.FunctionType

dynamo = torch._dynamo
found["loader"] = type(dynamo.__loader__).__name__
found["is its own loader"] = dynamo.__loader__ is dynamo.__spec__.loader
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def gpuprof_first() -> Any:
    pytest.importorskip("torch", reason="torch is not installed")
    return json.loads(check_python(GPUPROF_FIRST, PYTHONWARNINGS="ignore"))


def test_functions_decorated_before_the_compiler_is_imported_are_traced(gpuprof_first: Any) -> None:
    assert gpuprof_first["values"] == [[2.0, 2.0], [4.0, 4.0]] * 2
    assert gpuprof_first["is a function"]


def test_gpuprof_imports_nothing_of_torch(gpuprof_first: Any) -> None:
    assert gpuprof_first["of torch"] == []
    assert not gpuprof_first["has the compiler"]


def test_the_compilers_module_keeps_its_own_loader(gpuprof_first: Any) -> None:
    assert gpuprof_first["is its own loader"]
    assert gpuprof_first["loader"] == "SourceFileLoader"


COMPILE = """
import sys
def function(x):
    with make("inside"):
        return x + 1
print(torch.compile(function, fullgraph=True, backend="eager")(torch.ones(1)).item())
print([type(finder).__name__ for finder in sys.meta_path if "gpuprof" in type(finder).__module__])
"""


@pytest.fixture(scope="module")
def without_compiler() -> Iterator[WarmTorch]:
    """Run programs as forks of a process that has imported torch and not its compiler."""
    pytest.importorskip("torch", reason="torch is not installed")
    warm = WarmTorch("torch")
    yield warm
    warm.close()


def test_gpuprof_may_be_imported_before_torch(torch: Any) -> None:
    done = run_python("from gpuprof import timer as make\nimport torch\n" + COMPILE)
    assert done.stdout == "2.0\n[]\n", done.stderr


@pytest.mark.parametrize(
    "order",
    [
        "import torch\nfrom gpuprof import annotate as make\n",
        # The compiler is the first to meet the name.
        "import torch, gpuprof\nmake = lambda name: gpuprof.timer(name)\n",
    ],
    ids=["annotate", "a name of the package"],
)
def test_torch_may_be_imported_before_gpuprof(order: str, without_compiler: WarmTorch) -> None:
    done = without_compiler.run("-c", order + COMPILE)
    assert done.stdout == "2.0\n[]\n", done.stderr


def test_the_compiler_may_be_imported_before_gpuprof(warm_torch: WarmTorch) -> None:
    order = "import torch, torch._dynamo\nfrom gpuprof import timer as make\n"
    done = warm_torch.run("-c", order + COMPILE)
    assert done.stdout == "2.0\n[]\n", done.stderr


def test_a_torch_that_cannot_be_told_is_imported_all_the_same(tmp_path: Path) -> None:
    package = tmp_path / "torch"
    (package / "_dynamo").mkdir(parents=True)
    (package / "__init__.py").write_text("from torch import compiler\n", encoding="utf-8")
    (package / "compiler.py").write_text("", encoding="utf-8")
    (package / "_dynamo" / "__init__.py").write_text("old = True\n", encoding="utf-8")
    out = check_python(
        """
        from gpuprof import timer
        import torch._dynamo
        print(torch._dynamo.old)
        """,
        PYTHONPATH=str(tmp_path),
    )
    assert out == "True\n"


def test_an_import_that_is_probed_or_fails_is_waited_for_again(tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text("import early, os\nos.environ['READY']\n", encoding="utf-8")
    (tmp_path / "early.py").write_text("", encoding="utf-8")
    out = check_python(
        """
        import importlib.util, os
        from gpuprof._common.imports import when_imported
        before = list(sys.meta_path)
        def tell():
            print("late is there:", "late" in sys.modules)
        when_imported("late", tell)
        when_imported("late", lambda: print("another function is called as well"))
        when_imported("late", tell)
        print(importlib.util.find_spec("late").name)
        try:
            import late
        except KeyError as error:
            print("failed:", error)
        os.environ["READY"] = "1"
        import late
        when_imported("late", tell)
        when_imported("early", lambda: print("early was there"))
        print(sys.meta_path == before)
        """,
        PYTHONPATH=str(tmp_path),
    )
    assert out.splitlines() == [
        "late",
        "failed: 'READY'",
        "late is there: True",
        "another function is called as well",
        "early was there",
        "True",
    ]


def test_a_star_import_leaves_the_name_torch_alone() -> None:
    assert "torch" not in gpuprof.__all__
