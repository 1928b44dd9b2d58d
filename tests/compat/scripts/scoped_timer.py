"""A script for Warp's timers, as its examples write them. `ScopedTimer` is put in its globals."""

import json

times = {}
for _ in range(3):
    with ScopedTimer("step", dict=times):  # noqa: F821
        with ScopedTimer("simulate", dict=times):  # noqa: F821
            total = sum(range(20_000))
        with ScopedTimer("render", dict=times, synchronize=True) as timer:  # noqa: F821
            timer.extra_msg = "(frame)"
with ScopedTimer("quiet", print=False, dict=times) as quiet:  # noqa: F821
    total += 1
with ScopedTimer("off", active=False, dict=times):  # noqa: F821
    total += 1
try:
    with ScopedTimer("fails", dict=times):  # noqa: F821
        raise KeyError("x")
except KeyError:
    pass
with ScopedTimer("named", use_nvtx=True, color="cyan"):  # noqa: F821
    pass

shape = {name: len(values) for name, values in times.items()}
ordered = all(step >= part for step, part in zip(times["step"], times["simulate"], strict=True))
print(json.dumps({"shape": shape, "ordered": ordered, "elapsed": quiet.elapsed > 0}))
