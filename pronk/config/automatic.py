"""Settings that follow from the environment: what `auto` means once its spaces are known.

    Config (some `auto`)  --decided(config, spec)-->  Config (every setting of the learning known)

The values were chosen on other seeds than those of the reported results (docs/results/against_sb3.md). Many small
updates learn fastest, as long as the policy stays close to the one that acted. Vectors are learnt from eight times, as
PPO does, images three times, because their networks are slower. Long unrolls carry a reward back many steps at once,
before the values have learnt of it; with shorter ones the policy has changed less when they are learnt from, so large
images have something in between, and fewer environments.
"""

from __future__ import annotations

from typing import Any

from pronk.config.config import Config
from pronk.config.encoders import describe, encoder_of, is_image
from pronk.types import EnvSpec, leaves

ALWAYS: dict[str, Any] = {"network.normalise": True, "network.popart": True}
RULES: dict[str, dict[str, Any]] = {
    "vectors": {"actors.envs": 32, "actors.unroll_length": 128, "optimiser.learning_rate": 1e-3},
    "small images": {"actors.envs": 16, "actors.unroll_length": 128, "optimiser.learning_rate": 1e-3},
    "images": {"actors.envs": 8, "actors.unroll_length": 64, "optimiser.learning_rate": 5e-4},
}
# If environments are slow, an actor gets fewer of them, and then shorter unrolls, until its first unroll takes less
# than this. Otherwise nothing would be learnt for minutes; and smaller batches learn more from each step.
MOST_SECONDS = 5.0
LEAST_ENVS, LEAST_LENGTH = 4, 32
WIDTHS = (4, 3, 2, 1)  # of a batch, in columns: the first that divides an actor's environments
# By kind of action. With choices, a limit on the KL divergence slows learning while there is most to learn: on Taxi the
# policy then never gets beyond avoiding all penalties.
ENTROPY_COSTS = {"choices": 0.01, "real numbers": 0.002}
MAX_KL = {"choices": None, "real numbers": 0.02}
# By loss. Without it Taxi is not learnt with four seeds of six: a pick-up in the wrong place is so costly that the
# policy forgets how to pick up at all. 0.01 learns it sooner, but costs a point of return at the end; 0.001 failed with
# one seed of four.
BARRIER_COSTS = {"appo": 0.003}
# By loss; constant otherwise, as in the paper. The costs of exploring fall at the end of a run, where precision pays:
# falling from the start, they leave FrozenLake8x8 and LunarLander too early.
EXPLORATION = {"appo": "late"}
# Where every episode is cut off by a time limit, nothing corrects the values of what would come after it. So the
# horizon, 1 / (1 - discount), is no longer than the limit: Reacher (50 steps) and simple_spread (25) learn better so.
DISCOUNT, LEAST_DISCOUNT = 0.99, 0.9
PASSES = {"vectors": 8, "small images": 3, "images": 3}  # with appo: its clipping bounds each change


def decided(config: Config, spec: EnvSpec | None = None) -> Config:
    """Return the configuration with every `auto` decided that depends on the environment.

    Without a spec, as for an environment of vectors and choices.
    """
    kind = kind_of(spec) if spec else "vectors"
    rules = ALWAYS | RULES[kind] | (for_slow(RULES[kind], spec) if spec else {})
    if config.learner.batch_size == "auto":
        # An actor has whole teams, or plays every task equally often.
        unit = max(spec.agents if spec else 1, len(config.env.tasks))
        rules["actors.envs"] = -(-rules["actors.envs"] // unit) * unit
        envs = rules["actors.envs"] if config.actors.envs == "auto" else config.actors.envs
        learners = 1 if config.learners.count == "auto" else config.learners.count
        rules["learner.batch_size"] = learners * next(width for width in WIDTHS if envs % width == 0)
    else:
        del rules["actors.envs"]  # they have to fit the batch: see resolved.py
    rules["learner.passes"] = PASSES[kind] if config.loss.name == "appo" else "idle"
    actions = "choices" if spec is None or spec.action.choices else "real numbers"
    rules |= {"loss.entropy_cost": ENTROPY_COSTS[actions], "loss.max_kl": MAX_KL[actions]}
    rules["loss.barrier_cost"] = BARRIER_COSTS.get(config.loss.name, 0.0)
    rules["loss.entropy_schedule"] = EXPLORATION.get(config.loss.name, "constant")
    rules["network.layer_norm"] = kind == "images"
    rules["loss.discount"] = discount_for(spec.time_limit if spec else 0)
    over_network = config.gateway.address is not None or config.transport.name == "grpc"
    never_idle = config.learner.passes == config.learner.batch_size == "auto" and not over_network
    rules["actors.slots"] = 1 if never_idle else 2
    return config.replace({path: value for path, value in rules.items() if config.at(path) == "auto"})


def discount_for(time_limit: int) -> float:
    """Return the discount factor for episodes of at most so many steps; 0: of any length."""
    return min(DISCOUNT, max(LEAST_DISCOUNT, 1 - 1 / time_limit)) if time_limit else DISCOUNT


def for_slow(rules: dict[str, Any], spec: EnvSpec) -> dict[str, int]:
    """Return how many environments an actor plays, and how long an unroll is: less than usual if they are slow."""
    envs, length = rules["actors.envs"], rules["actors.unroll_length"]

    def is_long() -> bool:
        return envs * (spec.reset_seconds + length * spec.step_seconds) > MOST_SECONDS

    while envs > LEAST_ENVS and is_long():
        envs //= 2
    while length > LEAST_LENGTH and is_long():
        length //= 2
    return {"actors.envs": envs, "actors.unroll_length": length}


def depends_on_environment(config: Config) -> bool:
    """Return whether any setting waits for the environment's spaces."""
    paths = ("actors.unroll_length", "learner.batch_size", "optimiser.learning_rate", "loss.entropy_cost")
    return any(config.at(path) == "auto" for path in paths)


def kind_of(spec: EnvSpec) -> str:
    """Return which of `RULES` an environment follows: by the largest picture in its observation."""
    pictures = [leaf for _, leaf in leaves(spec.observation) if is_image(leaf)]
    if not pictures:
        return "vectors"
    return "small images" if all(encoder_of(leaf) in ("small", "codes") for leaf in pictures) else "images"


def chosen(config: Config, spec: EnvSpec) -> str:
    """Describe in one line what a decided configuration chose, and for what."""
    settings = {
        "encoder": describe(spec.observation) if config.network.torso == "auto" else config.network.torso,
        "envs": config.actors.envs,
        "unroll_length": config.actors.unroll_length,
        "batch_size": config.learner.batch_size,
        "learning_rate": config.optimiser.learning_rate,
        "passes": config.learner.passes,
        "entropy_cost": config.loss.entropy_cost,
    }
    if config.loss.discount != DISCOUNT:
        settings["discount"] = f"{config.loss.discount:g}"
    kind = kind_of(spec)
    if for_slow(RULES[kind], spec).items() - RULES[kind].items():
        slow = {"step": spec.step_seconds, "reset": spec.reset_seconds}
        times = ", ".join(f"{seconds:.2g} s a {what}" for what, seconds in slow.items() if seconds)
        kind += f" of a slow environment ({times})"
    return f"settings for {kind}: " + ", ".join(f"{name} {value}" for name, value in settings.items())
