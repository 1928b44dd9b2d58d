"""Device scalars: whose the memory is, and what happens when the driver or the process fails."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from gpuprof import DeviceScalar, errors
from tests.fake_driver.control import FakeCuda
from tests.support.cuda import kinds_alive
from tests.support.scalars import MS, SLOTS, WRITES, number
from tests.support.torch_blocks import Run


@pytest.fixture
def stream(stream: int) -> Iterator[int]:
    yield stream
    gc.collect()  # the scalars that an exception's frames hold


def test_each_scalar_has_an_address_of_its_own(fake: FakeCuda) -> None:
    scalars = [DeviceScalar(index, "uint16") for index in range(SLOTS + 10)]
    assert len({scalar.ptr for scalar in scalars}) == len(scalars)
    assert all((scalar.ptr - scalars[0].ptr) % 256 == 0 for scalar in scalars[:SLOTS])
    assert [scalar.get() for scalar in scalars[::97]] == list(range(0, len(scalars), 97))
    assert scalars[0].device == 0
    assert fake.live("memory") == 2


def test_memory_is_used_again_only_after_the_gpu_is_done_with_it(
    fake: FakeCuda, stream: int, buffer: int
) -> None:
    scalars = [DeviceScalar(index, "uint32", stream) for index in range(SLOTS)]
    before = [scalar.ptr for scalar in scalars]
    fake.complete(stream)
    fake.configure("mode=manual")
    fake.work(stream, 5 * MS)
    fake.copy(stream, 4, buffer, scalars[0].ptr)  # a kernel that is still to read it
    frees = fake.calls("cuMemFree_v2")
    for scalar in scalars[1:]:
        scalar.close()
    extra = DeviceScalar(7, "uint32", stream)
    assert extra.ptr not in before
    scalars.clear()
    assert fake.calls("cuMemFree_v2") == frees
    assert number(fake, before[0]) == 0
    fake.complete(stream)
    fake.configure("mode=auto")
    assert number(fake, buffer) == 0
    rest = [DeviceScalar(1, "uint32", stream) for _ in range(SLOTS)]
    assert fake.calls("cuMemFree_v2") == frees + 1
    assert fake.live("memory") == 3  # the buffer, and two pieces for scalars
    assert len({scalar.ptr for scalar in [extra, *rest]}) == SLOTS + 1


def test_scalars_without_end_do_not_use_memory_without_end(fake: FakeCuda) -> None:
    for index in range(6 * SLOTS):
        DeviceScalar(index, "uint32").close()
    assert fake.live("memory") <= 2


def test_closing_makes_no_driver_call_and_is_final(fake: FakeCuda, stream: int) -> None:
    scalar = DeviceScalar(1, "float32", stream)
    calls = fake.calls()
    scalar.close()
    scalar.close()
    assert fake.calls() == calls
    for use in (
        lambda: scalar.update(1),
        scalar.get,
        lambda: scalar.ptr,
        lambda: scalar.device,
        lambda: scalar.__cuda_array_interface__,
        scalar.__dlpack__,
        scalar.__dlpack_device__,
    ):
        with pytest.raises(errors.InvalidStateError, match="is closed; make a new one"):
            use()
    assert (scalar.dtype, scalar.nbytes) == ("float32", 4)
    assert repr(scalar) == "<gpuprof.DeviceScalar float32, closed>"


def test_a_repr_says_where_it_is_and_reads_nothing(fake: FakeCuda) -> None:
    scalar = DeviceScalar(1, "bf16")
    calls = fake.calls()
    assert repr(scalar) == f"<gpuprof.DeviceScalar bfloat16 at {scalar.ptr:#x}, device 0>"
    assert fake.calls() == calls


@pytest.mark.parametrize("how", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_scalar_refuses_to_be_copied(fake: FakeCuda, how: Any) -> None:
    scalar = DeviceScalar(1)
    with pytest.raises(TypeError, match="a DeviceScalar is memory of this process's GPU"):
        how(scalar)


def test_a_scalar_that_was_never_initialised_is_refused(fake: FakeCuda) -> None:
    scalar = DeviceScalar.__new__(DeviceScalar)
    with pytest.raises(TypeError, match="never initialised"):
        scalar.update(1)


def test_closing_inside_a_conversion_is_noticed(fake: FakeCuda) -> None:
    scalar = DeviceScalar(1)

    class Closes:
        def __float__(self) -> float:
            scalar.close()
            return 1.0

    with pytest.raises(errors.InvalidStateError, match="is closed"):
        scalar.update(Closes())


# Failures


@pytest.mark.parametrize("dtype", WRITES)
def test_a_refused_write_is_an_error_and_the_scalar_goes_on(
    fake: FakeCuda, stream: int, dtype: str
) -> None:
    scalar = DeviceScalar(1, dtype, stream)
    with fake.faults(f"{WRITES[dtype]}@1=2"), pytest.raises(errors.CudaError) as caught:
        scalar.update(2)
    assert (caught.value.code, caught.value.call) == (2, WRITES[dtype].removesuffix("_v2"))
    assert scalar.get() == 1
    scalar.update(3)
    assert scalar.get() == 3


def test_a_scalar_of_a_context_that_is_gone_is_not_touched(fake: FakeCuda, stream: int) -> None:
    context = fake.context_create()
    scalar = DeviceScalar(1, "float32", fake.stream_create())
    fake.context_destroy(context)  # makes the one before it current
    for use in (lambda: scalar.update(2), scalar.get, lambda: scalar.__dlpack__(stream=1)):
        with pytest.raises(errors.CudaError, match="was destroyed or reset"):
            use()
    scalar.close()
    assert DeviceScalar(2, "float32", stream).get() == 2.0


def test_a_forked_child_is_told_and_touches_nothing(in_cuda: Run) -> None:
    out = in_cuda("""
        scalar = gpuprof.DeviceScalar(1, "float32", stream)
        child = os.fork()
        if child == 0:
            told = []
            for use in (lambda: scalar.update(2), scalar.get, lambda: gpuprof.DeviceScalar(3)):
                try:
                    use()
                except gpuprof.errors.ForkedProcessError:
                    told.append("told")
            scalar.close()
            del scalar
            os._exit(0 if told == ["told"] * 3 else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), scalar.get())
        print(fake.report()["calls_in_child"])
        """)
    assert out.split() == ["0", "1.0", "0"]


def test_after_a_sticky_error_the_driver_is_left_alone(in_cuda: Run) -> None:
    in_cuda("""
        scalar = gpuprof.DeviceScalar(1, "float32", stream)
        fake.trap(stream)
        try:
            scalar.get()
        except gpuprof.errors.CudaError as error:
            assert error.code == 719, error
        calls = fake.calls()
        for use in (lambda: scalar.update(2), scalar.get, lambda: gpuprof.DeviceScalar(3)):
            try:
                use()
            except gpuprof.errors.CudaError as error:
                assert error.code == 719, error
            else:
                raise AssertionError("no error")
        scalar.close()
        assert fake.calls() == calls
        """)


def test_scalars_alive_at_exit_harm_nothing(in_cuda: Run) -> None:
    in_cuda("""
        kept = [gpuprof.DeviceScalar(index, "float64", stream) for index in range(3)]
        capsule = kept[0].__dlpack__(stream=1)
        class Late:
            def __del__(self, kept=kept):
                kept[0].close()
        late = Late()
        fake.deinit()
        """)


def test_ctrl_c_ends_a_read_and_leaves_the_scalar_usable(in_cuda: Run) -> None:
    out = in_cuda("""
        import signal
        signal.signal(signal.SIGINT, signal.default_int_handler)
        scalar = gpuprof.DeviceScalar(1, "int16", stream)
        fake.configure("mode=manual")
        fake.work(stream, 1000)
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            scalar.get()
        except KeyboardInterrupt:
            print("interrupted")
        fake.configure("mode=auto")
        fake.complete(stream)
        print(scalar.get())
        """)
    assert out.split() == ["interrupted", "1"]


@pytest.mark.threads
def test_threads_may_share_a_scalar_and_close_it_under_each_other(stream: int) -> None:
    for _ in range(10):
        scalar = DeviceScalar(0, "int64", stream)
        start = threading.Barrier(4)
        seen: list[object] = []

        def use(
            mine: int,
            scalar: DeviceScalar = scalar,
            start: threading.Barrier = start,
            seen: list[object] = seen,
        ) -> None:
            start.wait()
            try:
                for _ in range(30):
                    scalar.update(mine)
                    seen.append(scalar.get())
            except errors.InvalidStateError as error:
                assert "is closed" in str(error)  # noqa: PT017

        threads = [threading.Thread(target=use, args=(mine,)) for mine in (1, -2, 3)]
        for thread in threads:
            thread.start()
        start.wait()
        while len(seen) < 20 and any(thread.is_alive() for thread in threads):
            pass
        scalar.close()
        for thread in threads:
            thread.join()
        assert set(seen) <= {1, -2, 3}
        assert seen


def test_nothing_is_left_behind(fake: FakeCuda, stream: int) -> None:
    before = kinds_alive(fake)
    scalar = DeviceScalar(1, "float32", stream)
    assert scalar.get() == 1.0
    assert kinds_alive(fake) != before  # and the fixture checks that it goes
