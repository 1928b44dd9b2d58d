"""A short run of graphed calls, to be watched by compute-sanitizer.

Fresh results, another shape, an argument that is written to, another layout, two streams, a failed
capture, and everything let go while the process goes on. Run it from the repository's root:
``compute-sanitizer --error-exitcode 9 python -m tests.gpu.support.sanitized_callable``.
"""

from __future__ import annotations

import contextlib
import gc

import torch

import gpuprof


def _in_place(values: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    values.add_(1)
    return values * by


def main() -> None:
    """Make the calls and compare their results."""
    sizes = (8, 12, 8, 8, 12, 16)
    fast = gpuprof.make_graphed_callable(
        _in_place, (torch.zeros(8, 8, device="cuda"), torch.ones(8, 8, device="cuda")), max_graphs=2
    )
    streams = [torch.cuda.Stream() for _ in range(2)]
    kept = []
    for step in range(18):
        size = sizes[step % len(sizes)]
        with torch.cuda.stream(streams[step % 2]):
            values = torch.full((size, size), float(step), device="cuda")
            by = torch.full((size, size), 2.0, device="cuda")
            kept.append((step, values, fast(values.t() if step % 3 == 0 else values, by)))
    torch.cuda.synchronize()
    for step, values, result in kept:
        assert torch.all(values == step + 1.0)
        assert torch.all(result == 2.0 * (step + 1))
    seen = fast.stats()
    assert (seen.replays, seen.eager_calls, seen.failures) == (18, 0, 0), seen
    with contextlib.suppress(RuntimeError):
        gpuprof.make_graphed_callable(lambda v: v * v[0].item(), (torch.ones(8, device="cuda"),))
    static = gpuprof.make_graphed_callable(
        torch.rand_like, (torch.ones(64, device="cuda"),), outputs="static"
    )
    drawn = [static(torch.ones(64, device="cuda")).clone() for _ in range(2)]
    assert not torch.equal(*drawn)
    del fast, static, kept
    gc.collect()
    torch.cuda.synchronize()
    print("all results are right")


if __name__ == "__main__":
    main()
