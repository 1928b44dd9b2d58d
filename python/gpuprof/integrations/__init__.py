"""gpuprof inside of other frameworks, a module for each.

- `dataloader`: waits for batches of torch's `DataLoader`, and what its workers do
- `lightning`: a callback for PyTorch Lightning
- `transformers`: a callback for the Trainer of Hugging Face

Each is imported when it is first named, and only then the framework with it. See
docs/integrations/index.md.
"""

from __future__ import annotations

import importlib
import pkgutil

import gpuprof._startup  # noqa: F401 (a program may import nothing but this package)


def __getattr__(name: str) -> object:
    if name not in __dir__():
        known = ", ".join(__dir__())
        message = f"module 'gpuprof.integrations' has no attribute {name!r}; it has {known}"
        raise AttributeError(message)
    return importlib.import_module(f"gpuprof.integrations.{name}")


def __dir__() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(__path__))
