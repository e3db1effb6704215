"""Every knob: its default, its unit and, where it has one, its source. `config.py` puts the sections together.

Sources: G.1 and D.3 are tables of the paper (arXiv 1802.01561).
"""

from __future__ import annotations

import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator, model_validator


def plain_data(value: Any) -> Any:
    """Only what YAML can carry to another process unchanged."""
    match value:
        case None | bool() | int() | float() | str() | datetime.date():
            return value
        case list():
            return [plain_data(part) for part in value]
        case dict():
            return {plain_data(key): plain_data(part) for key, part in value.items()}
    raise ValueError(f"{value!r} is a {type(value).__name__}; only numbers, strings, lists and dicts reach an actor")


def as_list(value: Any) -> Any:
    """One name is a list of one."""
    return [value] if isinstance(value, str) else value


Kwargs = Annotated[dict[str, Any], BeforeValidator(plain_data)]
Positive = Annotated[int, Field(gt=0)]
PositiveFloat = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Threads = Annotated[int, Field(gt=0, le=1024)]
Auto = Literal["auto"]


class Section(BaseModel):
    """Part of the configuration. Immutable; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_bool_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Python counts True as 1; a user does not."""
        if isinstance(value, bool) and "bool" not in str(cls.model_fields[str(info.field_name)].annotation):
            raise ValueError(f"{str(value).lower()} is not a number or a name")
        return value


class AtariConfig(Section):
    """Preprocessing of Atari games. The defaults are G.1's."""

    backend: Literal["ale", "envpool"] = "ale"
    """Who plays the games: ale-py's vector environment, or EnvPool (`pip install pronk[envpool]`). Both look alike to
    the agent except at the start of a game: no-ops before or after fire, a stack of black frames or of copies."""
    frame_skip: Positive = 4
    """Emulator frames per step; the last two are max-pooled."""
    stack: Positive = 4
    """Frames in an observation."""
    size: Positive = 84
    """Pixels per side."""
    grayscale: bool = True
    noops: Annotated[int, Field(ge=0)] = 30
    """A game begins with up to so many idle frames."""
    sticky: Fraction = 0.0
    """Probability that the last action is repeated instead (Machado et al. 2018: 0.25)."""
    full_actions: bool = False
    """All 18 actions instead of those the game uses."""
    life_loss_ends: bool = True
    """A lost life ends the episode for learning. The game goes on, and reported returns are of whole games."""
    fire_reset: bool = True
    """Press fire to begin, in games that wait for it."""
    max_frames: Positive = 108_000
    """Per game (30 minutes)."""


class EnvConfig(Section):
    """Which environment, and how many of them are stepped together."""

    id: str = "CartPole-v1"
    """A Gymnasium id, `module:Id`, a built-in (`catch`, `atari`), or `module:attribute` of your own."""
    game: str | None = None
    """Which Atari game (`pong`, `breakout`, `ms_pacman`, ...), with id `atari`."""
    atari: AtariConfig = AtariConfig()
    kwargs: Kwargs = {}
    """Handed to the environment's constructor."""
    vectorization: Literal["auto", "native", "sync", "async"] = "auto"
    """How N environments are stepped: `native` by the environment's own vector class, `sync` one after another in the
    actor, `async` in a process each. `auto`: native where there is one, else sync."""


class NetworkConfig(Section):
    """Observation -> policy and value."""

    name: str = "actor_critic"
    """`actor_critic`, or `module:attribute` of your own (see docs/architecture.md)."""
    torso: Literal["mlp", "shallow", "nature", "deep", "opt_cnn", "compact", "small"] = "mlp"
    """`mlp` for vectors. For images: `shallow` and `deep` of the paper, `nature` of DQN, `opt_cnn` of XingTian,
    `compact` for 42x42 frames, `small` for grids of a few cells (MinAtar, MiniGrid)."""
    standardise: bool = False
    """Shift and scale every picture to mean 0 and deviation 1. Frames are mostly one background; without it, a ball of
    a few pixels hardly shows in the sums, and Pong takes several times as long."""
    hidden: list[Positive] = [64, 64]
    """Widths of the MLP's layers."""
    activation: Literal["relu", "tanh"] = "tanh"
    separate_value: bool | Auto = "auto"
    """Policy and value each with a torso of their own, so that a large value loss cannot drown the policy; actors then
    run only the policy's half. `auto`: for an MLP without a core."""
    core: Literal["none", "lstm"] = "none"
    core_size: Positive = 256
    last_action: bool = False
    """Also see the last action, one-hot (paper: yes, with the LSTM)."""
    last_reward: bool = False
    """Also see the last reward, clipped to [-1, 1] (paper: yes, with the LSTM)."""
    kwargs: Kwargs = {}
    """Handed to a network of your own."""


class LossConfig(Section):
    """How off-policy data becomes a gradient."""

    name: str = "impala"
    """`impala`, or `module:attribute` of your own."""
    correction: Literal["vtrace", "one_step", "epsilon", "none"] = "vtrace"
    """The paper's comparison (section 5.2.2)."""
    rho_bar: PositiveFloat | None = 1.0
    """Clips the importance weight of the TD error; decides the fixed point. null: no clipping below 1e9. Paper: 1."""
    c_bar: PositiveFloat | None = 1.0
    """Clips the trace; decides only the speed. At most rho_bar. Paper: 1."""
    pg_rho_bar: PositiveFloat | None = 1.0
    """Clips the importance weight of the policy gradient. Paper: 1."""
    lambda_: Fraction = 1.0
    """Discounts the trace (remark 2 of the paper)."""
    discount: Fraction = 0.99
    """Per step. G.1: 0.99."""
    baseline_cost: NonNegative = 0.5
    """G.1: 0.5."""
    entropy_cost: NonNegative = 0.01
    """G.1: 0.01."""
    reduction: Literal["mean", "sum"] = "mean"
    """Over time and batch. The paper sums; a learning rate does not transfer between the two."""
    reward_clip: Literal["none", "abs_one", "soft_asymmetric"] = "none"
    """`abs_one`: to [-1, 1] (G.1). `soft_asymmetric`: 0.3 min(tanh r, 0) + 5 max(tanh r, 0) (DMLab-30)."""
    reward_scale: PositiveFloat = 1.0
    """Multiplies rewards before clipping, for learning only; reported returns stay raw."""
    kwargs: Kwargs = {}
    """Handed to a loss of your own."""

    @model_validator(mode="after")
    def _rho_is_at_least_c(self) -> LossConfig:
        rho, c = (float("inf") if bar is None else bar for bar in (self.rho_bar, self.c_bar))
        if rho < c:
            raise ValueError(f"rho_bar ({rho:g}) must be at least c_bar ({c:g}): V-trace's proof needs it")
        return self


class OptimiserConfig(Section):
    """Gradient -> new weights."""

    name: Literal["adam", "rmsprop", "rmsprop_tf"] = "adam"
    """`rmsprop_tf` is g / sqrt(v + epsilon) with v starting at 1, as in TensorFlow and the paper's code;
    `rmsprop` is PyTorch's g / (sqrt(v) + epsilon). Figures do not transfer between them."""
    learning_rate: PositiveFloat = 1e-3
    """G.1: 6e-4 with rmsprop_tf and sum."""
    schedule: Literal["constant", "linear"] = "linear"
    """`linear`: to zero at run.total_steps (G.1)."""
    epsilon: PositiveFloat = 1e-5
    """G.1: 0.01 with rmsprop_tf."""
    decay: Fraction = 0.99
    """Of RMSProp's mean square; the paper's code: 0.99."""
    momentum: Fraction = 0.0
    """Of RMSProp. G.1: 0."""
    max_gradient_norm: PositiveFloat | None = 0.5
    """Global norm. G.1: 40 with sum. null: no clipping."""


class ActorsConfig(Section):
    """Who plays."""

    count: Annotated[int, Field(ge=0, le=10_000)] | Auto = "auto"
    """Processes, of all learners together; every learner has at least one. `auto`: one per core. 0: only actors of
    other machines play (transport.address)."""
    envs: Annotated[int, Field(gt=0, le=100_000)] | Auto = "auto"
    """Environments per actor. `auto`: 16, or what divides learner.batch_size."""
    unroll_length: Annotated[int, Field(gt=0, le=100_000)] = 20
    """Steps per unroll. G.1: 20; D.3: 100."""
    slots: Annotated[int, Field(ge=1, le=64)] = 2
    """Unrolls an actor may be ahead of the learner: bounds memory and policy lag."""
    sync_every: Positive = 1
    """Unrolls between two pulls of the parameters. More than one saves network and adds lag. Paper: 1."""
    inference: Literal["local"] = "local"
    """Where actions are chosen. `local`: in each actor, with its own copy of the network."""
    threads: Threads = 1
    """Of torch, per actor process."""
    on_error: Literal["restart", "stop"] = "restart"
    """When an environment raises: start that actor anew, or end the run at once."""
    max_failures: Positive = 3
    """Failures of one actor in a row after which the run ends with the root cause."""
    timeout_seconds: PositiveFloat = 120.0
    """An actor that delivers nothing for so long, though it could, counts as hanging and is replaced."""


class LearnerConfig(Section):
    """Who learns."""

    batch_size: Annotated[int, Field(gt=0, le=1_000_000)] = 16
    """Columns (trajectories of unroll_length steps) per update, of all learners together. Each learner's part is a
    multiple or a divisor of actors.envs. G.1: 32."""
    passes: Annotated[int, Field(gt=0, le=100)] = 1
    """Updates made from each batch. More than one is lag on purpose, and V-trace corrects for it: worth it where
    playing costs more than learning. Paper: 1."""
    device: str = "auto"
    """`auto`: the first GPU (of several learners each its own), else the CPU."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Of the learner's matrix products and convolutions. `bfloat16` is for GPUs that have it: weights, loss and
    actors stay in float32."""
    compile: bool = False
    """Let torch.compile fuse the learner's network: for GPUs. It takes a minute first and gains nothing on a CPU."""
    threads: Threads | Auto = "auto"
    """Of torch, on the CPU. `auto`: the cores that the actors leave, at least one."""


class LearnersConfig(Section):
    """Several learners that act as one: each has actors of its own; at every update their gradients are added up."""

    count: Annotated[int, Field(gt=0, le=1024)] | Auto = "auto"
    """Learner processes. They divide learner.batch_size and actors.count between them, so that the run stays the same
    run. `auto`: WORLD_SIZE where torchrun or the like has set it, else 1."""
    rank: Annotated[int, Field(ge=0)] | None = None
    """Which learner this is, from 0, where each is started by itself. null: RANK where torchrun has set it; else this
    is learner 0, and starts the others on this machine."""
    address: str | None = None
    """HOST:PORT of learner 0, where each is started by itself. null: MASTER_ADDR and MASTER_PORT."""

    @model_validator(mode="after")
    def _rank_is_one_of_them(self) -> LearnersConfig:
        if self.rank is not None and self.count != "auto" and self.rank >= self.count:
            raise ValueError(f"rank ({self.rank}) must be below count ({self.count}): the first learner is 0")
        return self


class CheckpointConfig(Section):
    """What survives."""

    every_seconds: PositiveFloat = 60.0
    keep: Positive = 3
    """Newest checkpoints kept, besides the best."""


class EvaluationConfig(Section):
    """Whole episodes played beside the training, in a process of its own, with the newest weights."""

    enabled: bool = False
    """`pronk train --evaluate` sets it."""
    every_seconds: PositiveFloat = 10.0
    """How often an evaluation begins, if the one before it has ended. A checkpoint is saved for each."""
    episodes: Positive = 20
    """Whole ones, by their raw returns."""
    deterministic: bool = False
    """The likeliest actions, not sampled ones."""
    seed: Annotated[int, Field(ge=0)] = 1
    """Of the episodes. Every evaluation of a run plays the same ones; training and `pronk eval` never meet them."""
    envs: Annotated[int, Field(gt=0, le=100_000)] | Auto = "auto"
    """Environments that play them side by side. `auto`: one per episode, 64 at most."""
    final_seconds: NonNegative = 300.0
    """How long the end of a training waits for the evaluation of its last checkpoint."""


class RunConfig(Section):
    """When it ends, and where it is written."""

    total_steps: Positive = 1_000_000
    """Environment steps to train on (frames are this times the frame skip)."""
    total_seconds: PositiveFloat | None = None
    """End when this much wall time was spent training, over all resumes. null: no limit."""
    stop_return: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """End early when the mean return of the last 100 episodes reaches this. null: never."""
    seed: Annotated[int, Field(ge=0)] = 1
    log_every_seconds: PositiveFloat = 1.0
    video: bool = False
    """At the end, film an episode of the final policy: videos/final.mp4, or .gif without PyAV (pronk[video])."""
    sinks: Annotated[list[str], BeforeValidator(as_list)] = []
    """Where metrics go besides metrics.jsonl and TensorBoard: `wandb`, `mlflow` (`pip install pronk[wandb]`), or
    `module:attribute` of your own."""


class LaunchConfig(Section):
    """Where the learners and actors run."""

    name: Literal["local", "ray"] = "local"
    """`local`: on this machine. `ray`: where a Ray cluster has room for them; needs `pip install pronk[ray]`. For a
    list of machines over SSH there is `pronk launch`."""
    address: str | None = None
    """Of the Ray cluster: `auto` for the one that this machine belongs to, or HOST:PORT. null: the one that is running
    here or that RAY_ADDRESS names, else a new one on this machine."""
    learner_cpus: PositiveFloat = 1.0
    """Cores that Ray sets aside for each learner; also its threads, if learner.threads is `auto`."""
    learner_gpus: NonNegative | Auto = "auto"
    """For each learner. `auto`: one where the cluster has enough, unless learner.device says `cpu`."""
    actor_cpus: PositiveFloat = 1.0
    """For each actor. With actors.count=auto there are as many actors as the cluster has room for at any time."""


class TransportConfig(Section):
    """How unrolls and parameters travel."""

    name: Literal["shared_memory", "local", "grpc"] = "shared_memory"
    """Between the learner and its own actors. `local`: everything in one process and one thread, deterministic bit for
    bit. `grpc`: over this machine's network, as actors of other machines do."""
    address: str | None = None
    """HOST:PORT where `pronk actor HOST:PORT` can join from anywhere and at any time; port 0 takes a free one. Further
    learners of a machine take the ports after it. null: nowhere. See docs/cluster.md."""
    insecure: bool = False
    """Listen on an address that other machines reach without TLS or without a token."""
    certificate: str | None = None
    """The learner's certificate, a PEM file: turns TLS on."""
    private_key: str | None = None
    """Of the certificate, a PEM file."""
    client_ca: str | None = None
    """A PEM file: actors must show a certificate that one of these authorities signed."""
    token_file: str | None = None
    """Holds the token that actors must show. null: the environment's PRONK_TOKEN, or none."""
    compression: Literal["none", "lz4", "zstd"] = "none"
    """Of unrolls on the network; needs `pip install pronk[compression]` on both sides."""
    parameters_dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Of weights on the network. 16 bits halve what actors pull, and their policy then differs a little: V-trace
    corrects for it."""
    max_actors: Annotated[int, Field(gt=0, le=100_000)] | Auto = "auto"
    """Actors of other machines at a time. `auto`: 1,024, or as many as half of this machine's memory has slots for."""
    keepalive_seconds: Annotated[float, Field(ge=1, le=600)] = 8.0
    """Of silence, after which the other side is asked; it is gone if it does not answer for as long again."""

    @property
    def listens(self) -> bool:
        """Whether a gateway is needed."""
        return self.address is not None or self.name == "grpc"
