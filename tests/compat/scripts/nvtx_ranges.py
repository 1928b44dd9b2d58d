"""A script for the nvtx package, as its documentation writes them. `nvtx` is put in its globals."""

import threading


@nvtx.annotate(color="green")  # noqa: F821
def load(count):
    return list(range(count))


@nvtx.annotate("train", color="#ff8800", category="epoch", payload=7)  # noqa: F821
def train(data):
    with nvtx.annotate("forward", domain="model"):  # noqa: F821
        total = sum(data)
    nvtx.push_range("backward", color="red", payload=[1, 2, 3])  # noqa: F821
    nvtx.push_range("reduce", domain="comm")  # noqa: F821
    nvtx.pop_range(domain="comm")  # noqa: F821
    nvtx.pop_range()  # noqa: F821
    return total


def prefetch():
    range_id = nvtx.start_range("prefetch", color="blue")  # noqa: F821
    nvtx.mark("fetched", category="epoch")  # noqa: F821
    nvtx.end_range(range_id)  # noqa: F821


for _ in range(2):
    train(load(10))
thread = threading.Thread(target=prefetch)
thread.start()
thread.join()

domain = nvtx.get_domain("engine")  # noqa: F821
attributes = domain.get_event_attributes(message="step", category="loop")
domain.push_range(attributes)
domain.mark(domain.get_event_attributes(message="inside"))
domain.pop_range()
identifier = domain.start_range(domain.get_event_attributes(message="async step"))
domain.end_range(identifier)
try:
    with nvtx.annotate("fails"):  # noqa: F821
        raise KeyError("x")
except KeyError:
    nvtx.mark("caught")  # noqa: F821
