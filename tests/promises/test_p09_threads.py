"""P9: scopes and statistics may be used from any threads at once, from finalizers and signal
handlers too. Each case in its own process.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.processes import check_cuda


def test_a_signal_handler_and_finalizers_may_use_gpuprof(fake_path: Path) -> None:
    out = check_cuda(
        fake_path,
        """
        import gc, signal
        gc.set_threshold(1)
        class Finalized:
            def __init__(self):
                self.cycle = self
            def __del__(self):
                with scope:
                    pass
                gpuprof.stats(wait=False)
        handled = 0
        def handler(number, frame):
            global handled
            handled += 1
            with gpuprof.timer("signal", stream=stream), gpuprof.timer("deep", backend="cpu"):
                gpuprof.stats(wait=False)
            # Again only now: a handler slower than its interval would never come to an end.
            if handled < 50:
                signal.setitimer(signal.ITIMER_REAL, 0.001)
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.001)
        entered = 0
        while handled < 50:
            Finalized()
            with scope as outer, gpuprof.timer("inner", backend="cpu") as inner:
                entered += 1
            assert inner.state == "done" and outer.host_ms >= inner.host_ms
        gc.set_threshold(700)
        with gpuprof.timer("after", backend="cpu") as after:
            pass
        assert after.path == "after"
        gpuprof.flush()
        print(gpuprof.stats()["step"].gpu.count >= entered)
        """,
    )
    assert out.strip() == "True"
