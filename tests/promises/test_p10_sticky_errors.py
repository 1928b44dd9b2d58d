"""P10: the first sticky error is remembered with the call that saw it; later calls raise it
without touching the driver. Each case in its own process. The trap comes behind long work, so that
the end of the scope around it never sees it.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.processes import check_cuda

STICKY = """
        with scope as pending:
            fake.work(stream, 100_000)
            fake.trap(stream)
        try:
            pending.ms
        except gpuprof.errors.CudaError:
            pass
"""


def test_a_sticky_error_is_remembered_and_said_once(fake_path: Path) -> None:
    out = check_cuda(
        fake_path,
        """
        with scope as pending:
            fake.work(stream, 100_000)
            fake.trap(stream)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                pending.ms
            except gpuprof.errors.CudaError as error:
                print(error.name, error.call)
            calls = fake.calls()
            for _ in range(100):
                with scope as later:
                    pass
            try:
                gpuprof.Timer("cuda", stream)
            except gpuprof.errors.CudaError as again:
                print(again.name, again.call)
            print(fake.calls() - calls, len(caught))
        try:
            later.ms
        except gpuprof.errors.CudaError as error:
            print(error.code)
        with gpuprof.timer("host", backend="cpu") as sample:
            pass
        print(sample.ms >= 0, gpuprof.stats()["step"].failed)
        """,
    )
    lines = out.splitlines()
    assert lines[0] == lines[1]
    assert lines[0].startswith("CUDA_ERROR_LAUNCH_FAILED cuEvent")
    assert lines[2:] == ["0 1", "719", "True 101"]


def test_auto_scopes_do_not_turn_into_cpu_times_after_a_sticky_error(fake_path: Path) -> None:
    out = check_cuda(
        fake_path,
        """
        auto = gpuprof.timer("auto")
        with auto as first:
            fake.work(stream, 100_000)
            fake.trap(stream)
        warnings.simplefilter("ignore")
        with scope as pending:
            pass
        try:
            pending.ms
        except gpuprof.errors.CudaError:
            pass
        with auto as second:
            pass
        print(first.clock, second.clock, second.failed)
        """,
    )
    assert out.split() == ["cuda", "cuda", "True"]


def test_a_scope_that_is_made_after_a_sticky_error_raises_nothing(fake_path: Path) -> None:
    out = check_cuda(
        fake_path,
        STICKY
        + """
        calls = fake.calls()
        @gpuprof.timer(backend="cuda")
        def step():
            return 3
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for name in "abc":
                with gpuprof.timer(name, backend="cuda", stream=stream) as sample:
                    pass
            print(step(), sample.failed, sample.clock, fake.calls() - calls)
        print(len(caught), "CUDA_ERROR_LAUNCH_FAILED" in str(caught[0].message))
        try:
            sample.ms
        except gpuprof.errors.CudaError as error:
            print(error.code)
        try:
            gpuprof.Timer("cuda")
        except gpuprof.errors.CudaError as error:
            print(error.code)
        """,
    )
    assert out.split() == ["3", "True", "cuda", "0", "1", "True", "719", "719"]


def test_benchmarks_do_not_turn_into_cpu_times_after_a_sticky_error(fake_path: Path) -> None:
    out = check_cuda(
        fake_path,
        STICKY
        + """
        for _ in range(2):
            try:
                print(gpuprof.benchmark(lambda: None, stream=stream).mode)
            except gpuprof.errors.CudaError as error:
                print(error.name)
        """,
    )
    assert out.split() == ["CUDA_ERROR_LAUNCH_FAILED"] * 2
