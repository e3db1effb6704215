"""Pronk: IMPALA reinforcement learning, from a laptop to a cluster.

Train, load, act:

    import pronk

    summary = pronk.train("cartpole", ["run.seed=3"])  # a preset, a Gymnasium id, a Config, your own class or function
    policy = pronk.load(summary["run"])
    action = policy.act(observation)  # one observation, or N of them
    decision = policy.decide(observation)  # action, log_prob, value, state

Watch or stop a run from your own code; a callback that returns False stops it:

    pronk.train(MyEnv, on_metrics=print, on_episode=lambda episode: episode["episode_return"] < 200)

Drive it yourself:

    with pronk.Trainer("LunarLander-v3") as trainer:
        while trainer.step(100):
            print(trainer.metrics["episode_return"])
            trainer.set("optimiser.learning_rate", 1e-4)

Measure:

    pronk.evaluate(summary["run"], 100).summary()

Settings are those of the command line: `pronk explain optimiser.learning_rate` explains one, `pronk show cartpole`
lists all. A mistake raises `pronk.UserError` with one line; a run that cannot continue raises `pronk.Failure` with the
cause.
"""

from __future__ import annotations

TYPE_CHECKING = False  # not typing's: __main__ sets up Ctrl-C after this module is imported, so it imports little
if TYPE_CHECKING:
    from typing import Any

    from pronk.config import Config, load_config
    from pronk.evaluation.playing import Evaluation, evaluate
    from pronk.evaluation.trained_policy import Decision, TrainedPolicy, load
    from pronk.starting import TrainingInterrupted, train
    from pronk.trainer import Trainer
    from pronk.types import Failure, UserError

__version__ = "0.2.0"
__all__ = [
    "Config",
    "Decision",
    "Evaluation",
    "Failure",
    "TrainedPolicy",
    "Trainer",
    "TrainingInterrupted",
    "UserError",
    "evaluate",
    "load",
    "load_config",
    "train",
]

# Imported when first used: torch takes a second, and `pronk --help` does not need it.
# Modules are called `training` and `evaluation` because a submodule `train` would hide the function `pronk.train`.
_HOMES = {
    "Config": "config",
    "Decision": "evaluation.trained_policy",
    "Evaluation": "evaluation.playing",
    "Failure": "types",
    "TrainedPolicy": "evaluation.trained_policy",
    "Trainer": "trainer",
    "TrainingInterrupted": "starting",
    "UserError": "types",
    "evaluate": "evaluation.playing",
    "load": "evaluation.trained_policy",
    "load_config": "config",
    "train": "starting",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'pronk' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"pronk.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
