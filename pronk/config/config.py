"""`Config`: what a user asks for. The sections of `knobs.py` put together, and checks across sections.

`loading.py` makes one from a preset, a YAML file and overrides; `resolved.py` decides what is still `auto`.
"""

from __future__ import annotations

from typing import Any, Self

from pydantic import model_validator

from pronk.config import plain_yaml
from pronk.config.host import ClusterConfig, GatewayConfig
from pronk.config.knobs import (
    ActorsConfig,
    CheckpointConfig,
    EnvConfig,
    EvaluationConfig,
    LearnerConfig,
    LearnersConfig,
    LossConfig,
    NetworkConfig,
    OptimiserConfig,
    ReplayConfig,
    RunConfig,
    TransportConfig,
)
from pronk.config.section import Section
from pronk.config.trees import assign


class Document(Section):
    """Sections that are written to YAML together."""

    def replace(self, changes: dict[str, Any]) -> Self:
        """Return a copy with some `section.key`s changed, validated again."""
        tree = self.model_dump()
        for path, value in changes.items():
            assign(tree, path, value)
        return type(self).model_validate(tree)

    def at(self, path: str) -> Any:
        """Return the value of a `section.key`."""
        section, _, key = path.partition(".")
        return getattr(getattr(self, section), key)

    def to_yaml(self) -> str:
        """Return the YAML text of every section and key."""
        return plain_yaml.dump(self.model_dump())


class Config(Document):
    """A run as the user asked for it. Sizes are those of all learners together; some may still be `auto`."""

    description: str = ""
    env: EnvConfig = EnvConfig()
    network: NetworkConfig = NetworkConfig()
    loss: LossConfig = LossConfig()
    optimiser: OptimiserConfig = OptimiserConfig()
    actors: ActorsConfig = ActorsConfig()
    learner: LearnerConfig = LearnerConfig()
    replay: ReplayConfig = ReplayConfig()
    learners: LearnersConfig = LearnersConfig()
    transport: TransportConfig = TransportConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    run: RunConfig = RunConfig()
    gateway: GatewayConfig = GatewayConfig()
    cluster: ClusterConfig = ClusterConfig()

    @model_validator(mode="after")
    def _check_sections_together(self) -> Config:
        if self.network.separate_value is True and self.network.core != "none":
            raise ValueError("network.separate_value=true needs network.core=none: the two would need a state each")
        learners = 1 if self.learners.count == "auto" else self.learners.count
        if self.learner.batch_size != "auto":
            check_batch(self.learner.batch_size, learners, self.actors.envs)
        return self

    def without_host(self) -> Config:
        """Return a copy with defaults for what belongs to a machine or to one start of a run.

        These are addresses, TLS files, which learner this is, and where to pause.
        """
        learners = {"count": self.learners.count}
        return self.replace({"gateway": {}, "cluster": {}, "learners": learners, "run.pause_steps": None})

    def to_shared_yaml(self) -> str:
        """Return the YAML text without what belongs to a machine: for a run's config.yaml, or to publish."""
        host: Any = {"gateway": True, "cluster": True, "learners": {"rank", "address"}}
        return plain_yaml.dump(self.model_dump(exclude=host))


def check_batch(batch_size: int, learners: int, envs: int | str) -> None:
    """Raise ValueError unless a batch divides among the learners, and each share into whole unrolls (or an unroll into
    whole batches). `envs` may be `auto`.
    """
    columns, rest = divmod(batch_size, learners)
    if rest or not columns:
        raise ValueError(
            f"learner.batch_size ({batch_size}) must be a multiple of learners.count ({learners}): "
            f"try learner.batch_size={(columns + 1) * learners}"
        )
    if isinstance(envs, int) and envs % columns and columns % envs:
        share = "learner.batch_size" if learners == 1 else "learner.batch_size / learners.count"
        raise ValueError(
            f"{share} ({columns}) must be a multiple or a divisor of actors.envs ({envs}): "
            f"try learner.batch_size={envs * learners}"
        )
