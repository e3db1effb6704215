"""Pronk: IMPALA reinforcement learning, from a laptop to a cluster.

import pronk
summary = pronk.train("cartpole", ["run.seed=3"])  # or a Gymnasium id, or a class of environments
policy = pronk.load(summary["run"])
action = policy.act(observation)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pronk.config import Config, load_config
    from pronk.evaluation.playing import evaluate, load
    from pronk.starting import train

__version__ = "0.2.0"
__all__ = ["Config", "evaluate", "load", "load_config", "train"]

# Imported when first used: torch takes a second, and `pronk --help` does not need it.
# Modules are called `training` and `evaluation` because a submodule `train` would hide the function `pronk.train`.
_HOMES = {
    "Config": "config",
    "evaluate": "evaluation.playing",
    "load": "evaluation.playing",
    "load_config": "config",
    "train": "starting",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'pronk' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"pronk.{_HOMES[name]}"), name)
