"""Whatever Python asks of a graph whose launch is blocked in the driver, other threads go on."""

from __future__ import annotations

from pathlib import Path

from tests.support.processes import check_cuda

# The process ends with a traceback of the call that kept the interpreter lock.
EVERY_NAME = """
import faulthandler
from tests.support.captures import graph_of
faulthandler.dump_traceback_later(20, exit=True)
graph, other = graph_of(fake, stream), graph_of(fake, stream)
bound = set(dir(_core.GraphBase)) - set(dir(object))
names = bound | {name for name in dir(graph) if not name.startswith("_")}
names -= {"_pybind11_conduit_v1_", "from_handles", "from_torch"}  # of the class
names -= {"_set_launch_order"}  # before other threads know the graph
needed = {
    "_add_copies": ([], []), "_lend_exec": (0,), "_note_use": (stream,), "_read_scalars": ((),),
    "_read_scalars_of": (stream,), "_retain": (("kept",),), "_times": (False,),
    "_update": (other, ()), "diff": (other,), "update": (other,),
}
mistaken, ended = [], []
def use(name):
    try:
        value = getattr(graph, name)
        if callable(value):
            value(*needed.get(name, ()))
    except TypeError as error:
        if "argument" in str(error):
            mistaken.append(f"{name}: {error}")
    except Exception:
        pass
    ended.append(name)
fake.script("cuGraphLaunch@1=0:block")
threads = [threading.Thread(target=lambda: (fake.set_current(context), graph.launch()))]
threads[0].start()
while not fake.report()["blocked_calls"]:
    time.sleep(0.001)
for name in sorted(names, key="close".__eq__):
    threads.append(threading.Thread(target=use, args=(name,)))
    threads[-1].start()
waiting = {"nodes", "num_nodes", "_walk", "_has_labels", "update", "launch", "close"}
assert waiting <= names and not waiting & set(ended), ended
fake.release()
for thread in threads:
    thread.join()
assert not mistaken, mistaken
print(set(ended) == names)
"""


def test_no_name_of_a_graph_keeps_the_interpreter_lock_beside_a_blocked_launch(
    fake_path: Path,
) -> None:
    assert check_cuda(fake_path, EVERY_NAME, GPUPROF_RELEASE_GIL="1") == "True\n"
