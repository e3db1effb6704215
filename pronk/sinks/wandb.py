"""Weights & Biases. Its own environment variables decide where to: WANDB_PROJECT, WANDB_ENTITY, WANDB_MODE=offline, ...

A resumed training continues the same run there: its id is kept in the run directory. Where the service cannot be
reached, the run is kept in the run directory, for `wandb sync`.
"""

from __future__ import annotations

import os
import secrets
from typing import Any

from pronk.sinks.outside import Facts, numbers, remembered

# By default wandb waits 90 s or without limit, which would keep a finished training from ending.
SETTINGS = {"init_timeout": 8.0, "finish_timeout": 12.0}
QUIET = {"silent": True, "console": "off", "disable_code": True, "disable_git": True}


class WeightsAndBiases:
    """A `Sink`. Curves are drawn over environment steps."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self.problem: str | None = None

    def __enter__(self) -> WeightsAndBiases:
        known = self._facts.path / "wandb.id"
        identity = remembered(known) or secrets.token_hex(4)
        online = os.environ.get("WANDB_MODE", "online") == "online"
        try:
            if online and not has_account():
                raise ConnectionError("not logged in; see `wandb login`")
            self._run = self._init(identity)
        except Exception as error:  # wandb raises many kinds: of the network, of the account, of the service
            if not online:
                raise
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            self.problem = f"{reason}; kept in {self._facts.path / 'wandb'}, `wandb sync` sends it"
            identity = secrets.token_hex(4)  # the attempt before may still hold the other
            self._run = self._init(identity, mode="offline")
        known.write_text(identity + "\n")
        self._run.define_metric("*", step_metric="env_steps")
        return self

    def _init(self, identity: str, **options: Any) -> Any:
        import wandb

        known = {name: value for name, value in SETTINGS.items() if name in wandb.Settings.model_fields}
        return wandb.init(
            project=os.environ.get("WANDB_PROJECT", "pronk"),
            name=os.environ.get("WANDB_NAME", self._facts.name),
            dir=os.environ.get("WANDB_DIR", str(self._facts.path)),
            config=self._facts.config,
            id=identity,
            resume="allow",
            settings=wandb.Settings(**QUIET, **known),
            **options,
        )

    def __exit__(self, *exception: object) -> None:
        self._run.finish(exit_code=1 if exception[0] else 0)

    def write(self, line: dict[str, Any]) -> None:
        """One point of every curve."""
        self._run.log(numbers(line))

    def evaluated(self, line: dict[str, Any]) -> None:
        """One point of every curve of evaluations."""
        points = numbers(line)
        self._run.log({"env_steps": points.pop("env_steps"), **{f"eval/{name}": v for name, v in points.items()}})


def has_account() -> bool:
    """Whether an API key is stored. Never prompts, because a training is on the screen."""
    import wandb

    try:
        wandb.setup(settings=wandb.Settings(silent=True))
        return bool(wandb.login(prompt=False, verify=False))
    except TypeError:  # before 0.25 or so there is no way to keep it from asking
        return bool(wandb.api.api_key)
