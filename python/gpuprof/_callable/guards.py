"""What a captured function reads besides its arguments, and whether it is still as it was.

A graph has parameters by their address and plain values by what they were: after `model.to()`,
`load_state_dict(assign=True)` or `scale = 2.0` it would go on with the old ones, without a word. So
each place that such a thing is read from is noted after the capture, with what was there. A call
looks at some of them; `Watched.moved` looks at all and names those that have changed.

Not seen are attributes of classes, hooks that were added to a module since, attributes whose names
the function does not name, what is deeper than a few objects in, and what other files have in their
globals.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpuprof._callable.places import Item, Notes, change_at
from gpuprof._callable.reads import Reads


class Watched:
    """The places that a function reads from, as they were when it was made.

    It keeps alive what it expects, and the memory that it lay in: a graph goes on reading that.

    Attributes
    ----------
    items : tuple of Item
    always : tuple of Item
        The few of them to look at on each call.
    names : tuple of str
        Of the items, in words.
    modules : tuple of torch.nn.Module
        Those that were found; not their submodules.
    keep : list
        What owns the memory.
    left_out : int
        How many places are not watched because they were too many.
    flagged : bool
        For who is told of a change by other means.
    """

    def __init__(self) -> None:
        self.items: tuple[Item, ...] = ()
        self.always: tuple[Item, ...] = ()
        self.names: tuple[str, ...] = ()
        self.modules: tuple[Any, ...] = ()
        self.keep: list[Any] = []
        self.left_out = 0
        self.flagged = False

    def moved(self) -> list[str]:
        """Return what is not as it was, each place with its name and what happened."""
        changes = []
        for item, name in zip(self.items, self.names, strict=True):
            change = change_at(item)
            if change is not None:
                changes.append(f"{name}: {change}")
        return changes


def collect(function: Callable[..., Any]) -> Watched:
    """Return what `function` reads besides its arguments, as it is now.

    Parameters
    ----------
    function : callable
        Of any kind. Found are the parameters, buffers, training flags and settings of modules, and
        the tensors, arrays and plain values in cells, defaults, partial arguments, globals and
        attributes that the function names.
    """
    notes = Notes()
    reads = Reads(notes)
    reads.callable(function)
    watched = Watched()
    watched.items = tuple(notes.items)
    watched.names = tuple(notes.names)
    watched.always = tuple(notes.always)
    watched.keep = notes.keep
    watched.left_out = notes.left_out
    watched.modules = tuple(reads.modules)
    return watched
