"""GPU times on the host's clock agree with a correlation of its own.

``GPUPROF_TEST_TIMELINE_SECONDS`` sets how long the GPU is watched; drift shows after minutes.
"""

from __future__ import annotations

import os
import statistics
import threading

import pytest

from tests.gpu.support.alone import needs_the_gpu_alone
from tests.gpu.support.correlation import placed_spans, watch
from tests.gpu.support.kernels import MILLISECOND, Spin, device

_SECONDS = float(os.environ.get("GPUPROF_TEST_TIMELINE_SECONDS", "20"))
_ALLOWED_NS = 3000


def _report(title: str, found: list[tuple[int, int, float]]) -> None:
    differences = [difference for difference, _, _ in found]
    print(
        f"\n{title}: {len(found)} spans; timeline minus ping-pong, ns: "
        f"median {statistics.median(differences):.0f}, "
        f"from {min(differences)} to {max(differences)}; "
        f"stated error median {statistics.median(e for _, e, _ in found):.0f}, "
        f"most {max(e for _, e, _ in found)}; "
        f"error of the ping-pong median {statistics.median(o for _, _, o in found):.0f}, "
        f"most {max(o for _, _, o in found):.0f}"
    )


@needs_the_gpu_alone  # another process can have its turn between an event and the kernel's stamp
def test_the_timeline_agrees_with_a_ping_pong_and_goes_on_agreeing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = watch(_SECONDS)
    quarter = max(1, len(found) // 4)
    first = statistics.median(difference for difference, _, _ in found[:quarter])
    last = statistics.median(difference for difference, _, _ in found[-quarter:])
    with capsys.disabled():
        _report(f"an idle GPU for {_SECONDS:.0f} s", found)
        print(f"first quarter {first:.0f} ns, last quarter {last:.0f} ns")
    for difference, stated, own in found:
        assert abs(difference) <= _ALLOWED_NS + own
        assert abs(difference) <= stated + own
    assert abs(last - first) <= 1000


@needs_the_gpu_alone  # another process's turn between two records would be taken for an error
def test_beside_other_work_the_stated_error_holds(capsys: pytest.CaptureFixture[str]) -> None:
    streams = [device().stream() for _ in range(4)]
    spins = [Spin(device(), stream, 20 * MILLISECOND) for stream in streams]
    done = threading.Event()

    def keep_busy() -> None:
        device().make_current()
        while not done.is_set():
            for spin in spins:
                spin.launch()
            for stream in streams:
                device().synchronize(stream)

    thread = threading.Thread(target=keep_busy)
    thread.start()
    try:
        found = watch(5.0)
    finally:
        done.set()
        thread.join()
    with capsys.disabled():
        _report("beside four streams of work for 5 s", found)
    for difference, stated, own in found:
        assert abs(difference) <= stated + own


def test_no_span_begins_before_its_launch() -> None:
    for before, (begin, error) in placed_spans(200):
        assert begin + error >= before
