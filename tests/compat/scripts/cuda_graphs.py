"""A script for torch's graphs: capture, replay, a shared pool. `torch_cuda` has the names."""

import json

import torch

static = torch.zeros(1024, device="cuda")
model = torch.nn.Linear(1024, 1024, device="cuda")

stream = torch.cuda.Stream()
stream.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(stream), torch.no_grad():
    for _ in range(3):
        model(static)
torch.cuda.current_stream().wait_stream(stream)

g = torch_cuda.CUDAGraph()  # noqa: F821
with torch.no_grad(), torch_cuda.graph(g):  # noqa: F821
    hidden = model(static)
h = torch_cuda.CUDAGraph()  # noqa: F821
with torch.no_grad(), torch_cuda.graph(h, pool=g.pool(), capture_error_mode="thread_local"):  # noqa: F821
    out = torch.relu(hidden).sum()

right = []
for seed in range(3):
    torch.manual_seed(seed)
    batch = torch.randn(1024, device="cuda")
    static.copy_(batch)
    g.replay()
    h.replay()
    with torch.no_grad():
        expected = torch.relu(model(batch)).sum()
    right.append(bool(torch.allclose(out, expected, rtol=1e-4)))

own = torch.cuda.Stream()
k = torch_cuda.CUDAGraph()  # noqa: F821
torch.cuda.synchronize()
with torch_cuda.graph(k, stream=own):  # noqa: F821
    inside = torch.cuda.current_stream() == own
    static.add_(1)
before = static.clone()
k.replay()
k.replay()
torch.cuda.synchronize()
added = bool(torch.equal(static, before + 1 + 1))  # rounded as each replay rounds

j = torch_cuda.CUDAGraph()  # noqa: F821
with torch.cuda.stream(own):
    j.capture_begin()
    static.mul_(2)
    j.capture_end()
before = static.clone()
j.replay()
torch.cuda.synchronize()
doubled = bool(torch.equal(static, before * 2))
for each in (g, h, k, j):
    each.reset()
print(json.dumps({"right": right, "inside": inside, "added": added, "doubled": doubled}))
