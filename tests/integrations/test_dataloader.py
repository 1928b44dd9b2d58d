"""Waits for torch's DataLoader, and traces of its workers."""

from __future__ import annotations

import gc
import pickle
import weakref
from pathlib import Path
from typing import Any

import pytest

import gpuprof
from gpuprof.integrations import dataloader
from tests.support.benchmark_results import command
from tests.support.processes import check_python
from tests.support.training_loops import assert_nothing_is_left, batches, framework, rows, spans

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")]


@pytest.fixture
def torch() -> Any:
    return framework("torch", "torch")


def test_waits_are_scopes_until_the_last_one_ends(torch: Any) -> None:
    loader = batches(torch, 3)
    with dataloader.waits() as outer:
        inner = dataloader.waits()
        list(loader)
        inner.close()
        list(loader)
        outer.close()
    list(loader)
    assert rows() == {"dataloader": 8}
    assert_nothing_is_left()


def test_an_iterator_goes_with_its_last_reference(torch: Any) -> None:
    gone = []
    gc.disable()  # in a collection, workers are not told of the end, and are waited for in vain
    try:
        with dataloader.waits():
            iterator = iter(batches(torch, 2))
            weakref.finalize(iterator, gone.append, 1)
            assert len(list(iterator)) == 2
            del iterator
            assert gone
    finally:
        gc.enable()


def test_an_error_of_the_data_is_the_programs(torch: Any) -> None:
    class Data(torch.utils.data.Dataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> int:
            raise error

    error = KeyError("from the data")
    with pytest.raises(KeyError) as raised, dataloader.waits():
        list(torch.utils.data.DataLoader(Data()))
    assert raised.value is error
    assert gpuprof.stats()["dataloader"].failed == 1
    assert_nothing_is_left()


@pytest.mark.parametrize("is_traced", [True, False])
@pytest.mark.parametrize("is_iterable", [True, False])
def test_workers_write_traces_that_become_one(
    torch: Any, tmp_path: Path, is_traced: bool, is_iterable: bool
) -> None:
    class Stream(torch.utils.data.IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Any:
            return iter(torch.ones(8))

    data = Stream() if is_iterable else torch.utils.data.TensorDataset(torch.ones(16))
    numbers: list[int] = []
    init = dataloader.WorkerScopes(tmp_path / "worker.%p.json", then=numbers.append)
    loader = torch.utils.data.DataLoader(
        data, batch_size=4, num_workers=2, worker_init_fn=init, multiprocessing_context="fork"
    )
    trace = gpuprof.trace(tmp_path / "run.json") if is_traced else dataloader.waits()
    with trace, dataloader.waits():
        assert len(list(loader)) == 4
    assert not numbers  # it was called in the workers
    assert set(rows()) == {"dataloader"}
    files = sorted(tmp_path.glob("run.*.json" if is_traced else "worker.*.json"))
    assert len(files) == 2
    merged = tmp_path / "all.json"
    assert command("trace", "merge", *files, *tmp_path.glob("run.json"), "-o", merged) == 0
    names = spans(merged)
    assert names.count("collate") == 4
    assert names.count("fetch") == 4 + 2 * is_iterable  # that there are no more is a fetch too
    assert (names.count("dataloader") > 0) == is_traced


def test_a_worker_of_a_program_that_uses_cuda_calls_no_driver(
    torch: Any, fake_path: Path, tmp_path: Path
) -> None:
    code = """
    import os, pathlib, warnings
    import gpuprof, torch
    from gpuprof.integrations import dataloader
    from tests.fake_driver.control import FakeCuda

    fake = FakeCuda(os.environ["GPUPROF_CUDA_DRIVER"])
    fake.use_primary()
    with gpuprof.timer("on the GPU", backend="cuda"):
        pass
    gpuprof.flush()

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 4
        def __getitem__(self, index):
            with gpuprof.timer("read", backend="cpu"):
                return index

    init = dataloader.WorkerScopes(os.environ["FOLDER"] + "/%p.json")
    loader = torch.utils.data.DataLoader(
        Data(), batch_size=2, num_workers=1, worker_init_fn=init, multiprocessing_context="fork"
    )
    with dataloader.waits():
        assert len(list(loader)) == 2
    print(gpuprof.stats()["on the GPU"].gpu.count, gpuprof.stats()["dataloader"].host.count)
    """
    assert check_python(code, driver=fake_path, FOLDER=str(tmp_path)).split() == ["1", "3"]
    (trace,) = tmp_path.glob("*.json")
    assert [spans(trace).count(name) for name in ("fetch", "read", "collate")] == [2, 4, 2]


def test_the_worker_function_can_be_sent_to_spawned_workers(tmp_path: Path) -> None:
    init = pickle.loads(pickle.dumps(dataloader.WorkerScopes(tmp_path / "%p.json", then=print)))
    assert init._then is print
    with pytest.raises(TypeError, match="then: expected a function"):
        dataloader.WorkerScopes("a.json", then=5)
    with pytest.raises(ValueError, match="%z"):
        dataloader.WorkerScopes("%z.json")
