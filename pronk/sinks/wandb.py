"""Weights & Biases. Its own environment variables decide where to: WANDB_PROJECT, WANDB_ENTITY, WANDB_MODE=offline, ...

A resumed training goes on with the same run there: its id is kept in the run directory.
"""

from __future__ import annotations

import os
import secrets
from typing import Any

from pronk.sinks.outside import Facts, numbers, remembered


class WeightsAndBiases:
    """A `Sink`. Curves are drawn over environment steps."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def __enter__(self) -> WeightsAndBiases:
        import wandb

        facts, known = self._facts, self._facts.path / "wandb.id"
        identity = remembered(known) or secrets.token_hex(4)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "pronk"),
            name=os.environ.get("WANDB_NAME", facts.name),
            dir=os.environ.get("WANDB_DIR", str(facts.path)),
            config=facts.config,
            id=identity,
            resume="allow",
            settings=wandb.Settings(silent=True, console="off", disable_code=True, disable_git=True),
        )
        known.write_text(identity + "\n")
        self._run.define_metric("*", step_metric="env_steps")
        return self

    def __exit__(self, *exception: object) -> None:
        self._run.finish(exit_code=1 if exception[0] else 0)

    def write(self, line: dict[str, Any]) -> None:
        """One point of every curve."""
        self._run.log(numbers(line))

    def evaluated(self, line: dict[str, Any]) -> None:
        """One point of every curve of evaluations."""
        points = numbers(line)
        self._run.log({"env_steps": points.pop("env_steps"), **{f"eval/{name}": v for name, v in points.items()}})
