"""Settings that follow from the environment: what `auto` means once its spaces are known.

    Config (some `auto`)  --decided(config, spec)-->  Config (every setting of the learning known)

Chosen on other seeds than those that are reported (docs/results/against_sb3.md). Small updates, many of them: what
counts is the number of updates per step, as long as the policy stays close to the one that acted. Vectors are learnt
from eight times, as PPO does; a network for images is slow, so it learns again only while it would wait. Long unrolls
let a reward reach back before the values know of it.
"""

from __future__ import annotations

from typing import Any

from pronk.config.config import Config
from pronk.config.encoders import describe, is_image
from pronk.types import EnvSpec, leaves

USUAL_COLUMNS = 16  # of an actor, where they must be whole teams of agents
ALWAYS: dict[str, Any] = {"network.normalise": True, "network.popart": True}
VECTORS: dict[str, Any] = {"actors.unroll_length": 128, "learner.batch_size": 4, "optimiser.learning_rate": 1e-3}
PASSES = 8  # over vectors, with a loss that bounds how far they lead
IMAGES: dict[str, Any] = {"actors.unroll_length": 20, "learner.batch_size": 4, "optimiser.learning_rate": 5e-4}


def decided(config: Config, spec: EnvSpec | None = None) -> Config:
    """Return the configuration with every `auto` decided that depends on the environment.

    Without a spec, as for an environment of vectors and choices.
    """
    if spec and spec.agents > 1 and config.actors.envs == config.learner.batch_size == "auto":
        config = config.replace({"actors.envs": -(-USUAL_COLUMNS // spec.agents) * spec.agents})
    images = spec is not None and sees_images(spec)
    rules = ALWAYS | (IMAGES if images else VECTORS)
    if config.loss.name == "appo" and not images:
        rules["learner.passes"] = PASSES
    over_network = config.gateway.address is not None or config.transport.name == "grpc"
    never_idle = config.learner.passes == config.learner.batch_size == "auto" and not over_network
    rules["actors.slots"] = 1 if never_idle else 2
    learners = 1 if config.learners.count == "auto" else config.learners.count
    rules["learner.batch_size"] *= learners
    if isinstance(config.actors.envs, int):  # whole unrolls in a batch, or whole batches in an unroll
        share = next(width for width in (4, 3, 2, 1) if config.actors.envs % width == 0)
        rules["learner.batch_size"] = share * learners
    return config.replace({path: value for path, value in rules.items() if config.at(path) == "auto"})


def depends_on_environment(config: Config) -> bool:
    """Return whether any setting waits for the environment's spaces."""
    return any(config.at(path) == "auto" for path in VECTORS)


def sees_images(spec: EnvSpec) -> bool:
    """Return whether any entry of the observation is a picture."""
    return any(is_image(leaf) for _, leaf in leaves(spec.observation))


def chosen(config: Config, spec: EnvSpec) -> str:
    """Describe in one line what a decided configuration chose, and for what."""
    seen = "images" if sees_images(spec) else "vectors"
    settings = {
        "encoder": describe(spec.observation) if config.network.torso == "auto" else config.network.torso,
        "unroll_length": config.actors.unroll_length,
        "batch_size": config.learner.batch_size,
        "learning_rate": config.optimiser.learning_rate,
        "passes": config.learner.passes,
    }
    return f"settings for {seen}: " + ", ".join(f"{name} {value}" for name, value in settings.items())
