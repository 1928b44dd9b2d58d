"""What the pages on CuPy and Numba say of streams: whose stream a scope is on, on stand-ins."""

from __future__ import annotations

import pytest

from tests.support.torch_blocks import Run

# Torch, CuPy and Numba over one driver, each with a stream of its own. Torch's functions are looked
# up once a process, so each test has a process.
SETUP = """
from tests.support import stand_in_cupy, stand_in_torch
from gpuprof import Timer

class OldNumbaStream:
    # As Numba itself had it, without the protocol.
    def __init__(self, handle):
        self.handle = handle

    def __int__(self):
        return self.handle

class NumbaStream(OldNumbaStream):
    # As numba-cuda has it.
    def __cuda_stream__(self):
        return (0, self.handle)

def on(stream=None):
    # The stream on which a scope begins and ends.
    timer = Timer("cuda")
    timer.record_start(stream)
    timer.record_end()
    (handle,) = {*timer.streams}
    timer.close()
    return handle

theirs = [fake.stream_create() for _ in range(3)]
of_torch, of_cupy, of_numba = theirs
"""


@pytest.fixture
def check(in_cuda: Run) -> Run:
    return lambda body: in_cuda(SETUP + body)


def test_a_scope_is_on_the_current_stream_and_on_numbas_if_it_is_given(check: Run) -> None:
    check("""
numba = NumbaStream(of_numba)
assert on() == 0
assert on(numba) == of_numba
with stand_in_cupy.installed(fake, stream=of_cupy):
    assert on() == of_cupy
    assert on(numba) == of_numba
    world = stand_in_torch.install_on(fake)  # whose current stream is the default one
    assert on() == of_cupy
    world.current = world.torch.cuda.Stream(of_torch)
    assert on() == of_torch
    assert on(numba) == of_numba
    assert on(0) == 0  # a kernel of Numba's that was launched without a stream
""")


def test_the_streams_of_three_libraries_are_rows_of_one_table(check: Run) -> None:
    check("""
world = stand_in_torch.install_on(fake)
world.current = world.torch.cuda.Stream(of_torch)
with stand_in_cupy.installed(fake, stream=of_cupy) as cupy:
    with gpuprof.timer("all"):
        with gpuprof.timer("torch") as first:
            fake.kernel(of_torch, "gemm", 3_000_000)
        with gpuprof.timer("cupy", stream=cupy.cuda.get_current_stream()) as second:
            cupy.launch("add", 2_000_000)
        with gpuprof.timer("numba", stream=NumbaStream(of_numba)) as third:
            fake.kernel(of_numba, "jitted", 1_000_000)
    assert [round(sample.ms) for sample in (first, second, third)] == [3, 2, 1]
assert {row.path for row in gpuprof.stats().values()} == {
    "all", "all/torch", "all/cupy", "all/numba"
}
""")


@pytest.mark.parametrize("call", ["gpuprof.timer('a', stream=old)", "gpuprof.capture(old)"])
def test_an_older_numbas_stream_is_refused_and_its_number_is_taken(check: Run, call: str) -> None:
    check(f"""
old = OldNumbaStream(of_numba)
try:
    with {call}:
        raise AssertionError
except TypeError as error:
    assert "an object with __cuda_stream__" in str(error), error
assert on(int(old)) == of_numba
with gpuprof.capture(int(old)) as cap:
    fake.kernel(of_numba, "jitted", 1_000)
assert cap.graph.num_nodes == 1
cap.graph.close()
""")


def test_a_stream_without_a_scope_on_it_is_told_by_verify_stream(check: Run) -> None:
    check("""
try:
    with gpuprof.timer("add", stream=stream, verify_stream=True):
        fake.kernel(of_numba, "jitted", 5_000_000)
except gpuprof.StreamMismatchError:
    pass
else:
    raise AssertionError
with gpuprof.timer("add", stream=NumbaStream(of_numba), verify_stream=True):
    fake.kernel(of_numba, "jitted", 5_000_000)
""")
