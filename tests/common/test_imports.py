"""What is done once torch is imported: other finders are left as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.processes import check_python

LATE = (
    *("torch", "torch._dynamo", "torch.autograd", "torch.autograd.profiler"),
    *("torch._functorch", "torch._functorch.aot_autograd"),
)


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Where an empty torch is, with the modules that gpuprof waits for."""
    for name in LATE:
        folder = tmp_path.joinpath(*name.split("."))
        folder.mkdir()
        (folder / "__init__.py").write_text("", encoding="utf-8")
    return str(tmp_path)


def test_finders_before_it_are_asked_once_and_may_ask_all_others_themselves(path: str) -> None:
    out = check_python(
        """
        import gpuprof
        before = list(sys.meta_path)
        gpuprof.timer("step")
        assert len(sys.meta_path) == len(before) + 1
        asked = []
        class AsksTheOthers:
            def find_spec(self, name, path, target=None):
                if name.startswith("torch"):  # gpuprof imports more of itself then
                    asked.append(name)
                for finder in sys.meta_path:
                    if finder is not self and (spec := finder.find_spec(name, path, target)):
                        return spec
                return None
        sys.meta_path.insert(0, AsksTheOthers())
        import torch._dynamo, torch.autograd.profiler, torch._functorch.aot_autograd
        print(*asked, sys.meta_path[1:] == before)
        """,
        PYTHONPATH=path,
    )
    assert out.split() == [*LATE, "True"]


def test_who_walks_through_the_finders_while_it_goes_still_meets_them_all(path: str) -> None:
    out = check_python(
        """
        import gpuprof
        before = list(sys.meta_path)
        gpuprof.timer("step")
        walk = iter(sys.meta_path)
        next(walk)
        import torch._dynamo, torch.autograd.profiler, torch._functorch.aot_autograd
        print(list(walk) == before, sys.meta_path == before)
        """,
        PYTHONPATH=path,
    )
    assert out.split() == ["True", "True"]
