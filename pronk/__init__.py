"""Pronk: IMPALA reinforcement learning, from a laptop to a cluster.

import pronk
summary = pronk.train(pronk.load_config("cartpole"))
policy = pronk.load(summary["run"])
action = policy.act(observation)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pronk.config import Config, load_config
    from pronk.evaluate import evaluate, load
    from pronk.train import train

__version__ = "0.1.0"
__all__ = ["Config", "evaluate", "load", "load_config", "train"]

# Imported when first used: torch takes a second, and `pronk --help` does not need it.
_HOMES = {"train": "train", "evaluate": "evaluate", "load": "evaluate", "Config": "config", "load_config": "config"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'pronk' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"pronk.{_HOMES[name]}"), name)
    globals()[name] = value  # the submodule of the same name would otherwise hide the function
    return value
