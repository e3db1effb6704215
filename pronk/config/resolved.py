"""`ResolvedConfig`: what one learner process and its actors run with. Every `auto` is decided.

    Config (of the whole run, some `auto`)  --resolve(config, rank)-->  ResolvedConfig (of one learner)
                                            --record(config, resolved)-->  Config for the run's config.yaml

With several learners, each resolves its own: its actors, its columns of the batch, its threads. All code that runs
takes a `ResolvedConfig`, in which every number is known and is this learner's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from pronk.config import plain_yaml
from pronk.config.automatic import decided
from pronk.config.config import Config, Document, check_batch
from pronk.config.errors import explain_validation_error
from pronk.config.host import GatewayConfig
from pronk.config.knobs import (
    ActorsConfig,
    CheckpointConfig,
    EnvConfig,
    EvaluationConfig,
    LearnerConfig,
    LossConfig,
    NetworkConfig,
    OptimiserConfig,
    ReplayConfig,
    RunConfig,
    TransportConfig,
)
from pronk.config.machine import available_cores
from pronk.config.section import Auto, Schedule
from pronk.config.trees import strings_in
from pronk.processes import session
from pronk.types import UserError

USUAL_ENVS = 16  # per actor, where it fits the batch
MOST_EVALUATION_ENVS = 64
# Learning from their pictures takes most of a step. Smaller networks gain nothing from more threads while actors play:
# dividing an update of 12 ms in two costs about as much as it gives (docs/results/atari.md).
HEAVY_TORSOS = ("deep",)


@dataclass(frozen=True)
class Rank:
    """Which learner of how many, over all machines and on this one."""

    rank: int = 0
    count: int = 1
    rank_here: int = 0
    count_here: int = 1


ONLY = Rank()  # a single learner


class ResolvedNetwork(NetworkConfig):
    """Observation -> policy and value."""

    separate_value: bool | Auto
    """`auto` where it depends on the observation, which the network sees first."""
    normalise: bool
    popart: bool
    layer_norm: bool


class ResolvedLoss(LossConfig):
    """Policy, values and batch -> a number to minimise."""

    discount: float
    entropy_cost: float
    barrier_cost: float = 0.0
    entropy_schedule: Schedule = "constant"
    max_kl: float | None = None


class ResolvedOptimiser(OptimiserConfig):
    """Gradient -> new weights."""

    learning_rate: float


class ResolvedActors(ActorsConfig):
    """The actors of this learner."""

    count: int
    """Actor processes of this learner."""
    envs: int
    unroll_length: int
    slots: int


class ResolvedLearner(LearnerConfig):
    """This learner."""

    batch_size: int
    """Columns per update of this learner: its share of the configured batch."""
    passes: Annotated[int, Field(gt=0, le=100)] | Literal["idle"]
    threads: int


class ResolvedEvaluation(EvaluationConfig):
    """The evaluator of this learner; only learner 0 has one."""

    envs: int


class ResolvedConfig(Document):
    """What one learner process and its actors run with. Every number is known, and is this learner's own."""

    rank: int
    """Which learner this is, from 0."""
    rank_here: int = 0
    """Which of the learners on this machine, from 0."""
    learners: int
    """How many learners there are."""
    env: EnvConfig
    network: ResolvedNetwork
    loss: ResolvedLoss
    optimiser: ResolvedOptimiser
    actors: ResolvedActors
    learner: ResolvedLearner
    replay: ReplayConfig
    """`size` is this learner's share."""
    transport: TransportConfig
    checkpoint: CheckpointConfig
    evaluation: ResolvedEvaluation
    run: RunConfig
    gateway: GatewayConfig

    @property
    def has_gateway(self) -> bool:
        """Whether actors come over the network: from other machines, or all of them with transport=grpc."""
        return self.gateway.address is not None or self.transport.name == "grpc"

    @classmethod
    def from_yaml(cls, text: str, source: str = "the configuration") -> ResolvedConfig:
        """Read what `to_yaml` wrote, possibly on another machine."""
        try:
            return cls.model_validate(plain_yaml.parse(text))
        except ValidationError as error:
            raise UserError(f"{source}: {explain_validation_error(error, cls)}") from None


def resolve(config: Config, rank: Rank = ONLY) -> ResolvedConfig:
    """Decide every `auto`, and take this learner's share of actors, batch, threads and ports.

    What can be known only later stays open: `learner.device` (needs torch), `env.vectorization` (the environment
    decides) and `gateway.max_actors` (depends on the size of an unroll).
    """
    config = decided(config)
    assert config.learner.batch_size != "auto"
    if config.learners.count == "auto":  # known only now, from torchrun or the like; `Config` assumed 1
        try:
            check_batch(config.learner.batch_size, rank.count, config.actors.envs)
        except ValueError as error:
            raise UserError(str(error)) from None
    columns = config.learner.batch_size // rank.count
    envs = config.actors.envs
    if envs == "auto":
        envs = USUAL_ENVS if columns % USUAL_ENVS == 0 or USUAL_ENVS % columns == 0 else columns
    count, threads = share_of_machine(config, rank)
    tree = config.model_dump(exclude={"description", "learners", "cluster"})
    tree |= {"rank": rank.rank, "rank_here": rank.rank_here, "learners": rank.count}
    tree["network"]["separate_value"] = has_separate_value(config.network)
    tree["actors"] |= {"count": count, "envs": envs}
    tree["learner"] |= {"batch_size": columns, "threads": threads}
    tree["replay"]["size"] = -(-config.replay.size // rank.count)
    tree["gateway"]["address"] = address_of_learner(config.gateway.address, rank.rank_here)
    tree["evaluation"]["enabled"] = config.evaluation.enabled and rank.rank == 0
    most = evaluation_envs(config.env, envs) if config.evaluation.envs == "auto" else config.evaluation.envs
    tree["evaluation"]["envs"] = environments_for(config.evaluation.episodes, len(config.env.each_task), most)
    return ResolvedConfig.model_validate(tree)


def record(config: Config, resolved: ResolvedConfig) -> Config:
    """Return the configuration to write to config.yaml: of all learners, with what was decided, loadable again.

    What belongs to a machine is left out, so that the file can be shared and the run resumed anywhere. With several
    learners, actors and threads depend on the machines, so they stay as configured.
    """
    changes: dict[str, Any] = {
        "network.separate_value": resolved.network.separate_value,
        "actors.envs": resolved.actors.envs,
    }
    if resolved.learners == 1:
        changes |= {"actors.count": resolved.actors.count, "learner.threads": resolved.learner.threads}
    if config.actors.count == 0:  # needs a gateway, which is not recorded: the file would not be valid by itself
        changes["actors.count"] = "auto"
    return config.without_host().replace(changes)


def check_resolved(config: ResolvedConfig) -> None:
    """Raise UserError for what can be configured but cannot be trained."""
    if config.has_gateway:
        refuse_session_names(config, "transport=grpc" if config.gateway.address is None else "gateway.address")
    if config.gateway.address is not None:
        if config.transport.name == "local":
            raise UserError("transport=local is one process; gateway.address needs transport=shared_memory")
        return
    actors, batch = config.actors, config.learner.batch_size
    check_tasks_fit(config)
    if actors.count == 0:
        raise UserError("actors.count=0 leaves no actor to play; set gateway.address, so that others can join")
    needed, room = batch // actors.envs, actors.count * actors.slots
    if config.transport.name != "local" and needed > room:
        raise UserError(
            f"learner.batch_size={batch} joins {needed} unrolls of {actors.envs} environments, but "
            f"actors.count={actors.count} with actors.slots={actors.slots} can have only {room} ready: raise one of "
            "these, or actors.envs"
        )


def check_same_tasks(before: Config, now: ResolvedConfig) -> None:
    """Raise UserError if a resumed run has other tasks: the network knows them by their position."""
    if before.env.task_names != now.env.task_names:
        names = ", ".join(before.env.task_names) or before.env.label
        raise UserError(f"env.tasks cannot change in a resumed run, which has {names}; start a new run")


def session_names(config: Config | ResolvedConfig) -> list[str]:
    """Return all `__main__:NAME`s of a configuration: environments, wrappers, networks and losses of a script."""
    return sorted({found for found in strings_in(config.model_dump()) if found.startswith(session.PREFIX)})


def refuse_session_names(config: Config | ResolvedConfig, where: str) -> None:
    """Raise UserError for what only this Python session has: code is not sent over the network."""
    if names := session_names(config):
        raise UserError(
            f"{where}: {names[0]} is defined in this script or notebook, whose code is not sent over the network; put "
            "it in a module of its own that every machine has"
        )


def runs_in_one_process(config: ResolvedConfig) -> bool:
    """Return whether a run starts no other process."""
    beside = config.evaluation.enabled or config.run.clip_every_steps is not None
    return config.transport.name == "local" and config.learners == 1 and not beside


def check_tasks_fit(config: ResolvedConfig) -> None:
    """Raise UserError if there are more tasks than environments to play them."""
    tasks, played = len(config.env.tasks), config.learners * config.actors.count * config.actors.envs
    if 0 < played < tasks:
        raise UserError(
            f"env.tasks: {tasks} tasks need as many environments, but actors.count={config.actors.count} with "
            f"actors.envs={config.actors.envs} makes {played}: raise one of these"
        )


def share_of_machine(config: Config, rank: Rank) -> tuple[int, int]:
    """Return this learner's number of actors and of its own threads.

    `auto` gives the cores of this machine to the actors of its learners, and what these leave to the learners' threads.
    With a heavy network the threads get all cores: most of the work is learning, and one thread would make actors wait.
    """
    in_one_thread, cores = config.transport.name == "local", available_cores()
    if config.actors.count != "auto":
        actors = deal(config.actors.count, rank.count, rank.rank)
        all_here = actors * rank.count_here
    else:
        actors = 1 if in_one_thread else deal(cores, rank.count_here, rank.rank_here)
        all_here = cores
    if config.learner.threads != "auto":
        return actors, config.learner.threads
    free = cores if config.network.torso in HEAVY_TORSOS else cores - all_here
    return actors, 1 if in_one_thread else max(1, free // rank.count_here)


def deal(things: int, among: int, index: int) -> int:
    """Return how many of `things` number `index` gets, if they are divided evenly; at least one, if there are any."""
    return max(min(1, things), things // among + (index < things % among))


def has_separate_value(network: NetworkConfig) -> bool | Auto:
    """Decide `network.separate_value` as far as it does not depend on the observation."""
    if network.separate_value != "auto":
        return network.separate_value
    return "auto" if network.torso in ("auto", "mlp") and network.core == "none" else False


def evaluation_envs(env: EnvConfig, envs_of_an_actor: int) -> int:
    """Return how many environments may play evaluation episodes side by side.

    Where each is a process (`async`), not more than an actor has.
    """
    return envs_of_an_actor if env.vectorization == "async" else MOST_EVALUATION_ENVS


def environments_for(episodes: int, tasks: int, most: int) -> int:
    """Return how many environments play so many episodes of each task: at most `most`, but one of each task."""
    return max(1, min(most // tasks, episodes)) * tasks


def address_of_learner(address: str | None, index: int) -> str | None:
    """Return where the `index`-th learner of a machine listens: each one port further. Port 0 is any free one."""
    host, _, port = (address or "").rpartition(":")
    return f"{host}:{int(port) + index}" if port.isdigit() and int(port) else address
