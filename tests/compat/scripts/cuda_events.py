"""A script for torch's events on two streams. `Event` is put in its globals."""

import json

import torch

x = torch.randn(2048, 2048, device="cuda")
side = torch.cuda.Stream()
y = x @ x
torch.cuda.synchronize()

start = Event(enable_timing=True)  # noqa: F821
middle = Event(enable_timing=True)  # noqa: F821
end = Event(enable_timing=True)  # noqa: F821
unused = Event()  # noqa: F821

start.record()
for _ in range(20):
    y = x @ x
middle.record()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    middle.wait()
    for _ in range(40):
        y = x @ x
    end.record()
waited = end.query()
end.synchronize()
first, second = start.elapsed_time(middle), middle.elapsed_time(end)
torch.cuda.current_stream().wait_stream(side)

print(
    json.dumps(
        {
            "done": [start.query(), middle.query(), end.query(), unused.query()],
            "waited": waited,
            "ratio": second / first,
            "first_ms": first,
            "backwards": end.elapsed_time(start) < 0,
            "handles": [bool(each.cuda_event) for each in (start, end)],
        }
    )
)
